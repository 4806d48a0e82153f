import type { Event, Session } from '@google/adk';
import { randomUUID } from 'node:crypto';
import { insertEvents, setState } from '../database/dialects/session-rows.js';
import { copyVersions, versionsOf } from '../artifacts/copies.js';
import { callsIn } from '../conversation/calls.js';
import { isDuplicate } from '../database/calls/failure-of.js';
import { onceOnRows } from '../database/calls/once.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import {
  copiedChanges,
  forgetChangesAfter,
  recordChange,
  recordChanges,
  recordedChanges,
  stateChanges,
  type NewChange,
  type RecordedChange,
} from '../database/statements/changes.js';
import { deleteEventsAfter, encodedEvent, firstLaterThan, highestSeq } from '../database/statements/events.js';
import { forkRow } from '../database/statements/forks.js';
import { setOpenCalls } from '../database/statements/open-calls.js';
import { pastEvents, readableChanges } from './past.js';
import { deleteSoftDeleted, insertSession, lockSessionAsRead, setRewound } from '../database/statements/sessions.js';
import type { SessionHead, StoredSession } from '../database/statements/stored-session.js';
import { clearState, encodedState, writtenState } from '../database/statements/state.js';
import type { KnownSession } from '../model/codec.js';
import { InvalidArgumentError, AlreadyExistsError, SessionNotFoundError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, toolSessionsOf, type SessionKey } from '../model/keys.js';
import { pastState, type PastChange } from '../model/past-state.js';
import type { StateEntries, StateEntry } from '../model/state.js';
import { mapTexts, type StoredTexts } from '../model/stored-texts.js';
import { beginsTurn } from '../model/turn.js';
import { damageError } from './damage.js';
import { getSession, readableState } from './read.js';
import type { ForkPoint, HistoryPoint, RewindPoint } from './requests.js';
import type { ServiceContext } from './service-context.js';

/** A session as it was after one of its events. */
interface PastSession {
  /** The number of that event; 0 for the beginning. */
  seq: number;
  /** The current row of the session. */
  head: StoredSession;
  /** The events up to that one. */
  events: Awaited<ReturnType<typeof pastEvents>>['value'];
  /** The session's own state at that time, keys without prefix. */
  state: StateEntry[];
  /** The changes that were recorded until then. */
  changes: readonly PastChange[];
  /** Those changes as they are stored. */
  recorded: readonly RecordedChange[];
}

export async function forkSession(service: ServiceContext, session: SessionKey, point: ForkPoint): Promise<Session> {
  const source = checkedSessionKey(session);
  checkPoint(point);
  const { as: sessionId = randomUUID() } = point;
  const key = { ...source, sessionId };
  checkKeys(key);
  const origin = randomUUID();
  const target = { ...key, origin };
  return writeAndRead(service, 'forkSession', key, async () => {
    try {
      await writePast(service, { key: source, point }, async (sql, past) => {
        await fork(sql, { target, past });
        for await (const tool of toolsThen(sql, toolSessionsOf(source, service.options.toolApps), past)) {
          if (tool.point.at === 0) continue;
          const target = { ...tool.head.key, sessionId, origin: randomUUID() };
          await fork(sql, { target, past: await readPast(sql, tool) });
        }
      });
    } catch (error) {
      if (isDuplicate(error)) throw new AlreadyExistsError(sessionId, 'Choose another id.');
      throw error;
    }
    service.leases.created(key);
  });
}

export async function rewindSession(
  service: ServiceContext,
  session: SessionKey,
  { includeLeased = false, ...point }: RewindPoint,
): Promise<Session> {
  const key = checkedSessionKey(session);
  checkPoint(point);
  if (point.at === undefined && point.beforeInvocationId === undefined)
    throw new InvalidArgumentError('rewindSession needs at or beforeInvocationId.');
  const incarnation = randomUUID();
  const check = (sql: Sql, session: SessionKey) => service.leases.check(sql, session, { refusesHeld: !includeLeased });
  const tools = toolSessionsOf(key, service.options.toolApps);
  const write = async (sql: Sql, past: PastSession) => {
    await check(sql, key);
    await rewind(sql, { incarnation, past });
    if (past.seq === past.head.lastSeq) return;
    for await (const tool of toolsThen(sql, tools, past)) {
      if (tool.point.at === undefined) continue;
      await check(sql, tool.head.key);
      await rewind(sql, { incarnation: randomUUID(), past: await readPast(sql, tool) });
    }
  };
  return writeAndRead(service, 'rewindSession', key, () => writePast(service, { key, point }, write));
}

/** Writes a session, and reads it as it was written. */
function writeAndRead(
  service: ServiceContext,
  operation: string,
  key: SessionKey,
  write: () => Promise<void>,
): Promise<Session> {
  return service.database.observe({ operation, key }, async () => {
    await service.write(operation, key, async () => {
      await write();
      await service.announcer.announce();
    });
    const session = await getSession(service, { ...key, config: { numRecentEvents: 0 } }, operation);
    if (!session) throw new SessionNotFoundError(key.sessionId);
    return session;
  });
}

/** Reads the past of a session, and writes from it, in a transaction that locks the session. */
async function writePast(
  { database }: ServiceContext,
  { key, point }: { key: SessionKey; point: HistoryPoint },
  write: (sql: Sql, past: PastSession) => Promise<void>,
): Promise<void> {
  await onceOnRows(database, async (sql) => {
    const head = await lockSessionAsRead(sql, key);
    if (!head) throw new SessionNotFoundError(key.sessionId);
    await write(sql, await readPast(sql, { head, point }));
  });
}

/** @throws InvalidArgumentError if both are given. */
function checkPoint({ at, beforeInvocationId }: HistoryPoint): void {
  if (at !== undefined && beforeInvocationId !== undefined)
    throw new InvalidArgumentError('Give either at or beforeInvocationId.');
}

const ofSession = (session: StateEntry[]): StateEntries => ({ session, user: [], app: [] });

/** Creates a session from another one's past. */
async function fork(sql: Sql, { target, past }: { target: KnownSession; past: PastSession }): Promise<void> {
  const { seq, head, events, state, changes, recorded } = past;
  const { origin, ...key } = target;
  const source = head.key;
  const { texts } = sql;
  // A soft-deleted session may have the id (contract K3).
  await deleteSoftDeleted(sql, key);
  const firstSeq = Math.min(head.firstSeq, seq + 1);
  const { createTime, forkedFrom } = forkRow(head, seq);
  const row = { incarnation: origin, origin, firstSeq, lastSeq: seq, lastUpdateTime: createTime };
  await insertSession(sql, key, { ...row, forkedFrom });
  const encoded = mapTexts(events, (event) => encodedEvent(texts, target, storedOf(event)));
  insertEvents(sql, key, firstSeq, encoded);
  const copied = events.map(({ event }) => event);
  await copyVersions(sql, source, key, await versionsOf(sql, source, copied));
  await setOpenCalls(sql, key, callsIn(events), { before: [] });
  await setState(sql, key, encodedState(texts, target, ofSession(state)));
  const created = changes.find(({ kind }) => kind === 'created')?.set ?? {};
  await recordChange(sql, { session: target, kind: 'created', seq: 0, data: JSON.stringify(created) });
  await recordChanges(sql, copiedChanges(recorded, target, seq));
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

const storedOf = ({ event, json, appendTime, superseded }: PastSession['events'][number]): StoredEvent => ({
  ...{ id: event.id, timestamp: event.timestamp, json: json ?? '', beginsTurn: beginsTurn(event), appendTime },
  ...(superseded && { superseded: JSON.stringify(superseded) }),
});

/** Rewinds a session, under its lock. */
async function rewind(sql: Sql, { incarnation, past }: { incarnation: string; past: PastSession }): Promise<void> {
  const { seq, head, events, state } = past;
  const { key } = head;
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
  head: StoredSession;
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
    if (head) yield { head, point: later === undefined ? {} : { at: later - 1 } };
  }
}

/**
 * Reads the past of a session, under its lock or in a snapshot (contract K4).
 *
 * @throws SessionNotFoundError if there is no such session.
 * @throws InvalidArgumentError if it has no such point.
 * @throws DamagedSessionError if a row up to the point cannot be read; for the last event, if any row of the session cannot be read.
 */
async function readPast(sql: Sql, { head, point }: LockedPoint): Promise<PastSession> {
  const { key, lastSeq } = head;
  // `seqAt` refuses a higher number, with which PostgreSQL fails.
  const upTo = point.beforeInvocationId === undefined ? Math.min(point.at ?? lastSeq, lastSeq) : lastSeq;
  const { value: all, damaged } = await pastEvents(sql, head, upTo);
  const seq = seqAt(all, head, point);
  const isNow = seq === lastSeq;
  const isThen = (change: RecordedChange) => change.seq <= seq || isNow || change.kind === 'trimmed';
  const recorded = (await recordedChanges(sql, key)).filter(isThen);
  const { value: changes, damaged: lost } = readableChanges(recorded);
  const stateNow = isNow ? await writtenState(sql, key, 'session') : [];
  const highest = isNow ? await highestSeq(sql, key) : 0;
  const uncounted = { from: lastSeq + 1, to: highest, problem: 'uncounted' } as const;
  const ranges = damaged?.events.filter(({ from }) => from <= seq) ?? [];
  const needed = { stateKeys: [], ...damaged, events: highest > lastSeq ? [...ranges, uncounted] : ranges };
  const error = damageError(key, needed, lost, readableState(stateNow).damaged);
  if (error) throw error;

  const events = all.filter((event) => event.seq <= seq);
  return { seq, head, events, state: isNow ? stateNow : pastState(changes, events, seq), changes, recorded };
}

/** @returns the number of the last event before the point. */
function seqAt(
  events: readonly { seq: number; event: Event }[],
  { firstSeq, lastSeq }: SessionHead,
  { at, beforeInvocationId }: HistoryPoint,
): number {
  if (beforeInvocationId !== undefined) {
    const first = events.find(({ event }) => event.invocationId === beforeInvocationId);
    if (!first)
      throw new InvalidArgumentError('The session has no event of the invocation in beforeInvocationId.', [
        'beforeInvocationId',
      ]);
    return first.seq - 1;
  }
  const seq = at ?? lastSeq;
  if (seq > lastSeq || seq < firstSeq - 1)
    throw new InvalidArgumentError(
      `at must be from ${firstSeq - 1} to ${lastSeq}, the numbers of the session's events.`,
      ['at'],
    );
  return seq;
}
