/** MikroORM 7, which runs on kysely. */
import type { EntityManager } from '@mikro-orm/core';
import { AsyncLocalStorage } from 'node:async_hooks';
import { supportedDialect } from '../../../entities/dialect-name.js';
import { driverOf } from '../drivers/driver-of.js';
import type { Driver } from '../drivers/driver.js';
import { KyselyDriver, type KyselyDriverConnection } from '../drivers/kysely-driver.js';
import {
  isSynchronousSqlite,
  lockTimeoutOf,
  stopsProcess,
  type LockTimeout,
  type SynchronousSqlite,
} from '../drivers/sqlite.js';
import { destroyerOf } from './destroy.js';
import { CLOSED, notOpened, withoutUrl, type OrmConnection, type ReservedConnection } from './reserved-connection.js';
import { isObject } from '../../model/json.js';

/** The members of kysely and of its transactions that are used. */
interface Kysely {
  /** @param work gets a kysely whose only connection it is. */
  connection(): { execute<T>(work: (own: Kysely) => Promise<T>): Promise<T> };
  getExecutor(): {
    provideConnection<T>(consumer: (connection: KyselyDriverConnection) => Promise<T>): Promise<T>;
  };
}

/** The members of MikroORM 7's connection that are used. */
interface KyselyConnection {
  begin(options?: { ctx?: object }): Promise<object>;
  ensureConnection(): Promise<void>;
  getClient(): Kysely;
  getNativeClient(): Promise<unknown>;
  readonly connected: boolean;
}

export function isKyselyConnection(connection: object): connection is KyselyConnection {
  return 'getClient' in connection && 'ensureConnection' in connection && 'connected' in connection;
}

/** The pool of mysql2 or node-postgres that MikroORM has made. */
type NativePool =
  | { getConnection(done: (error: unknown, raw?: object) => void): unknown }
  | {
      connect(...callback: unknown[]): Promise<object> | undefined;
      readonly ending: boolean;
      on(event: 'remove', listener: () => void): unknown;
    };

function isPool(client: unknown): client is NativePool {
  return isObject(client) && ('getConnection' in client || 'totalCount' in client);
}

/** The connection that a pool gave to kysely. */
interface PoolConnection {
  raw?: object | undefined;
}

/** The result for the caller that is asking kysely for a connection. */
const asking = new AsyncLocalStorage<PoolConnection>();

/**
 * Makes a pool note which connection it gives to kysely, which does not show it. A connection that is taken from the pool without
 * kysely lacks the host's `onCreateConnection`, `onReserveConnection` and `sessionContext`, and on MySQL may use an expired
 * password.
 */
function noteTaken(pool: NativePool): void {
  // The first one is kysely's; the host's `onReserveConnection` may take another.
  const note = (taken: PoolConnection | undefined, raw: object | undefined) => {
    if (taken) taken.raw ??= raw;
  };
  if ('connect' in pool) {
    const connect = pool.connect.bind(pool);
    pool.connect = (...callback) => {
      const taken = asking.getStore();
      const asked = connect(...callback);
      if (taken) asked?.then((raw) => note(taken, raw)).catch(() => undefined);
      return asked;
    };
    return;
  }
  const getConnection = pool.getConnection.bind(pool);
  pool.getConnection = (done) => {
    const taken = asking.getStore();
    return getConnection((error, raw) => {
      note(taken, raw);
      done(error, raw);
    });
  };
}

export class KyselyOrmConnection implements OrmConnection {
  readonly #em: EntityManager;
  readonly #connection: KyselyConnection;
  /** The kysely whose driver is known. MikroORM makes another one when it is closed and opened again. */
  #known: Kysely | undefined;
  /** The database of a driver that runs in this process. */
  #database: SynchronousSqlite | undefined;
  /** Set if its wait for a lock would block the process. */
  #lockTimeout: LockTimeout | undefined;
  isInProcess = true;
  /** Whether it was ever open. If it is not open now, the host has closed it. */
  #wasOpen: boolean;
  /** Those who wait for a connection, or have one. */
  #waiting = new Set<(error: unknown) => void>();
  /** The driver's connection for each connection of kysely, if it is known. */
  readonly #raw = new WeakMap<KyselyDriverConnection, object>();
  /** For connections whose driver is not known. One object each, or every call would read the settings again. */
  readonly #fallbacks = new WeakMap<KyselyDriverConnection, Driver>();

  constructor(em: EntityManager, connection: KyselyConnection) {
    this.#em = em;
    this.#connection = connection;
    this.#wasOpen = connection.connected;
  }

  /** Runs MikroORM's `begin`, and notes the connection that it gets. */
  async begun(begin: () => Promise<object>): Promise<object> {
    if (!this.#isKnown) await this.#open();
    const taken: PoolConnection = {};
    const transaction = await asking.run(taken, begin);
    if (taken.raw && isKysely(transaction)) await provided(transaction, (own) => this.#note(own, taken));
    return transaction;
  }

  get mustWaitForLocks(): boolean {
    return this.#lockTimeout !== undefined;
  }

  get #isKnown(): boolean {
    return this.#connection.connected && this.#connection.getClient() === this.#known;
  }

  open(): Promise<void> | undefined {
    const connection = this.#connection;
    if (connection.connected) this.#wasOpen = true;
    else if (this.#wasOpen) throw new Error(CLOSED);
    return this.#isKnown ? undefined : this.#open();
  }

  async #open(): Promise<void> {
    const connection = this.#connection;
    try {
      await connection.ensureConnection();
    } catch (error) {
      throw notOpened(this.#em, withoutUrl(error));
    }
    // A kysely that the host has made does not show its driver's pool or database.
    const client = await connection.getNativeClient().catch(() => undefined);
    // Another call may have been faster.
    if (this.#isKnown) return;
    this.#known = connection.getClient();
    this.#wasOpen = true;
    this.#database = isSynchronousSqlite(client) ? client : undefined;
    this.#lockTimeout = this.#database && stopsProcess(this.#database) ? lockTimeoutOf(this.#database) : undefined;
    this.isInProcess = !isPool(client);
    if (!isPool(client)) return;
    noteTaken(client);
    if (!('connect' in client)) return;
    // A pool of node-postgres that is closed forgets those who wait, and they would wait until their time is up (contract O3). It may
    // still end its connections when another pool is open.
    const waiting = (this.#waiting = new Set());
    client.on('remove', () => {
      if (client.ending) for (const reject of waiting) reject(new Error(CLOSED));
    });
  }

  async reserve(): Promise<ReservedConnection> {
    const opening = this.open();
    if (opening) await opening;
    const taken: PoolConnection = {};
    const waiting = this.#waiting;
    return new Promise<ReservedConnection>((resolve, reject) => {
      waiting.add(reject);
      const reserved = async (kysely: Kysely) => {
        const own = await provided(kysely, (connection) => connection);
        this.#note(own, taken);
        return new Promise<void>((release) => resolve(this.#reserved(own, kysely, release)));
      };
      const ask = () => this.#connection.getClient().connection().execute(reserved);
      const asked = this.isInProcess ? ask() : asking.run(taken, ask);
      asked.catch(reject).finally(() => waiting.delete(reject));
    });
  }

  #note(own: KyselyDriverConnection, { raw }: PoolConnection): void {
    if (raw) this.#raw.set(own, raw);
  }

  #reserved(own: KyselyDriverConnection, kysely: Kysely, release: () => void): ReservedConnection {
    const raw = this.#raw.get(own);
    const end = raw && destroyerOf(raw);
    const lockTimeout = this.#lockTimeout;
    lockTimeout?.remove();
    return {
      driver: this.#driverOf(own),
      context: () => ({ executeQuery: own.executeQuery.bind(own) }),
      forTransaction: { getClient: () => kysely },
      release: () => {
        lockTimeout?.restore();
        release();
      },
      destroy:
        end &&
        (async () => {
          await end();
          release();
        }),
    };
  }

  async ofTransaction(transaction: object): Promise<Driver> {
    if (!isKysely(transaction)) throw new TypeError('The transaction of the EntityManager is not one of kysely.');
    return provided(transaction, (own) => this.#driverOf(own));
  }

  #driverOf(own: KyselyDriverConnection): Driver {
    const raw = this.#database ?? this.#raw.get(own);
    const driver = raw && driverOf(raw);
    if (driver) return driver;
    // For a kysely that the host has made, for PGlite, and for a transaction that the host began before it made its first service.
    const fallback = this.#fallbacks.get(own) ?? new KyselyDriver(own, supportedDialect(this.#em.getPlatform()));
    this.#fallbacks.set(own, fallback);
    return fallback;
  }
}

/** Runs work with the connection of kysely, or of one of its transactions. */
function provided<T>(of: Kysely, work: (own: KyselyDriverConnection) => T | Promise<T>): Promise<T> {
  return of.getExecutor().provideConnection(async (own) => work(own));
}

function isKysely(transaction: object): transaction is Kysely {
  return 'getExecutor' in transaction;
}
