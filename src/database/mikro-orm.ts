/**
 * The one place that knows what differs between MikroORM 6, which runs on knex, and MikroORM 7, which runs on kysely;
 * `entities/mikro-orm.ts` has what differs in entities. The major is found out by the members of an object, never by a
 * version. Every result is checked: one of an unexpected shape is an error.
 */
import type { Connection, EntityManager } from '@mikro-orm/core';

/** What a MikroORM `EntityManager` of an SQL driver has; named here so that no driver package is imported. */
export interface SqlEntityManager extends EntityManager {
  execute(text: string, values: readonly unknown[], method: 'all' | 'run'): Promise<unknown>;
}

export function isSqlEntityManager(em: EntityManager): em is SqlEntityManager {
  return 'execute' in em && typeof em.execute === 'function';
}

/** The members of kysely that are used. */
interface Kysely {
  connection(): { execute<T>(work: (client: Kysely) => Promise<T>): Promise<T> };
}

/** The members of a connection of MikroORM 7 that are used. */
interface KyselyConnection {
  getClient(): Kysely;
  ensureConnection(): Promise<void>;
  getNativeClient(): Promise<unknown>;
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

/** For the closing of an ORM whose connection is not used before. */
export function noteConnection(em: EntityManager): void {
  const connection = kyselyConnectionOf(em);
  if (connection?.connected) opened.add(connection);
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
  if (isSynchronous(client) && client.memory !== true) impatient.add(connection);
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
  pragma(source: string, options?: { simple: true }): unknown;
}

function isSynchronous(client: unknown): client is SynchronousSqlite {
  return typeof client === 'object' && client !== null && 'pragma' in client;
}

/** @returns undefined where the host has passed a kysely of its own, which tells nobody what it runs on. */
async function nativeClientOf(connection: KyselyConnection): Promise<unknown> {
  return connection.getNativeClient().catch(() => undefined);
}

/** For the holder of the connection: the host's own statements wait as long as the host has set. */
async function withoutWaiting<T>(connection: KyselyConnection, work: () => Promise<T>): Promise<T> {
  const client = impatient.has(connection) ? await nativeClientOf(connection) : undefined;
  if (!isSynchronous(client)) return work();
  const timeout = Number(client.pragma('busy_timeout', { simple: true }));
  client.pragma('busy_timeout = 0');
  try {
    return await work();
  } finally {
    client.pragma(`busy_timeout = ${timeout}`);
  }
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
  if (!Array.isArray(result)) throw unexpected('rows', result);
  return result as Row[];
}

/** For one statement that gives several results, as a block of MariaDB does. @returns the rows of the first. */
export async function firstRowsOf<Row extends object>(
  em: SqlEntityManager,
  text: string,
  values: readonly unknown[],
): Promise<Row[]> {
  const [rows] = rowsIn<Row[]>(await execute(em, text, values, 'all'));
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

/** Above 2^53 a driver would have rounded it. */
function wholeNumber(value: unknown): number {
  if (!Number.isSafeInteger(value)) throw unexpected('a number', value);
  return value as number;
}

function unexpected(what: string, result: unknown): Error {
  return new Error(`MikroORM gave ${typeof result} where ${what} should be`);
}

/**
 * Runs two statements on one connection, outside a transaction.
 *
 * @returns the rows of the second.
 */
export async function rowsOfSecond<Row extends object>(
  em: SqlEntityManager,
  [first, second]: readonly [string, string],
  values: readonly unknown[],
): Promise<Row[]> {
  const kysely = kyselyConnectionOf(em);
  if (!kysely) {
    // In one message, and so on one connection. kysely would give the first result only.
    const [, rows] = rowsIn<Row[]>(await em.execute(`${first}; ${second}`, values, 'all'));
    return rowsIn(rows);
  }
  return onOneConnection(em, kysely, async () => {
    await execute(em, first, [], 'run');
    return rowsOf<Row>(em, second, values);
  });
}

/** While `work` runs, the statements of `em` run on one connection, which goes back to the pool whatever happens. */
async function onOneConnection<T>(
  em: SqlEntityManager,
  connection: KyselyConnection,
  work: () => Promise<T>,
): Promise<T> {
  await connection.ensureConnection();
  return connection
    .getClient()
    .connection()
    .execute(async (client) => {
      em.setTransactionContext(client);
      try {
        return await withoutWaiting(connection, work);
      } finally {
        em.resetTransactionContext();
      }
    });
}

/** For statements that write without a transaction around them. */
export async function withWrites<T>(em: SqlEntityManager, work: () => Promise<T>): Promise<T> {
  const connection = kyselyConnectionOf(em);
  return connection && impatient.has(connection) ? onOneConnection(em, connection, work) : work();
}

// Transactions

export interface TransactionHooks {
  /** Before this the server undoes what it has, also when the connection is lost. */
  beforeCommit?: () => void;
  /** The transaction may be open still. What is thrown is the first error. */
  rollbackFailed?: (failed: unknown, first: unknown) => void;
}

/** Runs `work` in a transaction of `em`, or in a savepoint where `em` is in a transaction. */
export async function inTransaction<T>(
  em: EntityManager,
  work: () => Promise<T>,
  hooks: TransactionHooks = {},
): Promise<T> {
  const outer: unknown = em.getTransactionContext();
  const kysely = kyselyConnectionOf(em);
  if (outer === undefined && kysely && isSqlEntityManager(em)) {
    // The transactions of MikroORM 7 give the connection back after `commit` and `rollback`, and never when these fail.
    return onOneConnection(em, kysely, () => stepped((statement) => execute(em, statement, [], 'run'), work, hooks));
  }
  const steps = {
    begin: () => em.begin({ ctx: outer }),
    commit: () => em.commit(),
    rollback: () => em.rollback(),
  };
  return stepped((statement) => steps[statement](), work, hooks);
}

async function stepped<T>(
  run: (statement: 'begin' | 'commit' | 'rollback') => Promise<unknown>,
  work: () => Promise<T>,
  { beforeCommit, rollbackFailed }: TransactionHooks,
): Promise<T> {
  await run('begin');
  try {
    const result = await work();
    beforeCommit?.();
    await run('commit');
    return result;
  } catch (error) {
    await run('rollback').catch((failed: unknown) => {
      rollbackFailed?.(failed, error);
    });
    throw error;
  }
}

/** Whether what `em.getTransactionContext()` gives is a transaction that has ended. */
export function hasEnded(transaction: object): boolean {
  const { isCompleted, isCommitted, isRolledBack } = transaction as {
    isCompleted?: () => boolean;
    isCommitted?: boolean;
    isRolledBack?: boolean;
  };
  // knex has the first, kysely the others.
  return isCompleted?.call(transaction) ?? (isCommitted === true || isRolledBack === true);
}
