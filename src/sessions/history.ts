import type { Event, Session } from '@google/adk';
import { UniqueConstraintViolationException } from '@mikro-orm/core';
import { randomUUID } from 'node:crypto';
import { ArtifactStore, versionsNamedBy } from '../artifacts/artifact-store.js';
import { callsIn } from '../conversation/open-calls.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import {
  copiedChanges,
  copyChanges,
  encodedChange,
  forgetChangesAfter,
  recordChange,
  recordChanges,
  recordedChanges,
  stateChanges,
} from '../database/stores/change-store.js';
import {
  deleteSoftDeleted,
  insertSession,
  lockSessionAsRead,
  setRewound,
  type SessionHead,
} from '../database/stores/session-store.js';
import type { Stores } from '../database/stores/stores.js';
import { InvalidArgumentError, SessionExistsError, SessionNotFoundError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, type SessionKey } from '../model/keys.js';
import { pastState, type PastChange, type PastEvent } from '../model/past-state.js';
import type { StateEntry } from '../model/state.js';
import { beginsTurn } from '../model/turn.js';
import { damageError, readChanges, readEvents, readState } from './damage.js';
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
  events: (PastEvent & { json: string })[];
  /** The session's own state as it was then, keys without prefix. */
  state: StateEntry[];
  /** What was recorded of it up to there. */
  changes: readonly PastChange[];
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
    const head = await lockSessionAsRead(sql, key);
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
  if (!(await lockSessionAsRead(sql, source))) throw new SessionNotFoundError(source.sessionId);
  const { seq, firstSeq, events, state, changes } = await readPast(sql, stores, source, point);
  // The id may be that of a soft-deleted session (contract K3).
  await deleteSoftDeleted(sql, key);
  const head = {
    incarnation,
    origin: incarnation,
    firstSeq: Math.min(firstSeq, seq + 1),
    lastSeq: seq,
    lastUpdateTime: Date.now(),
  };
  await insertSession(sql, key, head);
  const session = { ...key, origin: incarnation };
  // What is encoded is bound to its session.
  if (sql.texts.codec.isNone) await stores.events.copy(sql, source, key, seq);
  else await stores.events.insert(sql, session, head.firstSeq, events.map(storedOf));
  await ArtifactStore.of(stores).copy(sql, source, key, versionsNamedBy(events.map(({ event }) => event)));
  await stores.openCalls.replace(sql, key, [], callsIn(events));
  await stores.state.set(sql, session, { session: state, user: [], app: [] });
  const created = changes.find(({ kind }) => kind === 'created')?.set ?? {};
  const creation = { session, kind: 'created', seq: 0, data: JSON.stringify(created) } as const;
  await recordChange(
    sql,
    sql.texts.all(() => encodedChange(sql.texts, creation)),
  );
  if (sql.texts.codec.isNone) await copyChanges(sql, source, key, seq);
  else {
    const recorded = sql.texts.decoded(await recordedChanges(sql, source));
    await recordChanges(
      sql,
      sql.texts.all(() => copiedChanges(sql.texts, recorded, session, seq)),
    );
  }
  // What no row explains since an event was rewritten.
  const replayed = pastState(changes, events, seq);
  const json = new Map(replayed.map((entry) => [entry.key, entry.json]));
  const left = state.filter((entry) => json.get(entry.key) !== entry.json);
  for (const { key: name } of state) json.delete(name);
  if (left.length + json.size > 0)
    await recordChanges(
      sql,
      sql.texts.all(() =>
        stateChanges(sql.texts, { session, seq }, { session: left, user: [], app: [] }, [...json.keys()]),
      ),
    );
}

const storedOf = ({ event, json, superseded }: PastSession['events'][number]): StoredEvent => ({
  ...{ id: event.id, timestamp: event.timestamp, json, beginsTurn: beginsTurn(event) },
  ...(superseded && { superseded: JSON.stringify(superseded) }),
});

/** Takes a session back, under its lock. */
async function rewind(
  sql: Sql,
  stores: Stores,
  head: SessionHead,
  { key, point, incarnation }: NewHistory,
): Promise<void> {
  const { seq, events, state } = await readPast(sql, stores, key, point);
  if (seq === head.lastSeq) return;
  const session = { ...key, origin: head.origin };
  await stores.events.deleteAfter(sql, key, seq);
  await stores.openCalls.set(sql, key, callsIn(events));
  await stores.state.clear(sql, key);
  await stores.state.set(sql, session, { session: state, user: [], app: [] });
  const lastUpdateTime = events.at(-1)?.event.timestamp ?? head.lastUpdateTime;
  await setRewound(sql, key, { incarnation, lastSeq: seq, lastUpdateTime });
  await forgetChangesAfter(sql, key, seq);
  await recordChange(sql, { session, kind: 'rewound', seq });
}

/**
 * Reads what a session was like, under its lock or as of one moment: its past is what its rows say (contract K4).
 *
 * @throws SessionNotFoundError when there is no such session.
 * @throws InvalidArgumentError when there is no such point in its history.
 * @throws DamagedSessionError when a row up to there cannot be read; at the last event, when any row of the session cannot.
 */
async function readPast(sql: Sql, stores: Stores, key: SessionKey, point: HistoryPoint): Promise<PastSession> {
  const read = sql.texts.decoded(await stores.reader.read(sql, key));
  if (!read) throw new SessionNotFoundError(key.sessionId);
  const { firstSeq, lastSeq } = read;
  const { value: all, damaged } = readEvents(read);
  const isDamaged = (seq: number) => damaged.events.some(({ from, to }) => from <= seq && seq <= to);
  const stored = read.events.filter(({ seq }) => !isDamaged(seq));
  const seq = seqAt(
    all,
    stored.map((event) => event.seq),
    read,
    point,
  );
  const isNow = seq === lastSeq;
  const recorded = sql.texts
    .decoded(await recordedChanges(sql, key))
    .filter((change) => change.seq <= seq || isNow || change.kind === 'trimmed');
  const { value: changes, damaged: lost } = readChanges(recorded);
  const needed = { ...damaged, events: damaged.events.filter(({ from }) => from <= seq || isNow) };
  const own = isNow ? [readState(read.state.filter(({ scope }) => scope === 'session')).damaged] : [];
  const error = damageError(key, needed, lost, ...own);
  if (error) throw error;

  const superseded = await stores.events.superseded(sql, key, { from: firstSeq, upTo: seq });
  const events = all.slice(0, seq - firstSeq + 1).map((event, i) => {
    const seq = firstSeq + i;
    return { seq, event, json: stored[i]?.json ?? '', superseded: superseded.get(seq) };
  });
  const state = isNow ? await stores.state.written(sql, key, 'session') : pastState(changes, events, seq);
  return { seq, firstSeq, events, state, changes };
}

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
