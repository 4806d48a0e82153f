import type { SessionKey } from '../../model/keys.js';
import type { DialectSql } from '../dialects/dialect.js';
import type { ServerSetting } from '../dialects/server-settings.js';
import { keysetAfter } from '../sql/keyset.js';
import { numberOf } from '../sql/row-values.js';
import type { Sql } from '../sql/sql.js';
import {
  SESSION_COLUMNS,
  SESSION_KEY,
  isSameSession,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';

/** Before all keys, none of which is empty. */
const FIRST: SessionKey = { appName: '', userId: '', sessionId: '' };

/** The statements that look how the database is: its clock, its settings, and what is amiss in the tables. */
export class HealthStore {
  readonly #text: ReturnType<typeof texts>;

  constructor(sql: DialectSql, tables: Tables) {
    this.#text = texts(sql, tables);
  }

  /** @returns the database's clock, in ms. */
  async now(sql: Sql): Promise<number> {
    const [row] = await sql.all<{ now: number | string }>(this.#text.selectNow);
    return numberOf(row?.now);
  }

  /** @returns a setting of the server, as text. */
  async serverSetting(sql: Sql, { select }: ServerSetting): Promise<string> {
    const [row] = await sql.all<{ value: unknown }>(select);
    return String(row?.value);
  }

  /** @returns how many events and changes have no position yet; so many at most. */
  async countPending(sql: Sql, limit: number): Promise<number> {
    const [row] = await sql.all<{ total: number | string }>(this.#text.countPending, [limit, limit]);
    return numberOf(row?.total);
  }

  /**
   * Reads the keys of all events, and no contents.
   *
   * @returns sessions whose row counts other events than there are; so many at most.
   */
  async miscounted(sql: Sql, limit: number): Promise<SessionKey[]> {
    return (await sql.all<SessionKeyRow>(this.#text.selectMiscounted, [limit])).map(sessionKeyOf);
  }

  /**
   * The same of a bounded number of sessions, in two statements.
   *
   * @param after the session behind which it begins; undefined for the first ones.
   */
  async miscountedAfter(sql: Sql, after: SessionKey | undefined, atOnce = AT_ONCE): Promise<CheckedSessions> {
    const { where, values } = keysetAfter(SESSION_KEY, sessionValues(after ?? FIRST));
    const rows = await sql.all<CountedRow>(this.#text.selectCounted(where), [...values, atOnce.sessions + 1]);
    let events = 0;
    const few = rows.slice(0, atOnce.sessions).filter((row, i) => {
      const isMore = i > 0 && events >= atOnce.events;
      events += numberOf(row.events);
      return !isMore;
    });
    const found = await sql.all<SessionKeyRow>(this.#text.selectMiscountedAfter(where), [...values, few.length]);
    const last = few.length < rows.length ? few.at(-1) : undefined;
    return { miscounted: found.map(sessionKeyOf), checked: few.length, last: last && sessionKeyOf(last) };
  }
}

/** A piece of all sessions, by their keys. */
export interface CheckedSessions {
  miscounted: SessionKey[];
  /** How many sessions were looked at. */
  checked: number;
  /** The last one that was looked at; undefined where there are no others after it. */
  last: SessionKey | undefined;
}

/** How many sessions are looked at at once, and from how many of their events on no more: reading their keys takes time. */
const AT_ONCE = { sessions: 500, events: 20_000 };

interface CountedRow extends SessionKeyRow {
  events: number | string;
}

function texts(sql: DialectSql, { sessions, events, eventsById, changes }: Tables) {
  const ofEvents = (what: string) =>
    `(select ${what} from ${events} as e ${sql.fromIndex(eventsById)} where ${isSameSession('e', 's')})`;
  const isMiscounted = `(${ofEvents('count(*)')} <> s.last_seq - s.first_seq + 1
    or ${ofEvents('min(e.seq)')} <> s.first_seq or ${ofEvents('max(e.seq)')} <> s.last_seq)`;
  const byKey = `order by ${SESSION_COLUMNS} limit ?`;
  return {
    selectNow: `select ${sql.now} as now`,
    countPending: `select (select count(*) from (select 1 as one from ${events} where position is null limit ?) as e)
      + (select count(*) from (select 1 as one from ${changes} where number is null limit ?) as c) as total`,
    // For each session by the index. MariaDB would compare each session with each group of a join.
    selectMiscounted: `select s.app_name, s.user_id, s.session_id
      from ${sessions} as s where ${isMiscounted} limit ?`,
    selectCounted: (where: string) =>
      `select ${SESSION_COLUMNS}, last_seq - first_seq + 1 as events from ${sessions} where ${where} ${byKey}`,
    selectMiscountedAfter: (where: string) => `select ${SESSION_COLUMNS}
      from (select ${SESSION_COLUMNS}, first_seq, last_seq from ${sessions} where ${where} ${byKey}) as s
      where ${isMiscounted} order by ${SESSION_COLUMNS}`,
  };
}
