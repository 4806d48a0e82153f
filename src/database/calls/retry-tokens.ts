import { randomBytes } from 'node:crypto';
import type { Sql } from '../dialects/dialect.js';
import type { Tables } from '../sql/tables.js';
import { placeholders, processWidePerTables, textOf } from '../sql/values.js';

// A retry token is in a row, from which a retry learns that an earlier attempt was committed. The next transaction of the process
// replaces the token of a call that has ended, since removing it would take one more commit. So a process leaves as many rows as it
// had such calls at once, and `prune` removes those of processes that have ended. They have a table of their own: on Citus,
// `adk_counters` is on every node, where its writers wait for each other. The slot decides on which node a row is.

/** A token that is older than this is not needed any more. */
const KEPT_MS = 24 * 60 * 60 * 1000;

/** A row; without a token it is not in the table. */
interface Row {
  slot: string;
  token?: string | undefined;
}

/** Those whose calls have ended. */
const endedOf = processWidePerTables('ended rows of tokens', (): Row[] => []);

const random = () => randomBytes(16).toString('base64url');

/** The token of one transaction, for all of its attempts. */
export class RetryToken {
  readonly #token = random();
  readonly #ended: Row[];
  readonly #row: Row;

  constructor(tables: Tables) {
    this.#ended = endedOf({ tables });
    this.#row = this.#ended.pop() ?? { slot: random() };
  }

  /** Fails with the database's unique violation if an earlier attempt was committed. */
  async set(sql: Sql): Promise<void> {
    const { retryTokens } = sql.tables;
    const { slot, token } = this.#row;
    // The clock of a process may be wrong: `prune` would remove tokens that are in use.
    const { now } = sql.dialect.sql;
    if (token !== undefined) {
      // Finds nothing if an earlier attempt was committed, or the row is gone.
      const update = `update ${retryTokens} set token = ?, update_time = ${now} where slot = ? and token = ?`;
      if ((await sql.run(update, [this.#token, slot, token])).affectedRows === 1) return;
    }
    await sql.run(`insert into ${retryTokens} (slot, token, update_time) values (?, ?, ${now})`, [slot, this.#token]);
  }

  /** For a call that knows whether its transaction was committed. */
  end({ isCommitted }: { isCommitted: boolean }): void {
    this.#ended.push(isCommitted ? { slot: this.#row.slot, token: this.#token } : this.#row);
  }
}

/**
 * @param now by the database's clock, in ms.
 * @returns the slots of old tokens, at most `limit`.
 */
export async function oldTokens(sql: Sql, now: number, limit: number): Promise<string[]> {
  // A range in order, or databases read the whole table without an index.
  const text = `select slot from ${sql.tables.retryTokens} where slot > '' and update_time < ? order by slot limit ?`;
  const rows = await sql.all<{ slot: string }>(text, [now - KEPT_MS, limit]);
  return rows.map(({ slot }) => textOf(slot));
}

/** Leaves a row that its process has used since it was found. */
export async function removeTokens(sql: Sql, now: number, slots: readonly string[]): Promise<void> {
  const text = `delete from ${sql.tables.retryTokens} where slot in (${placeholders(slots.length)}) and update_time < ?`;
  await sql.run(text, [...slots, now - KEPT_MS]);
}
