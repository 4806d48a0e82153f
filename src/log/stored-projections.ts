import type { Sql } from '../database/dialects/dialect.js';
import { numberOf, textOf } from '../database/sql/tables.js';

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

export async function readProjection(sql: Sql, name: string): Promise<StoredProjection | undefined> {
  const text = `select ${COLUMNS} from ${sql.tables.projections} where name = ?`;
  const [row] = await sql.all<ProjectionRow>(text, [name]);
  return row && projectionOf(row);
}

export async function readProjections(sql: Sql): Promise<StoredProjection[]> {
  const rows = await sql.all<ProjectionRow>(`select ${COLUMNS} from ${sql.tables.projections} order by name`);
  return rows.map(projectionOf);
}

/** Fails with the database's unique violation if the name exists. */
export async function createProjection(
  sql: Sql,
  { name, version, cursor }: Omit<StoredProjection, 'updateTime'>,
): Promise<void> {
  const { projections } = sql.tables;
  const text = `insert into ${projections} (${COLUMNS}) values (?, ?, ?, ${sql.dialect.sql.now})`;
  await sql.run(text, [name, version, cursor]);
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

interface ProjectionRow {
  name: string;
  version: number | string;
  log_cursor: string;
  update_time: number | string;
}

function projectionOf({ name, version, log_cursor, update_time }: ProjectionRow): StoredProjection {
  return {
    name: textOf(name),
    version: numberOf(version),
    cursor: textOf(log_cursor),
    updateTime: numberOf(update_time),
  };
}
