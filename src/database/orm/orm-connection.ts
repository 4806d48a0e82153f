/**
 * A MikroORM's way to its driver. `mikro-orm-6.ts` and `mikro-orm-7.ts` have what differs between the majors, and
 * `entities/mikro-orm.ts` what differs in entities. The major is found out by the members of an object, never by a version.
 */
import type { Connection, EntityManager } from '@mikro-orm/core';
import { unsupportedDatabase } from '../../../entities/dialect-name.js';
import { InvalidArgumentError } from '../../model/errors.js';
import type { Driver } from '../drivers/driver.js';
import { noteTransactions } from './host-transaction.js';
import { KnexOrmConnection, isKnexConnection } from './mikro-orm-6.js';
import { KyselyOrmConnection, isKyselyConnection } from './mikro-orm-7.js';
import { isObject } from '../../model/objects.js';

export interface OrmConnection {
  /** Whether nothing can keep a statement waiting but a lock: the database is in this process. Known once it is open. */
  readonly isInProcess: boolean;

  /** Whether a lock that another connection has must be waited for here, since the driver would stop the process. */
  readonly mustWaitForLocks: boolean;

  /**
   * Comes before each piece of work. It also keeps the pool from printing statements (contract O8).
   *
   * @returns undefined if there is nothing to wait for.
   * @throws Error when the ORM was closed: MikroORM 7 would open it again, and in memory a new database with it.
   */
  open(): Promise<void> | undefined;

  /** Takes a connection out of the host's pool; waits until one is free. */
  reserve(): Promise<ReservedConnection>;

  /** The connection of a transaction of the host's. @param transaction what `em.getTransactionContext()` gives. */
  ofTransaction(transaction: object): Promise<Driver>;
}

/** A physical connection that is out of the host's pool. */
export interface ReservedConnection {
  /** The same object whenever the connection is reserved again. */
  readonly driver: Driver;
  /** For `em.setTransactionContext`: what MikroORM runs by itself runs on this connection. */
  context(): object;
  /** Gives it back to the pool. */
  release(): void;
  /**
   * Ends it, whatever is under way, so that the server rolls back and nobody gets it again. Undefined if that is not possible: the database is in this process, or the host has passed a kysely of its own.
   */
  readonly destroy: (() => Promise<void>) | undefined;
}

const connections = new WeakMap<Connection, OrmConnection>();

/** @throws SchemaError when the driver is not one for SQL. */
export function ormConnectionOf(em: EntityManager): OrmConnection {
  const connection = em.getConnection();
  let orm = connections.get(connection);
  if (!orm) connections.set(connection, (orm = newOrmConnection(em, connection)));
  return orm;
}

function newOrmConnection(em: EntityManager, connection: Connection): OrmConnection {
  const isKysely = isKyselyConnection(connection);
  if (!isKysely && !isKnexConnection(connection)) throw unsupportedDatabase();
  noteTransactions(connection);
  return isKysely ? new KyselyOrmConnection(em, connection) : new KnexOrmConnection(em, connection);
}

/** @throws InvalidArgumentError when it is no `EntityManager`. */
export function refuseOther(em: unknown): asserts em is EntityManager {
  if (isObject(em) && 'fork' in em) return;
  const what = isObject(em) && 'em' in em ? 'The ORM was passed' : 'No EntityManager was passed';
  throw new InvalidArgumentError(`${what}: pass the EntityManager of your MikroORM, orm.em.`);
}
