import { TableNotFoundException, type Configuration, type EntityManager } from '@mikro-orm/core';
import { TRAITS, supportedDialect, type DialectName } from '../entities/dialect-name.js';
import { refuseOther } from '../src/database/orm/orm-connection.js';
import { SchemaError } from '../src/model/errors.js';
import { adkMigrations } from './adk-migrations.js';
import { readyToRun } from './pending.js';
import { checkTables, locationFor, locationOf, refuseDifferent, refuseGone, refuseMissing } from './tables.js';
import { SETTINGS } from '../src/model/setting-words.js';

/** What a database lacks for this version. */
interface MigrationStatus {
  /** The names of this package's migrations that were not executed, the oldest first. */
  pending: string[];
  /** What is wrong with the tables, and what to do; absent if they are right. */
  problem?: string;
  /** @returns the statements that `migrate` would run. Nothing is run. @throws SchemaError if it would refuse to. */
  statements(): Promise<string[]>;
}

const OUTDATED = `The tables are those of an earlier version. Run ${SETTINGS.migrate}.`;

/**
 * Checks the tables and MikroORM's list of executed migrations. It reads the list without MikroORM 7's `MigrationStorage`, which would
 * create the table.
 *
 * @throws SchemaError if `adkEntities()` is not among the ORM's entities, or the database is not supported.
 */
export async function migrationStatus({ em }: { em: EntityManager }): Promise<MigrationStatus> {
  refuseOther(em);
  const dialect = supportedDialect(em.getPlatform());
  const options = locationOf(em.getMetadata());
  const migrations = adkMigrations(dialect, options);
  const names = migrations.map(({ name }) => name);
  const noted = await notedNames(em, em.config, dialect);
  const pending = names.filter((name) => !noted.has(name));
  const statements = async () => {
    const all: string[] = [];
    for (const migration of migrations)
      if (pending.includes(migration.name)) all.push(...(await readyToRun(migration, em)).getQueries().map(String));
    return all;
  };
  const findings = await checkTables(
    (sql, values) => em.getConnection().execute(sql, values),
    locationFor(em.config, { dialect, ...options }),
  );
  try {
    if (pending.length === 0) refuseGone(findings, em.config, names);
    refuseMissing(findings);
    // If migrations are pending, columns may be missing.
    if (pending.length === 0) refuseDifferent(findings);
    if (findings.different) throw new SchemaError(OUTDATED);
  } catch (error) {
    if (!(error instanceof SchemaError)) throw error;
    return { pending, statements, problem: error.message };
  }
  return { pending, statements };
}

async function notedNames(em: EntityManager, config: Configuration, dialect: DialectName): Promise<Set<string>> {
  const { tableName = 'mikro_orm_migrations' } = config.get('migrations');
  const namesSchema = tableName.includes('.') || !TRAITS[dialect].hasSchemas;
  const path = namesSchema
    ? tableName.split('.')
    : [config.get('schema') ?? '', tableName].filter((part) => part !== '');
  const table = path.map((part) => em.getPlatform().quoteIdentifier(part)).join('.');
  try {
    // By the driver object, since the connection would throw the database's own errors.
    const driver = em.getDriver() as unknown as { execute(text: string): Promise<{ name: string }[]> };
    const rows = await driver.execute(`select name from ${table}`);
    // Like MikroORM, whose earlier versions recorded the names of files.
    return new Set(rows.map(({ name }) => name.replace(/\.[jt]s$/, '')));
  } catch (error) {
    if (error instanceof TableNotFoundException) return new Set();
    throw error;
  }
}
