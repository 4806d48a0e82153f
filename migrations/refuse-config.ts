import type { Configuration, MetadataStorage } from '@mikro-orm/core';
import type { AdkEntityOptions } from '../entities/index.js';
import { entityNamed } from '../entities/mikro-orm.js';
import { SchemaError } from '../src/model/errors.js';
import { adkTables, tableNames } from './tables.js';

/** Marks a migrator that leaves our tables to our migrations. Shared by all copies of this package in a process. */
export const LEAVES_OUT_ADK_TABLES = Symbol.for('adk-mikro-orm.leaves-out-adk-tables');

/** Compares as MikroORM does. */
export function isSkipped(table: string, skipTables: readonly (string | RegExp)[]): boolean {
  return skipTables.some((pattern) =>
    typeof pattern === 'string' ? pattern.toLowerCase() === table.toLowerCase() : pattern.test(table),
  );
}

/**
 * Refuses a config with which `migration:create` drops our tables, now or after the next `migration:up`.
 *
 * `migration:create` compares the previous schema with the entities, and drops each table without an entity. The previous schema is the
 * snapshot, into which `migration:up` writes all tables of the database, even those of `skipTables`. Without a snapshot it is the
 * database.
 *
 * @throws SchemaError with the line to write.
 */
export function refuseDroppingConfig(
  config: Configuration,
  metadata: MetadataStorage,
  location: AdkEntityOptions,
): void {
  const { snapshot, dropTables, safe } = config.get('migrations');
  if (safe || !dropTables) return;
  const { skipTables = [] } = config.get('schemaGenerator');
  const migrator = config.getExtension<object>('@mikro-orm/migrator');
  const skipsInSnapshot = !snapshot || (migrator !== undefined && LEAVES_OUT_ADK_TABLES in migrator);

  const names = tableNames(location);
  for (const [index, { entity }] of adkTables().entries()) {
    const table = names[index] ?? '';
    if (isSkipped(table, skipTables)) {
      if (skipsInSnapshot) continue;
      throw new SchemaError(
        `With this config the next migration:create drops ${table}, because MikroORM's snapshot ignores ` +
          `skipTables. Write extensions: [AdkMigrator], from 'adk-mikro-orm/migrations', instead of Migrator; skipTables ` +
          'is not needed then.',
      );
    }
    if (entityNamed(metadata, entity)?.tableName !== table) {
      throw new SchemaError(
        `With this config the next migration:create drops ${table}, because no entity has this table. Write entities: ` +
          '[...adkEntities(options), …], with the same options as for adkMigrations.',
      );
    }
  }
}
