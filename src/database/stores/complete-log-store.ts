import type { SessionKey } from '../../model/keys.js';
import { checking, type Sql } from '../sql/sql.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { numberOf, optionalNumberOf, optionalTextOf } from '../sql/row-values.js';
import type { ChangeKind } from './change-store.js';
import { conditions, type LogColumns, type LogRange } from './log-columns.js';

/** A change as the log reads it. */
export interface LoggedChange {
  /** Ids are empty where the change is not of one session. */
  session: SessionKey;
  id: number;
  kind: ChangeKind;
  seq: number;
  eventSeq: number | null;
  /** The position of the event that it follows. */
  position: number;
  /** Its number among the changes. */
  number: number;
  data: string | null;
  /**
   * Of a creation, a deletion and a rewind: whether events of the session that were written after it come before it in the
   * log. Somebody who does not know of changes has given them their positions: a process of an earlier version.
   */
  isLate: boolean;
}

/** What a rewritten event had before one of its rewritings. */
export interface Rewriting {
  session: SessionKey;
  eventSeq: number;
  changeId: number;
  /** Null where the old content was not recorded. */
  before: string | null;
}

/** What a reader of the complete log reads besides events. */
export class CompleteLogStore {
  readonly #text: ReturnType<typeof texts>;

  constructor(tables: Tables) {
    this.#text = texts(tables);
  }

  /** The changes after one number, up to and including another. */
  async changes(sql: Sql, { after, upTo, limit }: LogRange, columns: LogColumns): Promise<LoggedChange[]> {
    const { where, values } = conditions({ ...columns, afterTimestamp: undefined });
    const text = `${this.#text.selectChanges}${where} order by number limit ?`;
    const rows = await sql.all<ChangeRow>(text, [checking(after), upTo, ...values, limit]);
    return rows.map((row) => ({
      session: sessionKeyOf(row),
      id: numberOf(row.change_id),
      kind: row.kind,
      seq: numberOf(row.seq),
      eventSeq: optionalNumberOf(row.event_seq) ?? null,
      position: numberOf(row.position),
      number: numberOf(row.number),
      data: optionalTextOf(row.data),
      isLate: (optionalNumberOf(row.next_position) ?? Infinity) <= numberOf(row.position),
    }));
  }

  /** @returns the number of the last change in front of the event with a position. */
  async changeBefore(sql: Sql, position: number): Promise<number> {
    if (position === 0) return 0;
    const [row] = await sql.all<{ number: number | string }>(this.#text.selectChangeBefore, [checking(position)]);
    return row ? numberOf(row.number) : 0;
  }

  /** @returns the number of a session's newest event up to a position; undefined when there is none. */
  async newestAt(sql: Sql, session: SessionKey, position: number): Promise<number | undefined> {
    const [row] = await sql.all<{ seq: number | null }>(this.#text.selectNewestAt, [
      ...sessionValues(session),
      position,
    ]);
    return row?.seq ?? undefined;
  }

  /** What the rewritten events of some sessions had before, in the order of the rewritings. */
  async rewritings(sql: Sql, sessions: readonly SessionKey[]): Promise<Rewriting[]> {
    if (sessions.length === 0) return [];
    const where = sessions.map(() => `(${SESSION_WHERE})`).join(' or ');
    const rows = await sql.all<RewritingRow>(
      `${this.#text.selectRewritings} and (${where}) order by change_id`,
      sessions.flatMap(sessionValues),
    );
    return rows.map((row) => ({
      session: sessionKeyOf(row),
      eventSeq: numberOf(row.event_seq),
      changeId: numberOf(row.change_id),
      before: optionalTextOf(row.data),
    }));
  }
}

interface RewritingRow extends SessionKeyRow {
  change_id: number | string;
  event_seq: number;
  data: string | null;
}

interface ChangeRow extends SessionKeyRow {
  change_id: number | string;
  kind: ChangeKind;
  seq: number;
  event_seq: number | null;
  position: number | string;
  number: number | string;
  data: string | null;
  /** Of the session's first event after the change's number; null without one, or where it does not matter. */
  next_position: number | string | null;
}

function texts({ events, changes, select }: Tables) {
  const changed = `select change_id, ${SESSION_COLUMNS}, kind, seq, event_seq, position, number, ${select.data} as data`;
  return {
    // The position of the next event is selected for the changes after which an event is not what it was before. Positions
    // of a session's events grow with their numbers, so the first one shows whether there is any.
    selectChanges: `${changed}, case when kind in ('created', 'deleted', 'rewound') then (
        select e.position from ${events} as e where ${isSameSession('e', 'c')} and e.seq > c.seq order by e.seq limit 1)
      end as next_position from ${changes} as c where number > ? and number <= ?`,
    // From the newest one down: a reader that asks reads those that are passed anyway.
    selectChangeBefore: `select number from ${changes} where position < ? and number > 0 order by number desc limit 1`,
    selectNewestAt: `select max(seq) as seq from ${events} where ${SESSION_WHERE} and position <= ?`,
    selectRewritings: `${changed} from ${changes} where event_seq is not null`,
  };
}
