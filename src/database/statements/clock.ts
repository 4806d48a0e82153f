import type { Sql } from '../dialects/dialect.js';
import { numberOf } from '../sql/values.js';

/** @returns the database's clock, in ms. */
export async function databaseTime(sql: Sql): Promise<number> {
  const [row] = await sql.all<{ now: number | string }>(`select ${sql.dialect.sql.now} as now`);
  return numberOf(row?.now);
}
