import { raw, type EntityManager } from '@mikro-orm/core';
import { SchemaError, driverCodeOf } from '../errors.js';
import type { Dialect, Sql } from './dialect.js';
import { returning } from './returning.js';

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
  ...returning,

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

  now: "((julianday('now') - 2440587.5) * 86400000)",

  /** MikroORM's `LockWaitTimeoutException` covers `SQLITE_BUSY`. */
  isPassing: () => false,

  isReadOnly: (error) => driverCodeOf(error)?.startsWith('SQLITE_READONLY') ?? false,

  // The first tells of other connections' writes, the second of this one's.
  changeMark: "select (select data_version from pragma_data_version) || ' ' || total_changes() as mark",

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
};
