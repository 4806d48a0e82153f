import { raw, type EntityManager } from '@mikro-orm/core';
import { SchemaError, driverCodeOf } from '../../model/errors.js';
import type { Failure } from '../../model/failures.js';
import { mustWaitForLocks } from '../mikro-orm.js';
import type { Dialect, Sql } from './dialect.js';
import { returning } from './returning.js';
import { settingsCheck, type Setting } from './settings.js';

const BUSY_TIMEOUT_MS = 10_000;

const FAILURES_BY_CODE: Readonly<Record<string, Failure>> = {
  SQLITE_BUSY: 'lockTimeout',
  SQLITE_LOCKED: 'lockTimeout',
  SQLITE_READONLY: 'readOnly',
  SQLITE_FULL: 'diskFull',
  SQLITE_IOERR: 'inputOutput',
  SQLITE_CORRUPT: 'damagedFile',
  SQLITE_NOTADB: 'damagedFile',
  SQLITE_CANTOPEN: 'unreachable',
  SQLITE_PERM: 'notAllowed',
  SQLITE_AUTH: 'notAllowed',
  SQLITE_INTERRUPT: 'statementTimeout',
  // Of Node.js, when MikroORM makes the file's folder.
  ENOTDIR: 'unreachable',
  EACCES: 'unreachable',
  EPERM: 'unreachable',
  EROFS: 'readOnly',
};

/** One driver gives extended codes, such as `SQLITE_READONLY_DIRECTORY`, the other their first part alone. */
function primaryCode(error: unknown): string {
  const code = driverCodeOf(error) ?? '';
  return /^SQLITE_[A-Z]+/.exec(code)?.[0] ?? code;
}

/** MikroORM turns foreign keys on once, for the first connection; one that knex opens beside it or after it lacks them. */
const ONE_CONNECTION =
  "SQLite needs one connection that stays open, or a deleted session would leave its events behind. Leave 'pool' out of the config of MikroORM, or set it to { min: 1, max: 1 }.";

/** Values of `pragma synchronous`. */
const NORMAL = 1;
const FULL = 2;
const FOREIGN_KEYS: Setting = {
  name: 'foreign_keys = off',
  because: 'a deleted session would leave its events behind',
  mend: 'Run: pragma foreign_keys = on',
  isWrong: '(select not foreign_keys from pragma_foreign_keys)',
};

/** The ORMs whose connection is set up, by the connection object, which MikroORM has one of. */
const prepared = new WeakMap<object, Promise<void>>();

async function prepareConnection(em: EntityManager, sql: Sql): Promise<void> {
  const { min = 1, max = 1 } = em.config.get('pool') ?? {};
  if (min !== 1 || max !== 1) throw new SchemaError(ONE_CONNECTION);
  // Without it a second process that writes to the file fails at once (contract E6).
  if (!mustWaitForLocks(em)) await sql.all(`pragma busy_timeout = ${BUSY_TIMEOUT_MS}`);
  const [journal] = await sql.all<{ journal_mode: string }>('pragma journal_mode');
  const isWal = journal?.journal_mode === 'wal';
  await syncCommits(sql, isWal);
  if (!isWal) await sql.all('pragma journal_mode = wal');
}

/**
 * Has each commit wait for the disk, or a power cut takes what was acknowledged (contract O9). better-sqlite3 lowers
 * `synchronous` in WAL mode, at its next look at the file, unless it has been set; another value is one that the host has
 * set. In WAL mode a `normal` of the host's cannot be told from that.
 */
async function syncCommits(sql: Sql, isWal: boolean): Promise<void> {
  const [setting] = await sql.all<{ synchronous: number }>('pragma synchronous');
  const isLowered = isWal && setting?.synchronous === NORMAL && (await lowersInWal(sql));
  if (setting?.synchronous === FULL || isLowered) await sql.run('pragma synchronous = full');
}

async function lowersInWal(sql: Sql): Promise<boolean> {
  const options = await sql.all<{ compile_options: string }>('pragma compile_options');
  return options.some((option) => option.compile_options === 'DEFAULT_WAL_SYNCHRONOUS=1');
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

  // There is no absolute value of the smallest integer.
  settings: settingsCheck(
    `case when ${FOREIGN_KEYS.isWrong} then abs(-9223372036854775807 - ${FOREIGN_KEYS.isWrong}) else ? end`,
    'SQLITE_ERROR',
    (message) => (message.includes('integer overflow') ? FOREIGN_KEYS : undefined),
  ),

  now: "((julianday('now') - 2440587.5) * 86400000)",

  failureOf: (error) => FAILURES_BY_CODE[primaryCode(error)],

  // The library runs in this process: it always answers.
  isAnswer: (error) => primaryCode(error).startsWith('SQLITE_'),

  defaultPoolMax: 1,

  // The first tells of other connections' writes, the second of this one's.
  changeMark: "select (select data_version from pragma_data_version) || ' ' || total_changes() as mark",

  jsonText: (column) => column,

  /**
   * As a fraction of two whole numbers, which SQLite divides exactly; a decimal of 16 digits it may read as the double
   * beside it, and MikroORM writes numbers into the statement as decimals.
   */
  literal(value) {
    if (typeof value !== 'number') return value;
    let denominator = 1;
    while (!Number.isInteger(value * denominator) && denominator < 2 ** 62) denominator *= 2;
    const numerator = value * denominator;
    if (denominator === 1 || !Number.isInteger(numerator)) return value;
    return raw(`(${BigInt(numerator)} * 1.0 / ${BigInt(denominator)})`);
  },
};
