import { setTimeout } from 'node:timers/promises';
import type { Connection, MikroORM, Transaction } from '@mikro-orm/core';
import type { Migration, MigrationStorage } from '@mikro-orm/migrations';
import { dialectName } from '../entities/dialect-name.js';
import { adkEntities, type AdkEntityOptions } from '../entities/index.js';
import { SchemaError, driverCodeOf } from './errors.js';

/**
 * Brings the tables of this package up to this version. Safe to call from many processes at once, and at every start:
 * when nothing is to be done it only reads. Migrations of the host's own are left alone. What it does is recorded in
 * MikroORM's table of migrations, where `mikro-orm migration:pending` finds it.
 *
 * @param orm the host's ORM, with `adkEntities()` among its entities; schema and table prefix are taken from them.
 * @returns when the tables are as this version needs them.
 * @throws SchemaError when `adkEntities()` is not among the entities, when `@mikro-orm/migrations` is not installed,
 *   when the driver is not the one for the server, when another process has been migrating for a minute, or when
 *   tables of the same names have other columns.
 */
export async function migrate(orm: MikroORM): Promise<void> {
  const dialect = dialectName(orm.em.getPlatform());
  if (!dialect) throw new SchemaError('adk-mikro-orm runs on SQLite, PostgreSQL, MySQL and MariaDB only.');
  const place = placeOf(orm);
  const { MigrationStorage, adkMigrations, MIGRATION_LOCKS } = await loadMigrations();

  const connection = orm.em.getConnection();
  const driver = orm.em.getDriver() as MigrationDriver;
  const storage = new MigrationStorage(driver, orm.config.get('migrations'));
  const pending = async () => {
    const executed = new Set(await storage.executed());
    return adkMigrations(dialect, place).filter(({ name }) => !executed.has(name));
  };

  // Refused inside a transaction; the file remembers it.
  if (dialect === 'sqlite') await patiently(() => connection.execute('pragma journal_mode = wal'));
  // Outside the transaction, since it asks for a second connection and a pool may have no more than one.
  await ensureTable(storage);

  if ((await pending()).length > 0) {
    await locked(connection, MIGRATION_LOCKS[dialect], async (transaction) => {
      storage.setMasterMigration(transaction);
      for (const { name, class: Class } of await pending()) {
        const migration = new Class(driver, orm.config);
        migration.setTransactionContext(transaction);
        await migration.up();
        for (const sql of migration.getQueries()) await migration.execute(sql);
        await storage.logMigration({ name, context: null });
      }
    });
  }
  await checkTables(orm);
}

type MigrationDriver = ConstructorParameters<typeof Migration>[0];

/** Not imported at the top, since hosts that migrate by other means need no `@mikro-orm/migrations`. */
async function loadMigrations() {
  try {
    const { MigrationStorage } = await import('@mikro-orm/migrations');
    const { adkMigrations } = await import('../migrations/index.js');
    const { MIGRATION_LOCKS } = await import('../migrations/lock.js');
    return { MigrationStorage, adkMigrations, MIGRATION_LOCKS };
  } catch (cause) {
    throw new SchemaError('migrate needs a package that could not be loaded: npm install @mikro-orm/migrations', {
      cause,
    });
  }
}

/** What `adkEntities` was called with, read from the entities. */
function placeOf(orm: MikroORM): AdkEntityOptions {
  const session = orm.getMetadata().find('AdkSession');
  if (!session) throw new SchemaError('Add adkEntities() to the entities of MikroORM.init.');
  const tablePrefix = session.tableName.replace(/sessions$/, '');
  return session.schema ? { schema: session.schema, tablePrefix } : { tablePrefix };
}

/** A process that creates the table at the same moment makes this one fail; at the next look the table is there. */
async function ensureTable(storage: MigrationStorage): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await patiently(() => storage.ensureTable());
      return;
    } catch (error) {
      // One for the schema, one for the table.
      if (attempt > 2) throw error;
    }
  }
}

/** Runs `work` in a transaction while no other process does. */
async function locked(
  connection: Connection,
  { take, release }: { take: readonly string[]; release: readonly string[] },
  work: (transaction: Transaction) => Promise<void>,
): Promise<void> {
  await patiently(() =>
    connection.transactional(async (transaction) => {
      const run = async (statements: readonly string[]) => {
        for (const sql of statements) {
          const row = (await connection.execute(sql, [], 'get', transaction)) as { locked?: number | null } | undefined;
          if (row?.locked !== undefined && row.locked !== 1) {
            throw new SchemaError('Another process has been migrating for a minute. Try again when it has finished.');
          }
        }
      };
      await run(take);
      try {
        await work(transaction);
      } finally {
        await run(release);
      }
    }),
  );
}

/** Waits for a writer of the same SQLite file. Its own busy timeout is shorter, and is not heard in every place. */
async function patiently<T>(work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!driverCodeOf(error)?.startsWith('SQLITE_BUSY') || Date.now() > deadline) throw error;
    }
    await setTimeout(Math.random() * 100);
  }
}

/** Finds tables that were there before and that `create table if not exists` therefore left as they were. */
async function checkTables(orm: MikroORM): Promise<void> {
  const platform = orm.em.getPlatform();
  for (const { meta } of adkEntities()) {
    const { tableName, schema = orm.config.get('schema'), props } = orm.getMetadata().get(meta.className);
    const table = [schema, tableName]
      .filter((part) => part && part !== '*')
      .map((part) => platform.quoteIdentifier(String(part)));
    const columns = new Set(props.flatMap((prop) => prop.fieldNames).map((name) => platform.quoteIdentifier(name)));
    try {
      await orm.em.getConnection().execute(`select ${[...columns].join(', ')} from ${table.join('.')} where 1 = 0`);
    } catch {
      throw new SchemaError(
        `Table ${tableName} is not as this version of adk-mikro-orm needs it. If it is another program's, choose a ` +
          'tablePrefix; if you make it in migrations of your own, create one more with: npx mikro-orm migration:create',
      );
    }
  }
}
