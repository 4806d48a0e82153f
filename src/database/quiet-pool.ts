import type { EntityManager } from '@mikro-orm/core';
import type { Dialect } from './dialects/dialect.js';

/** What of knex, which MikroORM 6 runs on, is used; all of it is public. */
interface KnexConnection {
  getKnex(): {
    client: {
      logger: { warn(message: unknown): void };
      config: { log?: { warn?: unknown } };
    };
  };
}

function isKnexConnection(connection: object): connection is KnexConnection {
  return 'getKnex' in connection && typeof connection.getKnex === 'function';
}

const quiet = new WeakSet<object>();

/**
 * Keeps knex from printing statements (contract O8). When its pool finds a connection that broke it prints
 * `Connection Error: ` and the error that the connection broke with; that of the mariadb driver holds the statement that
 * was under way, with its values. Nothing else of knex's warnings is held back, and a `log.warn` of the host's in
 * `driverOptions` hears all, since it is the host's own log.
 */
export function quietPool(em: EntityManager, { connections }: Dialect): void {
  const connection = em.getConnection();
  if (quiet.has(connection)) return;
  quiet.add(connection);
  // A file has no connection that breaks; and MikroORM takes a knex that was asked for early for a connection that is set up.
  if (connections.defaultPoolMax === 1 || !isKnexConnection(connection)) return;
  const { logger, config } = connection.getKnex().client;
  if (config.log?.warn) return;
  const warn = logger.warn.bind(logger);
  logger.warn = (message) => {
    if (!String(message).startsWith('Connection Error: ')) warn(message);
  };
}
