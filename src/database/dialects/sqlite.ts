import type { EntityManager } from '@mikro-orm/core';
import { SchemaError, driverCodeOf } from '../../model/errors.js';
import { ormConnectionOf } from '../orm/orm-connection.js';
import { placeholders, numberOf } from '../sql/values.js';
import type { Dialect, Sql } from './dialect.js';
import { failuresByCode } from './failures-by-code.js';
import { returningOperations, returningSql } from './returning.js';
import { appendByReturning, takeByReturning } from './session-rows.js';
import type { Setting } from './settings.js';

const BUSY_TIMEOUT_MS = 10_000;

/** A waiting connection checks every 100 ms whether the lock is free, more often only at first. */
const TURN_MS = 125;

/** Node.js throws the codes that begin with E when MikroORM creates the file's folder. */
const FAILURES_BY_CODE = failuresByCode({
  lockTimeout: 'SQLITE_BUSY SQLITE_LOCKED',
  readOnlyFile: 'SQLITE_READONLY EROFS',
  diskFull: 'SQLITE_FULL',
  inputOutput: 'SQLITE_IOERR',
  damagedFile: 'SQLITE_CORRUPT SQLITE_NOTADB',
  fileNotOpened: 'SQLITE_CANTOPEN ENOTDIR EACCES EPERM',
  notAllowed: 'SQLITE_PERM SQLITE_AUTH',
  statementTimeout: 'SQLITE_INTERRUPT',
});

/** better-sqlite3 gives extended codes such as `SQLITE_READONLY_DIRECTORY`, sqlite3 gives `SQLITE_READONLY`. */
function primaryCode(error: unknown): string {
  const code = driverCodeOf(error) ?? '';
  return /^SQLITE_[A-Z]+/.exec(code)?.[0] ?? code;
}

/** MikroORM turns foreign keys on once, on the first connection. Other connections of knex lack them. */
const ONE_CONNECTION =
  "SQLite needs one connection that stays open, or a deleted session would leave its events behind. Leave 'pool' out of the config of MikroORM, or set it to { min: 1, max: 1 }.";

/** Values of `pragma synchronous`. */
const NORMAL = 1;
const FULL = 2;
const FOREIGN_KEYS: Setting = {
  name: 'foreign_keys = off',
  because: 'a deleted session would leave its events behind',
  advice: 'Run: pragma foreign_keys = on',
  isWrong: '(select not foreign_keys from pragma_foreign_keys)',
};

async function prepareConnection(em: EntityManager, sql: Sql): Promise<void> {
  const { min = 1, max = 1 } = em.config.get('pool') ?? {};
  if (min !== 1 || max !== 1) throw new SchemaError(ONE_CONNECTION);
  // Without this a write fails at once if another process is writing to the file (contract E6).
  if (!ormConnectionOf(em).mustWaitForLocks) await sql.all(`pragma busy_timeout = ${BUSY_TIMEOUT_MS}`);
  const [journal] = await sql.all<{ journal_mode: string }>('pragma journal_mode');
  const isWal = journal?.journal_mode === 'wal';
  await syncCommits(sql, isWal);
  if (!isWal) await sql.all('pragma journal_mode = wal');
}

/**
 * Makes each commit wait for the disk: otherwise a power cut loses acknowledged writes (contract O9). In WAL mode better-sqlite3
 * lowers `synchronous` to `normal`, unless a statement has set it. If a host has set `normal` itself, nobody can see the
 * difference, and it becomes `full`; other values of the host stay.
 */
async function syncCommits(sql: Sql, isWal: boolean): Promise<void> {
  const [setting] = await sql.all<{ synchronous: number }>('pragma synchronous');
  const synchronous = numberOf(setting?.synchronous);
  const isLowered = isWal && synchronous === NORMAL && (await lowersInWal(sql));
  if (synchronous === FULL || isLowered) await sql.run('pragma synchronous = full');
}

async function lowersInWal(sql: Sql): Promise<boolean> {
  const options = await sql.all<{ compile_options: string }>('pragma compile_options');
  return options.some((option) => option.compile_options === 'DEFAULT_WAL_SYNCHRONOUS=1');
}

/** The most appends that share a commit: none of them is acknowledged before it. */
const MOST = 64;

export const sqlite: Dialect = {
  connections: {
    prepare: prepareConnection,

    settings: [FOREIGN_KEYS],
  },

  errors: {
    failureOf: (error) => FAILURES_BY_CODE[primaryCode(error)],

    // SQLite runs in this process, so no answer is lost.
    isAnswer: (error) => primaryCode(error).startsWith('SQLITE_'),
  },

  sql: {
    ...returningSql,
    now: "round((julianday('now') - 2440587.5) * 86400000)",

    // `data_version` changes with the writes of other connections, `total_changes()` with those of this one.
    changeCounter: "select (select data_version from pragma_data_version) || ' ' || total_changes() as counter",

    hostKeys: (tables) =>
      `select null as schema_name, t.name as table_name, f.id as key_id, '' as name, lower(f.on_delete) as rule, f."table" as target,
          f."from" as column_name, coalesce(f."to", (select name from pragma_table_info(f."table") where pk = f.seq + 1)) as target_column,
          exists (select 1 from pragma_index_list(t.name) as i where not i.partial and not exists (
            select 1 from pragma_foreign_key_list(t.name) as g where g.id = f.id and g."from" not in (
              select name from pragma_index_info(i.name) as x where x.seqno <
                (select count(*) from pragma_foreign_key_list(t.name) as h where h.id = f.id)))) as indexed
        from sqlite_master as t join pragma_foreign_key_list(t.name) as f
        where ? is null and t.type = 'table' and f."table" in (${placeholders(tables)}) order by t.name, f.id, f.seq`,

    turnMs: TURN_MS,

    asText: (column) => `cast(${column} as text)`,

    contains: (column, value) => `instr(${column}, ${value}) > 0`,

    hex: (column) => `hex(${column})`,

    byteLength: (column) => `length(cast(${column} as blob))`,
  },

  operations: {
    ...returningOperations,

    // In one transaction, since a commit waits for the disk.
    appends(tables) {
      const take = takeByReturning(tables, sqlite.sql);
      return { most: MOST, write: (sql, batches) => appendByReturning(sql, batches, take) };
    },
  },
};
