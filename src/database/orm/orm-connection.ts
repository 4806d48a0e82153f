/**
 * How to get from MikroORM to its driver. `mikro-orm-6.ts` and `mikro-orm-7.ts` have what differs between the major versions, and
 * `entities/mikro-orm.ts` what differs in entities. The major version is recognised by the members of an object, never by a number.
 */
import type { Connection, EntityManager } from '@mikro-orm/core';
import { unsupportedDatabase } from '../../../entities/dialect-name.js';
import { InvalidArgumentError } from '../../model/errors.js';
import type { Driver } from '../drivers/driver.js';
import { noteTransactions } from './host-transaction.js';
import { KnexOrmConnection, isKnexConnection } from './mikro-orm-6.js';
import { KyselyOrmConnection, isKyselyConnection } from './mikro-orm-7.js';
import { isObject } from '../../model/json.js';
import { processWide } from '../../model/process-wide.js';

export interface OrmConnection {
  /** Whether the database is in this process, so that a statement waits only for locks. Known once it is open. */
  readonly isInProcess: boolean;

  /** Whether we must wait for another connection's lock ourselves, since the driver would block the process. */
  readonly mustWaitForLocks: boolean;

  /**
   * Called before each piece of work. It also keeps the pool from printing statements (contract O8).
   *
   * @returns undefined if there is nothing to wait for.
   * @throws Error if the ORM was closed: MikroORM 7 would open it again, and with it a new database in memory.
   */
  open(): Promise<void> | undefined;

  /** Takes a connection from the host's pool; waits until one is free. */
  reserve(): Promise<ReservedConnection>;

  /** The connection of a host's transaction. @param transaction the result of `em.getTransactionContext()`. */
  ofTransaction(transaction: object): Promise<Driver>;
}

/** A physical connection that was taken from the host's pool. */
export interface ReservedConnection {
  /** One object for each connection, however often it is reserved. */
  readonly driver: Driver;
  /** For `em.setTransactionContext`, so that MikroORM's own statements run on this connection. */
  context(): object;
  /** For `beginningWith`, so that a transaction of MikroORM is on this connection, and leaves it reserved when it ends. */
  readonly forTransaction: object;
  /** Gives it back to the pool. */
  release(): void;
  /**
   * Closes it at once, so that the server rolls back and nobody gets it again. Undefined if that is not possible: the database is
   * in this process, or the host has passed a kysely of its own.
   */
  readonly destroy: (() => Promise<void>) | undefined;
}

/** Shared, since what it replaces in the host's objects must be replaced once. */
const connections = processWide('connections', () => new WeakMap<Connection, OrmConnection>());

/** @throws SchemaError if the driver is not for SQL. */
export function ormConnectionOf(em: EntityManager): OrmConnection {
  const connection = em.getConnection();
  let orm = connections.get(connection);
  if (!orm) connections.set(connection, (orm = newOrmConnection(em, connection)));
  return orm;
}

/** For tests. */
export function setOrmConnection(connection: Connection, orm: OrmConnection): void {
  connections.set(connection, orm);
}

function newOrmConnection(em: EntityManager, connection: Connection): OrmConnection {
  if (isKyselyConnection(connection)) {
    const orm = new KyselyOrmConnection(em, connection);
    noteTransactions(connection, (begin) => orm.begun(begin));
    return orm;
  }
  if (!isKnexConnection(connection)) throw unsupportedDatabase();
  noteTransactions(connection, (begin) => begin());
  return new KnexOrmConnection(em, connection);
}

/** @throws InvalidArgumentError if it is not an `EntityManager`. */
export function refuseOther(em: unknown): asserts em is EntityManager {
  if (isObject(em) && 'fork' in em) return;
  const what = isObject(em) && 'em' in em ? 'The ORM was passed' : 'No EntityManager was passed';
  throw new InvalidArgumentError(`${what}: pass the EntityManager of your MikroORM, orm.em.`);
}
