import { inspect, isDeepStrictEqual } from 'node:util';

/**
 * Compares what JSON makes of two values.
 *
 * @param what the value is, for the error.
 * @throws Error with both, where they differ.
 */
export function same(actual: unknown, expected: unknown, what: string): void {
  const [is, shouldBe] = [plain(actual), plain(expected)];
  if (isDeepStrictEqual(is, shouldBe)) return;
  throw new Error(`${what} should be ${shown(shouldBe)}, and is ${shown(is)}.`);
}

/** @throws Error with the words, unless it is so. */
export function holds(isSo: boolean, words: string): void {
  if (!isSo) throw new Error(words);
}

/**
 * @param call what should fail.
 * @throws Error unless it fails with such a message.
 */
export async function refuses(call: Promise<unknown>, message: RegExp, what: string): Promise<void> {
  const [outcome] = await Promise.allSettled([call]);
  if (outcome.status === 'fulfilled') throw new Error(`${what} should fail, and did not.`);
  fails(outcome.reason, message, what);
}

/** @throws Error unless what was thrown has such a message. */
export function fails(error: unknown, message: RegExp, what: string): void {
  const is = error instanceof Error ? error.message : shown(error);
  holds(message.test(is), `${what} should fail with ${String(message)}, and failed with: ${is}`);
}

/** What JSON makes of a value. */
export function plain(value: unknown): unknown {
  const text: string | undefined = JSON.stringify(value);
  return text === undefined ? undefined : JSON.parse(text);
}

const shown = (value: unknown) => inspect(value, { depth: 6, breakLength: Infinity, maxArrayLength: 20 });
