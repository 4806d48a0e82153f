import type { EntityManager } from '@mikro-orm/core';
import { setTimeout } from 'node:timers/promises';
import {
  AdkMikroOrmError,
  DatabaseError,
  EventTooLargeError,
  SchemaError,
  driverCodeOf,
  driverMessageOf,
} from '../model/errors.js';
import { FAILURES, isPassing, isUncertain, type Failure } from '../model/failures.js';
import type { ErrorContext, ReportingOptions, RetryOptions } from '../model/options.js';
import type { Dialect, Sql } from './dialects/dialect.js';
import { resolveDialect } from './dialects/resolve.js';
import { LOST_TRANSACTION, failureOf } from './failure-of.js';
import { hasOneConnection, refuseInside } from './inside-transaction.js';
import {
  changeOf,
  firstRowsOf,
  inTransaction,
  isSqlEntityManager,
  mustWaitForLocks,
  noteConnection,
  prepareConnection,
  rowsOf,
  rowsOfSecond,
  withWrites,
  type SqlEntityManager,
} from './mikro-orm.js';
import { quietPool } from './quiet-pool.js';

/** Errors of writes that may be stored all the same: the answer to one of the tries was lost (contract O1). */
const uncertain = new WeakSet<object>();

/** How long a try waits for a lock of SQLite where the driver does not, as `BUSY_TIMEOUT_MS` is where it does. */
const LOCK_TIMEOUT_MS = 10_000;

/** How often it looks, at random and at most. */
const LOCK_LOOKS_MS = 10;

export interface TransactionOptions extends ReportingOptions {
  retry?: RetryOptions;
}

/** Statements and transactions on forks of a host's `EntityManager`, with retries (contract E4, E5). */
export class Transactions {
  readonly dialect: Dialect;
  readonly #em: SqlEntityManager;
  readonly #retry: Required<RetryOptions>;
  readonly #onError: ReportingOptions['onError'];
  /** True inside a transaction of the host's: what fails there is the host's to try again. */
  readonly #joined: boolean;
  readonly #hasOneConnection: boolean;

  /** @throws SchemaError when the `EntityManager` is not one of a supported SQL driver. */
  constructor(em: EntityManager, { retry = {}, onError }: TransactionOptions = {}, joined = false) {
    if (!isSqlEntityManager(em))
      throw new SchemaError('The EntityManager has no SQL driver; use SQLite, PostgreSQL, MySQL or MariaDB.');
    this.dialect = resolveDialect(em.getPlatform());
    this.#em = em;
    noteConnection(em);
    this.#retry = {
      attempts: retry.attempts ?? 10,
      baseDelayMs: retry.baseDelayMs ?? 10,
      maxDelayMs: retry.maxDelayMs ?? 1_000,
    };
    this.#onError = onError;
    this.#joined = joined;
    this.#hasOneConnection = hasOneConnection(em, this.dialect);
  }

  get isJoined(): boolean {
    return this.#joined;
  }

  join(em: EntityManager): Transactions {
    return new Transactions(em, { retry: this.#retry, ...(this.#onError && { onError: this.#onError }) }, true);
  }

  /**
   * Runs a public call's work. What it throws is what the caller may see; the driver's error goes to `onError`.
   *
   * @throws InsideTransactionError when a transaction around the call holds the only connection.
   */
  async call<T>(context: ErrorContext, work: () => Promise<T>): Promise<T> {
    if (this.#hasOneConnection && !this.#joined) refuseInside(this.#em);
    try {
      return await work();
    } catch (error) {
      // A mistake in the program, the caller's or ours; the database has no part in it.
      if (error instanceof AdkMikroOrmError || error instanceof TypeError || error instanceof RangeError) throw error;
      this.report(error, context);
      throw publicError(error, failureOf(error, this.dialect));
    }
  }

  /** Tells the host of an error, in its own words (contract O8). */
  report(error: unknown, context: ErrorContext): void {
    if (error instanceof AdkMikroOrmError) return;
    try {
      // A function that is asynchronous fits, too; what it rejects with must not end the process.
      const told: unknown = this.#onError?.(error, context);
      Promise.resolve(told).catch(() => undefined);
    } catch {
      // The host's log is no part of the call.
    }
  }

  /**
   * Runs statements that need no transaction around them.
   *
   * @param after as for `transaction`.
   */
  async run<T>(work: (sql: Sql) => Promise<T>, after?: unknown): Promise<T> {
    return this.#retried(() => work(sqlOf(this.#fork(), this.dialect)), after);
  }

  /**
   * Runs `work` in a transaction: in one of its own, or in a savepoint of the host's, so that its failure leaves the host's whole.
   *
   * @param after the error that a write of the same call ended with before, which may be stored nonetheless.
   */
  async transaction<T>(work: (sql: Sql) => Promise<T>, after?: unknown): Promise<T> {
    return this.#retried((write) => {
      const em = this.#fork();
      return inTransaction(em, () => work(sqlOf(em, this.dialect)), {
        beforeCommit: () => {
          write.isSent = true;
        },
        rollbackFailed: (failed, first) => {
          // Where the connection is lost the server rolls back by itself.
          if (this.failureOf(first) !== 'lostConnection') this.report(failed, { operation: 'rollback', key: {} });
        },
      });
    }, after);
  }

  /** As `transaction`, for a single statement: on its own it is one already. */
  async statement<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    if (this.#joined) return this.transaction(work);
    return this.#retried((write) => {
      write.isSent = true;
      const em = this.#fork();
      const sql = sqlOf(em, this.dialect);
      return withWrites(em, () => work(sql));
    });
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
    try {
      await sqlOf(this.#fork(), this.dialect).all('select ? as checked', ['']);
    } catch (error) {
      const refusal = this.dialect.settings.refusal(error);
      if (refusal) throw refusal;
    }
  }

  #fork(): SqlEntityManager {
    // Unless told to join it, stay out of a transaction that is around: it may be one of another ORM, on another database.
    return this.#em.fork(this.#joined ? { keepTransactionContext: true } : { disableContextResolution: true });
  }

  async #retried<T>(attempt: (write: { isSent: boolean }) => Promise<T>, after?: unknown): Promise<T> {
    let mayBeStored = isObject(after) && uncertain.has(after);
    let patience = Date.now() + LOCK_TIMEOUT_MS;
    for (let tries = 1; ; tries++) {
      const write = { isSent: false };
      try {
        const opening = prepareConnection(this.#em);
        if (opening) await opening;
        quietPool(this.#em, this.dialect);
        // A host's transaction has SQLite's only connection already; waiting for another one would never end.
        if (!this.#joined) await this.dialect.prepare?.(this.#em, sqlOf(this.#fork(), this.dialect));
        return await attempt(write);
      } catch (error) {
        const refusal = this.dialect.settings.refusal(error);
        if (refusal) throw refusal;
        const failure = this.failureOf(error);
        // knex does not tell why a transaction did not begin; in MariaDB's ORACLE mode none ever does.
        if (!this.#joined && driverMessageOf(error).includes(LOST_TRANSACTION)) await this.checkSettings();
        // In a host's transaction nothing is stored before its commit.
        mayBeStored ||= write.isSent && !this.#joined && isUncertain(failure);
        if (mayBeStored && isObject(error)) uncertain.add(error);
        if (!this.#joined && failure === 'lockTimeout' && mustWaitForLocks(this.#em) && Date.now() < patience) {
          await setTimeout(Math.random() * LOCK_LOOKS_MS);
          tries--;
          continue;
        }
        if (this.#joined || tries >= this.#retry.attempts || !isPassing(failure)) throw error;
      }
      const longest = Math.min(this.#retry.maxDelayMs, this.#retry.baseDelayMs * 2 ** (tries - 1));
      // At random, or transactions that met once meet again.
      await setTimeout(Math.random() * longest);
      patience = Date.now() + LOCK_TIMEOUT_MS;
    }
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function sqlOf(em: SqlEntityManager, dialect: Dialect): Sql {
  const isInTransaction = em.isInTransaction();
  // Once is enough in a transaction, which has one connection; outside, each statement may come to another one.
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
      const literal = dialect.literal ? dialect.literal(value) : value;
      return i === checked ? dialect.settings.around(literal) : literal;
    });
  };
  return {
    isInTransaction,
    all: (text, values = []) => rowsOf(em, text, literals(values)),
    allOfFirst: (text, values = []) => firstRowsOf(em, text, literals(values)),
    allOfSecond: (texts, values = []) => rowsOfSecond(em, texts, literals(values)),
    run: (text, values = []) => changeOf(em, text, literals(values)),
  };
}

/**
 * What a caller is told of a driver's error, without the SQL and the values that its message holds (contract A12); of
 * missing tables with the command that makes them (contract F5).
 */
function publicError(error: unknown, failure: Failure): AdkMikroOrmError {
  if (failure === 'missingTable' || failure === 'missingColumn') {
    return new SchemaError(
      "The tables of adk-mikro-orm are missing or outdated. Run 'npx mikro-orm migration:up' with adkMigrations(…) in your config, or 'await migrate(orm)'.",
    );
  }
  const outcome = isObject(error) && uncertain.has(error) ? 'unknown' : 'none';
  if (failure === 'tooLarge' && outcome === 'none') {
    return new EventTooLargeError();
  }
  const { reason } = FAILURES[failure];
  return new DatabaseError(FAILURES[failure], reason, driverCodeOf(error), outcome);
}
