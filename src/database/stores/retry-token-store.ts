import type { Sql } from '../sql/sql.js';
import type { Tables } from '../sql/tables.js';

/** Retry tokens are rows in `adk_counters`. Each stays until the caller of its transaction has learned of the commit. */
export class RetryTokenStore {
  readonly #counters: string;

  constructor({ counters }: Tables) {
    this.#counters = counters;
  }

  /** Fails with the database's unique violation when a transaction has left this token before. */
  async set(sql: Sql, token: string): Promise<void> {
    await sql.run(`insert into ${this.#counters} (name, value) values (?, 1)`, [nameOf(token)]);
  }

  async remove(sql: Sql, token: string): Promise<void> {
    await sql.run(`delete from ${this.#counters} where name = ?`, [nameOf(token)]);
  }
}

/** 32 characters at most, of which a token may have 22. */
const nameOf = (token: string) => `applied ${token}`;
