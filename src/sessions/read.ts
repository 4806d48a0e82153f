import type { StateValue } from '../database/sql/values.js';
import type { Event, GetSessionRequest, Session } from '@google/adk';
import { readSession, readSince, readTurns } from './session-reader.js';
import { writtenState } from '../database/statements/state.js';
import type { Undecodable } from '../model/stored-texts.js';
import type { Damage } from '../model/errors.js';
import { decode, decodeEvent } from '../model/json.js';
import { checkKeys, isIncomplete } from '../model/keys.js';
import { rangesOf, type SeqRange } from '../model/seq-ranges.js';
import { prefixed, setOwn } from '../model/state.js';
import { handleOf } from './handle.js';
import type { ServiceContext } from './service-context.js';

/** @param operation the name of the call in errors. @throws DamagedSessionError with `onDamagedEvent: 'throw'`. */
export async function getSession(
  service: ServiceContext,
  { appName, userId, sessionId, config }: GetSessionRequest,
  operation: string,
): Promise<Session | undefined> {
  const key = { appName, userId, sessionId };
  // Not an error: the Runner itself reports the missing name if it gets no session.
  if (isIncomplete(key)) return undefined;
  checkKeys(key);
  const given = config?.numRecentEvents ?? undefined;
  const newest = (given ?? service.options.defaultNumRecentEvents) || undefined;
  const afterTimestamp = config?.afterTimestamp || undefined;
  const found = await service.read(operation, key, (sql) => {
    if (afterTimestamp !== undefined) return readSince(sql, key, afterTimestamp, newest);
    const isExact = given !== undefined || newest === undefined;
    return isExact ? readSession(sql, key, newest) : readTurns(sql, key, newest);
  });
  if (!found) return undefined;
  const [state, events] = [readableState(found.state), readableEvents(found)];
  service.refuseDamage(key, events.damaged, state.damaged);
  return handleOf(key, found, state.value, eventsOf(events));
}

/** @param owner an app or a user. */
export async function getState(
  service: ServiceContext,
  owner: { appName: string; userId?: string },
  scope: 'user' | 'app',
  operation: string,
): Promise<Record<string, unknown>> {
  checkKeys(owner);
  const key = { userId: '', sessionId: '', ...owner };
  const state = readableState(await service.read(operation, owner, (sql) => writtenState(sql, key, scope)));
  service.refuseDamage(key, state.damaged);
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
export function readableState(
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

interface StoredContent {
  seq: number;
  json: string | null | undefined;
  undecodable?: Undecodable | undefined;
}

/** @returns the events without their rows. */
export const eventsOf = ({ value }: Readable<readonly { event: Event }[]>): Event[] => value.map(({ event }) => event);

export function readableEvents<Row extends StoredContent>({
  events,
  missing,
  uncounted = [],
}: {
  events: readonly Row[];
  missing: readonly SeqRange[];
  uncounted?: readonly { seq: number }[];
}): Readable<(Row & { event: Event })[]> {
  const value: (Row & { event: Event })[] = [];
  const unreadable: number[] = [];
  const undecodable: Undecodable[] = [];
  for (const row of events) {
    const event = decodeEvent(row.json);
    if (event) value.push({ ...row, event });
    else unreadable.push(row.seq);
    if (row.undecodable) undecodable.push(row.undecodable);
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

/** Where changes cannot be read: the state at the beginning and that of a trim come before the first event. */
export function damagedChanges(changes: readonly { kind: string; seq: number }[]): Damage['events'] {
  const numbers = new Set(changes.map(({ kind, seq }) => (kind === 'state' ? seq : 0)));
  return rangesOf([...numbers].sort((a, b) => a - b)).map((range) => ({ ...range, problem: 'change' }));
}

export const encodingsOf = (undecodable: readonly Undecodable[]): string[] => [
  ...new Set(undecodable.map(({ encoding }) => encoding)),
];
