import type { Session } from '@google/adk';
import { inspect, isDeepStrictEqual } from 'node:util';

/**
 * Compares two values as JSON.
 *
 * @param what the name of the value in the error.
 * @throws Error with both, if they differ.
 */
export function same(actual: unknown, expected: unknown, what: string): void {
  const [is, shouldBe] = [plain(actual), plain(expected)];
  if (isDeepStrictEqual(is, shouldBe)) return;
  throw new Error(`${what} should be ${shown(shouldBe)}, and is ${shown(is)}.`);
}

/** @throws Error with this message, unless the condition holds. */
export function holds(isSo: boolean, words: string): asserts isSo {
  if (!isSo) throw new Error(words);
}

/** What the caller asked for is not possible. */
export class UsageError extends RangeError {}

/** Thrown by a rule that cannot judge the service. */
export class CannotJudge extends Error {}

/**
 * @param call the call that should fail.
 * @param what the name of the call in the error.
 * @throws Error unless it fails, and with a matching message if one is given.
 */
export async function refuses(call: Promise<unknown>, what: string, message = /^/): Promise<void> {
  const [outcome] = await Promise.allSettled([call]);
  if (outcome.status === 'fulfilled') throw new Error(`${what} should fail, and did not.`);
  fails(outcome.reason, what, message);
}

/** @throws Error unless the message of the thrown value matches. */
export function fails(error: unknown, what: string, message: RegExp): void {
  const is = messageOf(error);
  holds(message.test(is), `${what} should fail with ${String(message)}, and failed with: ${is}`);
}

/** @throws Error if the printed error contains one of the secrets, or a statement of SQL. */
export function discreet(error: unknown, secrets: readonly string[]): void {
  const printed = [messageOf(error), String(error), inspect(Object.entries(error ?? {}), { depth: 6 })].join('\n');
  const found = secrets.filter((secret) => printed.includes(secret));
  holds(found.length === 0, `An error should not contain ${found.join(', ')}, and is: ${printed}`);
  const isSql = /\b(insert into|select .* from|update .* set|delete from|values \()/i.test(printed);
  holds(!isSql, `An error should not contain SQL, and is: ${printed}`);
}

/**
 * Remembers a session object.
 *
 * @returns a function that throws an Error unless the object, its state and its events are the same, with the same contents.
 */
export function remember(session: Session): () => void {
  const { state, events } = session;
  const objects = [...events];
  const content = plain(session);
  return () => {
    holds(session.state === state, "The state of the caller's session should stay the same object.");
    holds(session.events === events, "The events of the caller's session should stay the same list.");
    same(session, content, "The caller's session");
    for (const [i, event] of objects.entries())
      holds(events[i] === event, 'An event that was there should stay the same object.');
  };
}

/**
 * Waits until every call has ended, so that none runs while the next rule begins.
 *
 * @returns their results.
 * @throws the error of the first one that failed.
 */
export async function all<T>(calls: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(calls);
  return Promise.all(calls);
}

/** The value after encoding and decoding as JSON. */
export function plain(value: unknown): unknown {
  const text: string | undefined = JSON.stringify(value);
  return text === undefined ? undefined : JSON.parse(text);
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : shown(error));

const shown = (value: unknown) =>
  inspect(value, { depth: 6, breakLength: Infinity, maxArrayLength: 20, maxStringLength: 1_000 });
