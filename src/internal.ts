/**
 * For `adk-mikro-orm-cli`, `adk-mikro-orm-studio` and `adk-mikro-orm-import` alone, each of which needs exactly its own version of
 * this package: any release may change these names. They are what touches the tables; pure functions are built into each package.
 *
 * @module adk-mikro-orm/internal
 */
export { migrationStatus } from '../migrations/status.js';
export { ourTables } from '../migrations/tables.js';
export { CallInParts } from './database/calls/call-in-parts.js';
export { Database } from './database/calls/database.js';
export { layoutOf } from '../migrations/citus-layout.js';
export type { Dialect, SqlRunner, Sql } from './database/dialects/dialect.js';
export { acceptOtherEngines } from './database/dialects/server-version.js';
export { installedSqlite } from './database/drivers/installed-sqlite.js';
export type { ChangeKind } from './database/statements/changes.js';
export { databaseTime } from './database/statements/clock.js';
export { supersededKeys } from './database/statements/events.js';
export { hostKeys, type HostKey } from './database/statements/host-keys.js';
export { currentLease, type StoredLease } from './database/statements/leases.js';
export { loggedEvent } from './log/logged-events.js';
export { stateThen } from './sessions/past.js';
export { storedSession, type StoredSession } from './database/statements/stored-session.js';
export { writtenState } from './database/statements/state.js';
export { nextApp } from './database/statements/walk.js';
export { countProjected } from './memory/memory-projection.js';
export { findSummaries } from './sessions/stored-summaries.js';
export { Import } from './transfer/import.js';
export { OWNED_ROWS } from './transfer/owned-kinds.js';
export type { EventRecord, ExportRecord, SessionRecord, StateRecord } from './model/records.js';
