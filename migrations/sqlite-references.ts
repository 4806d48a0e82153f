import type { Connection, Transaction } from '@mikro-orm/core';
import { SchemaError } from '../src/model/errors.js';

type Transactional = Connection['transactional'];

/** @returns how many rows refer to a row that does not exist. */
async function countOrphans(connection: Connection, transaction?: Transaction): Promise<number> {
  const sql = 'select count(*) as count from pragma_foreign_key_check';
  const [row] = (await connection.execute(sql, [], 'all', transaction)) as { count: number }[];
  return row?.count ?? 0;
}

/** @throws SchemaError, which rolls back, if more rows than `before` refer to a row that does not exist. */
async function checked<T>(connection: Connection, transaction: Transaction, before: number, work: () => Promise<T>) {
  // In a pool with several connections, this one may have foreign keys on. The pragma does not read the file, so a transaction that
  // then begins with a write can wait for others.
  const [row] = (await connection.execute('pragma foreign_keys', [], 'all', transaction)) as { foreign_keys: number }[];
  if (row?.foreign_keys) {
    throw new SchemaError(
      'Foreign keys are on in the transaction of the migrations, where rebuilding a table would delete the rows that ' +
        'refer to it. Nothing was changed. Use one connection to the SQLite file: pool: { min: 1, max: 1 }.',
    );
  }
  const result = await work();
  const orphans = (await countOrphans(connection, transaction)) - before;
  if (orphans > 0) {
    throw new SchemaError(
      `After the migrations ${orphans} rows would refer to rows that no longer exist. The transaction was rolled back. ` +
        'AdkMigrator runs migrations on SQLite without foreign keys, and nothing cascades: a migration that deletes rows ' +
        'has to delete those that refer to them, too.',
    );
  }
  return result;
}

/**
 * Runs a transaction of migrations without foreign keys. To change a column, SQLite needs a rebuilt table, and `drop table` deletes
 * the rows that refer to the old one with `on delete cascade`. MikroORM turns foreign keys off, but inside the transaction, where SQLite
 * ignores it.
 *
 * @param inside the work of the transaction.
 * @throws SchemaError if the transaction would leave rows that refer to a missing row; it is rolled back.
 */
export async function withoutForeignKeys<T>(
  connection: Connection,
  inside: (transaction: Transaction) => Promise<T>,
  options?: Parameters<Transactional>[1],
): Promise<T> {
  if (options?.ctx) return connection.transactional(inside, options);
  const before = await countOrphans(connection);
  await connection.execute('pragma foreign_keys = off');
  try {
    const work = (transaction: Transaction) => checked(connection, transaction, before, () => inside(transaction));
    return await connection.transactional(work, options);
  } finally {
    await connection.execute('pragma foreign_keys = on');
  }
}
