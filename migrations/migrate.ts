import { setTimeout } from 'node:timers/promises';
import type { MikroORM, Transaction } from '@mikro-orm/core';
import type { Migration, MigrationStorage } from '@mikro-orm/migrations';
import { dialectName } from '../entities/dialect-name.js';
import { resolveDialect } from '../src/database/dialects/resolve.js';
import { hasOneConnection, refuseInside } from '../src/database/inside-transaction.js';
import { inTransaction, prepareConnection } from '../src/database/mikro-orm.js';
import { Transactions } from '../src/database/transaction.js';
import { SchemaError, driverCodeOf } from '../src/model/errors.js';

/**
 * Brings the tables of this package up to this version. Safe to call from many processes at once, and at every start:
 * when nothing is to be done it only reads. Migrations of the host's own are left alone. What it does is recorded in
 * MikroORM's table of migrations, where `mikro-orm migration:pending` finds it.
 *
 * @param orm the host's ORM, with `adkEntities()` among its entities; schema and table prefix are taken from them.
 * @returns when the tables are as this version needs them.
 * @throws SchemaError when `adkEntities()` is not among the entities, when `@mikro-orm/migrations` is not installed,
 *   when the driver is not the one for the server, when the connection has a setting that is refused, when another
 *   process has been migrating for a minute, when tables of the same names have other columns (then nothing was changed),
 *   when tables are gone that were made before, or when with this config the next `migration:create` would drop the
 *   tables.
 * @throws InsideTransactionError inside a transaction that holds the only connection of the pool.
 */
export async function migrate(orm: MikroORM): Promise<void> {
  const dialect = dialectName(orm.em.getPlatform());
  if (!dialect) throw new SchemaError('adk-mikro-orm runs on SQLite, PostgreSQL, MySQL and MariaDB only.');
  if (hasOneConnection(orm.em, resolveDialect(orm.em.getPlatform()))) refuseInside(orm.em);
  const { MigrationStorage, adkMigrations, refuseDroppingConfig, tables, MIGRATION_LOCKS } = await loadMigrations();
  const options = tables.placeOf(orm.getMetadata());
  const tablesPlace = tables.placeFor(orm.config, { dialect, ...options });
  refuseDroppingConfig(orm.config, orm.getMetadata(), options);

  await prepareConnection(orm.em);
  await new Transactions(orm.em).checkSettings();
  const connection = orm.em.getConnection();
  const driver = orm.em.getDriver() as MigrationDriver;
  const storage = new MigrationStorage(driver, orm.config.get('migrations'));
  const all = adkMigrations(dialect, options);
  const pending = async () => {
    const executed = new Set(await storage.executed());
    return all.filter(({ name }) => !executed.has(name));
  };
  // Refused inside a transaction; the file remembers it.
  if (dialect === 'sqlite') await patiently(() => connection.execute('pragma journal_mode = wal'));
  // Outside the transaction, since it asks for a second connection and a pool may have no more than one.
  await ensureTable(storage);

  if ((await pending()).length > 0) {
    await locked(orm, MIGRATION_LOCKS[dialect], async (transaction) => {
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
  const findings = await tables.lookAtTables((sql, values) => connection.execute(sql, values), tablesPlace);
  tables.refuseGone(
    findings,
    orm.config,
    all.map(({ name }) => name),
  );
  tables.refuseDifferent(findings);
}

type MigrationDriver = ConstructorParameters<typeof Migration>[0];

/** Not imported at the top, since hosts that migrate by other means need no `@mikro-orm/migrations`. */
async function loadMigrations() {
  try {
    const { MigrationStorage } = await import('@mikro-orm/migrations');
    const { adkMigrations } = await import('./index.js');
    const { MIGRATION_LOCKS } = await import('./lock.js');
    const { refuseDroppingConfig } = await import('./refuse-config.js');
    const tables = await import('./tables.js');
    return { MigrationStorage, adkMigrations, refuseDroppingConfig, tables, MIGRATION_LOCKS };
  } catch (cause) {
    throw new SchemaError('migrate needs a package that could not be loaded: npm install @mikro-orm/migrations', {
      cause,
    });
  }
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
  orm: MikroORM,
  { take, release }: { take: readonly string[]; release: readonly string[] },
  work: (transaction: Transaction) => Promise<void>,
): Promise<void> {
  await patiently(async () => {
    const em = orm.em.fork({ disableContextResolution: true });
    const connection = em.getConnection();
    const run = async (statements: readonly string[], transaction: Transaction) => {
      for (const sql of statements) {
        const row = (await connection.execute(sql, [], 'get', transaction)) as { locked?: number | null } | undefined;
        if (row?.locked !== undefined && row.locked !== 1) {
          throw new SchemaError('Another process has been migrating for a minute. Try again when it has finished.');
        }
      }
    };
    await inTransaction(em, async () => {
      const transaction: unknown = em.getTransactionContext();
      await run(take, transaction);
      try {
        await work(transaction);
      } finally {
        await run(release, transaction);
      }
    });
  });
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
