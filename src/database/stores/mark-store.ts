import type { Sql } from '../dialects/dialect.js';
import type { Tables } from '../tables.js';

/** Marks of transactions that are committed, among the counters. Each stays until its writer has learned of the commit. */
export class MarkStore {
  readonly #counters: string;

  constructor({ counters }: Tables) {
    this.#counters = counters;
  }

  /** Fails with the database's unique violation when a transaction has left this mark before. */
  async set(sql: Sql, mark: string): Promise<void> {
    await sql.run(`insert into ${this.#counters} (name, value) values (?, 1)`, [nameOf(mark)]);
  }

  async remove(sql: Sql, mark: string): Promise<void> {
    await sql.run(`delete from ${this.#counters} where name = ?`, [nameOf(mark)]);
  }
}

/** 32 characters at most, of which a mark may have 22. */
const nameOf = (mark: string) => `applied ${mark}`;
