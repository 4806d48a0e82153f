import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { cpus, loadavg, release, totalmem, type } from 'node:os';
import { MikroORM } from '@mikro-orm/core';
import { MikroOrmSessionService, adkEntities, migrate } from '../src/index.js';
import { isMikroOrm7 } from '../test/support/mikro-orm.js';
import { isChosen, serverUrl } from '../test/support/run.js';
import { FILE_DATABASES, SERVERS, createDatabase, type DatabaseName } from '../test/support/servers.js';
import type { DatabaseFacts } from './results.js';

const PACKAGES = ['@google/adk', '@mikro-orm/core', 'pg', 'mysql2', 'mariadb', 'better-sqlite3'];
if (!isMikroOrm7) PACKAGES.push('sqlite3');

const SETTINGS: Record<DatabaseName, readonly string[]> = {
  sqlite: ['journal_mode', 'synchronous'],
  'better-sqlite': ['journal_mode', 'synchronous'],
  postgresql: ['fsync', 'synchronous_commit'],
  mysql: ['innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin'],
  mariadb: ['innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin'],
};

/** The settings that matter if a server has more data than memory. */
const SETTINGS_OF_SIZE: Record<DatabaseName, readonly string[]> = {
  sqlite: ['cache_size'],
  'better-sqlite': ['cache_size'],
  postgresql: ['shared_buffers', 'data_directory'],
  mysql: ['innodb_buffer_pool_size', 'datadir'],
  mariadb: ['innodb_buffer_pool_size', 'datadir'],
};

export function machineFacts(): Record<string, string | number> {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryGb: Math.round(totalmem() / 2 ** 30),
    system: `${type()} ${release()} ${process.arch}`,
    node: process.version,
    /** The load in the minute before the run: if others use the machine, the numbers are worthless. */
    loadBefore: Math.round((loadavg()[0] ?? 0) * 100) / 100,
  };
}

export async function packageVersions(): Promise<Record<string, string>> {
  const versions: Record<string, string> = {};
  for (const name of PACKAGES) {
    // Resolved like an import: on MikroORM 7 it is not in the repository's own folder.
    const file = createRequire(import.meta.url).resolve(`${name}/package.json`);
    versions[name] = (JSON.parse(await readFile(file, 'utf8')) as { version: string }).version;
  }
  return versions;
}

/** The databases to measure. MikroORM 7 has only better-sqlite3 for SQLite, in the package that has sqlite3 on MikroORM 6. */
export function measuredDatabases(): DatabaseName[] {
  const files: readonly DatabaseName[] = isMikroOrm7 ? ['better-sqlite'] : FILE_DATABASES;
  return [...files, ...SERVERS.filter(serverUrl)].filter(isChosen);
}

/** @param withSize whether to add the settings that matter with much data. */
export async function databaseFacts(name: DatabaseName, withSize = false): Promise<DatabaseFacts> {
  const database = await createDatabase(name);
  const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
  try {
    const isFile = name === 'sqlite' || name === 'better-sqlite';
    const value = async (sql: string) => {
      const rows: unknown = await orm.em.getConnection().execute(sql);
      return String(Object.values((rows as Record<string, unknown>[])[0] ?? {})[0]);
    };
    // The service also sets up the connection.
    await migrate(orm);
    await new MikroOrmSessionService(orm.em).listSessions({ appName: 'bench' });
    const settings: Record<string, string> = {};
    for (const setting of [...SETTINGS[name], ...(withSize ? SETTINGS_OF_SIZE[name] : [])]) {
      const sql = isFile ? `pragma ${setting}` : name === 'postgresql' ? `show ${setting}` : `select @@${setting}`;
      settings[setting] = await value(sql);
    }
    return { version: await value(isFile ? 'select sqlite_version()' : 'select version()'), settings };
  } finally {
    await orm.close(true);
    await database.drop();
  }
}
