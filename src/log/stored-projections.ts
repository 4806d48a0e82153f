import type { Sql } from '../database/dialects/dialect.js';
import { numberOf, textOf } from '../database/sql/values.js';

export interface StoredProjection {
  name: string;
  /** Changes with each transaction of the projection, and whenever a user is erased. */
  version: number;
  /** JSON of a cursor. */
  cursor: string;
  /** In ms since 1970, by the database's clock. */
  updateTime: number;
}

const COLUMNS = 'name, version, log_cursor, update_time';

/** @returns the projection with a name, or all by name. */
export async function readProjections(sql: Sql, name?: string): Promise<StoredProjection[]> {
  const one = name === undefined ? '' : ' where name = ?';
  const text = `select ${COLUMNS} from ${sql.tables.projections}${one} order by name`;
  const rows = await sql.all(text, name === undefined ? [] : [name]);
  return rows.map((row) => ({
    name: textOf(row['name']),
    version: numberOf(row['version']),
    cursor: textOf(row['log_cursor']),
    updateTime: numberOf(row['update_time']),
  }));
}

/** Changes nothing if the name exists. */
export async function createProjection(sql: Sql, name: string, cursor: string): Promise<void> {
  const { sql: pieces } = sql.dialect;
  const text = `insert into ${sql.tables.projections} (${COLUMNS}) values (?, 0, ?, ${pieces.now})`;
  await sql.run(`${text} ${pieces.onSameKey('name', ['name'])}`, [name, cursor]);
}

/**
 * Locks the projection until the end of the transaction, and sets its cursor. It must be the first statement: a second
 * transaction then waits here, and finds another version.
 *
 * @returns false if another transaction came first.
 */
export async function advanceProjection(
  sql: Sql,
  { name, version }: StoredProjection,
  cursor: string,
): Promise<boolean> {
  const { affectedRows } = await sql.run(
    `update ${sql.tables.projections} set version = version + 1, log_cursor = ?, update_time = ${sql.dialect.sql.now}
      where name = ? and version = ?`,
    [cursor, name, version],
  );
  return affectedRows === 1;
}

/** Makes each projection drop what it has read and not yet written, and read it again. Waits for those that are writing. */
export async function dropUnwrittenPages(sql: Sql): Promise<void> {
  await sql.run(`update ${sql.tables.projections} set version = version + 1`);
}
