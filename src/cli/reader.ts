import type { EntityManager } from '@mikro-orm/core';
import type { Sql } from '../database/sql/sql.js';
import { Stores } from '../database/stores/stores.js';
import { Transactions, type TransactionOptions } from '../database/calls/transaction.js';

/** The tables, for a command that reads what no public method returns. */
export function readerOf(em: EntityManager, operation: string, options?: TransactionOptions) {
  const transactions = new Transactions(em, options);
  return {
    transactions,
    dialect: transactions.dialect,
    stores: Stores.of(em, transactions.dialect),
    read: <T>(work: (sql: Sql) => Promise<T>) =>
      transactions.call({ operation, key: {} }, () => transactions.run(work)),
  };
}
