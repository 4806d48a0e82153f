/** MikroORM 6, which runs on knex. */
import type { EntityManager } from '@mikro-orm/core';
import { TRAITS, supportedDialect } from '../../../entities/dialect-name.js';
import { driverOf } from '../drivers/driver-of.js';
import type { Driver } from '../drivers/driver.js';
import { isSynchronousSqlite, lockTimeoutOf, stopsProcess, type LockTimeout } from '../drivers/sqlite.js';
import { destroyerOf } from './destroy.js';
import { CLOSED, notOpened, withoutUrl, type OrmConnection, type ReservedConnection } from './reserved-connection.js';

/** The members of MikroORM 6's connection that are used; knex documents them. */
interface KnexConnection {
  ensureConnection(): Promise<void>;
  getKnex(): Knex;
  readonly connected: boolean;
}

interface Knex {
  readonly client: KnexClient;
  /** @param config.connection is not given back to the pool at the end. */
  transaction(container: null, config: { connection: object }): Promise<object>;
}

/** The members of tarn's pool that are used; it does not document `free` and `used`. */
interface Pool {
  readonly destroyed: boolean;
  readonly free?: { readonly resource: RawConnection }[];
  readonly used?: object[];
  on(event: 'acquireSuccess', listener: () => void): unknown;
}

type RawConnection = object & { __knex__disposed?: string };

interface KnexClient {
  acquireConnection(): Promise<RawConnection>;
  releaseConnection(connection: object): Promise<void>;
  /** knex removes it when it is destroyed. */
  readonly pool?: Pool;
  validateConnection(connection: object): unknown;
  /** Set if the host's password expires. */
  readonly connectionConfigExpirationChecker?: unknown;
  readonly logger: { warn(message: unknown): void };
  readonly config: {
    readonly log?: { readonly warn?: unknown };
    readonly pool?: { readonly validate?: unknown; readonly maxConnectionLifetimeMillis?: unknown };
  };
}

/** What `em.getTransactionContext()` returns. */
interface KnexTransaction {
  readonly client: Pick<KnexClient, 'acquireConnection'>;
}

export function isKnexConnection(connection: object): connection is KnexConnection {
  return 'getKnex' in connection && 'ensureConnection' in connection && 'connected' in connection;
}

/** A connection of the driver: the same object each time that it is reserved. */
interface KnownConnection extends ReservedConnection {
  /** Set if its wait for a lock would block the process. */
  readonly lockTimeout: LockTimeout | undefined;
}

export class KnexOrmConnection implements OrmConnection {
  readonly isInProcess: boolean;
  /** Known after the first connection. */
  mustWaitForLocks = false;
  readonly #em: EntityManager;
  readonly #connection: KnexConnection;
  readonly #known = new WeakMap<object, KnownConnection>();
  #isQuiet = false;

  constructor(em: EntityManager, connection: KnexConnection) {
    this.#em = em;
    this.#connection = connection;
    this.isInProcess = TRAITS[supportedDialect(em.getPlatform())].isInProcess;
  }

  open(): undefined {
    // A file has no connection that breaks. And if knex is asked for too early, MikroORM believes that the connection is set up.
    if (this.#isQuiet || this.isInProcess) return;
    try {
      this.#quiet();
    } catch (error) {
      throw withoutUrl(error);
    }
  }

  reserve(): ReservedConnection | Promise<ReservedConnection> {
    return this.#free() ?? this.#acquired();
  }

  /**
   * Takes a free connection and moves it to those in use, as the pool does. `acquireConnection` makes 22 promises and two timers even if
   * one is free, which take a tenth of an append.
   *
   * @returns undefined if none is free, or if only the pool can check it as the host has asked.
   */
  #free(): ReservedConnection | undefined {
    if (!this.#connection.connected) return undefined;
    const { client } = this.#connection.getKnex();
    const { pool, config } = client;
    const { free = [], used } = pool ?? {};
    const last = free.at(-1);
    const known = last && this.#known.get(last.resource);
    const { validate, maxConnectionLifetimeMillis: lifetime } = config.pool ?? {};
    const isChecked = client.connectionConfigExpirationChecker ?? validate ?? lifetime;
    if (!known || !used || pool?.destroyed || isChecked) return undefined;
    if (last.resource.__knex__disposed || !client.validateConnection(last.resource)) return undefined;
    known.lockTimeout?.remove();
    free.pop();
    used.push(last);
    return known;
  }

  async #acquired(): Promise<ReservedConnection> {
    if (!this.#connection.connected) await this.#connection.ensureConnection();
    const { client } = this.#connection.getKnex();
    const { pool } = client;
    // While knex closes, its pool would let this call wait until its time is up.
    if (pool?.destroyed) throw new Error(CLOSED);
    let raw: RawConnection;
    try {
      raw = await client.acquireConnection();
    } catch (error) {
      // Of a call that waited, the pool says only "aborted".
      if (pool?.destroyed) throw new Error(CLOSED, { cause: error });
      throw notOpened(this.#em, error);
    }
    const known = this.#known.get(raw) ?? this.#learn(raw);
    known.lockTimeout?.remove();
    return known;
  }

  #learn(raw: RawConnection): KnownConnection {
    const driver = driverOf(raw);
    if (!driver) throw new TypeError('The connection of knex is not one of a driver that MikroORM comes with.');
    const knex = this.#connection.getKnex();
    const { client } = knex;
    const lockTimeout = isSynchronousSqlite(raw) && stopsProcess(raw) ? lockTimeoutOf(raw) : undefined;
    // The host gets the connection from the pool, which first calls this. At each release it would take a tenth of an append.
    if (lockTimeout) client.pool?.on('acquireSuccess', () => lockTimeout.restore());
    this.mustWaitForLocks = lockTimeout !== undefined;
    const release = () => void client.releaseConnection(raw);
    const known = {
      driver,
      lockTimeout,
      context: () => contextOf(client, raw),
      forTransaction: {
        getKnex: () => ({
          transaction: (_: null, config: object) => knex.transaction(null, { ...config, connection: raw }),
        }),
      },
      release,
      destroy: this.isInProcess
        ? undefined
        : async () => {
            // knex checks this before it hands a connection out.
            raw.__knex__disposed = 'its transaction may be open';
            await destroyerOf(raw)?.();
            release();
          },
    };
    this.#known.set(raw, known);
    return known;
  }

  async ofTransaction(transaction: object): Promise<Driver> {
    if (!isKnexTransaction(transaction))
      throw new TypeError('The transaction of the EntityManager is not one of knex.');
    const raw = await transaction.client.acquireConnection();
    return (this.#known.get(raw) ?? this.#learn(raw)).driver;
  }

  /**
   * When knex's pool finds a broken connection, it prints `Connection Error: ` and the connection's error, which with the mariadb
   * driver holds the statement under way, with its values. This suppresses no other warning of knex. A `log.warn` of the host in
   * `driverOptions` gets all warnings, since it is the host's own log.
   */
  #quiet(): void {
    const { logger, config } = this.#connection.getKnex().client;
    this.#isQuiet = true;
    if (config.log?.warn) return;
    const warn = logger.warn.bind(logger);
    logger.warn = (message) => {
      if (!String(message).startsWith('Connection Error: ')) warn(message);
    };
  }
}

/** An object that knex treats as a transaction on a connection. */
function contextOf(client: KnexClient, raw: object): object {
  const own: object = {
    __proto__: client,
    transacting: true,
    acquireConnection: () => Promise.resolve(raw),
    releaseConnection: () => Promise.resolve(),
  };
  return { client: own };
}

function isKnexTransaction(transaction: object): transaction is KnexTransaction {
  return 'client' in transaction;
}
