import type { DialectSql } from '../dialects/dialect.js';
import { numberOf, textOf } from '../sql/row-values.js';
import type { Sql } from '../sql/sql.js';
import type { Tables } from '../sql/tables.js';

/** How far a projection has read the log. */
export interface StoredProjection {
  name: string;
  /** Another one after each transaction of the projection. */
  version: number;
  /** JSON of a cursor. */
  cursor: string;
  /** In ms since 1970, by the database's clock. */
  updateTime: number;
}

/** The cursors of projections. */
export class ProjectionStore {
  readonly #table: string;
  readonly #now: string;

  constructor({ now }: Pick<DialectSql, 'now'>, { projections }: Tables) {
    this.#table = projections;
    this.#now = now;
  }

  async read(sql: Sql, name: string): Promise<StoredProjection | undefined> {
    const [row] = await sql.all<ProjectionRow>(`select ${COLUMNS} from ${this.#table} where name = ?`, [name]);
    return row && projectionOf(row);
  }

  async all(sql: Sql): Promise<StoredProjection[]> {
    return (await sql.all<ProjectionRow>(`select ${COLUMNS} from ${this.#table} order by name`)).map(projectionOf);
  }

  /** Fails with the database's unique violation where there is one of this name. */
  async create(sql: Sql, { name, version, cursor }: Omit<StoredProjection, 'updateTime'>): Promise<void> {
    const text = `insert into ${this.#table} (name, version, log_cursor, update_time) values (?, ?, ?, ${this.#now})`;
    await sql.run(text, [name, version, cursor]);
  }

  /**
   * Locks the projection until the end of the transaction, and sets its cursor. It comes first in its transaction: whoever
   * comes second waits here, and then finds another version.
   *
   * @returns false when another transaction has been first: its version is not the one that was read.
   */
  async advance(sql: Sql, { name, version }: StoredProjection, cursor: string): Promise<boolean> {
    const { affectedRows } = await sql.run(
      `update ${this.#table} set version = version + 1, log_cursor = ?, update_time = ${this.#now}
        where name = ? and version = ?`,
      [cursor, name, version],
    );
    return affectedRows === 1;
  }
}

const COLUMNS = 'name, version, log_cursor, update_time';

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
