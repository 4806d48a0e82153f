/** MikroORM 7, which runs on kysely. */
import type { EntityManager } from '@mikro-orm/core';
import { supportedDialect } from '../../../entities/dialect-name.js';
import { driverOf } from '../drivers/driver-of.js';
import type { Driver } from '../drivers/driver.js';
import { KyselyDriver, type KyselyDriverConnection } from '../drivers/kysely-driver.js';
import { isSynchronousSqlite, stopWaiting, stopsProcess, type SynchronousSqlite } from '../drivers/sqlite.js';
import { destroyerOf } from './destroy.js';
import type { OrmConnection, ReservedConnection } from './orm-connection.js';
import { isObject } from '../../model/objects.js';

/** The members of kysely, and of a transaction of it, that are used. */
interface Kysely {
  getExecutor(): {
    provideConnection<T>(consumer: (connection: KyselyDriverConnection) => Promise<T>): Promise<T>;
  };
}

/** The members of a connection of MikroORM 7 that are used. */
interface KyselyConnection {
  ensureConnection(): Promise<void>;
  getClient(): Kysely;
  getNativeClient(): Promise<unknown>;
  readonly connected: boolean;
}

export function isKyselyConnection(connection: object): connection is KyselyConnection {
  return 'getClient' in connection && 'ensureConnection' in connection && 'connected' in connection;
}

const CLOSED = 'Unable to acquire a connection: the ORM is closed';

/** The members of a pool of node-postgres or mysql2 that are used. */
interface NativePool {
  on(event: 'acquire' | 'release', listener: (...of: unknown[]) => void): unknown;
  /** Of mysql2. */
  getConnection?: (done: (error: unknown, raw?: RawConnection) => void) => unknown;
}

function isPool(client: unknown): client is NativePool {
  return isObject(client) && 'on' in client && !isSynchronousSqlite(client);
}

/** The members of a connection of node-postgres or mysql2 that are used. */
interface RawConnection {
  on?(event: 'error', listener: () => void): unknown;
  once?(event: 'end' | 'error', listener: () => void): unknown;
  query?: unknown;
}

export class KyselyOrmConnection implements OrmConnection {
  readonly #em: EntityManager;
  readonly #connection: KyselyConnection;
  #isKnown = false;
  /** Whether it was open once. If it is not open now, the host has closed it. */
  #wasOpen: boolean;
  /** The database of a driver that is in this process. */
  #database: SynchronousSqlite | undefined;
  /** The driver's connections that are out of its pool; undefined without a pool. */
  #reserved: Set<object> | undefined;
  mustWaitForLocks = false;
  /** The driver's connection of each connection of kysely, where it is known. */
  readonly #raw = new WeakMap<KyselyDriverConnection, RawConnection>();
  readonly #drivers = new WeakMap<KyselyDriverConnection, Driver>();
  /** Those of connections whose driver is not known. One object each, or every call would read the settings again. */
  readonly #fallbacks = new WeakMap<KyselyDriverConnection, Driver>();

  constructor(em: EntityManager, connection: KyselyConnection) {
    this.#em = em;
    this.#connection = connection;
    this.#wasOpen = connection.connected;
  }

  get isInProcess(): boolean {
    return this.#reserved === undefined;
  }

  open(): Promise<void> | undefined {
    this.#refuseClosed();
    return this.#isKnown ? undefined : this.#open();
  }

  async #open(): Promise<void> {
    const connection = this.#connection;
    try {
      await connection.ensureConnection();
    } catch (error) {
      // better-sqlite3 gives a TypeError where it cannot open the file; it is no mistake of the caller's.
      throw error instanceof TypeError ? this.#em.getPlatform().getExceptionConverter().convertException(error) : error;
    }
    // A host's own kysely does not give its driver's pool or database.
    const client = await connection.getNativeClient().catch(() => undefined);
    if (isSynchronousSqlite(client)) {
      this.#database = client;
      this.mustWaitForLocks = stopsProcess(client);
    } else if (isPool(client) && !this.#reserved) this.#noteReserved(client);
    this.#wasOpen = true;
    this.#isKnown = true;
  }

  #refuseClosed(): void {
    if (this.#connection.connected) this.#wasOpen = true;
    else if (this.#wasOpen) throw new Error(CLOSED);
  }

  #noteReserved(pool: NativePool): void {
    const out = new Set<object>();
    this.#reserved = out;
    const take = (raw: unknown) => {
      if (isObject(raw)) out.add(raw);
    };
    // mysql2 emits no event when it hands a released connection to a call that waits. A connection that was taken out before
    // now would stay unknown.
    const getConnection = pool.getConnection?.bind(pool);
    const watched = new WeakSet();
    if (getConnection)
      pool.getConnection = (done) =>
        getConnection((error, raw) => {
          take(raw);
          // mysql2 emits no `release` for a connection that ends while it is out of the pool: it would stay in `out`. The listeners
          // are added the first time only, since a connection is taken out again and again.
          if (raw && !watched.has(raw)) {
            watched.add(raw);
            for (const event of ['end', 'error'] as const) raw.once?.(event, () => out.delete(raw));
          }
          done(error, raw);
        });
    else pool.on('acquire', take);
    pool.on('release', (...of) => {
      for (const each of of) if (isObject(each)) out.delete(each);
    });
  }

  async reserve(): Promise<ReservedConnection> {
    this.#refuseClosed();
    await this.#connection.ensureConnection();
    return new Promise((resolve, reject) => {
      this.#connection
        .getClient()
        .getExecutor()
        .provideConnection((connection) => new Promise<void>((release) => resolve(this.#given(connection, release))))
        .catch(reject);
    });
  }

  #given(connection: KyselyDriverConnection, release: () => void): ReservedConnection {
    const driver = this.#driverOf(connection);
    const raw = this.#raw.get(connection);
    const end = raw && destroyerOf(raw);
    const waitAgain = this.mustWaitForLocks && this.#database ? stopWaiting(this.#database) : undefined;
    return {
      driver,
      context: () => ({ executeQuery: connection.executeQuery.bind(connection) }),
      release: () => {
        waitAgain?.();
        release();
      },
      destroy:
        end &&
        (async () => {
          this.#reserved?.delete(raw);
          await end();
          release();
        }),
    };
  }

  async ofTransaction(transaction: object): Promise<Driver> {
    if (!isKysely(transaction)) throw new TypeError('The transaction of the EntityManager is not one of kysely.');
    return transaction.getExecutor().provideConnection((connection) => Promise.resolve(this.#driverOf(connection)));
  }

  quiet(): void {
    // kysely prints nothing.
  }

  #driverOf(connection: KyselyDriverConnection): Driver {
    const known = this.#drivers.get(connection);
    if (known) return known;
    const raw = this.#database ?? this.#rawOf(connection);
    const driver = raw && driverOf(raw);
    // The result may change: the connection of a transaction that the host began before the first call is known later.
    if (!driver) {
      const fallback =
        this.#fallbacks.get(connection) ?? new KyselyDriver(connection, supportedDialect(this.#em.getPlatform()));
      this.#fallbacks.set(connection, fallback);
      return fallback;
    }
    this.#drivers.set(connection, driver);
    return driver;
  }

  /**
   * kysely keeps the driver's connection to itself. Which one it is shows when kysely runs a statement: for that moment
   * each of those that are reserved takes the statement for itself and sends nothing.
   */
  #rawOf(connection: KyselyDriverConnection): RawConnection | undefined {
    // Without a pool the statement would be run.
    if (!this.#reserved) return undefined;
    let found: RawConnection | undefined;
    const candidates: RawConnection[] = [...this.#reserved];
    if (candidates.length === 0) return undefined;
    // The class has the method; a program that observes connections may have given this one its own.
    const own = candidates.map((raw) => Object.getOwnPropertyDescriptor(raw, 'query'));
    for (const raw of candidates) {
      raw.query = (_text: string, _values: unknown, done?: (error: null, rows: []) => void) => {
        found = raw;
        done?.(null, []);
        return Promise.resolve({ command: '', rows: [] });
      };
    }
    connection.executeQuery({ sql: '', parameters: [] }).catch(() => undefined);
    candidates.forEach((raw, i) => {
      const descriptor = own[i];
      if (descriptor) Object.defineProperty(raw, 'query', descriptor);
      else delete raw.query;
    });
    if (!found) return undefined;
    // A connection of node-postgres that is lost between two statements would end the process.
    found.on?.('error', () => undefined);
    this.#raw.set(connection, found);
    return found;
  }
}

function isKysely(transaction: object): transaction is Kysely {
  return 'getExecutor' in transaction;
}
