import type { EntityManager } from '@mikro-orm/core';
import type { Sql } from '../database/sql/sql.js';
import { Database, type DatabaseOptions } from '../database/calls/database.js';

/** The tables, for a command that reads what no public method returns. */
export function readerOf(em: EntityManager, operation: string, options?: DatabaseOptions) {
  const database = new Database(em, options);
  return {
    database,
    dialect: database.dialect,
    stores: database.stores,
    read: <T>(work: (sql: Sql) => Promise<T>) => database.call({ operation, key: {} }, () => database.run(work)),
  };
}
