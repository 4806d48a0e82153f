import { SESSION_WHERE, sessionValues } from '../sql/tables.js';
import type { AppendBatch, DialectSql, SessionLock, Sql } from './dialect.js';

/**
 * An `update` that locks a session's row and adds to its `last_seq`. Its values are the number to add, the time, and those of
 * `where`.
 *
 * @param sum the new `last_seq`; on MySQL an expression that also returns it to the client.
 */
export function addToLastSeq(table: string, where: string, sum = 'last_seq + ?'): string {
  return `update ${table} set last_seq = ${sum}, last_update_time = ? where ${where}`;
}

/** For `lockSession` on servers; on InnoDB it reads the newest version of the row. */
export async function lockBySelect<Row extends object>(
  sql: Sql,
  { table, columns, where, values, skipsLocked = false }: SessionLock,
): Promise<Row | undefined> {
  const end = skipsLocked ? ' skip locked' : '';
  const [row] = await sql.all<Row>(`select ${columns} from ${table} where ${where} for update${end}`, values);
  return row;
}

/** A condition; its value is the token. */
export const LEASE_IS_CURRENT = 'lease_token = ? and lease_holder is not null';

export function leaseIsFree({ now }: DialectSql): string {
  return `(lease_expires is null or lease_expires <= ${now})`;
}

/** The condition for an append to a session: its incarnation, numbers and lease are as the batch says. */
export function appendCondition(
  { session, incarnation, expectedSeq, expectedChange, lease }: AppendBatch,
  sql: DialectSql,
): { where: string; values: unknown[] } {
  const conditions = [SESSION_WHERE, `incarnation = ? and status = 'active'`];
  const values: unknown[] = [...sessionValues(session), incarnation];
  if (expectedSeq !== undefined) {
    conditions.push('last_seq = ?');
    values.push(expectedSeq);
  }
  if (expectedChange !== undefined) {
    conditions.push('last_change = ?');
    values.push(expectedChange);
  }
  if (lease === 'unleased') {
    conditions.push(leaseIsFree(sql));
  } else if (lease) {
    conditions.push(LEASE_IS_CURRENT);
    values.push(lease.token);
  }
  return { where: conditions.join(' and '), values };
}
