import type { SessionKey } from '../../model/keys.js';
import type { DialectSql } from '../dialects/dialect.js';
import type { ServerSetting } from '../dialects/server-settings.js';
import { numberOf } from '../sql/row-values.js';
import { checking, type Sql } from '../sql/sql.js';
import { isSameSession, sessionKeyOf, type SessionKeyRow, type Tables } from '../sql/tables.js';

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
    const [row] = await sql.all<{ total: number | string }>(this.#text.countPending, [limit, limit, checking('')]);
    return numberOf(row?.total);
  }

  /**
   * Reads the keys of all events, and no contents.
   *
   * @returns sessions whose row counts other events than there are; so many at most.
   */
  async miscounted(sql: Sql, limit: number): Promise<SessionKey[]> {
    return (await sql.all<SessionKeyRow>(this.#text.selectMiscounted, [checking(''), limit])).map(sessionKeyOf);
  }
}

function texts(sql: DialectSql, { sessions, events, changes }: Tables) {
  const ofEvents = (what: string) => `(select ${what} from ${events} as e where ${isSameSession('e', 's')})`;
  return {
    selectNow: `select ${sql.now} as now`,
    // The settings of the connection cannot be checked in a limit.
    countPending: `select (select count(*) from (select 1 as one from ${events} where position is null limit ?) as e)
      + (select count(*) from (select 1 as one from ${changes} where number is null limit ?) as c) as total
      from (select ? as text) as checked where checked.text is not null`,
    // For each session by the index. MariaDB would compare each session with each group of a join.
    selectMiscounted: `select s.app_name, s.user_id, s.session_id
      from (select ? as text) as checked join ${sessions} as s on checked.text is not null
      where ${ofEvents('count(*)')} <> s.last_seq - s.first_seq + 1
        or ${ofEvents('min(e.seq)')} <> s.first_seq or ${ofEvents('max(e.seq)')} <> s.last_seq limit ?`,
  };
}
