import { TableNotFoundException, type Configuration, type MikroORM } from '@mikro-orm/core';
import { supportedDialect, type DialectName } from '../entities/dialect-name.js';
import { sqlEntityManager, type SqlEntityManager } from '../src/database/mikro-orm.js';
import { SchemaError } from '../src/model/errors.js';
import { adkMigrations } from './adk-migrations.js';
import { lookAtTables, placeFor, placeOf, refuseDifferent, refuseGone, refuseMissing } from './tables.js';

/** What a database lacks of what this version needs. */
export interface MigrationStatus {
  /** The names of the migrations of this package that are not noted as done, oldest first. */
  pending: string[];
  /** What is wrong with the tables, and what to do; absent where they are as this version needs them. */
  problem?: string;
}

const OUTDATED =
  'The tables are those of an earlier version. Run npx adk-mikro-orm migrate, or npx mikro-orm migration:up, or call migrate(orm).';

/**
 * Looks at the tables and at MikroORM's notes of what was run. Nothing is written; `MigrationStorage` of MikroORM 7 would
 * make its table.
 *
 * @throws SchemaError when `adkEntities()` is not among the ORM's entities, or the database is not supported.
 */
export async function migrationStatus(orm: MikroORM): Promise<MigrationStatus> {
  const em = sqlEntityManager(orm.em);
  const dialect = supportedDialect(em.getPlatform());
  const options = placeOf(orm.getMetadata());
  const names = adkMigrations(dialect, options).map(({ name }) => name);
  const noted = await notedNames(em, orm.config, dialect);
  const pending = names.filter((name) => !noted.has(name));
  const findings = await lookAtTables(
    (sql, values) => em.getConnection().execute(sql, values),
    placeFor(orm.config, { dialect, ...options }),
  );
  try {
    if (pending.length === 0) refuseGone(findings, orm.config, names);
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

async function notedNames(em: SqlEntityManager, config: Configuration, dialect: DialectName): Promise<Set<string>> {
  const { tableName = 'mikro_orm_migrations' } = config.get('migrations');
  const isPlaced = tableName.includes('.') || dialect === 'sqlite';
  const path = isPlaced ? tableName.split('.') : [config.get('schema') ?? '', tableName].filter((part) => part !== '');
  const table = path.map((part) => em.getPlatform().quoteIdentifier(part)).join('.');
  try {
    const rows = (await em.execute(`select name from ${table}`, [], 'all')) as { name: string }[];
    // As MikroORM reads them: earlier versions of it have noted the files.
    return new Set(rows.map(({ name }) => name.replace(/\.[jt]s$/, '')));
  } catch (error) {
    if (error instanceof TableNotFoundException) return new Set();
    throw error;
  }
}
