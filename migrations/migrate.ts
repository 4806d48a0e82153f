import { Utils, type Connection, type MikroORM } from '@mikro-orm/core';
import type { Migration } from '@mikro-orm/migrations';
import { supportedDialect } from '../entities/dialect-name.js';
import { changedValues } from '../src/database/sql/values.js';
import { Database, refuseInside } from '../src/database/calls/database.js';
import { emOf } from './em-of.js';
import { SchemaError, isMissingModule } from '../src/model/errors.js';
import { PendingMigrations, patiently } from './pending.js';
import { isObject } from '../src/model/json.js';

/**
 * Updates the tables of this package to this version. Many processes may call it at once, and at every start: if there is nothing to do,
 * it only reads. It does not run the host's own migrations. It records what it has run in MikroORM's table of migrations, where
 * `mikro-orm migration:pending` finds it.
 *
 * @param orm the host's ORM, with `adkEntities()` among its entities; schema and table prefix are taken from them.
 * @throws InvalidArgumentError if `orm` is not a MikroORM.
 * @throws SchemaError if `adkEntities()` is not among the entities, `@mikro-orm/migrations` is not installed, the driver is not the one
 *   for the server, the connection has a setting that is refused, another process has been migrating for a minute, tables with the same
 *   names have other columns (then nothing was changed), tables that were made before are gone, or with this config the next
 *   `migration:create` would drop the tables.
 * @throws the driver's own error, with SQL, if a statement fails: it belongs in the host's log.
 * @throws InsideTransactionError inside a transaction of the same ORM.
 */
export async function migrate(orm: MikroORM): Promise<void> {
  const em = emOf(orm, 'migrate');
  const dialect = supportedDialect(em.getPlatform());
  refuseInside(em);
  const { MigrationStorage, adkMigrations, refuseDroppingConfig, tables } = await loadMigrations();
  const options = tables.locationOf(orm.getMetadata());
  refuseDroppingConfig(orm.config, orm.getMetadata(), options);

  // Refuses names before it opens: a PGlite that no statement has used is not closed with its ORM, and keeps the process alive.
  const { connections } = new Database(em);
  await connections.orm.open();
  await connections.refuseSettings();
  await refuseChangedRows(em.getConnection());
  // Not in the transaction: SQLite refuses there to put the file into WAL mode.
  await patiently(async () => connections.prepare(false));
  const driver = em.getDriver() as ConstructorParameters<typeof Migration>[0];
  const storage = new MigrationStorage(driver, orm.config.get('migrations'));
  const all = adkMigrations(dialect, options);
  const pending = new PendingMigrations(em, dialect, storage, all);
  // Before the transaction: it needs a connection, and the pool may have only one.
  await pending.prepare();

  const names = all.map(({ name }) => name);
  if ((await pending.list()).length > 0) await pending.run();
  const findings = await tables.findingsOf(em);
  tables.refuseGone(findings, orm.config, names);
  tables.refuseDifferent(findings);
}

/** A text that a parser which reads JSON or trims would change. */
const TEXT = ' "A7" ';

/**
 * MikroORM reads its list of executed migrations with the host's settings of the driver. If they change texts, migrations would run
 * again.
 *
 * @throws SchemaError if the driver's settings change rows or texts.
 */
async function refuseChangedRows(connection: Connection): Promise<void> {
  const [row] = (await connection.execute(`select '${TEXT}' as text`)) as unknown[];
  const text: unknown = isObject(row) && 'text' in row ? row.text : undefined;
  if (text !== TEXT) throw changedValues('the text that was selected', text);
}

/** Imports on demand, since hosts that migrate in another way do not need `@mikro-orm/migrations`. */
async function loadMigrations() {
  try {
    const { MigrationStorage } = await import('@mikro-orm/migrations');
    const { adkMigrations } = await import('./index.js');
    const { refuseDroppingConfig } = await import('./refuse-config.js');
    const tables = await import('./tables.js');
    return { MigrationStorage, adkMigrations, refuseDroppingConfig, tables };
  } catch (cause) {
    const version = Utils.getORMVersion();
    const problem = isMissingModule(cause)
      ? 'migrate needs @mikro-orm/migrations, which is not installed.'
      : `@mikro-orm/migrations could not be loaded beside MikroORM ${version}: all packages of MikroORM need the same version.`;
    throw new SchemaError(`${problem} Run: npm install @mikro-orm/migrations@${version}`, { cause });
  }
}
