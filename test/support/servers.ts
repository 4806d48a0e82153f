import { randomBytes } from 'node:crypto';
import { copyFile, mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { MikroORM, type Options } from '@mikro-orm/core';
import { MariaDbDriver } from '@mikro-orm/mariadb';
import { MySqlDriver } from '@mikro-orm/mysql';
import { PostgreSqlDriver, type AbstractSqlConnection } from '@mikro-orm/postgresql';
import { SqliteDriver } from '@mikro-orm/sqlite';
import { BetterSqliteDriver, isMikroOrm7 } from './mikro-orm.js';

export const FILE_DATABASES = ['sqlite', 'better-sqlite'] as const;
export const SERVERS = ['postgresql', 'mysql', 'mariadb'] as const;

export type ServerName = (typeof SERVERS)[number];
export type DatabaseName = (typeof FILE_DATABASES)[number] | ServerName;

export interface TestDatabase {
  name: DatabaseName;
  /** For another process, or for `ADK_DATABASE_URL`. */
  url: string;
  /** For `MikroORM.init`, with the entities added. */
  options: Options;
  drop(): Promise<void>;
}

const DRIVERS: Record<DatabaseName, NonNullable<Options['driver']>> = {
  sqlite: SqliteDriver,
  'better-sqlite': BetterSqliteDriver,
  postgresql: PostgreSqlDriver,
  mysql: MySqlDriver,
  mariadb: MariaDbDriver,
};

/** What the server gives to everybody who may log in. */
const ADMIN_DATABASE = { postgresql: 'postgres', mysql: 'information_schema', mariadb: 'information_schema' };

export const urlVariable = (name: ServerName) => `ADK_TEST_${name.toUpperCase()}_URL`;

export const serverUrl = (name: ServerName) => process.env[urlVariable(name)];

/** `ADK_TEST_DATABASES=sqlite,mysql` leaves the others out. */
export function isChosen(name: DatabaseName | 'libsql' | 'pglite'): boolean {
  const chosen = process.env['ADK_TEST_DATABASES'];
  return !chosen || chosen.split(',').includes(name);
}

export function availableDatabases(): DatabaseName[] {
  // On MikroORM 7 `sqlite` is what `better-sqlite` is on MikroORM 6.
  const files = FILE_DATABASES.filter((name) => !(isMikroOrm7 && name === 'better-sqlite'));
  return [...files, ...SERVERS.filter(serverUrl)].filter(isChosen);
}

/** Begins the names of one run's databases, so that its end can sweep what failed tests left and nothing else. */
export const runPrefix = () => `adk_test_${process.env['ADK_TEST_RUN'] ?? process.pid}_`;

/** Where databases are that are files. Benchmarks set no other: they measure the disk. */
export const databaseFolder = () => process.env['ADK_TEST_FOLDER'] ?? tmpdir();

/** A new, empty database that nobody else uses. */
export async function createDatabase(name: DatabaseName): Promise<TestDatabase> {
  return isFileDatabase(name) ? createFile(name) : createOnServer(name);
}

export const isFileDatabase = (name: DatabaseName): name is (typeof FILE_DATABASES)[number] =>
  name === 'sqlite' || name === 'better-sqlite';

const newName = () => runPrefix() + randomBytes(5).toString('hex');

/**
 * Runs a statement as the server's administrator, outside any test's database: to end connections, for example. MySQL and
 * MariaDB take several.
 */
export async function executeOnServer<Row>(name: ServerName, sql: string): Promise<Row[]> {
  const orm = await MikroORM.init({
    driver: DRIVERS[name],
    clientUrl: databaseUrl(name, ADMIN_DATABASE[name]),
    entities: [],
    discovery: { warnWhenNoEntities: false },
    multipleStatements: true,
  });
  try {
    return await (orm.em.getDriver().getConnection() as AbstractSqlConnection).execute<Row[]>(sql);
  } finally {
    await orm.close(true);
  }
}

/** @param template the file to copy; without it there is none until somebody connects. */
export async function createFile(name: (typeof FILE_DATABASES)[number], template?: string): Promise<TestDatabase> {
  // A folder of its own: WAL mode puts more files beside the database.
  const folder = path.join(databaseFolder(), newName());
  await mkdir(folder);
  const file = path.join(folder, 'test.db');
  if (template !== undefined) await copyFile(template, file);
  return {
    name,
    url: `sqlite:${file}`,
    options: { driver: DRIVERS[name], dbName: file },
    drop: () => rm(folder, { recursive: true, force: true }),
  };
}

/** @param more what follows `create database x`: options, and on MySQL and MariaDB statements. */
export async function createOnServer(name: ServerName, more = (_database: string) => ''): Promise<TestDatabase> {
  const database = newName();
  await executeOnServer(name, `create database ${database}${more(database)}`);
  const url = databaseUrl(name, database);
  return {
    name,
    url,
    options: { driver: DRIVERS[name], clientUrl: url, pool: { min: 0, max: 10 } },
    drop: () => dropOnServer(name, database),
  };
}

export async function dropOnServer(name: ServerName, database: string): Promise<void> {
  // Connections that a failed test left open must not keep its database alive.
  const force = name === 'postgresql' ? ' with (force)' : '';
  await executeOnServer(name, `drop database if exists ${database}${force}`);
}

function databaseUrl(name: ServerName, database: string): string {
  const server = serverUrl(name);
  if (!server) throw new Error(`No ${name} server: set ${urlVariable(name)}`);
  const url = new URL(server);
  url.pathname = database;
  return url.href;
}
