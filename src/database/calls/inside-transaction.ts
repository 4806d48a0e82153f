import { TransactionContext, type EntityManager } from '@mikro-orm/core';
import { InsideTransactionError } from '../../model/errors.js';
import { isOpen } from '../orm/host-transaction.js';
import { transactionsAreDisabled } from './joined-transaction.js';

/**
 * For a call that does not join the transaction around it: what it writes would stay when that transaction is rolled back,
 * and it may wait for a lock, or the only connection, which that transaction keeps until the call has ended.
 *
 * @throws InsideTransactionError inside `em.transactional` of the same ORM, and after `em.begin()` on the `EntityManager`
 *   that was given, or on that of the request. A transaction of another ORM does not matter.
 */
export function refuseInside(em: EntityManager): void {
  const around = TransactionContext.currentTransactionContext()?.em;
  const isOurs = around?.getConnection() === em.getConnection();
  // Through the transaction of another ORM, where MikroORM takes the two for one by their name, nothing can be seen.
  const asked = isOurs ? around : around?.name === em.name ? undefined : em;
  const transaction = asked?.getTransactionContext<object>();
  // After `em.transactional` its transaction stays the context of what was begun in it and continues.
  if (transaction && isOpen(transaction)) throw new InsideTransactionError();
}

/** @throws SchemaError where MikroORM's config makes `em.transactional` begin no transaction, so that none can be joined. */
export function refuseDisabled(em: EntityManager): void {
  if (em.config.get('disableTransactions')) throw transactionsAreDisabled();
}
