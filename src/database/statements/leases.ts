import type { SessionKey } from '../../model/keys.js';
import { LEASE_IS_CURRENT, leaseIsFree } from '../dialects/session-rows.js';
import type { Sql } from '../dialects/dialect.js';
import {
  IN_SESSION,
  SESSION_COLUMNS,
  SESSION_WHERE,
  allOf,
  ifGiven,
  keyed,
  named,
  perTables,
  sessionKeyOf,
  sessionValues,
  numberOf,
  textOf,
  type SessionKeyRow,
} from '../sql/tables.js';

/** The lease in a session's row. */
export interface StoredLease {
  holder: string;
  token: number;
  /** When it was taken, by the database's clock, in ms. */
  since: number;
  /** By the same clock. */
  expiresAt: number;
  /** False once it has not been renewed in time. */
  isHeld: boolean;
}

interface LeaseRow {
  lease_holder: string;
  lease_token: number | string;
  expires: number | string;
  since: number | string;
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
      // MySQL computes one value after the other, so the token that is compared must be set later.
      `update ${sessions} set lease_since = case when lease_token = :token then lease_since else ${sql.now} end,
          lease_holder = :holder, lease_token = :token, lease_expires = ${sql.now} + :ttlMs
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
    `select ${leaseColumns(sql)} from ${sql.tables.sessions}
      where ${SESSION_WHERE} and lease_holder is not null${underLock ? sql.dialect.sql.underLock : ''}`,
    sessionValues(session),
  );
  return row && leaseOf(row);
}

/**
 * Reads the row of every session of these owners.
 *
 * @returns at most `limit` leases that are held, those that were taken first at the beginning.
 */
export async function heldLeases(
  sql: Sql,
  { appName, userId }: { appName?: string | undefined; userId?: string | undefined },
  limit: number,
): Promise<(StoredLease & SessionKey)[]> {
  const { where, values } = allOf(ifGiven('app_name = ?', appName), ifGiven('user_id = ?', userId), [
    `lease_holder is not null and lease_expires > ${sql.dialect.sql.now} and status = 'active'`,
  ]);
  const rows = await sql.all<LeaseRow & SessionKeyRow>(
    `select ${SESSION_COLUMNS}, ${leaseColumns(sql)} from ${sql.tables.sessions} where ${where} order by lease_since, lease_token limit ?`,
    [...values, limit],
  );
  return rows.map((row) => ({ ...sessionKeyOf(row), ...leaseOf(row) }));
}

const leaseColumns = ({ dialect }: Sql) =>
  `lease_holder, lease_token, lease_expires as expires, lease_since as since, ${dialect.sql.now} as now`;

function leaseOf(row: LeaseRow): StoredLease {
  const [since, expiresAt] = [numberOf(row.since), numberOf(row.expires)];
  const isHeld = expiresAt > numberOf(row.now);
  return { holder: textOf(row.lease_holder), token: numberOf(row.lease_token), since, expiresAt, isHeld };
}
