/**
 * How to get from MikroORM to its driver. `mikro-orm-6.ts` and `mikro-orm-7.ts` have what differs between the major versions, and
 * `entities/mikro-orm.ts` what differs in entities. The major version is recognised by the members of an object, never by a number.
 */
import type { Connection, EntityManager } from '@mikro-orm/core';
import { unsupportedDatabase } from '../../../entities/dialect-name.js';
import { InvalidArgumentError } from '../../model/errors.js';
import { noteTransactions } from './host-transaction.js';
import { KnexOrmConnection, isKnexConnection } from './mikro-orm-6.js';
import { KyselyOrmConnection, isKyselyConnection } from './mikro-orm-7.js';
import type { OrmConnection } from './reserved-connection.js';
import { isObject } from '../../model/json.js';
import { processWide } from '../../model/process-wide.js';

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
