import { randomBytes } from 'node:crypto';
import type { Sql } from '../dialects/dialect.js';
import type { Tables } from '../sql/tables.js';
import { placeholders, processWidePerTables, textOf } from '../sql/values.js';

// A retry token is a row in `adk_counters`, from which a retry learns that an earlier attempt was committed. The next transaction
// of the process renames the token of a call that has ended, since removing it would take one more commit. So a process leaves as
// many rows as it had such calls at once, and `prune` removes those of processes that have ended.

const NAME = 'applied ';

/** A token that is older than this is not needed any more. */
const KEPT_MS = 24 * 60 * 60 * 1000;

/** The tokens whose calls have ended. */
const endedOf = processWidePerTables('ended tokens', (): string[] => []);

/** The token of one transaction, for all of its attempts. */
export class RetryToken {
  readonly #name = `${NAME}${randomBytes(16).toString('base64url')}`;
  readonly #ended: string[];
  readonly #renamed: string | undefined;

  constructor(tables: Tables) {
    this.#ended = endedOf({ tables });
    this.#renamed = this.#ended.pop();
  }

  /** Fails with the database's unique violation if an earlier attempt was committed. */
  async set(sql: Sql): Promise<void> {
    const { counters } = sql.tables;
    // The clock of a process may be wrong: `prune` would remove tokens that are in use.
    const { now } = sql.dialect.sql;
    if (this.#renamed !== undefined) {
      // Finds nothing if an earlier attempt was committed, or somebody has removed the row.
      const update = `update ${counters} set name = ?, value = ${now} where name = ?`;
      if ((await sql.run(update, [this.#name, this.#renamed])).affectedRows === 1) return;
    }
    await sql.run(`insert into ${counters} (name, value) values (?, ${now})`, [this.#name]);
  }

  /** For a call that knows whether its transaction was committed. */
  end({ isCommitted }: { isCommitted: boolean }): void {
    const left = isCommitted ? this.#name : this.#renamed;
    if (left !== undefined) this.#ended.push(left);
  }
}

/**
 * @param now by the database's clock, in ms.
 * @returns old tokens, at most `limit`.
 */
export async function oldTokens(sql: Sql, now: number, limit: number): Promise<string[]> {
  // Ordered, or SQLite may read the whole table. The exclamation mark comes after the space.
  const isToken = `name >= '${NAME}' and name < '${NAME.replace(' ', '!')}'`;
  const rows = await sql.all<{ name: string }>(
    `select name from ${sql.tables.counters} where ${isToken} and value < ? order by name limit ?`,
    [Math.floor(now) - KEPT_MS, limit],
  );
  return rows.map(({ name }) => textOf(name));
}

export async function removeTokens(sql: Sql, names: readonly string[]): Promise<void> {
  await sql.run(`delete from ${sql.tables.counters} where name in (${placeholders(names.length)})`, names);
}
