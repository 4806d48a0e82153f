import { createEvent } from '@google/adk';
import { insertEvents } from '../database/dialects/session-rows.js';
import { callsIn, type WaitingCall } from '../conversation/open-calls.js';
import type { Database } from '../database/calls/database.js';
import { decodedFirst, type SessionCoding } from '../database/calls/encoded-first.js';
import { Unforeseen } from '../database/calls/public-error.js';
import type { Run, Sql, StoredEvent } from '../database/dialects/dialect.js';
import {
  emptyData,
  forgetChangesAfter,
  pastChangeOf,
  recordChange,
  recordChanges,
  recordTrim,
  recordedChanges,
  setChangeData,
  stateChanges,
  trimChanges,
  type NewChange,
  type RecordedChange,
  type TrimChanges,
} from '../database/statements/changes.js';
import { encodedEvent, replaceEvent, supersededKeys } from '../database/statements/events.js';
import { currentLease } from '../database/statements/leases.js';
import { setOpenCalls } from '../database/statements/open-calls.js';
import { readSession } from '../database/statements/session-reader.js';
import { lockSession, type SessionHead } from '../database/statements/sessions.js';
import { stateOfOwners, type StateValue } from '../database/statements/state.js';
import { isEncoded, type KnownSession, type Undecodable } from '../model/codec.js';
import { CodecError, LeaseHeldError, SessionNotFoundError, type DamagedEvents } from '../model/errors.js';
import { decode, decodeEvent } from '../model/event-codec.js';
import type { SessionKey } from '../model/keys.js';
import { pastState } from '../model/past-state.js';
import { MAX_SEQ, gapsIn, rangesOf, type SeqRange } from '../model/seq-ranges.js';
import { byScope, prefixed, type StateEntries, type StateEntry } from '../model/state.js';
import { AS_STORED, type StoredTexts, type Undecoded } from '../model/stored-texts.js';
import {
  deleteEvent,
  deleteValue,
  eventTimes,
  rawChange,
  rawEvent,
  rawValue,
  setBooks,
  type TakenEvent,
} from './raw-rows.js';

/** A state value that could not be read, byte for byte. */
export interface TakenValue {
  /** With its prefix, `user:` or `app:`. */
  key: string;
  content: Buffer;
}

/** What was recorded of the session's state, for forks and rewinds, and could not be read, byte for byte. */
export interface TakenChange {
  /** The state that the session was given; state that was set outside a run; the state before the first event of a trimmed session. */
  kind: 'created' | 'state' | 'trimmed';
  /** The number of the session's newest event at that time. */
  seq: number;
  content: Buffer;
}

/** What `repair` found and took out. Nothing was wrong if all lists are empty. */
export interface RepairedSession {
  /** As `DamagedSessionError` names them. */
  damage: readonly DamagedEvents[];
  events: readonly TakenEvent[];
  stateValues: readonly TakenValue[];
  changes: readonly TakenChange[];
}

export interface RepairOptions {
  /** Only scan, and return what would be taken out; nothing is written. */
  dryRun?: boolean;
  /** Also while somebody holds the session's lease; false by default. */
  includeLeased?: boolean;
}

/** A wider gap is not filled with empty events: a damaged `last_seq` may be in the billions. */
const MOST_FILLED = 10_000;

/** What was read of a session, and what of it cannot be. */
interface Damaged {
  session: KnownSession;
  head: SessionHead;
  /** The numbers of the events that have rows, and their times, in order. */
  rows: readonly { seq: number; timestamp: number }[];
  /** Those that cannot be read, by number. */
  unreadable: ReadonlyMap<number, { id: string }>;
  values: readonly DamagedValue[];
  changes: readonly RecordedChange[];
  books: Books;
  /** The state before the first event that stays. */
  before: readonly StateEntry[];
  /** The state that can be read, of all scopes. */
  state: StateEntries;
  /** The calls of the events that stay. */
  calls: readonly WaitingCall[];
  damage: readonly DamagedEvents[];
}

interface DamagedValue extends Pick<StateValue, 'scope' | 'key'> {
  /** The text in its row. */
  stored: string | undefined;
}

/** What the numbers in a session's row are to be. */
interface Books {
  firstSeq: number;
  lastSeq: number;
  /** The numbers without a row that are filled. */
  gaps: readonly SeqRange[];
}

/** What a repair writes, as it is stored. */
interface RepairTexts {
  /** In place of events that cannot be read, by number. */
  empty: ReadonlyMap<number, StoredEvent>;
  /** In place of missing ones, by the first number of a gap. */
  filling: ReadonlyMap<number, readonly StoredEvent[]>;
  /** In place of changes that cannot be read, by id. */
  changes: ReadonlyMap<number, string | null>;
  /** The values that are removed. */
  removed: readonly NewChange[];
  trimmed: TrimChanges | undefined;
  /** All state that can be read. */
  state: readonly NewChange[];
}

/**
 * Repairs one session.
 *
 * @param write runs its work in a transaction.
 * @throws SessionNotFoundError when there is no such session.
 * @throws CodecError when a text names a codec that is not there.
 * @throws LeaseHeldError while somebody holds its lease.
 */
export async function repair(
  database: Database,
  key: SessionKey,
  options: RepairOptions,
  write: Run,
): Promise<RepairedSession> {
  const coding: SessionCoding<undefined, Damaged, RepairTexts> = {
    key,
    read: (sql) => readDamage(sql, key),
    encode: (damaged) => database.code((texts) => encoded(texts, damaged)),
    // Of a user and an app anybody sets state.
    version: async (sql) => {
      const state = (await stateOfOwners(sql, [key]))(AS_STORED);
      return state
        .map((value) => JSON.stringify(value))
        .sort()
        .join();
    },
  };
  return decodedFirst(database, coding, (codedFor) =>
    write(async (sql) => {
      if (!(await lockSession(sql, key))) throw new SessionNotFoundError(key.sessionId);
      const lease = options.includeLeased ? undefined : await currentLease(sql, key, { underLock: true });
      if (lease?.isHeld) throw new LeaseHeldError(key.sessionId, lease.holder, lease.expiresAt);
      const { read, texts } = await codedFor(sql, undefined);
      const taken = await takenOut(sql, read);
      if (!options.dryRun) await mend(sql, read, texts);
      return taken;
    }),
  );
}

/**
 * @returns what throws SessionNotFoundError when there is no such session, and CodecError when a text names a codec that is not there.
 */
async function readDamage(sql: Sql, key: SessionKey): Promise<Undecoded<Damaged>> {
  const reading = await readSession(sql, key);
  const rows = await eventTimes(sql, key);
  const superseded = await supersededKeys(sql, key, { from: 0, upTo: MAX_SEQ });
  const recorded = await recordedChanges(sql, key);
  return (texts) => {
    const read = reading(texts);
    if (!read) throw new SessionNotFoundError(key.sessionId);
    const history = recorded(texts);
    const events = [...read.events, ...read.uncounted].map((event) => ({ ...event, event: decodeEvent(event.json) }));
    const damaged = events.filter(({ event }) => !event);
    const damagedValues = read.state.filter(({ json }) => !decode(json));
    const changes = history.filter((change) => !pastChangeOf(change));
    for (const { undecodable } of [...damaged, ...damagedValues, ...changes]) refuseUnknown(undecodable);

    const unreadable = new Map(damaged.map(({ seq, id }) => [seq, { id }]));
    const books = booksOf(read, rows, unreadable);
    const readable = events.flatMap(({ seq, event }) =>
      event ? [{ seq, event, superseded: superseded.get(seq) }] : [],
    );
    const stored = new Map(reading(AS_STORED)?.state.map(({ scope, key, json }) => [prefixed(scope, key), json]));
    const values = damagedValues.map(({ scope, key }) => ({ scope, key, stored: stored.get(prefixed(scope, key)) }));
    const state = byScope(
      read.state
        .filter((value) => !damagedValues.includes(value))
        .map(({ scope, key, json }) => ({ key: prefixed(scope, key), json, eventId: null })),
    );
    const past = history.flatMap((change) => pastChangeOf(change) ?? []);
    const kept = readable.filter(({ seq }) => seq >= books.firstSeq && seq <= books.lastSeq);
    return {
      session: { ...key, origin: read.origin },
      ...{ head: read, rows, unreadable, values, changes, books },
      // What no row explains is in the tables alone.
      before: books.firstSeq > books.lastSeq ? state.session : pastState(past, readable, books.firstSeq - 1),
      state,
      calls: callsIn(kept),
      damage: damageIn(read, rows, unreadable, changes),
    };
  };
}

/** @throws CodecError for what another codec can read: taking it out would lose what is whole. */
function refuseUnknown(undecodable: Undecodable | undefined): void {
  if (undecodable?.isUnknown)
    throw new CodecError(
      `The session cannot be repaired: some of it is ${undecodable.encoding}. Give that codec, too.`,
    );
}

/**
 * Makes `first_seq` and `last_seq` match the rows. What is damaged at the beginning is as if it were trimmed; elsewhere an
 * empty event replaces what is missing or cannot be read, so that the other events keep their numbers.
 */
function booksOf(head: SessionHead, rows: Damaged['rows'], unreadable: Damaged['unreadable']): Books {
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

function damageIn(
  { firstSeq, lastSeq }: SessionHead,
  rows: Damaged['rows'],
  unreadable: Damaged['unreadable'],
  changes: readonly RecordedChange[],
): DamagedEvents[] {
  const numbers = rows.map(({ seq }) => seq);
  const ranges: [DamagedEvents['problem'], readonly SeqRange[]][] = [
    ['change', changes.map(({ kind, seq }) => (kind === 'state' ? { from: seq, to: seq } : { from: 0, to: 0 }))],
    ['missing', gapsIn(numbers, firstSeq - 1, lastSeq)],
    ['unreadable', rangesOf(unreadable.keys())],
    ['uncounted', rangesOf(numbers.filter((seq) => seq > lastSeq))],
  ];
  const damage = ranges.flatMap(([problem, all]) => all.map((range) => ({ ...range, problem })));
  // Several changes may follow one event.
  const once = new Map(damage.map((each) => [`${each.from} ${each.problem}`, each]));
  return [...once.values()].sort((a, b) => a.from - b.from);
}

function encoded(texts: StoredTexts, damaged: Damaged): RepairTexts {
  const { session, head, rows, unreadable, values, changes, books, before, state, damage } = damaged;
  const { firstSeq, lastSeq, gaps } = books;
  const empty = (timestamp: number, id?: string) => encodedEvent(texts, session, emptyEvent(timestamp, id));
  const times = new Map(rows.map(({ seq, timestamp }) => [seq, timestamp]));
  const removed = values.map(({ scope, key }) => prefixed(scope, key));
  return {
    empty: new Map(
      [...unreadable]
        .filter(([seq]) => seq >= firstSeq)
        .map(([seq, { id }]) => [seq, empty(times.get(seq) ?? 0, id)] as const),
    ),
    filling: new Map(
      gaps.map(({ from, to }) => {
        // The time of the event after it, as a filter by time takes a missing one.
        const { timestamp } = rows.find(({ seq }) => seq > to) ?? { timestamp: head.lastUpdateTime };
        return [from, Array.from({ length: to - from + 1 }, () => empty(timestamp))] as const;
      }),
    ),
    changes: new Map(changes.map((change) => [change.id, emptyData(texts, session, change)])),
    removed: removed.length > 0 ? stateChanges(texts, { session, seq: head.lastSeq }, byScope([]), removed) : [],
    trimmed: firstSeq === head.firstSeq ? undefined : trimChanges(texts, { session, seq: lastSeq }, before),
    // No event has what the lost events left in the state any more.
    state: damage.length > 0 ? stateChanges(texts, { session, seq: lastSeq }, state) : [],
  };
}

/** @returns what a repair takes out, byte for byte, for the caller that holds the session's lock. */
async function takenOut(
  sql: Sql,
  { session, rows, unreadable, values, changes, books, damage }: Damaged,
): Promise<RepairedSession> {
  const events: TakenEvent[] = [];
  for (const { seq } of rows) {
    // Events before a wide gap are taken out even if they can be read.
    const isTaken = seq < books.firstSeq || unreadable.has(seq);
    const raw = isTaken ? await rawEvent(sql, session, seq) : undefined;
    if (raw) events.push(raw);
  }
  const stateValues: TakenValue[] = [];
  for (const { scope, key, stored } of values) {
    const raw = await rawValue(sql, session, scope, key);
    const text = raw?.toString() ?? stored;
    // Somebody has written it anew since, or is about to.
    if (!raw || (text !== stored && (isEncoded(text ?? '') || decode(text ?? '')))) throw new Unforeseen();
    stateValues.push({ key: prefixed(scope, key), content: raw });
  }
  const taken: TakenChange[] = [];
  for (const { id, kind, seq } of changes) taken.push({ kind, seq, content: await rawChange(sql, session, id) });
  return { damage, events, stateValues, changes: taken };
}

/** Writes a repair, for the caller that holds the session's lock. */
async function mend(sql: Sql, damaged: Damaged, texts: RepairTexts): Promise<void> {
  const { session, head, rows, values, books, calls, damage } = damaged;
  const { firstSeq, lastSeq } = books;
  for (const { scope, key } of values) await deleteValue(sql, session, scope, key);
  await recordChanges(sql, texts.removed);
  for (const [id, data] of texts.changes) await setChangeData(sql, session, id, data);
  for (const { seq } of rows) if (seq < firstSeq) await deleteEvent(sql, session, seq);
  const newest = Math.max(head.lastSeq, rows.at(-1)?.seq ?? 0);
  for (const [seq, event] of texts.empty) {
    await replaceEvent(sql, session, seq, event);
    await recordChange(sql, { session, kind: 'rewritten', seq: newest, eventSeq: seq });
  }
  for (const [from, filling] of texts.filling) await insertEvents(sql, session, from, filling);
  if (firstSeq !== head.firstSeq || lastSeq !== head.lastSeq) await setBooks(sql, session, firstSeq, lastSeq);
  if (lastSeq < head.lastSeq) await forgetChangesAfter(sql, session, lastSeq);
  if (texts.trimmed) await recordTrim(sql, session, firstSeq, texts.trimmed);
  await recordChanges(sql, texts.state);
  if (damage.length > 0) await setOpenCalls(sql, session, calls);
}

function isWide({ from, to }: SeqRange): boolean {
  return to - from >= MOST_FILLED;
}

/** An event without content, which ADK shows to no model. */
function emptyEvent(timestamp: number, id?: string): StoredEvent {
  const event = createEvent({ author: 'system', timestamp, ...(id !== undefined && { id }) });
  return { id: event.id, timestamp, json: JSON.stringify(event), beginsTurn: false };
}
