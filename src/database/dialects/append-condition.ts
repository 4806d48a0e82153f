import { SESSION_WHERE, sessionValues } from '../tables.js';
import type { AppendBatch, Dialect } from './dialect.js';

/** Finds the session of an append only where it is as the append expects it. */
export function appendCondition(
  { session, incarnation, expectedSeq, lease }: AppendBatch,
  { now }: Dialect,
): { where: string; values: unknown[] } {
  const conditions = [SESSION_WHERE, 'incarnation = ?'];
  const values: unknown[] = [...sessionValues(session), incarnation];
  if (expectedSeq !== undefined) {
    conditions.push('last_seq = ?');
    values.push(expectedSeq);
  }
  if (lease === 'unleased') {
    conditions.push(`(lease_expires is null or lease_expires <= ${now})`);
  } else if (lease) {
    conditions.push('lease_token = ? and lease_holder is not null');
    values.push(lease.token);
  }
  return { where: conditions.join(' and '), values };
}
