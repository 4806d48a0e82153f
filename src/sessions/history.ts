import type { Event, Session } from '@google/adk';
import { UniqueConstraintViolationException } from '@mikro-orm/core';
import { randomUUID } from 'node:crypto';
import { insertEvents, setState } from '../database/dialects/session-rows.js';
import { copyVersions, versionsOf } from '../artifacts/copies.js';
import { callsIn } from '../conversation/calls.js';
import { onceOnRows } from '../database/calls/once.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import {
  copiedChanges,
  copyChanges,
  forgetChangesAfter,
  pastChangeOf,
  recordChange,
  recordChanges,
  recordedChanges,
  stateChanges,
  type NewChange,
  type RecordedChange,
} from '../database/statements/changes.js';
import {
  copyEvents,
  deleteEventsAfter,
  encodedEvent,
  eventTimes,
  firstLaterThan,
  supersededKeys,
} from '../database/statements/events.js';
import { forkRow } from '../database/statements/forks.js';
import { setOpenCalls } from '../database/statements/open-calls.js';
import { readSession } from '../database/statements/session-reader.js';
import { deleteSoftDeleted, insertSession, lockSessionAsRead, setRewound } from '../database/statements/sessions.js';
import type { SessionHead } from '../database/statements/stored-session.js';
import { clearState, encodedState, writtenState } from '../database/statements/state.js';
import type { KnownSession } from '../model/codec.js';
import { InvalidArgumentError, AlreadyExistsError, SessionNotFoundError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, toolSessionsOf, type SessionKey } from '../model/keys.js';
import { pastState, type PastChange, type PastEvent } from '../model/past-state.js';
import { rangesOf } from '../model/seq-ranges.js';
import type { StateEntries, StateEntry } from '../model/state.js';
import { mapTexts, type StoredTexts } from '../model/stored-texts.js';
import { beginsTurn } from '../model/turn.js';
import { damageError } from './damage.js';
import { encodingsOf, getSession, readEvents, readState, type Readable } from './read.js';
import type { ForkPoint, HistoryPoint, RewindPoint } from './requests.js';
import type { SessionCalls } from './session-calls.js';

/** A session as it was after one of its events. */
interface PastSession {
  /** The number of that event; 0 for the beginning. */
  seq: number;
  /** The current row of the session. */
  head: SessionHead;
  /** The events up to that one. */
  events: (PastEvent & { json: string })[];
  /** The session's own state at that time, keys without prefix. */
  state: StateEntry[];
  /** The changes that were recorded until then. */
  changes: readonly PastChange[];
  /** Those changes as they are stored. */
  recorded: readonly RecordedChange[];
}

export async function forkSession(calls: SessionCalls, session: SessionKey, point: ForkPoint): Promise<Session> {
  const source = checkedSessionKey(session);
  checkPoint(point);
  const { as: sessionId = randomUUID() } = point;
  const key = { ...source, sessionId };
  checkKeys(key);
  const origin = randomUUID();
  const target = { ...key, origin };
  return writeAndRead(calls, 'forkSession', key, async () => {
    try {
      await writePast(calls, { key: source, point }, async (sql, past) => {
        await fork(sql, { source, target, past });
        for await (const tool of toolsThen(sql, toolSessionsOf(source, calls.options.toolApps), past)) {
          const { key: source, point } = tool;
          if (point.at === 0) continue;
          const target = { ...source, sessionId, origin: randomUUID() };
          await fork(sql, { source, target, past: await readPast(sql, tool) });
        }
      });
    } catch (error) {
      if (error instanceof UniqueConstraintViolationException) throw new AlreadyExistsError(sessionId);
      throw error;
    }
    calls.leases.created(key);
  });
}

export async function rewindSession(
  calls: SessionCalls,
  session: SessionKey,
  { includeLeased = false, ...point }: RewindPoint,
): Promise<Session> {
  const key = checkedSessionKey(session);
  checkPoint(point);
  if (point.at === undefined && point.beforeInvocationId === undefined)
    throw new InvalidArgumentError('rewindSession needs at or beforeInvocationId.');
  const incarnation = randomUUID();
  const check = (sql: Sql, session: SessionKey) => calls.leases.check(sql, session, { refusesHeld: !includeLeased });
  const tools = toolSessionsOf(key, calls.options.toolApps);
  const write = async (sql: Sql, past: PastSession) => {
    await check(sql, key);
    await rewind(sql, { key, incarnation, past });
    if (past.seq === past.head.lastSeq) return;
    for await (const tool of toolsThen(sql, tools, past)) {
      if (tool.point.at === undefined) continue;
      await check(sql, tool.key);
      await rewind(sql, { key: tool.key, incarnation: randomUUID(), past: await readPast(sql, tool) });
    }
  };
  return writeAndRead(calls, 'rewindSession', key, () => writePast(calls, { key, point }, write));
}

/** Writes a session, and reads it as it was written. */
function writeAndRead(
  calls: SessionCalls,
  operation: string,
  key: SessionKey,
  write: () => Promise<void>,
): Promise<Session> {
  return calls.database.observe({ operation, key }, async () => {
    await calls.write(operation, key, async () => {
      await write();
      await calls.announcer.announce();
    });
    const session = await getSession(calls, { ...key, config: { numRecentEvents: 0 } }, operation);
    if (!session) throw new SessionNotFoundError(key.sessionId);
    return session;
  });
}

/** Reads the past of a session, and writes from it, in a transaction that locks the session. */
async function writePast(
  { database }: SessionCalls,
  { key, point }: { key: SessionKey; point: HistoryPoint },
  write: (sql: Sql, past: PastSession) => Promise<void>,
): Promise<void> {
  await onceOnRows(database, async (sql) => {
    const head = await lockSessionAsRead(sql, key);
    if (!head) throw new SessionNotFoundError(key.sessionId);
    await write(sql, await readPast(sql, { key, head, point }));
  });
}

/** @throws InvalidArgumentError if both are given. */
function checkPoint({ at, beforeInvocationId }: HistoryPoint): void {
  if (at !== undefined && beforeInvocationId !== undefined)
    throw new InvalidArgumentError('Give either at or beforeInvocationId.');
}

const ofSession = (session: StateEntry[]): StateEntries => ({ session, user: [], app: [] });

/** Creates a session from another one's past. */
async function fork(
  sql: Sql,
  { source, target, past }: { source: SessionKey; target: KnownSession; past: PastSession },
): Promise<void> {
  const { seq, head, events, state, changes, recorded } = past;
  const { origin, ...key } = target;
  const { texts } = sql;
  // Without a codec the database copies rows: no text is bound to its session.
  const areCopied = texts.codec.isNone;
  // A soft-deleted session may have the id (contract K3).
  await deleteSoftDeleted(sql, key);
  const firstSeq = Math.min(head.firstSeq, seq + 1);
  const { createTime, forkedFrom } = await forkRow(sql, source, seq);
  const row = { incarnation: origin, origin, firstSeq, lastSeq: seq, lastUpdateTime: createTime };
  await insertSession(sql, key, { ...row, forkedFrom });
  if (areCopied) copyEvents(sql, source, key.sessionId, seq);
  else {
    const times = new Map((await eventTimes(sql, source)).map((event) => [event.seq, event.appendTime]));
    const stored = events.map((event) => ({ ...storedOf(event), appendTime: times.get(event.seq) ?? null }));
    const encoded = mapTexts(stored, (event) => encodedEvent(texts, target, event));
    insertEvents(sql, key, firstSeq, encoded);
  }
  const named = await versionsOf(
    sql,
    source,
    events.map(({ event }) => event),
  );
  await copyVersions(sql, source, key, named);
  await setOpenCalls(sql, key, callsIn(events), []);
  await setState(sql, key, encodedState(texts, target, ofSession(state)));
  const created = changes.find(({ kind }) => kind === 'created')?.set ?? {};
  await recordChange(sql, { session: target, kind: 'created', seq: 0, data: JSON.stringify(created) });
  if (areCopied && !sql.dialect.operations.nextChange) copyChanges(sql, source, key, seq);
  else await recordChanges(sql, copiedChanges(recorded, target, seq));
  await recordChanges(sql, leftChanges(texts, target, past));
}

/** @returns changes for the state that cannot be computed from the rows any more, because an event was rewritten. */
function leftChanges(
  texts: StoredTexts,
  session: KnownSession,
  { seq, events, state, changes }: PastSession,
): NewChange[] {
  const json = new Map(pastState(changes, events, seq).map((entry) => [entry.key, entry.json]));
  const left = state.filter((entry) => json.get(entry.key) !== entry.json);
  for (const { key: name } of state) json.delete(name);
  if (left.length + json.size === 0) return [];
  return stateChanges(texts, { session, seq }, ofSession(left), [...json.keys()]);
}

const storedOf = ({ event, json, superseded }: PastSession['events'][number]): StoredEvent => ({
  ...{ id: event.id, timestamp: event.timestamp, json, beginsTurn: beginsTurn(event) },
  ...(superseded && { superseded: JSON.stringify(superseded) }),
});

/** Rewinds a session, under its lock. */
async function rewind(
  sql: Sql,
  { key, incarnation, past }: { key: SessionKey; incarnation: string; past: PastSession },
): Promise<void> {
  const { seq, head, events, state } = past;
  if (seq === head.lastSeq) return;
  const session = { ...key, origin: head.origin };
  await deleteEventsAfter(sql, key, seq);
  await setOpenCalls(sql, key, callsIn(events));
  clearState(sql, key);
  await setState(sql, key, encodedState(sql.texts, session, ofSession(state)));
  const lastUpdateTime = events.at(-1)?.event.timestamp;
  setRewound(sql, key, { incarnation, lastSeq: seq, lastUpdateTime });
  forgetChangesAfter(sql, key, seq);
  await recordChange(sql, { session, kind: 'rewound', seq });
}

/** A session, under its lock, and a point of it. */
interface LockedPoint {
  key: SessionKey;
  head: SessionHead;
  point: HistoryPoint;
}

/**
 * Locks the sessions of tools that are there, and yields each with the last event that it had at a point of their caller's session;
 * none if it has no later one. A tool runs between the event of its call and the one of its response, which ADK stamps after it. So
 * what is later than all events that are kept is of calls that are not.
 */
async function* toolsThen(
  sql: Sql,
  tools: readonly SessionKey[],
  { events }: PastSession,
): AsyncGenerator<LockedPoint> {
  const until = events.reduce((latest, { event }) => Math.max(latest, event.timestamp), -1e308);
  for (const key of tools) {
    const head = await lockSessionAsRead(sql, key);
    const later = head && (await firstLaterThan(sql, key, until));
    if (head) yield { key, head, point: later === undefined ? {} : { at: later - 1 } };
  }
}

/**
 * Reads the past of a session, under its lock or in a snapshot (contract K4).
 *
 * @throws SessionNotFoundError if there is no such session.
 * @throws InvalidArgumentError if it has no such point.
 * @throws DamagedSessionError if a row up to the point cannot be read; for the last event, if any row of the session cannot be read.
 */
async function readPast(sql: Sql, { key, head, point }: LockedPoint): Promise<PastSession> {
  // `seqAt` refuses a higher number, with which PostgreSQL fails.
  const upTo = Math.min(point.at ?? head.lastSeq, head.lastSeq);
  const mayBeNow = point.beforeInvocationId === undefined && upTo === head.lastSeq;
  const read = await readSession(sql, key);
  if (!read) throw new SessionNotFoundError(key.sessionId);
  const changesRead = await recordedChanges(sql, key);
  const superseded = await supersededKeys(sql, key, { from: head.firstSeq, upTo });
  const stateNow = mayBeNow ? await writtenState(sql, key, 'session') : undefined;
  const { value: all, damaged } = readEvents(read);
  const ranges = damaged?.events ?? [];
  const isDamaged = (seq: number) => ranges.some(({ from, to }) => from <= seq && seq <= to);
  const stored = read.events.filter(({ seq }) => !isDamaged(seq));
  const numbers = stored.map((event) => event.seq);
  const seq = seqAt(all, numbers, read, point);
  const isNow = seq === read.lastSeq;
  const recorded = changesRead.filter((change) => change.seq <= seq || isNow || change.kind === 'trimmed');
  const { value: changes, damaged: lost } = readChanges(recorded);
  const needed = damaged && { ...damaged, events: ranges.filter(({ from }) => from <= seq || isNow) };
  const own = isNow ? [readState(read.state.filter(({ scope }) => scope === 'session')).damaged] : [];
  const error = damageError(key, needed, lost, ...own);
  if (error) throw error;

  const events = all.slice(0, seq - read.firstSeq + 1).map((event, i) => {
    const seq = read.firstSeq + i;
    return { seq, event, json: stored[i]?.json ?? '', superseded: superseded.get(seq) };
  });
  const state = stateNow && isNow ? stateNow : pastState(changes, events, seq);
  return { seq, head: read, events, state, changes, recorded };
}

/** @param recorded the changes that were recorded of a session. */
function readChanges(recorded: readonly RecordedChange[]): Readable<PastChange[]> {
  const value = recorded.flatMap((change) => pastChangeOf(change) ?? []);
  const lost = recorded.filter((change) => !pastChangeOf(change));
  const events = rangesOf(lost.map(({ kind, seq }) => (kind === 'state' ? seq : 0)));
  const undecodable = lost.flatMap((change) => change.undecodable ?? []);
  return {
    value,
    damaged: {
      events: events.map((range) => ({ ...range, problem: 'change' })),
      stateKeys: [],
      encodings: encodingsOf(undecodable),
    },
  };
}

/** @param numbers the numbers of the events. @returns the number of the last event before the point. */
function seqAt(
  events: readonly Event[],
  numbers: readonly number[],
  { firstSeq, lastSeq }: SessionHead,
  { at, beforeInvocationId }: HistoryPoint,
): number {
  if (beforeInvocationId !== undefined) {
    const index = events.findIndex(({ invocationId }) => invocationId === beforeInvocationId);
    if (index === -1)
      throw new InvalidArgumentError('The session has no event of the invocation in beforeInvocationId.', [
        'beforeInvocationId',
      ]);
    return (numbers[index] ?? firstSeq) - 1;
  }
  const seq = at ?? lastSeq;
  if (seq > lastSeq || seq < firstSeq - 1)
    throw new InvalidArgumentError(
      `at must be from ${firstSeq - 1} to ${lastSeq}, the numbers of the session's events.`,
      ['at'],
    );
  return seq;
}
