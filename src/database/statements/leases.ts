import type { SessionKey } from '../../model/keys.js';
import type { Sql } from '../dialects/dialect.js';
import { leaseIsFree } from '../dialects/session-rows.js';
import { SESSION_WHERE } from '../sql/columns.js';
import { booleanOf, numberOf, sessionValues, textOf, type Row } from '../sql/values.js';

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

export type LeaseRow = Row<'lease_holder' | 'lease_token' | 'expires' | 'since' | 'held'>;

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

export const leaseColumns = ({ dialect }: Sql) =>
  `lease_holder, lease_token, lease_expires as expires, lease_since as since, not ${leaseIsFree(dialect.sql)} as held`;

export function leaseOf(row: LeaseRow): StoredLease {
  const [since, expiresAt] = [numberOf(row.since), numberOf(row.expires)];
  const isHeld = booleanOf(row.held);
  return { holder: textOf(row.lease_holder), token: numberOf(row.lease_token), since, expiresAt, isHeld };
}
