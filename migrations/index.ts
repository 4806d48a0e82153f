/**
 * The migrations of the tables, for a project that keeps its own with MikroORM.
 *
 * @module adk-mikro-orm/migrations
 */
export { adkMigrations, type AdkMigration } from './adk-migrations.js';
export { AdkMigrator } from './adk-migrator.js';
export { distribute, type DistributeOptions, type DistributeResult } from './distribute.js';
export type { Placement } from './citus-layout.js';
export type { DialectName } from '../entities/dialect-name.js';
export type { AdkEntityOptions } from '../entities/index.js';
