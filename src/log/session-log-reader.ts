import type { Sql } from '../database/dialects/dialect.js';
import { loggedEventsOfSession, type LoggedEvent } from '../database/statements/logged-events.js';
import { sessionHead } from '../database/statements/sessions.js';
import type { SessionHead } from '../database/statements/stored-session.js';
import { DamagedEventError, LogWentBackError } from '../model/errors.js';
import { given } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import { gapsIn, notBefore, type SeqRange } from '../model/seq-ranges.js';
import type { SessionLogEntry, SessionLogCursor } from './entries.js';
import { entriesOf, type SessionLogFilter } from './filters.js';
import { BATCH, type ReaderCall } from './reader-call.js';
import type { Heads } from './watch/heads.js';

interface Batch {
  events: LoggedEvent[];
  /** The numbers that have no event. */
  gaps: SeqRange[];
  /** The number to continue after. */
  upTo: number;
}

/** Reads one session's log, by the numbers of its events: it needs no positions. */
export class SessionLogReader {
  readonly #call: ReaderCall;
  readonly #heads: Heads;
  readonly #session: SessionKey;
  readonly #filter: SessionLogFilter;
  #cursor: SessionLogCursor;

  constructor(
    call: ReaderCall,
    heads: Heads,
    { session, cursor, filter }: { session: SessionKey; cursor: SessionLogCursor; filter: SessionLogFilter },
  ) {
    this.#call = call;
    this.#heads = heads;
    this.#session = session;
    this.#cursor = cursor;
    this.#filter = filter;
  }

  /** Reads what is committed now. */
  async *since(): AsyncGenerator<SessionLogEntry> {
    const head = await this.#heads.ofSession(this.#call, this.#session);
    if (head) yield* this.#readUpTo(head);
  }

  /** Reads what is committed now, and then new events, until the signal fires. */
  watch(): AsyncGenerator<SessionLogEntry> {
    return this.#call.untilAborted(this.#watch());
  }

  async *#watch(): AsyncGenerator<SessionLogEntry> {
    const heads = this.#heads.watchSession(this.#call, this.#session);
    try {
      for (let head = await heads.poll(); ; head = await heads.next()) {
        // The head may be of a poll that began before the caller read its cursor: ask the database again.
        if (head && (this.#isAnother(head) || head.lastSeq < this.#cursor.seq)) head = await heads.poll();
        if (head) yield* this.#readUpTo(head);
      }
    } finally {
      await heads.leave();
    }
  }

  /**
   * Continues to read, up to a head. If the session has another history by now, yields a reset and reads from the first event.
   *
   * @throws LogWentBackError if the cursor is ahead of the session.
   */
  async *#readUpTo(head: SessionHead): AsyncGenerator<SessionLogEntry> {
    const { incarnation, firstSeq, lastSeq } = head;
    if (this.#isAnother(head)) {
      this.#cursor = { seq: 0, incarnation };
      yield { change: 'reset', seq: 0, ...this.#session, cursor: { ...this.#cursor } };
    }
    if (lastSeq < this.#cursor.seq) throw new LogWentBackError(lastSeq);
    let after = Math.max(this.#cursor.seq, firstSeq - 1);
    while (after < lastSeq) {
      const batch = await this.#call.run((sql) => this.#readBatch(sql, head, after));
      yield* this.#entriesOf(batch, incarnation);
      after = batch.upTo;
    }
    this.#cursor = { seq: lastSeq, incarnation };
  }

  /** Whether the cursor belongs to another history of the session. */
  #isAnother({ incarnation }: SessionHead): boolean {
    return this.#cursor.incarnation !== '' && this.#cursor.incarnation !== incarnation;
  }

  async #readBatch(sql: Sql, { incarnation, lastSeq }: SessionHead, after: number): Promise<Batch> {
    const { afterTimestamp } = this.#filter;
    const range = { incarnation, after, upTo: lastSeq, limit: BATCH, afterTimestamp };
    const events = await loggedEventsOfSession(sql, this.#session, range);
    const upTo = events.length < BATCH ? lastSeq : (events.at(-1)?.seq ?? lastSeq);
    const numbers = events.map(({ seq }) => seq);
    // A missing event has no time, so a filter by time leaves it out.
    const gaps = afterTimestamp === undefined ? gapsIn(numbers, after, upTo) : [];
    // The events are missing, or were deleted or trimmed since the head was read.
    const head = gaps.length > 0 ? await sessionHead(sql, this.#session) : undefined;
    const missing = head?.incarnation === incarnation ? notBefore(gaps, head.firstSeq) : [];
    return { events, upTo, gaps: missing };
  }

  *#entriesOf({ events, gaps }: Batch, incarnation: string): Generator<SessionLogEntry> {
    const entryPosition = (seq: number) => ({ seq, ...this.#session, cursor: { seq, incarnation } });
    // One entry for a whole gap; its cursor is after the gap.
    const missing = ({ from, to }: SeqRange) => ({
      ...entryPosition(to),
      error: new DamagedEventError(this.#session.sessionId, from, to),
    });
    for (const { seq, appendTime, event, error } of entriesOf(events, this.#filter)) {
      for (; gaps[0] && gaps[0].to < seq; gaps.shift()) yield missing(gaps[0]);
      const entry = { ...entryPosition(seq), ...given({ appendTime }) };
      yield event ? { ...entry, event } : { ...entry, error };
    }
    for (const gap of gaps) yield missing(gap);
  }
}
