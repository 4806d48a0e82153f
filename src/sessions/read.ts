import type { Event, GetSessionRequest, Session } from '@google/adk';
import {
  readSession,
  readSince,
  readTurns,
  type ReadEvents,
  type StateValue,
} from '../database/statements/session-reader.js';
import { stateOfScope } from '../database/statements/state.js';
import type { Undecodable } from '../model/stored-texts.js';
import type { Damage } from '../model/errors.js';
import { decode, decodeEvent } from '../model/json.js';
import { checkKeys, isIncomplete } from '../model/keys.js';
import { rangesOf, type SeqRange } from '../model/seq-ranges.js';
import { prefixed, setOwn } from '../model/state.js';
import { handleOf } from './handle.js';
import type { SessionCalls } from './session-calls.js';

/** @param operation the name of the call in errors. @throws DamagedSessionError with `onDamagedEvent: 'throw'`. */
export async function getSession(
  calls: SessionCalls,
  { appName, userId, sessionId, config }: GetSessionRequest,
  operation: string,
): Promise<Session | undefined> {
  const key = { appName, userId, sessionId };
  // Not an error: the Runner itself reports the missing name if it gets no session.
  if (isIncomplete(key)) return undefined;
  checkKeys(key);
  const given = config?.numRecentEvents ?? undefined;
  const newest = (given ?? calls.options.defaultNumRecentEvents) || undefined;
  const afterTimestamp = config?.afterTimestamp || undefined;
  const found = await calls.read(operation, key, (sql) => {
    if (afterTimestamp !== undefined) return readSince(sql, key, afterTimestamp, newest);
    const isExact = given !== undefined || newest === undefined;
    return isExact ? readSession(sql, key, newest) : readTurns(sql, key, newest);
  });
  if (!found) return undefined;
  const [state, events] = [readState(found.state), readEvents(found)];
  calls.refuseDamage(key, events.damaged, state.damaged);
  return handleOf(key, found, state.value, events.value);
}

/** @param owner an app or a user. */
export async function getState(
  calls: SessionCalls,
  owner: { appName: string; userId?: string },
  scope: 'user' | 'app',
  operation: string,
): Promise<Record<string, unknown>> {
  checkKeys(owner);
  const key = { userId: '', sessionId: '', ...owner };
  const state = readState(await calls.read(operation, owner, (sql) => stateOfScope(sql, key, scope)));
  calls.refuseDamage(key, state.damaged);
  return state.value;
}

/** The contents of a session's rows, and which rows could not be read, if there are any. */
export interface Readable<T> {
  value: T;
  damaged: Damage | undefined;
}

/**
 * Merges the state of session, user and app, as agents see it.
 *
 * @param value the object that gets the state.
 */
export function readState(
  values: readonly StateValue[],
  value: Record<string, unknown> = {},
): Readable<Record<string, unknown>> {
  const stateKeys: string[] = [];
  const undecodable: Undecodable[] = [];
  for (const { scope, key, json, undecodable: reason } of values) {
    const decoded = decode(json);
    if (decoded) setOwn(value, prefixed(scope, key), decoded.value);
    else stateKeys.push(prefixed(scope, key));
    if (reason) undecodable.push(reason);
  }
  if (stateKeys.length === 0) return { value, damaged: undefined };
  return { value, damaged: { events: [], stateKeys, encodings: encodingsOf(undecodable) } };
}

export function readEvents({ events, missing, uncounted }: ReadEvents): Readable<Event[]> {
  const value: Event[] = [];
  const unreadable: number[] = [];
  const undecodable: Undecodable[] = [];
  for (const { seq, json, undecodable: reason } of events) {
    const event = decodeEvent(json);
    if (event) value.push(event);
    else unreadable.push(seq);
    if (reason) undecodable.push(reason);
  }
  if (missing.length + unreadable.length + uncounted.length === 0) return { value, damaged: undefined };
  const of = (problem: Damage['events'][number]['problem']) => (range: SeqRange) => ({ ...range, problem });
  const damaged = [
    ...missing.map(of('missing')),
    ...rangesOf(unreadable).map(of('unreadable')),
    ...rangesOf(uncounted.map(({ seq }) => seq)).map(of('uncounted')),
  ];
  return {
    value,
    damaged: { events: damaged.sort((a, b) => a.from - b.from), stateKeys: [], encodings: encodingsOf(undecodable) },
  };
}

export const encodingsOf = (undecodable: readonly Undecodable[]): string[] => [
  ...new Set(undecodable.map(({ encoding }) => encoding)),
];
