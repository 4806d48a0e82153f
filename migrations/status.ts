import type { EntityManager } from '@mikro-orm/core';
import { supportedDialect } from '../entities/dialect-name.js';
import { refuseOther } from '../src/database/orm/orm-connection.js';
import { SchemaError } from '../src/model/errors.js';
import { adkMigrations } from './adk-migrations.js';
import { executedNames } from './executed-names.js';
import { readyToRun } from './pending.js';
import { findingsOf, locationOf, refuseDifferent, refuseGone, refuseMissing } from './tables.js';
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
 * Checks the tables and MikroORM's list of executed migrations.
 *
 * @throws SchemaError if `adkEntities()` is not among the ORM's entities, or the database is not supported.
 */
export async function migrationStatus({ em }: { em: EntityManager }): Promise<MigrationStatus> {
  refuseOther(em);
  const dialect = supportedDialect(em.getPlatform());
  const migrations = adkMigrations(dialect, locationOf(em.getMetadata()));
  const names = migrations.map(({ name }) => name);
  const noted = new Set(await executedNames(em));
  const pending = names.filter((name) => !noted.has(name));
  const statements = async () => {
    const all: string[] = [];
    for (const migration of migrations)
      if (pending.includes(migration.name)) all.push(...(await readyToRun(migration, em)).getQueries().map(String));
    return all;
  };
  const findings = await findingsOf(em);
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
