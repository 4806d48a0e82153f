import type { Sql } from '../database/dialects/dialect.js';
import { deletePartsFrom } from '../database/dialects/event-parts.js';
import { IN_SESSION, isFromNumber } from '../database/sql/columns.js';
import { keyed, named, numberOf, perTables, withList } from '../database/sql/values.js';
import { setColumns } from '../database/statements/sessions.js';
import type { SessionKey } from '../model/keys.js';

/** @returns the numbers of the first events before a number, at most `limit`. */
export async function numbersBefore(sql: Sql, key: SessionKey, seq: number, limit: number): Promise<number[]> {
  const rows = await sql.all<{ seq: number }>(...statements(sql).before({ ...keyed(key), seq, limit }));
  return rows.map((row) => numberOf(row.seq));
}

/**
 * Deletes the first events of a session, and sets the number with which it begins. The caller must hold the session's lock.
 *
 * @param numbers the events to delete, in order.
 */
export async function dropFirst(
  sql: Sql,
  key: SessionKey,
  firstSeq: number,
  numbers: readonly number[],
): Promise<void> {
  setColumns(sql, key, { first_seq: firstSeq });
  // Lists the numbers: after a range, InnoDB would also lock the gap behind it, into which another session may append.
  const [first, last] = [numbers[0], numbers.at(-1)];
  if (first === undefined) return;
  await deletePartsFrom(sql, key, first, last);
  // Also gives the range, so that PostgreSQL compares only the rows in it with the list.
  await sql.run(...withList(statements(sql).deleteListed({ ...keyed(key), first, last }), numbers));
}

const statements = perTables(({ dialect, tables: { events } }: Sql) => ({
  before: named(`select seq from ${events} where ${IN_SESSION} and seq < :seq order by seq limit :limit`),
  deleteListed: named(`${dialect.sql.deleteThrough(events, 'primary')} where ${IN_SESSION}
    and ${isFromNumber('', ':session', ':first')} and seq >= :first and seq <= :last and seq in`),
}));
