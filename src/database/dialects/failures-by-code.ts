import type { Failure } from '../../model/failures.js';

/** @param codes of each failure, with spaces between them. */
export function failuresByCode(codes: Partial<Record<Failure, string>>): Readonly<Record<string, Failure>> {
  const failures = Object.keys(codes) as Failure[];
  return Object.fromEntries(
    failures.flatMap((failure) => (codes[failure] ?? '').split(/\s+/).map((code) => [code, failure] as const)),
  );
}
