import { Utils, type Connection, type MikroORM } from '@mikro-orm/core';
import type { Migration } from '@mikro-orm/migrations';
import { supportedDialect } from '../entities/dialect-name.js';
import { ormConnectionOf, refuseOther } from '../src/database/orm/orm-connection.js';
import { changedValues } from '../src/database/sql/row-values.js';
import { Database, refuseInside } from '../src/database/calls/database.js';
import { InvalidArgumentError, SchemaError, driverCodeOf } from '../src/model/errors.js';
import { BEFORE_MIGRATIONS } from './lock.js';
import { PendingMigrations, patiently } from './pending.js';
import { isObject } from '../src/model/objects.js';

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
  const { em } = orm;
  refuseOther(em);
  const dialect = supportedDialect(em.getPlatform());
  refuseInside(em);
  const { MigrationStorage, adkMigrations, refuseDroppingConfig, tables } = await loadMigrations();
  const options = tables.locationOf(orm.getMetadata());
  const location = tables.locationFor(orm.config, { dialect, ...options });
  refuseDroppingConfig(orm.config, orm.getMetadata(), options);

  await ormConnectionOf(em).open();
  await new Database(em).connections.refuseSettings();
  const connection = em.getConnection();
  await refuseChangedRows(connection);
  const driver = em.getDriver() as ConstructorParameters<typeof Migration>[0];
  const storage = new MigrationStorage(driver, orm.config.get('migrations'));
  const all = adkMigrations(dialect, options);
  const pending = new PendingMigrations(em, dialect, storage, all);
  const first = BEFORE_MIGRATIONS[dialect];
  if (first) await patiently(() => connection.execute(first));
  // This takes a connection of its own, and the pool may have only one, so it comes before the transaction.
  await pending.prepare();

  const names = all.map(({ name }) => name);
  if ((await pending.list()).length > 0) await pending.run();
  const findings = await tables.checkTables((sql, values) => connection.execute(sql, values), location);
  tables.refuseGone(findings, orm.config, names);
  tables.refuseDifferent(findings);
}

/** What a host's parser that parses JSON, or trims, would change. */
const TEXT = ' "A7" ';

/**
 * MikroORM reads its notes of what was run through the driver as the host has set it: misread, migrations would run again.
 *
 * @throws SchemaError when the driver's settings change rows or texts.
 */
async function refuseChangedRows(connection: Connection): Promise<void> {
  const [row] = (await connection.execute(`select '${TEXT}' as text`)) as unknown[];
  const text: unknown = isObject(row) && 'text' in row ? row.text : undefined;
  if (text !== TEXT) throw changedValues('the text that was selected', text);
}

/** @throws InvalidArgumentError for what is no ORM: an `EntityManager`, for example, or a promise of one. */
function refuseOthers(orm: unknown): void {
  const isOrm = isObject(orm) && 'em' in orm && 'config' in orm;
  if (!isOrm) throw new InvalidArgumentError('migrate needs your MikroORM itself: await migrate(orm), not orm.em.');
}

/** Imports on demand, since hosts that migrate by other means need no `@mikro-orm/migrations`. */
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
