import type { DialectName } from '../entities/dialect-name.js';

/** Statements that let one migration of this package run at a time. */
interface MigrationLock {
  /** Come first in a transaction; a column `locked` that isn't 1 means that waiting was in vain. */
  take: readonly string[];
  /** Come last, whatever happened in between. */
  release: readonly string[];
}

/** `create table` commits on these servers, so the lock is the connection's. Its name counts for the whole server. */
const NAMED_LOCK: MigrationLock = {
  take: [`select get_lock(concat('adk.', sha2(database(), 224)), 60) as locked`],
  release: [`select release_lock(concat('adk.', sha2(database(), 224)))`],
};

export const MIGRATION_LOCKS: Record<DialectName, MigrationLock> = {
  // Any write will do. A transaction that reads first can't become a writer once another process has written.
  sqlite: { take: ['create table adk_migrating (x)', 'drop table adk_migrating'], release: [] },
  postgresql: { take: [`select pg_advisory_xact_lock(hashtextextended('adk-mikro-orm', 0))`], release: [] },
  mysql: NAMED_LOCK,
  mariadb: NAMED_LOCK,
};
