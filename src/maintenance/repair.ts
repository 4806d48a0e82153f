import { createEvent } from '@google/adk';
import type { Database } from '../database/calls/database.js';
import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
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
} from '../database/stores/change-store.js';
import { encodedEvent } from '../database/stores/event-store.js';
import { currentLease } from '../database/stores/leases.js';
import { recountOpenCalls } from '../database/stores/open-calls.js';
import { stateThen } from '../database/stores/past.js';
import { readSession } from '../database/stores/session-reader.js';
import { lockSession, type SessionHead } from '../database/stores/session-store.js';
import type { Stores } from '../database/stores/stores.js';
import { ofState, type KnownSession, type Undecodable } from '../model/codec.js';
import { CodecError, LeaseHeldError, SessionNotFoundError, type DamagedEvents } from '../model/errors.js';
import { decode, decodeEvent } from '../model/event-codec.js';
import type { SessionKey } from '../model/keys.js';
import { gapsIn, rangesOf, type SeqRange } from '../model/seq-ranges.js';
import { byScope, prefixed } from '../model/state.js';
import {
  deleteEvent,
  deleteValue,
  eventTimes,
  rawChange,
  rawEvent,
  rawValue,
  setBooks,
  type RawEvent,
  type RawValue,
} from './raw-rows.js';

/** The row of an event that could not be read, byte for byte. */
export interface TakenEvent {
  seq: number;
  eventId: string;
  /** In ms since 1970. */
  timestamp: number;
  /** Null if the row had none. */
  content: Buffer | null;
  /** What it had in `adk_event_parts`. */
  parts: readonly { part: number; content: Buffer }[];
}

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

/** What of a session could not be read, before its lock is taken. */
interface FoundDamage {
  events: readonly { seq: number }[];
  stateValues: readonly { scope: RawValue['scope']; key: string }[];
}

/**
 * Finds what cannot be read. It does not take the session's lock, since it reads all of the history.
 *
 * @throws SessionNotFoundError when there is no such session.
 * @throws CodecError when a text names a codec that is not there.
 */
export async function scanForDamage(database: Database, key: SessionKey): Promise<FoundDamage> {
  const read = await database.read((sql) => readSession(sql, key));
  if (!read) throw new SessionNotFoundError(key.sessionId);
  const events = [...read.events, ...read.uncounted].filter(({ json }) => !decodeEvent(json));
  const stateValues = read.state.filter(({ json }) => !decode(json));
  for (const { undecodable } of [...events, ...stateValues]) refuseUnknown(undecodable);
  return { events, stateValues };
}

/** @throws CodecError for what another codec can read: taking it out would lose what is whole. */
function refuseUnknown(undecodable: Undecodable | undefined): void {
  if (undecodable?.isUnknown)
    throw new CodecError(
      `The session cannot be repaired: some of it is ${undecodable.encoding}. Give that codec, too.`,
    );
}

/** Repairs one session in a transaction. */
export class Repair {
  readonly #sql: Sql;
  readonly #stores: Stores;
  readonly #key: SessionKey;
  readonly #options: RepairOptions;
  readonly #events = new Map<number, RawEvent>();
  readonly #values = new Map<string, RawValue>();
  readonly #changes: TakenChange[] = [];
  readonly #damage = new Map<string, DamagedEvents>();

  constructor(sql: Sql, stores: Stores, key: SessionKey, options: RepairOptions) {
    this.#sql = sql;
    this.#stores = stores;
    this.#key = key;
    this.#options = options;
  }

  /**
   * @throws SessionNotFoundError when the session is gone.
   * @throws LeaseHeldError while somebody holds its lease.
   */
  async apply(found: FoundDamage): Promise<RepairedSession> {
    const sql = this.#sql;
    const head = await lockSession(sql, this.#key);
    if (!head) throw new SessionNotFoundError(this.#key.sessionId);
    const lease = this.#options.includeLeased ? undefined : await currentLease(sql, this.#key, { underLock: true });
    if (lease?.isHeld) throw new LeaseHeldError(this.#key.sessionId, lease.holder, lease.expiresAt);

    const session = { ...this.#key, origin: head.origin };
    for (const { scope, key } of found.stateValues) {
      const value = await rawValue(sql, this.#key, scope, key);
      // Somebody may have written it anew since.
      if (!value || isReadable(sql, session, value)) continue;
      this.#values.set(prefixed(scope, key), value);
      if (this.#options.dryRun) continue;
      await deleteValue(sql, this.#key, scope, key);
      const removed = [prefixed(scope, key)];
      await recordChanges(
        sql,
        sql.texts.all(() => stateChanges(sql.texts, { session, seq: head.lastSeq }, byScope([]), removed)),
      );
    }
    await this.#takeChanges(session);
    await this.#mendEvents(session, head, found);
    return {
      damage: [...this.#damage.values()].sort((a, b) => a.from - b.from),
      events: [...this.#events.values()].sort((a, b) => a.seq - b.seq),
      stateValues: [...this.#values.values()].map(({ scope, key, content }) => ({
        key: prefixed(scope, key),
        content,
      })),
      changes: this.#changes,
    };
  }

  /** Only forks and rewinds read them, so that nothing else has found out. */
  async #takeChanges(session: KnownSession): Promise<void> {
    const sql = this.#sql;
    for (const { id, kind, seq, ...change } of sql.texts.decoded(await recordedChanges(sql, this.#key))) {
      if (pastChangeOf({ id, kind, seq, ...change })) continue;
      refuseUnknown(change.undecodable);
      this.#changes.push({ kind, seq, content: await rawChange(sql, this.#key, id) });
      const after = kind === 'state' ? seq : 0;
      this.#note([{ from: after, to: after }], 'change');
      if (this.#options.dryRun) continue;
      const data = sql.texts.all(() => emptyData(sql.texts, session, { kind, seq }));
      await setChangeData(sql, this.#key, id, data);
    }
  }

  /**
   * Makes `first_seq` and `last_seq` match the rows. What is damaged at the beginning is as if it were trimmed; elsewhere an
   * empty event replaces what is missing or cannot be read, so that the other events keep their numbers.
   */
  async #mendEvents(session: KnownSession, head: SessionHead, found: FoundDamage): Promise<void> {
    const sql = this.#sql;
    const { events } = this.#stores;
    const rows = await eventTimes(sql, this.#key);
    const unreadable = await this.#stillUnreadable(found);
    const lastSeq = Math.max(head.lastSeq, rows.at(-1)?.seq ?? 0);
    const numbers = rows.map(({ seq }) => seq);
    this.#note(gapsIn(numbers, head.firstSeq - 1, head.lastSeq), 'missing');
    this.#note(rangesOf(unreadable.keys()), 'unreadable');
    this.#note(rangesOf(numbers.filter((seq) => seq > head.lastSeq)), 'uncounted');

    const gaps = gapsIn(numbers, head.firstSeq - 1, lastSeq);
    const tail = gaps.find((gap) => gap.to === lastSeq && isWide(gap) && rows.length > 0);
    const newLast = tail ? tail.from - 1 : lastSeq;
    const behindWide = gaps.findLast((gap) => gap.to < newLast && isWide(gap))?.to ?? 0;
    const firstGood = numbers.find((seq) => seq > behindWide && !unreadable.has(seq)) ?? newLast + 1;
    const newFirst = Math.max(head.firstSeq, firstGood);

    const past = { key: this.#key, ...head, lastSeq: newLast };
    const trimmed = newFirst !== head.firstSeq && !this.#options.dryRun;
    const before = trimmed ? (await stateThen(sql, this.#stores, past, newFirst - 1)).state : [];
    // What can be read is taken out as well where it is in front of a wide gap.
    for (const seq of numbers.filter((seq) => seq < newFirst)) {
      const raw = unreadable.get(seq) ?? (await rawEvent(sql, this.#key, seq));
      if (raw) this.#events.set(seq, raw);
      if (!this.#options.dryRun) await deleteEvent(sql, this.#key, seq);
    }
    for (const [seq, raw] of unreadable) {
      this.#events.set(seq, raw);
      if (seq < newFirst || this.#options.dryRun) continue;
      const empty = emptyEvent(raw.timestamp, raw.eventId);
      await events.replace(
        sql,
        session,
        seq,
        sql.texts.all(() => encodedEvent(sql.texts, session, empty)),
      );
      await recordChange(sql, { session, kind: 'rewritten', seq: lastSeq, eventSeq: seq });
    }
    if (this.#options.dryRun) return;
    for (const gap of gaps.filter(({ from, to }) => from > newFirst && to <= newLast)) {
      // The time of the event after it, as a filter by time takes a missing one.
      const { timestamp } = rows.find(({ seq }) => seq > gap.to) ?? { timestamp: head.lastUpdateTime };
      const filling = Array.from({ length: gap.to - gap.from + 1 }, () => emptyEvent(timestamp));
      await events.insert(
        sql,
        session,
        gap.from,
        sql.texts.all(() => filling.map((event) => encodedEvent(sql.texts, session, event))),
      );
    }
    if (newFirst !== head.firstSeq || newLast !== head.lastSeq) await setBooks(sql, this.#key, newFirst, newLast);
    if (newLast < head.lastSeq) await forgetChangesAfter(sql, this.#key, newLast);
    if (trimmed) {
      const recorded = sql.texts.all(() => trimChanges(sql.texts, { session, seq: newLast }, before));
      await recordTrim(sql, this.#key, newFirst, recorded);
    }
    // No event has what the lost events left in the state any more.
    if (this.#damage.size > 0) await this.#recordState(session, newLast);
    if (this.#damage.size > 0) await recountOpenCalls(sql, this.#key);
  }

  /** Records all state that can be read. */
  async #recordState(session: KnownSession, seq: number): Promise<void> {
    const { state } = this.#stores;
    const stored = await state.ofOwners(this.#sql, [session]);
    const readable = this.#sql.texts.decoded(stored).filter(({ json }) => decode(json));
    const entries = readable.map(({ scope, key, json }) => ({ key: prefixed(scope, key), json, eventId: null }));
    const { texts } = this.#sql;
    await recordChanges(
      this.#sql,
      texts.all(() => stateChanges(texts, { session, seq }, byScope(entries))),
    );
  }

  /** Under the lock, which appends need that would replace an event. */
  async #stillUnreadable(found: FoundDamage): Promise<Map<number, RawEvent>> {
    const sql = this.#sql;
    const unreadable = new Map<number, RawEvent>();
    for (const { seq } of found.events) {
      const raw = await rawEvent(sql, this.#key, seq);
      if (!raw) continue;
      const found = await this.#stores.events.find(sql, this.#key, raw.eventId, { isLocked: true });
      const current = found && sql.texts.decoded(found.content);
      refuseUnknown(current?.undecodable);
      if (!decodeEvent(current?.json)) unreadable.set(seq, raw);
    }
    return unreadable;
  }

  #note(ranges: readonly SeqRange[], problem: DamagedEvents['problem']): void {
    for (const range of ranges) this.#damage.set(`${range.from} ${problem}`, { ...range, problem });
  }
}

/** Whether a value that was taken from its row can be read. */
function isReadable({ texts }: Sql, owner: KnownSession, { scope, key, content }: RawValue): boolean {
  const json = texts.all(() => texts.decode(content.toString(), () => ofState(owner, scope, key)));
  return typeof json === 'string' && decode(json) !== undefined;
}

function isWide({ from, to }: SeqRange): boolean {
  return to - from >= MOST_FILLED;
}

/** An event without content, which ADK shows to no model. */
function emptyEvent(timestamp: number, id?: string): StoredEvent {
  const event = createEvent({ author: 'system', timestamp, ...(id !== undefined && { id }) });
  return { id: event.id, timestamp, json: JSON.stringify(event), beginsTurn: false };
}
