import type { SessionKey } from '../model/keys.js';
import { LEASE_IS_CURRENT, NO_LEASE, leaseIsFree } from '../database/dialects/session-rows.js';
import type { Sql } from '../database/dialects/dialect.js';
import { IN_SESSION, SESSION_COLUMNS } from '../database/sql/columns.js';
import { allOf, ifGiven, keyed, named, perTables, sessionKeyOf, type SessionKeyRow } from '../database/sql/values.js';
import { type StoredLease, type LeaseRow, leaseColumns, leaseOf } from '../database/statements/leases.js';

/** A lease to take. */
interface NewLease {
  holder: string;
  token: number;
  ttlMs: number;
}

// All statements use the database's clock (contract H1).

const statements = perTables(({ dialect: { sql }, tables: { sessions } }: Sql) => {
  const held = `${IN_SESSION} and ${LEASE_IS_CURRENT}`;
  // As a factor: Citus lets no `case` call a function.
  const isSame = 'case when lease_token = :token then 1 else 0 end';
  return {
    // A token that is smaller than the row's was assigned earlier, and must not replace it. It equals the row's if this statement
    // is a retry after a lost answer.
    take: named(
      // MySQL computes one value after the other, so the token that is compared must be set later.
      `update ${sessions} set lease_since = ${isSame} * coalesce(lease_since, 0) + (1 - ${isSame}) * ${sql.now},
          lease_holder = :holder, lease_token = :token, lease_expires = ${sql.now} + :ttlMs
        where ${IN_SESSION} and status = 'active'
          and (${LEASE_IS_CURRENT} or lease_token < :token and ${leaseIsFree(sql)})`,
    ),
    renew: named(`update ${sessions} set lease_expires = ${sql.now} + :ttlMs where ${held}`),
    release: named(`update ${sessions} set ${NO_LEASE} where ${held}`),
  };
});

/** @returns a number that no lease of any session has had before (contract H2). */
export function nextToken(sql: Sql): Promise<number> {
  return sql.dialect.operations.increment(sql, 'fencing token', 1);
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
    `not ${leaseIsFree(sql.dialect.sql)} and status = 'active'`,
  ]);
  const rows = await sql.all<LeaseRow & SessionKeyRow>(
    `select ${SESSION_COLUMNS}, ${leaseColumns(sql)} from ${sql.tables.sessions} where ${where} order by lease_since, lease_token limit ?`,
    [...values, limit],
  );
  return rows.map((row) => ({ ...sessionKeyOf(row), ...leaseOf(row) }));
}
