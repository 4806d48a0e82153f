import {
  ConnectionException,
  DeadlockException,
  DriverException,
  InvalidFieldNameException,
  LockWaitTimeoutException,
  TableNotFoundException,
  type EntityManager,
} from '@mikro-orm/core';
import { setTimeout } from 'node:timers/promises';
import type { Dialect, Sql } from './dialects/dialect.js';
import { resolveDialect } from './dialects/resolve.js';
import {
  AdkMikroOrmError,
  DatabaseError,
  EventTooLargeError,
  SchemaError,
  driverCodeOf,
  driverMessageOf,
} from './errors.js';
import type { RetryOptions } from './options.js';

/** What a MikroORM `EntityManager` of an SQL driver has; named here so that no driver package is imported. */
interface SqlEntityManager extends EntityManager {
  execute<T>(text: string, values: readonly unknown[], method: 'all' | 'run'): Promise<T>;
}

function isSqlEntityManager(em: EntityManager): em is SqlEntityManager {
  return 'execute' in em && typeof em.execute === 'function';
}

/** What knex says, whatever the database, of a statement whose transaction has lost its connection since the one before. */
const LOST_TRANSACTION = 'Transaction query already complete';

/** Statements and transactions on forks of a host's `EntityManager`, with retries (contract E4, E5). */
export class Transactions {
  readonly dialect: Dialect;
  readonly #em: SqlEntityManager;
  readonly #retry: Required<RetryOptions>;
  /** True inside a transaction of the host's: what fails there is the host's to try again. */
  readonly #joined: boolean;

  /** @throws SchemaError when the `EntityManager` is not one of a supported SQL driver. */
  constructor(em: EntityManager, retry: RetryOptions = {}, joined = false) {
    if (!isSqlEntityManager(em))
      throw new SchemaError('The EntityManager has no SQL driver; use SQLite, PostgreSQL, MySQL or MariaDB.');
    this.dialect = resolveDialect(em.getPlatform());
    this.#em = em;
    this.#retry = {
      attempts: retry.attempts ?? 10,
      baseDelayMs: retry.baseDelayMs ?? 10,
      maxDelayMs: retry.maxDelayMs ?? 1_000,
    };
    this.#joined = joined;
  }

  get isJoined(): boolean {
    return this.#joined;
  }

  join(em: EntityManager): Transactions {
    return new Transactions(em, this.#retry, true);
  }

  /** Runs statements that need no transaction around them: reads, and a write that is one statement. */
  async run<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#retried(() => work(sqlOf(this.#fork(), this.dialect)));
  }

  /** Runs `work` in a transaction: in one of its own, or in a savepoint of the host's, so that its failure leaves the host's whole. */
  async transaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#retried(async () => {
      const em = this.#fork();
      const outer: unknown = em.getTransactionContext();
      await em.begin({ ctx: outer });
      try {
        const result = await work(sqlOf(em, this.dialect));
        await em.commit();
        return result;
      } catch (error) {
        // On a lost connection the rollback fails as well; what went wrong first is what the caller has to know.
        await em.rollback().catch(() => undefined);
        throw error;
      }
    });
  }

  /** As `transaction`, for a single statement: on its own it is one already. */
  async statement<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#joined ? this.transaction(work) : this.run(work);
  }

  #fork(): SqlEntityManager {
    // Unless told to join it, stay out of a transaction that is around: it may be one of another ORM, on another database.
    return this.#em.fork(this.#joined ? { keepTransactionContext: true } : { disableContextResolution: true });
  }

  async #retried<T>(attempt: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      try {
        // A host's transaction has SQLite's only connection already; waiting for another one would never end.
        if (!this.#joined) await this.dialect.prepare?.(this.#em, sqlOf(this.#fork(), this.dialect));
        return await attempt();
      } catch (error) {
        if (this.dialect.isTooLarge?.(error)) {
          throw new EventTooLargeError(
            'A value is larger than the database server takes in one packet (max_allowed_packet); nothing was written. Keep large content in an artifact.',
          );
        }
        if (this.#joined || tries >= this.#retry.attempts || !this.#isPassing(error)) throw error;
      }
      const longest = Math.min(this.#retry.maxDelayMs, this.#retry.baseDelayMs * 2 ** (tries - 1));
      // At random, or transactions that met once meet again.
      await setTimeout(Math.random() * longest);
    }
  }

  #isPassing(error: unknown): boolean {
    return (
      error instanceof DeadlockException ||
      error instanceof LockWaitTimeoutException ||
      error instanceof ConnectionException ||
      driverMessageOf(error).includes(LOST_TRANSACTION) ||
      this.dialect.isPassing(error)
    );
  }
}

function sqlOf(em: SqlEntityManager, dialect: Dialect): Sql {
  const exact = (values: readonly unknown[]) =>
    values.map((value) => (typeof value === 'number' ? (dialect.exactNumber?.(value) ?? value) : value));
  return {
    isInTransaction: em.isInTransaction(),
    allOfEach: (text, values = []) => em.execute(text, exact(values), 'all'),
    all: (text, values = []) => em.execute(text, exact(values), 'all'),
    run: (text, values = []) => em.execute(text, exact(values), 'run'),
  };
}

/**
 * What a caller is told of an error: ours as it is, a driver's without the SQL and the values that its message holds
 * (contract A12), missing tables with the command that makes them (contract F5).
 */
function publicError(error: unknown): Error {
  if (error instanceof AdkMikroOrmError) return error;
  if (error instanceof TableNotFoundException || error instanceof InvalidFieldNameException) {
    return new SchemaError(
      "The tables of adk-mikro-orm are missing or outdated. Run 'npx mikro-orm migration:up' with adkMigrations(…) in your config, or 'await migrate(orm)'.",
    );
  }
  if (error instanceof DriverException) return new DatabaseError(error.name, error.code ?? error.errno?.toString());
  // A mistake in the program, the caller's or ours; the database has no part in it.
  if (error instanceof TypeError || error instanceof RangeError) return error;
  return new DatabaseError(error instanceof Error ? error.name : 'Error', driverCodeOf(error));
}

/** Runs a public call's work; what it throws is what the caller may see. */
export async function guarded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw publicError(error);
  }
}
