import { TransactionContext, type EntityManager } from '@mikro-orm/core';
import { InsideTransactionError } from '../model/errors.js';
import type { Dialect } from './dialects/dialect.js';
import { hasEnded, hasSingleConnection } from './mikro-orm.js';

/** Whether an ORM has one connection at most, by its driver or its config. */
export function hasOneConnection(em: EntityManager, { connections }: Dialect): boolean {
  if (hasSingleConnection(em)) return true;
  // MikroORM hands them to knex, over its own.
  const driverOptions: { pool?: { max?: number } } = em.config.get('driverOptions');
  return (driverOptions.pool?.max ?? em.config.get('pool')?.max ?? connections.defaultPoolMax) === 1;
}

/**
 * For an ORM with one connection: a call that does not join the transaction around it would wait for the connection that
 * the transaction holds until the pool gives up, a minute later.
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
  // After `em.transactional` its transaction stays the context of what was begun in it and goes on.
  if (transaction && !hasEnded(transaction)) throw new InsideTransactionError();
}
