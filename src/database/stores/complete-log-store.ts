import type { SessionKey } from '../../model/keys.js';
import { checking, type Sql } from '../sql/sql.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  incarnationOf,
  isSameSession,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { numberOf, optionalNumberOf, optionalTextOf } from '../sql/row-values.js';
import { decodedData, type ChangeKind } from './change-store.js';
import { incarnationIn, type IncarnationRow } from './state-store.js';
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

/** What a reader of the complete log reads in addition to events. */
export class CompleteLogStore {
  readonly #plain: ReturnType<typeof texts>;
  readonly #withIncarnation: ReturnType<typeof texts>;

  constructor(tables: Tables) {
    this.#plain = texts(tables, "''");
    this.#withIncarnation = texts(tables, incarnationOf(tables, 'c'));
  }

  /** What is encoded is bound to the incarnation of its session. */
  #text({ texts }: Sql) {
    return texts.codec.isNone ? this.#plain : this.#withIncarnation;
  }

  /**
   * The changes after one number, up to and including another.
   *
   * @param lateUpTo the position up to which `isLate` is asked for: of each change up to there an event is looked up.
   */
  async changes(
    sql: Sql,
    { after, upTo, limit }: LogRange,
    columns: LogColumns,
    lateUpTo: number,
  ): Promise<LoggedChange[]> {
    const { where, values } = conditions({ ...columns, afterTimestamp: undefined });
    const text = `${this.#text(sql).selectChanges}${where} order by number limit ?`;
    const rows = await sql.all<ChangeRow>(text, [lateUpTo, checking(after), upTo, ...values, limit]);
    return sql.texts.all(() =>
      rows.map((row) => {
        const session = sessionKeyOf(row);
        const change = {
          kind: row.kind,
          seq: numberOf(row.seq),
          eventSeq: optionalNumberOf(row.event_seq) ?? null,
        };
        const known = { ...session, incarnation: incarnationIn(row) };
        return {
          session,
          id: numberOf(row.change_id),
          ...change,
          position: numberOf(row.position),
          number: numberOf(row.number),
          data: decodedData(sql.texts, known, change, optionalTextOf(row.data)),
          isLate: (optionalNumberOf(row.next_position) ?? Infinity) <= numberOf(row.position),
        };
      }),
    );
  }

  /** @returns the number of the last change in front of the event with a position. */
  async changeBefore(sql: Sql, position: number): Promise<number> {
    if (position === 0) return 0;
    const [row] = await sql.all<{ number: number | string }>(this.#plain.selectChangeBefore, [checking(position)]);
    return row ? numberOf(row.number) : 0;
  }

  /** @returns the number of a session's newest event up to a position; undefined when there is none. */
  async newestAt(sql: Sql, session: SessionKey, position: number): Promise<number | undefined> {
    const [row] = await sql.all<{ seq: number | null }>(this.#plain.selectNewestAt, [
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
      `${this.#text(sql).selectRewritings} and (${where}) order by change_id`,
      sessions.flatMap(sessionValues),
    );
    return sql.texts.all(() =>
      rows.map((row) => {
        const session = sessionKeyOf(row);
        const eventSeq = numberOf(row.event_seq);
        const change = { kind: 'rewritten', seq: numberOf(row.seq), eventSeq } as const;
        const known = { ...session, incarnation: incarnationIn(row) };
        const before = decodedData(sql.texts, known, change, optionalTextOf(row.data));
        return { session, eventSeq, changeId: numberOf(row.change_id), before };
      }),
    );
  }
}

interface RewritingRow extends SessionKeyRow, IncarnationRow {
  seq: number | string;
  change_id: number | string;
  event_seq: number;
  data: string | null;
}

interface ChangeRow extends SessionKeyRow, IncarnationRow {
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

/** @param incarnation what is selected as the incarnation of the session. */
function texts({ events, changes, select }: Tables, incarnation: string) {
  const changed = `select change_id, ${SESSION_COLUMNS}, ${incarnation} as incarnation, kind, seq, event_seq, position, number,
    ${select.data} as data`;
  return {
    // The position of the next event is selected for the changes after which an event is not what it was before. Positions
    // of a session's events grow with their numbers, so the first one shows whether there is any.
    selectChanges: `${changed}, case when position <= ? and kind in ('created', 'deleted', 'rewound') then (
        select e.position from ${events} as e where ${isSameSession('e', 'c')} and e.seq > c.seq order by e.seq limit 1)
      end as next_position from ${changes} as c where number > ? and number <= ?`,
    // From the newest one down: a reader that asks reads those that are passed anyway.
    selectChangeBefore: `select number from ${changes} where position < ? and number > 0 order by number desc limit 1`,
    selectNewestAt: `select max(seq) as seq from ${events} where ${SESSION_WHERE} and position <= ?`,
    selectRewritings: `${changed} from ${changes} as c where event_seq is not null`,
  };
}
