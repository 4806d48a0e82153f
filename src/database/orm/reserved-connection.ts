import type { EntityManager } from '@mikro-orm/core';
import { isObject } from '../../model/json.js';
import type { Driver } from '../drivers/driver.js';

/** MikroORM's connection to a database, with its pool. */
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
  reserve(): ReservedConnection | Promise<ReservedConnection>;

  /** The connection of a host's transaction. @param transaction the result of `em.getTransactionContext()`. */
  ofTransaction(transaction: object): Promise<Driver>;
}

/** The message of an error if the host closes the ORM during a call. */
export const CLOSED = 'Unable to acquire a connection: the ORM is closed';

/**
 * @returns what to throw if a connection could not be opened: better-sqlite3 throws a TypeError if it cannot open the file, which is
 *   not the caller's mistake.
 */
export const notOpened = (em: EntityManager, error: unknown): unknown =>
  error instanceof TypeError ? em.getPlatform().getExceptionConverter().convertException(error) : error;

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

/** @returns an error without the URL of the database, which Node.js puts with the password into that of an invalid one. */
export function withoutUrl(error: unknown): unknown {
  return isObject(error) && 'input' in error ? Object.assign(error, { input: undefined }) : error;
}
