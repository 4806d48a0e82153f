import type { Sql } from '../dialects/dialect.js';

// Retry tokens are rows in `adk_counters`. Each stays until the caller of its transaction has learned of the commit.

/** Fails with the database's unique violation when a transaction has left this token before. */
export async function setRetryToken(sql: Sql, token: string): Promise<void> {
  await sql.run(`insert into ${sql.tables.counters} (name, value) values (?, 1)`, [nameOf(token)]);
}

export async function removeRetryToken(sql: Sql, token: string): Promise<void> {
  await sql.run(`delete from ${sql.tables.counters} where name = ?`, [nameOf(token)]);
}

/** 32 characters at most, of which a token may have 22. */
const nameOf = (token: string) => `applied ${token}`;
