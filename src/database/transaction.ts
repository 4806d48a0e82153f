import type { EntityManager } from '@mikro-orm/core';
import { setTimeout } from 'node:timers/promises';
import { AdkMikroOrmError, DatabaseError, EventTooLargeError, SchemaError, driverCodeOf } from '../model/errors.js';
import { FAILURES, isUncertain, passingOf, spoilsConnection, type Failure } from '../model/failures.js';
import type { ErrorContext, ReportingOptions, RetryOptions } from '../model/options.js';
import { Aborted, onConnection, type AttemptConnection } from './connection.js';
import type { Dialect, Sql } from './dialects/dialect.js';
import { resolveDialect } from './dialects/resolve.js';
import { refuseDriver } from './driver-check.js';
import { turnOfEventLoop } from './event-loop.js';
import { failureOf } from './failure-of.js';
import { refuseDisabled, refuseEnded, refuseInside, transactionsAreDisabled } from './inside-transaction.js';
import {
  changeOf,
  firstRowsOf,
  foreignRowsOf,
  isInProcess,
  mustWaitForLocks,
  noteConnection,
  prepareConnection,
  rowsOf,
  rowsOfSecond,
  sqlEntityManager,
  type SqlEntityManager,
} from './mikro-orm.js';
import { quietPool } from './quiet-pool.js';

/** Errors of writes that may be stored all the same: the answer to one of the tries was lost (contract O1). */
const uncertain = new WeakSet<object>();

/** What statements begin with, by the ORM's connection; see `clusterPrefix`. */
const prefixes = new WeakMap<object, string>();

/** See `timeoutMs` and `retry.forMs` of the options. */
const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_RETRY_MS = 30_000;

/** How long a try waits for a lock of SQLite where the driver does not wait; where it does, see `BUSY_TIMEOUT_MS`. */
const LOCK_TIMEOUT_MS = 10_000;

/** The longest pause between two looks whether the lock is free; each is of random length. */
const LOCK_PAUSE_MS = 10;

/** How many tries deadlocks and lock time-outs get where the host's options do not say it. */
const ATTEMPTS = 10;

export interface TransactionOptions extends ReportingOptions {
  retry?: RetryOptions | undefined;
  timeoutMs?: number | undefined;
  preparedStatements?: boolean | undefined;
  /** Another program's database, which is read only: its settings stay as they are. */
  isForeign?: boolean;
}

/** What is known of the writes of one call (contract O1). */
export interface Outcome {
  /** The error in whose place the answer to a write should have come: the write may be stored all the same. */
  lostAnswer?: unknown;
}

/** What a call needs of its attempts. */
export interface AttemptOptions {
  /** Shared by the writes of one call. */
  outcome?: Outcome;
  /** Whether a failure that may pass is tried again; all of them by default. */
  retries?: (failure: Failure) => boolean;
  /** Ends what is under way within a second, with the connection if need be. @throws Aborted from the call. */
  signal?: AbortSignal | undefined;
  /** For a transaction that deletes: it does not lock what is between its rows, where others write. */
  locksRowsOnly?: boolean;
}

/** What is known of an attempt while it runs. */
interface Attempt {
  /** Whether the statement has been sent that makes its writes last. */
  isSent: boolean;
}

/** Statements and transactions on forks of a host's `EntityManager`, with retries (contract E4, E5). */
export class Transactions {
  readonly dialect: Dialect;
  readonly #em: SqlEntityManager;
  readonly #options: TransactionOptions;
  readonly #retry: { attempts: number | undefined; forMs: number; baseDelayMs: number; maxDelayMs: number };
  /** True inside a transaction of the host's: what fails there is the host's to try again. */
  readonly #joined: boolean;

  /** @throws SchemaError for a database that is not supported. */
  constructor(em: EntityManager, options: TransactionOptions = {}, joined = false) {
    this.#em = sqlEntityManager(em);
    this.dialect = resolveDialect(em.getPlatform());
    noteConnection(em);
    this.#options = options;
    const { attempts, forMs = DEFAULT_RETRY_MS, baseDelayMs = 10, maxDelayMs = 1_000 } = options.retry ?? {};
    this.#retry = { attempts, forMs, baseDelayMs, maxDelayMs };
    this.#joined = joined;
  }

  get isJoined(): boolean {
    return this.#joined;
  }

  join(em: EntityManager): Transactions {
    return new Transactions(em, this.#options, true);
  }

  /** The host's transaction that calls join. */
  get joinedTransaction(): object | undefined {
    return this.#joined ? this.#em.getTransactionContext<object>() : undefined;
  }

  /**
   * Runs a public call's work. What it throws is what the caller may see; the driver's error goes to `onError`.
   *
   * @throws InsideTransactionError inside a transaction of the host's that the call does not join.
   * @throws InvalidArgumentError when the transaction that it joins has ended.
   * @throws SchemaError with `disableTransactions` in the config.
   */
  async call<T>(context: ErrorContext, work: () => Promise<T>): Promise<T> {
    refuseDisabled(this.#em);
    this.refuseTransaction();
    try {
      return await work();
    } catch (error) {
      if (isOwn(error)) throw error;
      this.report(error, context);
      throw this.errorOf(error);
    }
  }

  /** @throws InsideTransactionError, InvalidArgumentError as `call`. */
  refuseTransaction(): void {
    if (this.#joined) refuseEnded(this.#em);
    else refuseInside(this.#em);
  }

  /** What a caller is told of a driver's error. */
  errorOf(error: unknown): AdkMikroOrmError {
    return publicError(error, this.failureOf(error));
  }

  /** Tells the host of an error, in its own words (contract O8). */
  report(error: unknown, context: ErrorContext): void {
    if (error instanceof AdkMikroOrmError) return;
    try {
      // A function that is asynchronous fits, too; what it rejects with must not end the process.
      const told: unknown = this.#options.onError?.(error, context);
      Promise.resolve(told).catch(() => undefined);
    } catch {
      // The host's log is no part of the call.
    }
  }

  /** Runs statements that need no transaction around them, on one connection. */
  async run<T>(work: (sql: Sql) => Promise<T>, options?: AttemptOptions): Promise<T> {
    return this.#retried((_, signal) => this.#once(work, isInProcess(this.#em), signal), options);
  }

  /** Runs `work` in a transaction: in one of its own, or in a savepoint of the host's, so that its failure leaves the host's whole. */
  async transaction<T>(work: (sql: Sql) => Promise<T>, options?: AttemptOptions): Promise<T> {
    return this.#retried(
      (attempt, signal) =>
        this.#joined
          ? this.#inSavepoint(work)
          : this.#onConnection(signal, (em, connection, prefix) =>
              connection.transaction(
                () => work(this.#sql(em, connection.identity, true)),
                {
                  beforeCommit: () => {
                    attempt.isSent = true;
                  },
                  rollbackFailed: (failed) => this.report(failed, { operation: 'rollback', key: {} }),
                },
                { setting: options?.locksRowsOnly ? this.dialect.sql.lockRowsOnly : undefined, prefix },
              ),
            ),
      options,
    );
  }

  /**
   * Reads rows as of one moment, without locks, so that nobody waits for it where there are several connections. It may take
   * longer than one attempt: each of its statements has that time.
   *
   * @param work only reads, outside of a host's transaction. It is done again from its beginning.
   */
  async snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#retried((_, signal) =>
      this.#onConnection(signal, (em, connection, prefix) => {
        const sql = this.#sql(em, connection.identity, true);
        const all: Sql['all'] = async (text, values) => {
          connection.restartDeadline();
          return sql.all(text, values);
        };
        return connection.transaction(() => work({ ...sql, all }), {}, { ...this.dialect.sql.snapshot, prefix });
      }),
    );
  }

  /** As `transaction`, for a single statement: on its own it is one already. */
  async statement<T>(work: (sql: Sql) => Promise<T>, options?: AttemptOptions): Promise<T> {
    if (this.#joined) return this.transaction(work);
    // A statement that waits for a lock must not stop the process.
    const needsNone = isInProcess(this.#em) && !mustWaitForLocks(this.#em);
    const send = (attempt: Attempt) => (sql: Sql) => {
      attempt.isSent = true;
      return work(sql);
    };
    return this.#retried((attempt, signal) => this.#once(send(attempt), needsNone, signal), options);
  }

  /** @param needsNone whether `work` needs no connection of its own; others may use it between two statements. */
  async #once<T>(work: (sql: Sql) => Promise<T>, needsNone: boolean, signal?: AbortSignal): Promise<T> {
    if (!this.#joined && !needsNone) {
      return this.#onConnection(signal, (em, connection, prefix) =>
        work(this.#sql(em, connection.identity, false, prefix)),
      );
    }
    const em = this.#fork();
    return work(this.#sql(em, em.getConnection(), em.isInTransaction()));
  }

  async #inSavepoint<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    const outer = this.joinedTransaction;
    // A fork of a transaction with `ignoreNestedTransactions` would begin no savepoint, and leave a part of what fails.
    const em = this.#em.fork({ keepTransactionContext: true, ...(outer && { disableTransactions: false }) });
    await em.begin({ ctx: outer });
    if (!em.isInTransaction()) throw transactionsAreDisabled();
    try {
      const result = await work(this.#sql(em, em.getConnection(), true));
      await em.commit();
      return result;
    } catch (error) {
      await em.rollback().catch((failed: unknown) => this.report(failed, { operation: 'rollback', key: {} }));
      throw error;
    }
  }

  #onConnection<T>(
    signal: AbortSignal | undefined,
    work: (em: SqlEntityManager, connection: AttemptConnection, prefix: string) => Promise<T>,
  ): Promise<T> {
    const em = this.#fork();
    return onConnection(
      em,
      { timeoutMs: this.#options.timeoutMs ?? DEFAULT_TIMEOUT_MS, signal },
      // A connection with a setting that is refused stays as the host has set it.
      (error) =>
        !isOwn(error) && !this.dialect.connections.settings.refusal(error) && spoilsConnection(this.failureOf(error)),
      async (connection) => work(em, connection, await this.#prefix(em, connection)),
    );
  }

  /** What statements begin with; the first call checks the driver. Within the time of an attempt, since the server may be silent. */
  async #prefix(em: SqlEntityManager, { identity }: AttemptConnection): Promise<string> {
    const orm = em.getConnection();
    let prefix = prefixes.get(orm);
    if (prefix === undefined) {
      const sql = this.#sql(em, identity, false);
      // A driver in this process has no such settings, but for integers as bigint, which are converted.
      if (!isInProcess(this.#em)) await refuseDriver(sql, this.dialect);
      prefix = (await this.dialect.connections.clusterPrefix?.(sql)) ?? '';
      prefixes.set(orm, prefix);
    }
    return prefix;
  }

  #sql(em: SqlEntityManager, connection: object, isInTransaction: boolean, prefix = ''): Sql {
    const mayPrepare = this.#options.preparedStatements ?? true;
    const { isForeign } = this.#options;
    return sqlOf(em, this.dialect, { connection, isInTransaction, mayPrepare, isForeign }, prefix);
  }

  failureOf(error: unknown): Failure {
    return failureOf(error, this.dialect);
  }

  /**
   * Looks at a connection's settings, which every statement does by itself.
   *
   * @throws SchemaError when one is refused; nothing when the look itself fails.
   */
  async checkSettings(): Promise<void> {
    quietPool(this.#em, this.dialect);
    try {
      await this.#once((sql) => sql.all('select ? as checked', ['']), isInProcess(this.#em));
    } catch (error) {
      const refusal = error instanceof SchemaError ? error : this.dialect.connections.settings.refusal(error);
      if (refusal) throw refusal;
    }
  }

  #fork(): SqlEntityManager {
    // Unless told to join it, stay out of a transaction that is around: it may be one of another ORM, on another database.
    return this.#em.fork(this.#joined ? { keepTransactionContext: true } : { disableContextResolution: true });
  }

  async #retried<T>(
    work: (attempt: Attempt, signal: AbortSignal | undefined) => Promise<T>,
    { outcome = {}, retries = () => true, signal }: AttemptOptions = {},
  ): Promise<T> {
    let outageBegan: number | undefined;
    let conflicts = 0;
    for (let tries = 1; ; tries++) {
      const attempt = { isSent: false };
      try {
        return await this.#whenUnlocked(async () => {
          attempt.isSent = false;
          await this.#prepare();
          return work(attempt, signal);
        });
      } catch (error) {
        if (isOwn(error)) throw error;
        const refusal = this.dialect.connections.settings.refusal(error);
        if (refusal) throw refusal;
        const failure = this.failureOf(error);
        // In a host's transaction nothing is stored before its commit.
        if (attempt.isSent && !this.#joined && isUncertain(failure)) outcome.lostAnswer ??= error;
        if (outcome.lostAnswer !== undefined && isObject(error)) uncertain.add(error);
        const passing = this.#passing(failure);
        if (passing === 'outage') outageBegan ??= performance.now();
        else {
          outageBegan = undefined;
          conflicts++;
        }
        if (this.#joined || !passing || !retries(failure) || this.#isGivenUp(tries, conflicts, outageBegan))
          throw error;
      }
      const longest = Math.min(this.#retry.maxDelayMs, this.#retry.baseDelayMs * 2 ** (tries - 1));
      // At random, or transactions that met once meet again.
      await setTimeout(Math.random() * longest, undefined, signal && { signal }).catch(() => {
        throw new Aborted();
      });
    }
  }

  /** Waits for a lock of SQLite by running `attempt` again, where the driver would stop the process while it waits. */
  async #whenUnlocked<T>(attempt: () => Promise<T>): Promise<T> {
    const deadline = performance.now() + LOCK_TIMEOUT_MS;
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        const isLocked = !this.#joined && mustWaitForLocks(this.#em) && this.failureOf(error) === 'lockTimeout';
        if (!isLocked || performance.now() > deadline) throw error;
      }
      await setTimeout(Math.random() * LOCK_PAUSE_MS);
    }
  }

  /** Opens the ORM's connection and sets it up, each once. */
  async #prepare(): Promise<void> {
    const opening = prepareConnection(this.#em);
    if (opening) await opening;
    quietPool(this.#em, this.dialect);
    // A host's transaction has SQLite's only connection already; waiting for another one would never end.
    if (this.#joined || this.#options.isForeign) return;
    // On a fork, since the statements must not join a transaction that is around.
    const em = this.#fork();
    await this.dialect.connections.prepare?.(this.#em, this.#sql(em, em.getConnection(), false));
  }

  /** A node that has lost its cluster refuses to wait for it by the error of a lock time-out, and at once. */
  #passing(failure: Failure): ReturnType<typeof passingOf> {
    return failure === 'lockTimeout' && prefixes.get(this.#em.getConnection()) ? 'outage' : passingOf(failure);
  }

  /** @param outageBegan when the outage was noticed that goes on; undefined for what others' transactions cause. */
  #isGivenUp(tries: number, conflicts: number, outageBegan: number | undefined): boolean {
    const { attempts, forMs } = this.#retry;
    if (attempts !== undefined && tries >= attempts) return true;
    // Not those before, which an outage has used up.
    return outageBegan === undefined ? conflicts >= (attempts ?? ATTEMPTS) : performance.now() - outageBegan >= forMs;
  }
}

/** A mistake in the program, the caller's or ours, or an answer of ours; the database has no part in it. */
function isOwn(error: unknown): error is Error {
  return (
    error instanceof Aborted ||
    error instanceof AdkMikroOrmError ||
    error instanceof TypeError ||
    error instanceof RangeError
  );
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** What statements have to know of the connection of an `EntityManager`. */
type Place = Pick<Sql, 'connection' | 'isInTransaction' | 'mayPrepare'> & Pick<TransactionOptions, 'isForeign'>;

function sqlOf(em: SqlEntityManager, dialect: Dialect, { isForeign, ...place }: Place, prefix: string): Sql {
  const { isInTransaction } = place;
  // In a transaction the connection is reserved, so that nobody's statement comes between two of these.
  const isHere = isInProcess(em);
  const inTurn = <T>(send: () => Promise<T>): Promise<T> => {
    const turn = isHere ? turnOfEventLoop() : undefined;
    return turn ? turn.then(send) : send();
  };
  // Once is enough in a transaction; outside, a pooler may send each statement to another connection of the server.
  let isChecked = false;
  const literals = (values: readonly unknown[]) => {
    // A text where there is one: it is in a condition or in a row to insert, and so is evaluated before anything is written.
    const checked = isChecked
      ? -1
      : Math.max(
          values.findIndex((value) => typeof value === 'string'),
          0,
        );
    if (isInTransaction && values.length > 0) isChecked = true;
    return values.map((value, i) => {
      const literal = dialect.sql.literal(value);
      return i === checked ? dialect.connections.settings.around(literal) : literal;
    });
  };
  return {
    ...place,
    all: (text, values = []) => inTurn(() => (isForeign ? foreignRowsOf : rowsOf)(em, prefix + text, literals(values))),
    allOfFirst: (text, values = []) => inTurn(() => firstRowsOf(em, prefix + text, literals(values))),
    allOfSecond: (texts, values = []) => inTurn(() => rowsOfSecond(em, texts, literals(values))),
    run: (text, values = []) => inTurn(() => changeOf(em, prefix + text, literals(values))),
  };
}

/**
 * What a caller is told of a driver's error, without the SQL and the values that its message holds (contract A12); of
 * missing tables with the command that makes them (contract F5).
 */
function publicError(error: unknown, failure: Failure): AdkMikroOrmError {
  if (failure === 'missingTable' || failure === 'missingColumn') {
    return new SchemaError(
      "The tables of adk-mikro-orm are missing or outdated. Run 'npx adk-mikro-orm migrate', or 'await migrate(orm)', or 'npx mikro-orm migration:up' with adkMigrations(…) in your config.",
    );
  }
  const outcome = isObject(error) && uncertain.has(error) ? 'unknown' : 'none';
  if (failure === 'tooLarge' && outcome === 'none') {
    return new EventTooLargeError();
  }
  const { reason } = FAILURES[failure];
  return new DatabaseError(FAILURES[failure], reason, driverCodeOf(error), outcome);
}
