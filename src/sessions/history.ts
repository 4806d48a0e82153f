import type { Event, Session } from '@google/adk';
import { UniqueConstraintViolationException } from '@mikro-orm/core';
import { randomUUID } from 'node:crypto';
import { ArtifactStore, versionsNamedBy } from '../artifacts/artifact-store.js';
import type { StoredEvent } from '../database/dialects/dialect.js';
import type { Sql } from '../database/sql/sql.js';
import { stateText } from '../database/stores/change-store.js';
import type { SessionHead } from '../database/stores/session-store.js';
import type { Stores } from '../database/stores/stores.js';
import { InvalidArgumentError, SessionExistsError, SessionNotFoundError } from '../model/errors.js';
import { decode } from '../model/event-codec.js';
import { checkKeys, checkedSessionKey, type SessionKey } from '../model/keys.js';
import { pastState } from '../model/past-state.js';
import { scopeOf, type StateEntry } from '../model/state.js';
import { beginsTurn } from '../model/turn.js';
import { damageError, readEvents, readState } from './damage.js';
import { reread } from './read.js';
import type { ForkPoint } from './requests.js';
import type { SessionCalls } from './session-calls.js';

/** A point of a session's history: one of the two. */
export interface HistoryPoint {
  /** After the event with this number; 0 for the beginning. */
  at?: number;
  /** Before the first event of this invocation. */
  beforeInvocationId?: string;
}

export const NO_SUCH_INVOCATION = 'The session has no event of the invocation beforeInvocationId.';

/** A session as it was after one of its events. */
interface PastSession {
  /** The number of that event; 0 for none. */
  seq: number;
  firstSeq: number;
  /** The events up to there. */
  events: Event[];
  /** The same as they are stored, without their encoding. */
  texts: StoredEvent[];
  /** The session's own state as it was then, keys without prefix. */
  state: StateEntry[];
  /** The state that the session was created with; undefined where a change up to `seq` was recorded without its values. */
  created: Record<string, unknown> | undefined;
  /** Values of `state` that a replay of `created`, changes and events up to `seq` does not give: a rewritten event left them. */
  left: StateEntry[];
}

export async function forkSession(calls: SessionCalls, session: SessionKey, point: ForkPoint): Promise<Session> {
  const source = checkedSessionKey(session);
  checkPoint(point);
  const { as: sessionId = randomUUID() } = point;
  const key = { ...source, sessionId };
  checkKeys(key);
  const incarnation = randomUUID();
  const operation = 'forkSession';
  const work = (sql: Sql) => fork(sql, calls.stores, { source, key, point, incarnation });
  return calls.database.observe({ operation, key }, async () => {
    await calls.write(operation, key, async () => {
      try {
        await calls.once(operation, work, { locksRowsOnly: true });
      } catch (error) {
        if (error instanceof UniqueConstraintViolationException) throw new SessionExistsError(sessionId);
        throw error;
      }
      calls.leases.created(key);
      await calls.announcer.announce();
    });
    return reread(calls, key, operation);
  });
}

export async function rewindSession(calls: SessionCalls, session: SessionKey, point: HistoryPoint): Promise<Session> {
  const key = checkedSessionKey(session);
  checkPoint(point);
  if (point.at === undefined && point.beforeInvocationId === undefined)
    throw new InvalidArgumentError('rewindSession needs at or beforeInvocationId.');
  const incarnation = randomUUID();
  const operation = 'rewindSession';
  const work = async (sql: Sql) => {
    const head = await calls.stores.sessions.lockAsRead(sql, key);
    if (!head) throw new SessionNotFoundError(key.sessionId);
    await calls.leases.check(sql, key);
    await rewind(sql, calls.stores, head, { key, point, incarnation });
  };
  return calls.database.observe({ operation, key }, async () => {
    await calls.write(operation, key, async () => {
      await calls.once(operation, work, { locksRowsOnly: true });
      await calls.announcer.announce();
    });
    return reread(calls, key, operation);
  });
}

/** @throws InvalidArgumentError when both are given. */
function checkPoint({ at, beforeInvocationId }: HistoryPoint): void {
  if (at !== undefined && beforeInvocationId !== undefined)
    throw new InvalidArgumentError('Give either at or beforeInvocationId.');
}

/** What a session becomes, and from which point of its past. */
interface NewHistory {
  key: SessionKey;
  point: HistoryPoint;
  /** A new one. */
  incarnation: string;
}

/** Makes a session of another one's past. */
async function fork(
  sql: Sql,
  stores: Stores,
  { source, key, point, incarnation }: NewHistory & { source: SessionKey },
): Promise<void> {
  if (!(await stores.sessions.lockAsRead(sql, source))) throw new SessionNotFoundError(source.sessionId);
  const { seq, firstSeq, events, texts, state, created, left } = await readPast(sql, stores, source, point);
  // The id may be that of a soft-deleted session (contract K3).
  await stores.sessions.deleteSoftDeleted(sql, key);
  const head = {
    incarnation,
    origin: incarnation,
    firstSeq: Math.min(firstSeq, seq + 1),
    lastSeq: seq,
    lastUpdateTime: Date.now(),
  };
  await stores.sessions.create(sql, key, head);
  const session = { ...key, origin: incarnation };
  // What is encoded is bound to its session.
  if (sql.texts.codec.isNone) await stores.events.copy(sql, source, key, seq);
  else await stores.events.insert(sql, session, head.firstSeq, texts);
  await ArtifactStore.of(stores).copy(sql, source, key, versionsNamedBy(events));
  await stores.state.set(sql, session, { session: state, user: [], app: [] });
  await stores.changes.record(sql, {
    session,
    kind: 'created',
    seq: 0,
    data: created ? JSON.stringify(created) : null,
  });
  await stores.changes.copyHistory(sql, source, session, seq);
  // A rewind among them has cleared what the record of the creation held.
  if (!created) await stores.changes.recordState(sql, { session, seq });
  else if (left.length > 0)
    await stores.changes.recordState(sql, { session, seq, set: { session: left, user: [], app: [] } });
}

/** Takes a session back, under its lock. */
async function rewind(
  sql: Sql,
  stores: Stores,
  head: SessionHead,
  { key, point, incarnation }: NewHistory,
): Promise<void> {
  const { seq, events, state } = await readPast(sql, stores, key, point);
  if (seq === head.lastSeq) return;
  const entries = { session: state, user: [], app: [] };
  const session = { ...key, origin: head.origin };
  await stores.events.deleteAfter(sql, key, seq);
  await stores.state.clear(sql, key);
  await stores.state.set(sql, session, entries);
  const lastUpdateTime = events.at(-1)?.timestamp ?? head.lastUpdateTime;
  await stores.sessions.rewind(sql, key, { incarnation, lastSeq: seq, lastUpdateTime });
  await stores.changes.forgetRewritten(sql, key, seq);
  await stores.changes.record(sql, { session, kind: 'rewound', seq, data: stateText(entries) });
}

/**
 * Reads what a session was like, under its lock or as of one moment.
 *
 * @throws SessionNotFoundError when there is no such session.
 * @throws InvalidArgumentError when there is no such point in its history.
 * @throws DamagedSessionError when an event up to there cannot be read, or what is damaged may say what the state was then.
 */
export async function readPast(sql: Sql, stores: Stores, key: SessionKey, point: HistoryPoint): Promise<PastSession> {
  const read = sql.texts.decoded(await stores.reader.read(sql, key));
  if (!read) throw new SessionNotFoundError(key.sessionId);
  const { value: all, damaged } = readEvents(read);
  const own = readState(read.state.filter(({ scope }) => scope === 'session'));
  const { firstSeq, lastSeq } = read;
  const isDamaged = (seq: number) => damaged.events.some(({ from, to }) => from <= seq && seq <= to);
  const numbers = read.events.flatMap((event) => (isDamaged(event.seq) ? [] : [event.seq]));
  const seq = seqAt(all, numbers, read, point);
  const { created: given, changes, completeBefore } = await stores.changes.history(sql, key);
  // What is recorded says what the state was then, whatever has become of later events, and of the values that are stored.
  const isRecorded = seq < lastSeq && given !== undefined && seq < completeBefore;
  const needed = { ...damaged, events: damaged.events.filter(({ from }) => from <= seq) };
  const error = isRecorded ? damageError(key, needed) : damageError(key, damaged, own.damaged);
  if (error) throw error;

  const events = all.slice(0, seq - firstSeq + 1);
  const texts = events.map((event, i) => {
    const { id, timestamp } = event;
    return { id, timestamp, json: read.events[i]?.json ?? '', beginsTurn: beginsTurn(event) };
  });
  const written = (await stores.state.written(sql, key, 'session')).filter(({ json }) => decode(json));
  const ids = new Set(all.map(({ id }) => id));
  // A session that is older than the record of changes was given what no event of it has written.
  const initial = given ?? valuesOf(written.filter(({ eventId }) => eventId === null || !ids.has(eventId)));
  const created = seq < completeBefore ? initial : undefined;
  if (seq === lastSeq) return { seq, firstSeq, events, texts, state: written, created, left: [] };

  const deltas = events.map((event, i) => ({
    seq: firstSeq + i,
    id: event.id,
    delta: event.actions?.stateDelta ?? {},
  }));
  const before = changes.filter((change) => change.seq <= seq);
  const recorded = new Set(
    [initial, ...changes.map((change) => (change.kind === 'state' ? change.set : change.state) ?? {})].flatMap(
      Object.keys,
    ),
  );
  const unrecorded = valuesOf(written.filter(({ key: name, eventId }) => eventId === null && !recorded.has(name)));
  const state = new Map<string, StateEntry>();
  for (const [name, value] of pastState(initial, before, deltas, unrecorded)) {
    if (scopeOf(name).scope === 'session') state.set(name, { key: name, ...value });
  }
  // A value that one of these events, or one that was trimmed, has written and that is still stored was the value then. The
  // replay may have another one, where two sessions' deltas competed or the event was rewritten.
  const earlier = new Set(events.map(({ id }) => id));
  const later = new Set(all.slice(events.length).map(({ id }) => id));
  // The ids of events that are damaged are not known.
  const isEarlier = (id: string) => (damaged.events.length > 0 ? earlier.has(id) : !later.has(id));
  const kept = written.filter(({ eventId }) => eventId !== null && isEarlier(eventId));
  const left = kept.filter(({ key: name, json }) => state.get(name)?.json !== json);
  for (const entry of kept) state.set(entry.key, entry);
  return { seq, firstSeq, events, texts, state: [...state.values()], created, left };
}

const valuesOf = (entries: readonly StateEntry[]): Record<string, unknown> =>
  Object.fromEntries(entries.map(({ key, json }): [string, unknown] => [key, JSON.parse(json)]));

/** @param numbers those of the events. @returns the number of the last event before the point. */
function seqAt(
  events: readonly Event[],
  numbers: readonly number[],
  { firstSeq, lastSeq }: SessionHead,
  { at, beforeInvocationId }: HistoryPoint,
): number {
  if (beforeInvocationId !== undefined) {
    const index = events.findIndex(({ invocationId }) => invocationId === beforeInvocationId);
    if (index === -1) throw new InvalidArgumentError(NO_SUCH_INVOCATION);
    return (numbers[index] ?? firstSeq) - 1;
  }
  const seq = at ?? lastSeq;
  if (seq > lastSeq || seq < firstSeq - 1)
    throw new InvalidArgumentError(
      `at must be from ${firstSeq - 1} to ${lastSeq}, the numbers of the session's events.`,
    );
  return seq;
}
