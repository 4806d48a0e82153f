import type { Sql } from '../dialects/dialect.js';
import { numberOf } from '../sql/values.js';

/** @param from what to count: the SQL after `from`. */
export async function countRows(sql: Sql, from: string, values: readonly unknown[]): Promise<number> {
  const [row] = await sql.all<{ total: number | string | bigint }>(`select count(*) as total from ${from}`, values);
  return numberOf(row?.total);
}
