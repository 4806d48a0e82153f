import type { SessionKey } from '../../model/keys.js';
import { LEASE_IS_CURRENT, leaseIsFree } from '../dialects/session-row.js';
import type { Dialect } from '../dialects/dialect.js';
import type { Sql } from '../sql/sql.js';
import { numberOf, textOf } from '../sql/row-values.js';
import { SESSION_WHERE, sessionValues, type Tables } from '../sql/tables.js';

/** The lease in a session's row. */
export interface StoredLease {
  holder: string;
  token: number;
  /** By the database's clock, in ms. */
  expiresAt: number;
  /** False once it has not been renewed in time. */
  isHeld: boolean;
}

interface LeaseRow {
  lease_holder: string;
  lease_token: number | string;
  expires: number | string;
  now: number | string;
}

/** A lease that somebody wants. */
interface NewLease {
  holder: string;
  token: number;
  ttlMs: number;
}

/** The statements of leases. All of them use the database's clock (contract H1). */
export class LeaseStore {
  readonly #dialect: Dialect;
  readonly #tables: Tables;
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables) {
    this.#dialect = dialect;
    this.#tables = tables;
    this.#text = texts(dialect, tables);
  }

  /** @returns a number that no lease of any session has had (contract H2). */
  async nextToken(sql: Sql): Promise<number> {
    return this.#dialect.operations.increment(sql, this.#tables.counters, 'fencing token', 1);
  }

  /** @returns whether the lease was free, and is the holder's now. */
  async take(sql: Sql, session: SessionKey, { holder, token, ttlMs }: NewLease): Promise<boolean> {
    const values = [holder, token, ttlMs, ...sessionValues(session), token, token];
    return (await sql.run(this.#text.take, values)).affectedRows > 0;
  }

  /** @returns whether the lease is still the one with this token. */
  async renew(sql: Sql, session: SessionKey, token: number, ttlMs: number): Promise<boolean> {
    return (await sql.run(this.#text.renew, [ttlMs, ...sessionValues(session), token])).affectedRows > 0;
  }

  async release(sql: Sql, session: SessionKey, token: number): Promise<void> {
    await sql.run(this.#text.release, [...sessionValues(session), token]);
  }

  /** @returns the newest lease of a session, held or expired; undefined when it was released or there was none. */
  async current(sql: Sql, session: SessionKey): Promise<StoredLease | undefined> {
    return this.#read(sql, this.#text.select, session);
  }

  /** As `current`, for a caller that holds the session's lock: reads the newest version of the row. */
  async currentUnderLock(sql: Sql, session: SessionKey): Promise<StoredLease | undefined> {
    return this.#read(sql, this.#text.selectUnderLock, session);
  }

  async #read(sql: Sql, text: string, session: SessionKey): Promise<StoredLease | undefined> {
    const [row] = await sql.all<LeaseRow>(text, sessionValues(session));
    if (!row) return undefined;
    const expiresAt = numberOf(row.expires);
    return {
      holder: textOf(row.lease_holder),
      token: numberOf(row.lease_token),
      expiresAt,
      isHeld: expiresAt > numberOf(row.now),
    };
  }
}

function texts({ sql }: Dialect, { sessions }: Tables) {
  const { now } = sql;
  const held = `${SESSION_WHERE} and ${LEASE_IS_CURRENT}`;
  const select = `select lease_holder, lease_token, lease_expires as expires, ${now} as now
      from ${sessions} where ${SESSION_WHERE} and lease_holder is not null`;
  return {
    // A token that is smaller than the row's was given out earlier, and must not replace it. It equals the row's when this
    // statement is a retry after a lost answer.
    take: `update ${sessions} set lease_holder = ?, lease_token = ?, lease_expires = ${now} + ?
      where ${SESSION_WHERE} and status = 'active' and (${LEASE_IS_CURRENT} or lease_token < ? and ${leaseIsFree(sql)})`,
    renew: `update ${sessions} set lease_expires = ${now} + ? where ${held}`,
    release: `update ${sessions} set lease_holder = null, lease_expires = null where ${held}`,
    select,
    selectUnderLock: select + sql.underLock,
  };
}
