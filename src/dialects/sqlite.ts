import { raw, type EntityManager } from '@mikro-orm/core';
import { SchemaError } from '../errors.js';
import type { Dialect, SeqUpdate, Sql } from './dialect.js';

const BUSY_TIMEOUT_MS = 10_000;

/** MikroORM turns foreign keys on once, for the first connection; one that knex opens beside it or after it lacks them. */
const ONE_CONNECTION =
  "SQLite needs one connection that stays open, or a deleted session would leave its events behind. Leave 'pool' out of the config of MikroORM, or set it to { min: 1, max: 1 }.";

/** The ORMs whose connection is set up, by the connection object, which MikroORM has one of. */
const prepared = new WeakMap<object, Promise<void>>();

async function prepareConnection(em: EntityManager, sql: Sql): Promise<void> {
  const { min = 1, max = 1 } = em.config.get('pool') ?? {};
  if (min !== 1 || max !== 1) throw new SchemaError(ONE_CONNECTION);
  const [foreignKeys] = await sql.all<{ foreign_keys: number }>('pragma foreign_keys');
  if (foreignKeys?.foreign_keys !== 1) {
    throw new SchemaError(
      "SQLite does not enforce foreign keys on this connection, so a deleted session would leave its events behind. Run 'pragma foreign_keys = on' on it.",
    );
  }
  // Without these a second process that writes to the file fails at once (contract E6).
  await sql.all(`pragma busy_timeout = ${BUSY_TIMEOUT_MS}`);
  const [journal] = await sql.all<{ journal_mode: string }>('pragma journal_mode');
  if (journal?.journal_mode !== 'wal') await sql.all('pragma journal_mode = wal');
}

export const sqlite: Dialect = {
  async prepare(em, sql) {
    const connection = em.getConnection();
    let ready = prepared.get(connection);
    if (!ready) {
      ready = prepareConnection(em, sql);
      prepared.set(connection, ready);
      ready.catch(() => prepared.delete(connection));
    }
    await ready;
  },

  /** MikroORM's `LockWaitTimeoutException` covers `SQLITE_BUSY`. */
  isPassing: () => false,

  jsonText: (column) => column,

  /**
   * As a fraction of two whole numbers, which SQLite divides exactly; a decimal of 16 digits it may read as the double
   * beside it, and MikroORM writes numbers into the statement as decimals.
   */
  exactNumber(value) {
    let denominator = 1;
    while (!Number.isInteger(value * denominator) && denominator < 2 ** 62) denominator *= 2;
    const numerator = value * denominator;
    if (denominator === 1 || !Number.isInteger(numerator)) return value;
    return raw(`(${BigInt(numerator)} * 1.0 / ${BigInt(denominator)})`);
  },

  onConflict: (table, keyColumns, ownOnly) =>
    `on conflict (${keyColumns.join(', ')}) do update set value = excluded.value, event_id = excluded.event_id` +
    (ownOnly ? ` where ${table}.event_id = excluded.event_id` : ''),

  async takeSeq(sql: Sql, { table, count, lastUpdateTime, where, values }: SeqUpdate) {
    const rows = await sql.all<{ last_seq: number }>(
      `update ${table} set last_seq = last_seq + ?, last_update_time = ? where ${where} returning last_seq`,
      [count, lastUpdateTime, ...values],
    );
    return rows[0]?.last_seq;
  },
};
