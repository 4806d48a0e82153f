import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { MikroORM, type EntityManager, type Options } from '@mikro-orm/core';
import { Migration, Migrator } from '@mikro-orm/migrations';
import { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { adkEntities, type AdkEntityOptions } from '../../../entities/index.js';
import type { DialectName } from '../../../entities/dialect-name.js';
import { adkMigrations } from '../../../migrations/index.js';
import type { migrate } from '../../../migrations/migrate.js';
import { DATABASES, type DatabaseName } from '../../support/harnesses/databases.js';
import { TABLES as ALL_TABLES } from '../../support/harnesses/tables.js';
import { createDatabase, type TestDatabase } from '../../support/servers.js';

/** In the order in which databases list them. */
export const TABLES = [...ALL_TABLES].sort();

const cleanUps: (() => Promise<unknown>)[] = [];

/** Runs after the test, in reverse order. */
export function later(cleanUp: () => Promise<unknown>): void {
  cleanUps.push(cleanUp);
}

afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

export async function emptyDatabase(name: DatabaseName): Promise<TestDatabase> {
  const database = await createDatabase(name);
  later(() => database.drop());
  return database;
}

/** A migration as `migration:create` would write it; the tests cannot import TypeScript from a folder. */
export function migrationOf({ up, down = [] }: { up: string[]; down?: string[] }) {
  return class extends Migration {
    override up() {
      up.filter(Boolean).forEach((sql) => this.addSql(sql));
    }
    override down() {
      down.filter(Boolean).forEach((sql) => this.addSql(sql));
    }
  };
}

export async function emptyFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'adk-host-migrations-'));
  later(() => rm(folder, { recursive: true }));
  return folder;
}

/** Knex, which MikroORM 6 runs on, warns of every migration on MySQL that `create table` commits. */
export const quietDriver: Options =
  'getKnex' in AbstractSqlConnection.prototype ? { driverOptions: { log: { warn: () => undefined } } } : {};

/** A host's ORM with our entities and migrations, and the host's own. */
export async function openHost(
  database: TestDatabase,
  { location = {}, ...options }: Options & { location?: AdkEntityOptions } = {},
): Promise<MikroORM> {
  const orm = await MikroORM.init({
    ...database.options,
    ...quietDriver,
    extensions: [Migrator],
    ...options,
    entities: [...adkEntities(location), ...(options.entities ?? [])],
    migrations: {
      migrationsList: options.migrations?.migrationsList ?? adkMigrations(dialectOf(database.name), location),
      silent: true,
      snapshot: false,
      ...options.migrations,
    },
  });
  later(() => orm.close(true));
  return orm;
}

export const dialectOf = (name: DatabaseName): DialectName => DATABASES[name].dialect;

export function query<Row extends object>(em: EntityManager, sql: string, values: unknown[] = []): Promise<Row[]> {
  return (em.getConnection() as AbstractSqlConnection).execute<Row[]>(sql, values);
}

/** Every table, index and sequence of a database. */
export async function everything(orm: MikroORM, name: DatabaseName): Promise<string[]> {
  const rows = await query<{ type: string; name: string }>(orm.em, DATABASES[name].schema.everything);
  return rows.map((row) => `${row.type} ${row.name}`).sort();
}

/** The names of the tables that begin with a prefix, without it. */
export async function tablesWith(prefix: string, orm: MikroORM, name: DatabaseName): Promise<string[]> {
  const rows = await query<{ type: string; name: string }>(orm.em, DATABASES[name].schema.tables);
  return rows.flatMap((row) => (row.name.startsWith(prefix) ? [row.name.slice(prefix.length)] : [])).sort();
}

export async function appliedMigrations(orm: MikroORM): Promise<string[]> {
  const rows = await query<{ name: string }>(orm.em, 'select name from mikro_orm_migrations order by id');
  return rows.map((row) => row.name);
}

/** Runs `work` while a statement of another connection is not committed. */
export async function during(database: TestDatabase, statement: string, work: () => Promise<void>): Promise<void> {
  const em = (await openHost(database, { pool: { min: 0, max: 1 } })).em.fork();
  // Not `transactional`: `work` would join its transaction.
  await em.begin();
  await em.getConnection().execute(statement, [], 'all', em.getTransactionContext());
  await work().finally(() => em.rollback());
}

/** Calls a method that MikroORM 6 and 7 name differently. */
function call<Result>(target: object, six: string, seven: string, ...args: unknown[]): Promise<Result> {
  const method = Reflect.get(target, six in target ? six : seven) as (...args: unknown[]) => Promise<Result>;
  return method.apply(target, args);
}

export const pendingMigrations = ({ migrator }: MikroORM) =>
  call<{ name: string }[]>(migrator, 'getPendingMigrations', 'getPending');

/** @returns whether the next `migration:create` would write anything. */
export const checkMigrations = ({ migrator }: MikroORM) =>
  call<boolean>(migrator, 'checkMigrationNeeded', 'checkSchema');

/** @param suffix the end of the file's name, which begins with the second of its creation. */
export const createMigration = ({ migrator }: MikroORM, suffix?: string) =>
  call<{ diff: { up: string[]; down: string[] } }>(
    migrator,
    'createMigration',
    'create',
    ...[undefined, false, false, suffix],
  );

export const createSchema = ({ schema }: MikroORM) => call(schema, 'createSchema', 'create');

export const updateSchema = ({ schema }: MikroORM, options?: { safe: boolean }) =>
  call(schema, 'updateSchema', 'update', options);

export const dropSchema = ({ schema }: MikroORM) => call(schema, 'dropSchema', 'drop');

/** Our migrations, oldest first, as MikroORM's table has them. */
export const MIGRATIONS = ['Migration20261121000000_adk_initial'];

export const NEXT = 'Migration20270101000000_adk_next';

/** Calls `work` with `migrate` of a later version of this package, which has one more migration. */
export async function withNext(up: string[], work: (migrateToNext: typeof migrate) => Promise<void>): Promise<void> {
  // The error classes must be those of the test's ORM, or a lock that somebody else holds would not be recognised.
  const core = await import('@mikro-orm/core');
  try {
    await jest.isolateModulesAsync(async () => {
      jest.doMock('@mikro-orm/core', () => core);
      jest.doMock('../../../migrations/index.js', () => {
        const actual = jest.requireActual<{ adkMigrations: typeof adkMigrations }>('../../../migrations/index.js');
        const next = { name: NEXT, class: migrationOf({ up }) };
        return {
          adkMigrations: (...args: Parameters<typeof adkMigrations>) => [...actual.adkMigrations(...args), next],
        };
      });
      await work((await import('../../../migrations/migrate.js')).migrate);
    });
  } finally {
    jest.dontMock('@mikro-orm/core').dontMock('../../../migrations/index.js');
  }
}

/** The same in another schema or with another prefix. */
export const migrationsOf = (location: string) => MIGRATIONS.map((name) => `${name}[${location}]`);

/** A row for `AdkSession`. */
export const sessionRow = (userId: string) => ({
  appName: 'app',
  userId,
  id: 'session',
  incarnation: '00000000-0000-0000-0000-000000000000',
  origin: '00000000-0000-0000-0000-000000000000',
  createTime: 0.5,
  lastUpdateTime: 0.5,
});
