import { stateValueOf, type StateValue } from '../database/sql/values.js';
import { createEvent } from '@google/adk';
import { insertEvents } from '../database/dialects/session-rows.js';
import { callsIn, type Calls } from '../conversation/calls.js';
import type { SqlRunner, Sql, StoredEvent } from '../database/dialects/dialect.js';
import {
  emptyChange,
  forgetChangesAfter,
  recordChange,
  recordChanges,
  recordTrim,
  recordedChanges,
  stateChanges,
  type RecordedChange,
} from '../database/statements/changes.js';
import { encodedEvent, eventTimes, replaceEvent, supersededKeys } from '../database/statements/events.js';
import { setOpenCalls } from '../database/statements/open-calls.js';
import { readableChanges } from '../sessions/past.js';
import { readableEvents } from '../sessions/read.js';
import { LeaseGuard } from '../sessions/lease-guard.js';
import { readSession } from '../sessions/session-reader.js';
import { writtenState } from '../database/statements/state.js';
import { lockSession, setBounds } from '../database/statements/sessions.js';
import type { SessionHead } from '../database/statements/stored-session.js';
import { type KnownSession } from '../model/codec.js';
import type { Undecodable } from '../model/stored-texts.js';
import { CodecError, SessionNotFoundError, type Damage } from '../model/errors.js';
import { decode, decodeEvent } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import { pastState } from '../model/past-state.js';
import { MAX_SEQ, gapsIn, type SeqRange } from '../model/seq-ranges.js';
import { byScope, prefixed, type StateEntries, type StateEntry } from '../model/state.js';
import type { Owner } from '../owned/owned-rows.js';
import type { BatchOptions } from './options.js';
import { deleteEvent, deleteValue, rawChange, rawEvent, rawValue } from './raw-rows.js';

/** What `repair` found and removed. If all lists are empty, the session was not damaged. */
export interface RepairedSession {
  /** As `DamagedSessionError` names them. */
  damage: readonly Damage['events'][number][];
  /** The rows of events that could not be read, byte for byte. */
  events: readonly {
    seq: number;
    eventId: string;
    /** In ms since 1970. */
    timestamp: number;
    /** Null if the row had none. */
    content: Buffer | null;
    /** Its rows in `adk_event_parts`. */
    parts: readonly { part: number; content: Buffer }[];
  }[];
  /** State values that could not be read, byte for byte. */
  stateValues: readonly {
    /** With its prefix, `user:` or `app:`. */
    key: string;
    content: Buffer;
  }[];
  /** Recorded changes of state, which forks and rewinds need, that could not be read, byte for byte. */
  changes: readonly {
    /** The session's first state, state that was set outside a run, or the state before the first event of a trimmed session. */
    kind: 'created' | 'state' | 'trimmed';
    /** The number of the session's newest event at that time. */
    seq: number;
    content: Buffer;
  }[];
}

/** A wider gap is not filled with empty events: a damaged `last_seq` may be in the billions. */
const MOST_FILLED = 10_000;

/** What was read of a session, and what cannot be read. */
interface SessionDamage {
  session: KnownSession;
  head: SessionHead;
  /** The numbers and times of the events that have rows, in order. */
  rows: readonly { seq: number; timestamp: number }[];
  /** The events that cannot be read, by number. */
  unreadable: ReadonlyMap<number, { id: string }>;
  values: readonly DamagedValue[];
  changes: readonly RecordedChange[];
  books: Books;
  /** The session's own state before its first remaining event. */
  before: readonly StateEntry[];
  /** The state that can be read, of all scopes. */
  state: StateEntries;
  /** The open calls of the remaining events. */
  calls: Calls;
  damage: readonly Damage['events'][number][];
}

type DamagedValue = Pick<StateValue, 'scope' | 'key'>;

/** The numbers that the session's row must have after the repair. */
interface Books {
  firstSeq: number;
  lastSeq: number;
  /** The missing numbers that get empty events. */
  gaps: readonly SeqRange[];
}

/**
 * Repairs one session.
 *
 * @param write runs a transaction.
 * @throws SessionNotFoundError if there is no such session.
 * @throws CodecError if a text names a codec that is missing.
 * @throws LeaseHeldError while somebody holds its lease.
 */
export async function repair(
  key: SessionKey,
  options: Pick<BatchOptions, 'dryRun' | 'includeLeased'>,
  write: SqlRunner,
): Promise<RepairedSession> {
  return write(async (sql) => {
    if (!(await lockSession(sql, key))) throw new SessionNotFoundError(key.sessionId);
    await new LeaseGuard('allow', undefined).check(sql, key, { refusesHeld: !options.includeLeased });
    const found = await readDamage(sql, key);
    const { values, taken } = await takenOut(sql, found);
    if (!options.dryRun) await mend(sql, { ...found, values });
    return taken;
  });
}

/** Repairs the state of a user or, without one, of an app. No session need be left. @throws CodecError as `repair`. */
export async function repairState(
  { appName, userId }: Owner,
  { dryRun }: Pick<BatchOptions, 'dryRun' | 'includeLeased'>,
  write: SqlRunner,
): Promise<RepairedSession> {
  const session = { appName, userId: userId ?? '', sessionId: '', origin: '' };
  return write(async (sql) => {
    const state = await writtenState(sql, session, userId === undefined ? 'app' : 'user');
    const damaged = state.filter(({ json }) => !decode(json));
    const { values, stateValues } = await takenValues(sql, session, damaged);
    if (!dryRun) await removeValues(sql, { session, seq: 0 }, values);
    return { damage: [], events: [], stateValues, changes: [] };
  });
}

/** @throws SessionNotFoundError if there is no such session. @throws CodecError if a text names a missing codec. */
async function readDamage(sql: Sql, key: SessionKey): Promise<SessionDamage> {
  const read = await readSession(sql, key);
  if (!read) throw new SessionNotFoundError(key.sessionId);
  const rows = await eventTimes(sql, key);
  const superseded = await supersededKeys(sql, key, { from: 0, upTo: MAX_SEQ });
  const { value: past, lost: changes, damaged: ofChanges } = readableChanges(await recordedChanges(sql, key));
  const events = [...read.events, ...read.uncounted].map((event) => ({ ...event, event: decodeEvent(event.json) }));
  const damaged = events.filter(({ event }) => !event);
  const values = read.state.filter(({ json }) => !decode(json));
  for (const { undecodable } of [...damaged, ...values, ...changes]) refuseUnknown(undecodable);

  const unreadable = new Map(damaged.map(({ seq, id }) => [seq, { id }]));
  const books = booksOf(read, rows, unreadable);
  const readable = events.flatMap(({ seq, event }) => (event ? [{ seq, event, superseded: superseded.get(seq) }] : []));
  const state = byScope(
    read.state
      .filter((value) => !values.includes(value))
      .map(({ scope, key, json }) => ({ key: prefixed(scope, key), json, eventId: null })),
  );
  const kept = readable.filter(({ seq }) => seq >= books.firstSeq && seq <= books.lastSeq);
  return {
    session: { ...key, origin: read.origin },
    ...{ head: read, rows, unreadable, values, changes, books },
    // If no event remains, the state of the tables is all there is.
    before: books.firstSeq > books.lastSeq ? state.session : pastState(past, readable, books.firstSeq - 1),
    state,
    calls: callsIn(kept),
    damage: [ofChanges, readableEvents(read).damaged]
      .flatMap((damaged) => damaged?.events ?? [])
      .sort((a, b) => a.from - b.from),
  };
}

/** @throws CodecError for a text that another codec can read: it is not damaged, and removing it would lose it. */
function refuseUnknown(undecodable: Undecodable | undefined): void {
  if (undecodable?.isUnknown)
    throw new CodecError(
      `The session cannot be repaired: some of it is ${undecodable.encoding}. Nothing was written. Add that codec.`,
    );
}

/**
 * Makes `first_seq` and `last_seq` match the rows. Damage at the beginning is treated as trimmed. Elsewhere, an empty event
 * replaces each one that is missing or cannot be read, so that the other events keep their numbers.
 */
function booksOf(head: SessionHead, rows: SessionDamage['rows'], unreadable: SessionDamage['unreadable']): Books {
  const numbers = rows.map(({ seq }) => seq);
  const lastSeq = Math.max(head.lastSeq, numbers.at(-1) ?? 0);
  const gaps = gapsIn(numbers, head.firstSeq - 1, lastSeq);
  const tail = gaps.find((gap) => gap.to === lastSeq && isWide(gap) && rows.length > 0);
  const newLast = tail ? tail.from - 1 : lastSeq;
  const behindWide = gaps.findLast((gap) => gap.to < newLast && isWide(gap))?.to ?? 0;
  const firstGood = numbers.find((seq) => seq > behindWide && !unreadable.has(seq)) ?? newLast + 1;
  const newFirst = Math.max(head.firstSeq, firstGood);
  const filled = gaps.filter(({ from, to }) => from > newFirst && to <= newLast);
  return { firstSeq: newFirst, lastSeq: newLast, gaps: filled };
}

/**
 * @returns what a repair removes, byte for byte, and the values among it: one that somebody has written meanwhile, or is writing now,
 *   is not damaged any more. The caller must hold the session's lock.
 */
async function takenOut(
  sql: Sql,
  { session, rows, unreadable, values, changes, books, damage }: SessionDamage,
): Promise<{ values: DamagedValue[]; taken: RepairedSession }> {
  const events: RepairedSession['events'][number][] = [];
  for (const { seq } of rows) {
    // Events before a wide gap are removed even if they can be read.
    const isTaken = seq < books.firstSeq || unreadable.has(seq);
    const raw = isTaken ? await rawEvent(sql, session, seq) : undefined;
    if (raw) events.push(raw);
  }
  const { values: still, stateValues } = await takenValues(sql, session, values);
  const ofChanges: RepairedSession['changes'][number][] = [];
  for (const { id, kind, seq } of changes) ofChanges.push({ kind, seq, content: await rawChange(sql, session, id) });
  return { values: still, taken: { damage, events, stateValues, changes: ofChanges } };
}

/** @returns the values that are damaged under the lock of their rows, and their bytes. */
async function takenValues(sql: Sql, session: KnownSession, damaged: readonly DamagedValue[]) {
  const values: DamagedValue[] = [];
  const stateValues: RepairedSession['stateValues'][number][] = [];
  for (const value of damaged) {
    const { scope, key } = value;
    const raw = await rawValue(sql, session, scope, key);
    if (!raw) continue;
    const now = stateValueOf(sql.texts, session, { kind: scope, state_key: key, value: raw.toString() });
    refuseUnknown(now.undecodable);
    if (decode(now.json)) continue;
    values.push(value);
    stateValues.push({ key: prefixed(scope, key), content: raw });
  }
  return { values, stateValues };
}

async function removeValues(
  sql: Sql,
  change: { seq: number } & { session: KnownSession },
  values: readonly DamagedValue[],
): Promise<void> {
  for (const { scope, key } of values) await deleteValue(sql, change.session, scope, key);
  const removed = values.map(({ scope, key }) => prefixed(scope, key));
  if (removed.length > 0) await recordChanges(sql, stateChanges(sql.texts, change, byScope([]), removed));
}

/** Writes a repair. The caller must hold the session's lock. */
async function mend(sql: Sql, damaged: SessionDamage): Promise<void> {
  const { session, head, rows, unreadable, values, changes, books, before, state, calls, damage } = damaged;
  const { firstSeq, lastSeq, gaps } = books;
  const empty = (timestamp: number, id?: string) => encodedEvent(sql.texts, session, emptyEvent(timestamp, id));
  await removeValues(sql, { session, seq: head.lastSeq }, values);
  for (const change of changes) emptyChange(sql, session, change);
  for (const { seq } of rows) if (seq < firstSeq) await deleteEvent(sql, session, seq);
  const newest = Math.max(head.lastSeq, rows.at(-1)?.seq ?? 0);
  const times = new Map(rows.map(({ seq, timestamp }) => [seq, timestamp]));
  for (const [seq, { id }] of unreadable) {
    if (seq < firstSeq) continue;
    replaceEvent(sql, session, seq, empty(times.get(seq) ?? 0, id));
    await recordChange(sql, { session, kind: 'rewritten', seq: newest, eventSeq: seq });
  }
  for (const { from, to } of gaps) {
    // The time of the next event: that is also the time of a missing event for `afterTimestamp`.
    const { timestamp } = rows.find(({ seq }) => seq > to) ?? { timestamp: head.lastUpdateTime };
    const filling = Array.from({ length: to - from + 1 }, () => empty(timestamp));
    insertEvents(sql, session, from, filling);
  }
  if (firstSeq !== head.firstSeq || lastSeq !== head.lastSeq) setBounds(sql, session, firstSeq, lastSeq);
  if (lastSeq < head.lastSeq) forgetChangesAfter(sql, session, lastSeq);
  if (firstSeq !== head.firstSeq) await recordTrim(sql, { session, seq: lastSeq }, firstSeq, before);
  if (damage.length === 0) return;
  // The state that lost events have written cannot be computed from events any more, so record it.
  await recordChanges(sql, stateChanges(sql.texts, { session, seq: lastSeq }, state));
  await setOpenCalls(sql, session, calls);
}

function isWide({ from, to }: SeqRange): boolean {
  return to - from >= MOST_FILLED;
}

/** An event without content, which ADK does not send to models. */
function emptyEvent(timestamp: number, id?: string): StoredEvent {
  const event = createEvent({ author: 'system', timestamp, ...(id !== undefined && { id }) });
  return { id: event.id, timestamp, json: JSON.stringify(event), beginsTurn: false, appendTime: null };
}
