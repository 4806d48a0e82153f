/**
 * The one place that knows what differs between MikroORM 6, which runs on knex, and MikroORM 7, which runs on kysely;
 * `entities/mikro-orm.ts` has what differs in entities. The major is found out by the members of an object, never by a
 * version. Every result is checked: one of an unexpected shape is an error.
 */
import type { Connection, EntityManager } from '@mikro-orm/core';
import { dialectName, unsupportedDatabase } from '../../entities/dialect-name.js';
import { InvalidArgumentError } from '../model/errors.js';
import { checkRow, numberOf } from './row-values.js';

/** What a MikroORM `EntityManager` of an SQL driver has; named here so that no driver package is imported. */
export interface SqlEntityManager extends EntityManager {
  execute(text: string, values: readonly unknown[], method: 'all' | 'run'): Promise<unknown>;
}

function isSqlEntityManager(em: EntityManager): em is SqlEntityManager {
  return 'execute' in em && typeof em.execute === 'function';
}

/**
 * @throws InvalidArgumentError when it is no `EntityManager`.
 * @throws SchemaError when the driver is not one for SQL.
 */
export function sqlEntityManager(em: EntityManager): SqlEntityManager {
  if (!isObject(em) || !('fork' in em)) {
    const what = isObject(em) && 'em' in em ? 'The ORM was passed' : 'No EntityManager was passed';
    throw new InvalidArgumentError(`${what}: pass the EntityManager of your MikroORM, orm.em.`);
  }
  if (!isSqlEntityManager(em)) throw unsupportedDatabase();
  return em;
}

/** The members of kysely that are used. */
interface Kysely {
  getExecutor(): {
    readonly adapter: { readonly supportsMultipleConnections?: boolean };
    provideConnection(consumer: (connection: KyselyDriverConnection) => Promise<void>): Promise<void>;
  };
}

/** One object for one physical connection. */
interface KyselyDriverConnection {
  executeQuery(query: { sql: string; parameters: readonly unknown[] }): Promise<unknown>;
}

/** The members of a connection of MikroORM 7 that are used. */
interface KyselyConnection {
  getClient(): Kysely;
  ensureConnection(): Promise<void>;
  getNativeClient(): Promise<unknown>;
  /** Begins a transaction, or a savepoint in `ctx`. */
  begin(options?: { ctx?: object }): Promise<object>;
  readonly connected: boolean;
}

function isKyselyConnection(connection: object): connection is KyselyConnection {
  return 'getClient' in connection && 'ensureConnection' in connection && 'connected' in connection;
}

/** @returns undefined on MikroORM 6. */
function kyselyConnectionOf(em: EntityManager): KyselyConnection | undefined {
  const connection: Connection = em.getConnection();
  return isKyselyConnection(connection) ? connection : undefined;
}

const CLOSED = 'Unable to acquire a connection: the ORM is closed';

/** The connections that have been open once. If one of them is not open now, the host has closed it. */
const opened = new WeakSet<object>();

/** The connections whose driver has been looked at. */
const known = new WeakSet<object>();

/** The connections whose driver blocks the event loop while it waits for a lock; `Transactions` waits instead. */
const impatient = new WeakSet<object>();

/** For what happens before the connection is used: the host closes the ORM, or begins transactions. */
export function noteConnection(em: EntityManager): void {
  const connection = kyselyConnectionOf(em);
  if (!connection) return;
  if (connection.connected) opened.add(connection);
  noteSavepoints(connection);
}

/**
 * Comes before each piece of work. MikroORM 7 would open a connection again that the host has closed, and in memory a new
 * database with it.
 *
 * @returns undefined where there is nothing to wait for.
 * @throws Error when the ORM was closed.
 */
export function prepareConnection(em: EntityManager): Promise<void> | undefined {
  const connection = kyselyConnectionOf(em);
  if (!connection) return undefined;
  refuseClosed(connection);
  return known.has(connection) ? undefined : open(em, connection);
}

async function open(em: EntityManager, connection: KyselyConnection): Promise<void> {
  try {
    await connection.ensureConnection();
  } catch (error) {
    // better-sqlite3 gives a TypeError where it cannot open the file; it is no mistake of the caller's.
    throw error instanceof TypeError ? em.getPlatform().getExceptionConverter().convertException(error) : error;
  }
  const client = await nativeClientOf(connection);
  // libSQL leaves a statement that met a lock open, and commits nothing until it is collected: there the driver waits.
  const isLibSql = isObject(client) && 'sync' in client;
  if (isSynchronous(client) && client.memory !== true && !isLibSql) impatient.add(connection);
  if (isPool(client)) noteReserved(connection, client);
  opened.add(connection);
  known.add(connection);
}

function refuseClosed(connection: KyselyConnection): void {
  if (opened.has(connection) && !connection.connected) throw new Error(CLOSED);
}

/** Whether a lock that another connection has must be waited for here, since the driver would stop the process. */
export function mustWaitForLocks(em: EntityManager): boolean {
  return impatient.has(em.getConnection());
}

/** The members of a synchronous SQLite driver that are used; better-sqlite3 and libSQL have them. */
interface SynchronousSqlite {
  /** In memory nobody else has a lock. */
  memory?: unknown;
  pragma(source: string): unknown;
}

function isSynchronous(client: unknown): client is SynchronousSqlite {
  return typeof client === 'object' && client !== null && 'pragma' in client;
}

/** @returns undefined where the host has passed a kysely of its own, which tells nobody what it runs on. */
async function nativeClientOf(connection: KyselyConnection): Promise<unknown> {
  return connection.getNativeClient().catch(() => undefined);
}

// Statements

function execute(em: SqlEntityManager, text: string, values: readonly unknown[], method: 'all' | 'run') {
  const connection = kyselyConnectionOf(em);
  return connection ? executeOnKysely(em, connection, text, values, method) : em.execute(text, values, method);
}

async function executeOnKysely(
  em: SqlEntityManager,
  connection: KyselyConnection,
  text: string,
  values: readonly unknown[],
  method: 'all' | 'run',
): Promise<unknown> {
  refuseClosed(connection);
  try {
    return await em.execute(text, values, method);
  } catch (error) {
    // For the host's log (contract O8); knex puts it into the message, and mysql2 has it here.
    if (error instanceof Error && !('sql' in error)) Object.assign(error, { sql: text });
    throw error;
  }
}

export async function rowsOf<Row extends object>(
  em: SqlEntityManager,
  text: string,
  values: readonly unknown[],
): Promise<Row[]> {
  return rowsIn(await execute(em, text, values, 'all'));
}

function rowsIn<Row extends object>(result: unknown): Row[] {
  const rows = listIn<Row>(result);
  rows.forEach(checkRow);
  return rows;
}

function listIn<Item extends object>(result: unknown): Item[] {
  if (!Array.isArray(result)) throw unexpected('rows', result);
  return result as Item[];
}

/** Rows of another program's tables, whose values may have any shape. */
export async function foreignRowsOf<Row extends object>(
  em: SqlEntityManager,
  text: string,
  values: readonly unknown[],
): Promise<Row[]> {
  return listIn(await execute(em, text, values, 'all'));
}

/** For one statement that gives several results, as a block of MariaDB does. @returns the rows of the first. */
export async function firstRowsOf<Row extends object>(
  em: SqlEntityManager,
  text: string,
  values: readonly unknown[],
): Promise<Row[]> {
  const [rows] = listIn<Row[]>(await execute(em, text, values, 'all'));
  return rowsIn(rows);
}

export interface Change {
  affectedRows: number;
  insertId: number;
}

export async function changeOf(em: SqlEntityManager, text: string, values: readonly unknown[]): Promise<Change> {
  const result: unknown = await execute(em, text, values, 'run');
  if (typeof result !== 'object' || result === null) throw unexpected('a change', result);
  const { affectedRows, insertId }: { affectedRows?: unknown; insertId?: unknown } = result;
  // kysely leaves out a number that is 0.
  return { affectedRows: wholeNumber(affectedRows), insertId: wholeNumber(insertId ?? 0) };
}

/** MySQL's and MariaDB's flag CLIENT_FOUND_ROWS. */
const FOUND_ROWS = 2n;

/**
 * Whether a driver's connection reports how many rows an `update` has changed, and not how many it matched.
 *
 * @param raw a driver's connection; those of databases that have no such flag report what matched.
 */
export function reportsChangedRows(raw: object): boolean {
  const { config, info }: { config?: { clientFlags?: number }; info?: { clientCapabilities?: bigint } } = raw;
  // mysql2 has the first, mariadb the second.
  const flags = config?.clientFlags ?? info?.clientCapabilities;
  return flags !== undefined && (BigInt(flags) & FOUND_ROWS) === 0n;
}

/** Above 2^53 a driver would have rounded it. */
function wholeNumber(value: unknown): number {
  const number = numberOf(value);
  if (!Number.isSafeInteger(number)) throw unexpected('a number', value);
  return number;
}

function unexpected(what: string, result: unknown): Error {
  return new Error(`MikroORM gave ${typeof result} where ${what} should be`);
}

/**
 * Runs two statements in one message where MikroORM can, and so on one connection of the server behind a pooler, too.
 *
 * @param em with a connection of its own.
 * @returns the rows of the second.
 */
export async function rowsOfSecond<Row extends object>(
  em: SqlEntityManager,
  [first, second]: readonly [string, string],
  values: readonly unknown[],
): Promise<Row[]> {
  if (kyselyConnectionOf(em)) {
    // kysely would give the first result only.
    await execute(em, first, [], 'run');
    return rowsOf<Row>(em, second, values);
  }
  const [, rows] = listIn<Row[]>(await em.execute(`${first}; ${second}`, values, 'all'));
  return rowsIn(rows);
}

/** Runs a statement that has neither values nor a result. */
export async function command(em: SqlEntityManager, text: string): Promise<void> {
  await execute(em, text, [], 'run');
}

// Connections

/** A physical connection that is out of the host's pool. */
export interface ReservedConnection {
  /** For `em.setTransactionContext`: the statements of `em` run on this connection. */
  readonly context: object;
  /** The driver's object, the same whenever the connection is reserved again. */
  readonly driverConnection: object;
  /** Gives it back to the pool. */
  release(): void;
  /**
   * Ends it, whatever is under way, so that the server rolls back and nobody gets it again. Undefined where that is not
   * possible: the database is in this process, or the host has passed a kysely of its own.
   */
  readonly destroy: (() => Promise<void>) | undefined;
}

/** Whether nothing can keep a statement waiting but a lock: the database is in this process. */
export function isInProcess(em: EntityManager): boolean {
  const connection = kyselyConnectionOf(em);
  return connection ? !reserved.has(connection) : dialectName(em.getPlatform()) === 'sqlite';
}

/** Takes a connection out of the host's pool; waits until one is free. */
export async function reserveConnection(em: SqlEntityManager): Promise<ReservedConnection> {
  const connection: Connection = em.getConnection();
  if (isKyselyConnection(connection)) return reserveOnKysely(connection);
  await connection.ensureConnection();
  if (!isKnexConnection(connection)) throw unexpected('a connection of knex', connection);
  return reserveOnKnex(connection.getKnex().client);
}

/** The members of a connection of MikroORM 6 that are used; knex documents them. */
interface KnexConnection extends Connection {
  getKnex(): { client: KnexClient };
}

interface KnexClient {
  acquireConnection(): Promise<object>;
  releaseConnection(connection: object): Promise<void>;
}

function isKnexConnection(connection: Connection): connection is KnexConnection {
  return 'getKnex' in connection;
}

/** What knex takes for a transaction, for each physical connection. */
const knexContexts = new WeakMap<object, object>();

async function reserveOnKnex(client: KnexClient): Promise<ReservedConnection> {
  const raw: object & { __knex__disposed?: string } = await client.acquireConnection();
  let context = knexContexts.get(raw);
  if (!context) {
    const own: object = {
      __proto__: client,
      transacting: true,
      acquireConnection: () => Promise.resolve(raw),
      releaseConnection: () => Promise.resolve(),
    };
    knexContexts.set(raw, (context = { client: own }));
  }
  const release = () => void client.releaseConnection(raw);
  const end = destroyerOf(raw);
  return {
    context,
    driverConnection: raw,
    release,
    destroy:
      end &&
      (async () => {
        // knex looks for it before it hands a connection out.
        raw.__knex__disposed = 'its transaction may be open';
        await end();
        release();
      }),
  };
}

/** The members of a pool of node-postgres or mysql2 that are used. */
interface NativePool {
  on(event: 'acquire' | 'release', listener: (...of: unknown[]) => void): unknown;
}

function isPool(client: unknown): client is NativePool {
  return typeof client === 'object' && client !== null && 'on' in client && !isSynchronous(client);
}

/** The driver's connections that are out of a pool. */
const reserved = new WeakMap<KyselyConnection, Set<object>>();

/** The driver's connection of each connection of kysely. */
const rawConnections = new WeakMap<KyselyDriverConnection, RawConnection>();

function noteReserved(connection: KyselyConnection, pool: NativePool): void {
  const out = new Set<object>();
  reserved.set(connection, out);
  pool.on('acquire', (raw) => {
    if (isObject(raw)) out.add(raw);
  });
  pool.on('release', (...of) => {
    for (const each of of) if (isObject(each)) out.delete(each);
  });
}

/** The members of a connection of node-postgres or mysql2 that are used. */
interface RawConnection {
  on?(event: 'error', listener: () => void): unknown;
  query?: unknown;
}

/**
 * kysely keeps the driver's connection to itself. Which one it is shows when kysely runs a statement: for that moment
 * each of those that are reserved takes the statement for itself and sends nothing.
 */
function rawOf(connection: KyselyDriverConnection, out: ReadonlySet<object>): RawConnection | undefined {
  const known = rawConnections.get(connection);
  if (known) return known;
  // Without a pool: the statement would be run, and libSQL fails for it.
  if (out.size === 0) return undefined;
  let found: RawConnection | undefined;
  const candidates: RawConnection[] = [...out];
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
  rawConnections.set(connection, found);
  return found;
}

async function reserveOnKysely(connection: KyselyConnection): Promise<ReservedConnection> {
  refuseClosed(connection);
  await connection.ensureConnection();
  const client = impatient.has(connection) ? await nativeClientOf(connection) : undefined;
  const out = reserved.get(connection);
  return new Promise((resolve, reject) => {
    connection
      .getClient()
      .getExecutor()
      .provideConnection(
        (conn) =>
          new Promise((release) => {
            const raw = out && rawOf(conn, out);
            const end = raw && destroyerOf(raw);
            const waitAgain = isSynchronous(client) ? stopWaiting(client) : undefined;
            resolve({
              context: { executeQuery: conn.executeQuery.bind(conn) },
              driverConnection: raw ?? conn,
              release: () => {
                waitAgain?.();
                release();
              },
              destroy:
                end &&
                (async () => {
                  out?.delete(raw);
                  await end();
                  release();
                }),
            });
          }),
      )
      .catch(reject);
  });
}

/** For the holder of the connection: the host's own statements wait as long as the host has set. */
function stopWaiting(client: SynchronousSqlite): () => void {
  // libSQL has no form that gives the number alone.
  const [{ timeout }] = client.pragma('busy_timeout') as [{ timeout: number | bigint }];
  client.pragma('busy_timeout = 0');
  return () => client.pragma(`busy_timeout = ${timeout}`);
}

/** A socket, as far as it is used. */
interface Socket {
  destroy(): void;
  readonly closed?: boolean;
  once(event: 'close', listener: () => void): unknown;
}

/** @returns what ends a driver's connection and its socket at once; undefined where there is no socket. */
function destroyerOf(raw: object): (() => Promise<void>) | undefined {
  const { destroy, stream, connection }: { destroy?: () => void; stream?: Socket; connection?: { stream?: Socket } } =
    raw;
  // node-postgres has it one level below; it knows that it is closed when its socket is.
  const socket = connection?.stream ?? stream;
  if (!destroy && !socket) return undefined;
  return async () => {
    destroy?.call(raw);
    if (!socket || socket.closed === true) return;
    const closed = new Promise<void>((resolve) => socket.once('close', resolve));
    socket.destroy();
    await closed;
  };
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

// Transactions of the host's

/** What `em.getTransactionContext()` gives, as far as it is used. */
interface HostTransaction {
  /** Of knex, where an inner transaction has ended also when the one around it has. */
  isCompleted?(): boolean;
  /** Of knex: the transaction that this one is a savepoint of. */
  readonly parentTransaction?: object;
  readonly isCommitted?: boolean;
  readonly isRolledBack?: boolean;
}

/** The transactions of kysely that savepoints are in; kysely's object for a savepoint does not end with its transaction. */
const outer = new WeakMap<object, object>();

const noted = new WeakSet<KyselyConnection>();

/** Without it, work that was begun in a savepoint would be in an open transaction for ever. */
function noteSavepoints(connection: KyselyConnection): void {
  if (noted.has(connection)) return;
  noted.add(connection);
  const begin = connection.begin.bind(connection);
  connection.begin = async (options) => {
    const transaction = await begin(options);
    if (options?.ctx) outer.set(transaction, options.ctx);
    return transaction;
  };
}

function rootOf(transaction: HostTransaction): HostTransaction {
  const around = transaction.parentTransaction ?? outer.get(transaction);
  return around ? rootOf(around) : transaction;
}

/** Whether what `em.getTransactionContext()` gives has ended, so that no statement can be run in it. */
export function hasEnded(transaction: HostTransaction): boolean {
  const { isCommitted, isRolledBack } = rootOf(transaction);
  return transaction.isCompleted?.() ?? (isCommitted === true || isRolledBack === true);
}

/** Whether the transaction, or the one that the savepoint is in, has neither been committed nor rolled back. */
export function isOpen(transaction: HostTransaction): boolean {
  return !hasEnded(rootOf(transaction));
}
