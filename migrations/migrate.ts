import { Utils, type MikroORM } from '@mikro-orm/core';
import type { Migration } from '@mikro-orm/migrations';
import { supportedDialect } from '../entities/dialect-name.js';
import { refuseInside } from '../src/database/inside-transaction.js';
import { prepareConnection, sqlEntityManager } from '../src/database/mikro-orm.js';
import { Transactions } from '../src/database/transaction.js';
import { InvalidArgumentError, SchemaError, driverCodeOf } from '../src/model/errors.js';
import { PendingMigrations, patiently } from './pending.js';

/**
 * Brings the tables of this package up to this version. Safe to call from many processes at once, and at every start:
 * when nothing is to be done it only reads. Migrations of the host's own are left alone. What it does is recorded in
 * MikroORM's table of migrations, where `mikro-orm migration:pending` finds it.
 *
 * @param orm the host's ORM, with `adkEntities()` among its entities; schema and table prefix are taken from them.
 * @returns when the tables are as this version needs them.
 * @throws InvalidArgumentError when it is no MikroORM.
 * @throws SchemaError when `adkEntities()` is not among the entities, when `@mikro-orm/migrations` is not installed,
 *   when the driver is not the one for the server, when the connection has a setting that is refused, when another
 *   process has been migrating for a minute, when tables of the same names have other columns (then nothing was changed),
 *   when tables are gone that were made before, or when with this config the next `migration:create` would drop the
 *   tables.
 * @throws Error of the driver's as it is, SQL included, when a statement fails: it belongs in the host's log.
 * @throws InsideTransactionError inside a transaction of the same ORM.
 */
export async function migrate(orm: MikroORM): Promise<void> {
  refuseOthers(orm);
  const em = sqlEntityManager(orm.em);
  const dialect = supportedDialect(em.getPlatform());
  refuseInside(em);
  const { MigrationStorage, adkMigrations, refuseDroppingConfig, tables } = await loadMigrations();
  const options = tables.placeOf(orm.getMetadata());
  const tablesPlace = tables.placeFor(orm.config, { dialect, ...options });
  refuseDroppingConfig(orm.config, orm.getMetadata(), options);

  await prepareConnection(em);
  await new Transactions(em).checkSettings();
  const connection = em.getConnection();
  const driver = em.getDriver() as ConstructorParameters<typeof Migration>[0];
  const storage = new MigrationStorage(driver, orm.config.get('migrations'));
  const all = adkMigrations(dialect, options);
  const pending = new PendingMigrations(em, dialect, storage, all);
  const look = (mayLack?: ReadonlySet<string>) =>
    tables.lookAtTables((sql, values) => connection.execute(sql, values), tablesPlace, mayLack);
  // Before the transaction, in which SQLite refuses it. The file keeps the mode.
  if (dialect === 'sqlite') await patiently(() => connection.execute('pragma journal_mode = wal'));
  // Before the transaction, since it takes a connection of its own, and the pool may have only one.
  await pending.prepare();

  const names = all.map(({ name }) => name);
  const [next] = await pending.list();
  // All but the first one change tables that exist.
  if (next && next !== all[0]) tables.refuseGone(await look(tables.LATER), orm.config, names);
  if (next) await pending.run();
  const findings = await look();
  tables.refuseGone(findings, orm.config, names);
  tables.refuseDifferent(findings);
}

/** @throws InvalidArgumentError for what is no ORM: an `EntityManager`, for example, or a promise of one. */
function refuseOthers(orm: unknown): void {
  const isOrm = typeof orm === 'object' && orm !== null && 'em' in orm && 'config' in orm;
  if (!isOrm) throw new InvalidArgumentError('migrate needs your MikroORM itself: await migrate(orm), not orm.em.');
}

/** Not imported at the top, since hosts that migrate by other means need no `@mikro-orm/migrations`. */
async function loadMigrations() {
  try {
    const { MigrationStorage } = await import('@mikro-orm/migrations');
    const { adkMigrations } = await import('./index.js');
    const { refuseDroppingConfig } = await import('./refuse-config.js');
    const tables = await import('./tables.js');
    return { MigrationStorage, adkMigrations, refuseDroppingConfig, tables };
  } catch (cause) {
    const version = Utils.getORMVersion();
    const code = driverCodeOf(cause);
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND';
    const problem = isMissing
      ? 'migrate needs @mikro-orm/migrations, which is not installed.'
      : `@mikro-orm/migrations could not be loaded beside MikroORM ${version}: all packages of MikroORM need the same version.`;
    throw new SchemaError(`${problem} Run: npm install @mikro-orm/migrations@${version}`, { cause });
  }
}
