export const DAY_MS = 86_400_000;

/** @returns the day of a time in ms, in UTC, such as `2026-11-26`. */
export const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

export function isDay(value: unknown): boolean {
  const ms = typeof value === 'string' ? Date.parse(value) : NaN;
  return !Number.isNaN(ms) && dayOf(ms) === value;
}
