import type { SessionKey } from '../../model/keys.js';
import { MAX_SEQ } from '../../model/seq-ranges.js';
import type { Dialect, Sql } from './dialect.js';
import { numberOf } from '../sql/row-values.js';
import { SESSION_COLUMNS, SESSION_WHERE, sessionValues, type Tables } from '../sql/tables.js';

/** For a read that may be inside of the transaction that locks the session. */
export interface UnderLock {
  isLocked?: boolean;
}

/** The content of events that are too large for one packet, in rows of `adk_event_parts`. */
export class EventParts {
  readonly #select: string;
  readonly #insert: string;
  readonly #selectNumbers: string;
  readonly #delete: string;
  readonly #underLock: string;
  readonly #length: number;

  constructor({ limits, sql }: Dialect, { events, eventParts, select }: Tables) {
    this.#length = limits?.maxTextLength ?? Infinity;
    this.#insert = `insert into ${eventParts} (${SESSION_COLUMNS}, seq, part, text) values (?, ?, ?, ?, ?, ?)`;
    this.#selectNumbers = `select seq from ${eventParts} ${sql.fromIndex('primary')} where ${SESSION_WHERE} and seq >= ? and seq <= ?`;
    this.#delete = `delete from ${eventParts} where ${SESSION_WHERE} and seq = ?`;
    this.#select = `select part, coalesce(text, ${select.data}) as text from ${events}
      left join ${eventParts} using (${SESSION_COLUMNS}, seq) where ${SESSION_WHERE} and seq = ? order by part`;
    this.#underLock = sql.underLock;
  }

  /** Whether an event's content is too large for its row. */
  areNeededFor(json: string): boolean {
    return json.length > this.#length;
  }

  /** Also where an event that somebody has deleted by a statement of their own had this number, and has left its parts. */
  async insert(sql: Sql, session: SessionKey, seq: number, json: string): Promise<void> {
    await this.delete(sql, session, seq);
    for (let start = 0, part = 0; start < json.length; part++) {
      let end = Math.min(start + this.#length, json.length);
      // Half of a surrogate pair would not survive on its own.
      if (/[\uD800-\uDBFF]/.test(json.charAt(end - 1)) && end < json.length) end--;
      await sql.run(this.#insert, [...sessionValues(session), seq, part, json.slice(start, end)]);
      start = end;
    }
  }

  async delete(sql: Sql, session: SessionKey, seq: number): Promise<void> {
    if (this.#length < Infinity) await sql.run(this.#delete, [...sessionValues(session), seq]);
  }

  /** For the caller that deletes all events of the session with these numbers. */
  async deleteFrom(sql: Sql, session: SessionKey, first: number, last = MAX_SEQ): Promise<void> {
    if (this.#length === Infinity) return;
    // Selected first: at the end of a range InnoDB would lock the gap where another session's parts come.
    const rows = await sql.all<{ seq: number }>(this.#selectNumbers, [...sessionValues(session), first, last]);
    for (const seq of new Set(rows.map((row) => numberOf(row.seq)))) await this.delete(sql, session, seq);
  }

  /**
   * Reads an event's row again, with its parts: the event may have been replaced or deleted since the first read.
   *
   * @param options.isLocked whether the caller holds the session's lock.
   * @returns null where the row has lost its content or a part of it; undefined where the row is gone.
   */
  async read(
    sql: Sql,
    session: SessionKey,
    seq: number,
    { isLocked = false }: UnderLock = {},
  ): Promise<string | null | undefined> {
    const rows = await sql.all<PartRow>(this.#select + (isLocked ? this.#underLock : ''), [
      ...sessionValues(session),
      seq,
    ]);
    const [first] = rows;
    if (!first) return undefined;
    // The event was replaced by one without parts, or its parts are missing.
    if (first.part === null) return first.text;
    // A missing last part is noticed when the JSON is parsed.
    return rows.every(({ part }, i) => numberOf(part) === i) ? rows.map(({ text }) => text).join('') : null;
  }
}

interface PartRow {
  part: number | null;
  text: string | null;
}
