import type { EntityManager } from '@mikro-orm/core';
import type { DatabaseOptions } from './connections.js';
import { Database } from './database.js';
import type { Run } from '../dialects/dialect.js';

/** Opens the tables for commands that read what no public method returns. */
export function readerOf(em: EntityManager, operation: string, options?: DatabaseOptions) {
  const database = new Database(em, options);
  const read: Run = (work) => database.call({ operation, key: {} }, () => database.run(work));
  return { database, read };
}
