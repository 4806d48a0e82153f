import { TransactionContext, type EntityManager } from '@mikro-orm/core';
import { InsideTransactionError, InvalidArgumentError, SchemaError } from '../../model/errors.js';
import { hasEnded, isOpen } from '../orm/host-transaction.js';

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

export function transactionsAreDisabled(): SchemaError {
  return new SchemaError(
    "With 'disableTransactions' MikroORM begins no transactions, so that what belongs together would be written in parts; " +
      "nothing was written. Take 'disableTransactions' out of the config of MikroORM and out of em.fork().",
  );
}

/**
 * For a call that joins: the driver would refuse its statements in words that do not name the mistake.
 *
 * @throws InvalidArgumentError when the transaction of the `EntityManager` has been committed or rolled back.
 */
export function refuseEnded(em: EntityManager): void {
  const transaction = em.getTransactionContext<object>();
  if (transaction && hasEnded(transaction)) {
    throw new InvalidArgumentError(
      'The transaction of the EntityManager that withEntityManager was given has ended; nothing was read or written. ' +
        'Inside em.transactional(async (tx) => …) await each call of service.withEntityManager(tx).',
    );
  }
}
