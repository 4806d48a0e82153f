import type { SessionKey } from '../../model/keys.js';
import { LEASE_IS_CURRENT, leaseIsFree } from '../dialects/session-rows.js';
import type { Sql } from '../dialects/dialect.js';
import { IN_SESSION, SESSION_WHERE, keyed, named, perTables, sessionValues, numberOf, textOf } from '../sql/tables.js';

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

/** A lease to take. */
interface NewLease {
  holder: string;
  token: number;
  ttlMs: number;
}

// All statements use the database's clock (contract H1).

const statements = perTables(({ dialect: { sql }, tables: { sessions } }: Sql) => {
  const held = `${IN_SESSION} and ${LEASE_IS_CURRENT}`;
  return {
    // A token that is smaller than the row's was assigned earlier, and must not replace it. It equals the row's if this statement
    // is a retry after a lost answer.
    take: named(
      `update ${sessions} set lease_holder = :holder, lease_token = :token, lease_expires = ${sql.now} + :ttlMs
        where ${IN_SESSION} and status = 'active'
          and (${LEASE_IS_CURRENT} or lease_token < :token and ${leaseIsFree(sql)})`,
    ),
    renew: named(`update ${sessions} set lease_expires = ${sql.now} + :ttlMs where ${held}`),
    release: named(`update ${sessions} set lease_holder = null, lease_expires = null where ${held}`),
  };
});

/** @returns a number that no lease of any session has had before (contract H2). */
export function nextToken(sql: Sql): Promise<number> {
  return sql.dialect.operations.increment(sql, sql.tables.counters, 'fencing token', 1);
}

/** @returns whether the lease was free and now belongs to the holder. */
export async function takeLease(sql: Sql, session: SessionKey, lease: NewLease): Promise<boolean> {
  const { affectedRows } = await sql.run(...statements(sql).take({ ...keyed(session), ...lease }));
  return affectedRows > 0;
}

/** @returns whether the lease is still the one with this token. */
export async function renewLease(sql: Sql, session: SessionKey, token: number, ttlMs: number): Promise<boolean> {
  const { affectedRows } = await sql.run(...statements(sql).renew({ ...keyed(session), token, ttlMs }));
  return affectedRows > 0;
}

export async function releaseLease(sql: Sql, session: SessionKey, token: number): Promise<void> {
  await sql.run(...statements(sql).release({ ...keyed(session), token }));
}

/**
 * @param options.underLock reads the newest version of the row, for a caller that holds the session's lock.
 * @returns the newest lease of a session, held or expired; undefined if it was released or there was none.
 */
export async function currentLease(
  sql: Sql,
  session: SessionKey,
  { underLock = false } = {},
): Promise<StoredLease | undefined> {
  const [row] = await sql.all<LeaseRow>(
    `select lease_holder, lease_token, lease_expires as expires, ${sql.dialect.sql.now} as now from ${sql.tables.sessions}
      where ${SESSION_WHERE} and lease_holder is not null${underLock ? sql.dialect.sql.underLock : ''}`,
    sessionValues(session),
  );
  if (!row) return undefined;
  const expiresAt = numberOf(row.expires);
  return {
    holder: textOf(row.lease_holder),
    token: numberOf(row.lease_token),
    expiresAt,
    isHeld: expiresAt > numberOf(row.now),
  };
}
