import { TableNotFoundException, type Configuration, type EntityManager } from '@mikro-orm/core';
import { TRAITS, supportedDialect, type DialectName } from '../entities/dialect-name.js';
import { refuseOther } from '../src/database/orm/orm-connection.js';
import { SchemaError } from '../src/model/errors.js';
import { adkMigrations } from './adk-migrations.js';
import { readyToRun } from './pending.js';
import { checkTables, locationFor, locationOf, refuseDifferent, refuseGone, refuseMissing } from './tables.js';

/** What a database lacks of what this version needs. */
interface MigrationStatus {
  /** The names of the migrations of this package that are not noted as done, oldest first. */
  pending: string[];
  /** What is wrong with the tables, and what to do; absent if they are as this version needs them. */
  problem?: string;
}

const OUTDATED =
  'The tables are those of an earlier version. Run npx adk-mikro-orm migrate, or npx mikro-orm migration:up, or call migrate(orm).';

/**
 * Checks the tables and MikroORM's notes of what was run. Nothing is written; `MigrationStorage` of MikroORM 7 would
 * make its table.
 *
 * @throws SchemaError when `adkEntities()` is not among the ORM's entities, or the database is not supported.
 */
export async function migrationStatus({ em }: { em: EntityManager }): Promise<MigrationStatus> {
  refuseOther(em);
  const dialect = supportedDialect(em.getPlatform());
  const options = locationOf(em.getMetadata());
  const names = adkMigrations(dialect, options).map(({ name }) => name);
  const noted = await notedNames(em, em.config, dialect);
  const pending = names.filter((name) => !noted.has(name));
  const findings = await checkTables(
    (sql, values) => em.getConnection().execute(sql, values),
    locationFor(em.config, { dialect, ...options }),
  );
  try {
    if (pending.length === 0) refuseGone(findings, em.config, names);
    refuseMissing(findings);
    // A column of a migration that was not run yet is no surprise.
    if (pending.length === 0) refuseDifferent(findings);
    if (findings.different) throw new SchemaError(OUTDATED);
  } catch (error) {
    if (!(error instanceof SchemaError)) throw error;
    return { pending, problem: error.message };
  }
  return { pending };
}

/**
 * Reads what the migrations have to know, and runs none of them.
 *
 * @param names those of the migrations, as `MigrationStatus` has them.
 * @returns the statements that `migrate` would run for them.
 * @throws SchemaError if it would refuse to.
 */
export async function statementsOf(em: EntityManager, names: readonly string[]): Promise<string[]> {
  const all = adkMigrations(supportedDialect(em.getPlatform()), locationOf(em.getMetadata()));
  const statements: string[] = [];
  for (const migration of all.filter(({ name }) => names.includes(name)))
    statements.push(...(await readyToRun(migration, em)).getQueries().map(String));
  return statements;
}

/** A driver for SQL has the method. */
function sqlDriver(em: EntityManager) {
  return em.getDriver() as unknown as { execute(text: string): Promise<unknown> };
}

async function notedNames(em: EntityManager, config: Configuration, dialect: DialectName): Promise<Set<string>> {
  const { tableName = 'mikro_orm_migrations' } = config.get('migrations');
  const namesSchema = tableName.includes('.') || !TRAITS[dialect].hasSchemas;
  const path = namesSchema
    ? tableName.split('.')
    : [config.get('schema') ?? '', tableName].filter((part) => part !== '');
  const table = path.map((part) => em.getPlatform().quoteIdentifier(part)).join('.');
  try {
    // The connection would throw the driver's own errors, so the driver object runs it.
    const rows = (await sqlDriver(em).execute(`select name from ${table}`)) as { name: string }[];
    // MikroORM reads the names in this way: earlier versions of it have noted the files.
    return new Set(rows.map(({ name }) => name.replace(/\.[jt]s$/, '')));
  } catch (error) {
    if (error instanceof TableNotFoundException) return new Set();
    throw error;
  }
}
