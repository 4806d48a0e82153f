import { TransactionContext, type EntityManager } from '@mikro-orm/core';
import { AdkMikroOrmError, CodecError, InsideTransactionError, InvalidArgumentError } from '../../model/errors.js';
import type { Failure } from '../../model/failures.js';
import { withoutUndefined } from '../../model/json.js';
import { PLAIN, StoredTexts, TextCodec } from '../../model/stored-texts.js';
import { callHost } from '../../model/host-callbacks.js';
import type { ErrorContext } from '../../model/options.js';
import { inTime } from '../../model/signals.js';
import { Deadline, type AttemptConnection } from './connection.js';
import { Connections, type DatabaseOptions } from './connections.js';
import type { Dialect, SqlRunner, Sql } from '../dialects/dialect.js';
import type { DialectName } from '../../../entities/dialect-name.js';
import { JoinedTransaction, transactionsAreDisabled } from './joined-transaction.js';
import { isOpen } from '../orm/host-transaction.js';
import { refuseOther } from '../orm/orm-connection.js';
import { NO_TABLES, tablesOf, type Tables } from '../sql/tables.js';
import { FromWork, isOwn, publicError } from './public-error.js';
import { Tries, type Attempt, type AttemptOptions } from './retry.js';
import { telemetryOf, type ObservedCall, type Telemetry } from '../../telemetry/telemetry.js';

interface DatabaseScope {
  tables?: Tables;
  joins?: boolean;
}

export interface TransactionOptions extends AttemptOptions {
  /** For a transaction that deletes: it does not lock the gaps between its rows, where others write. */
  locksRowsOnly?: boolean;
}

/** The database of a host's ORM: runs statements and transactions on its connections, with retries (contract E4, E5). */
export class Database {
  readonly connections: Connections;
  readonly #em: EntityManager;
  readonly codec: TextCodec;
  readonly tables: Tables;
  readonly #options: DatabaseOptions;
  readonly retry: DatabaseOptions['retry'];
  /** The host's transaction that the calls join. */
  readonly joined: JoinedTransaction | undefined;
  readonly isJoined: boolean;
  /** Undefined if the host has not asked for it. */
  readonly telemetry: Telemetry | undefined;

  /**
   * @param scope.tables if they are known.
   * @param scope.joins whether the calls join the transaction that `em` is in.
   * @throws SchemaError if the database is not supported, or the ORM does not list `adkEntities()`.
   * @throws InvalidArgumentError if `telemetry` needs a package that is not installed.
   */
  constructor(em: EntityManager, options: DatabaseOptions = {}, { tables, joins = false }: DatabaseScope = {}) {
    refuseOther(em);
    this.#em = em;
    // Read here: at the first call the `EntityManager` may have another schema.
    this.tables = tables ?? (options.isForeign ? NO_TABLES : tablesOf(em));
    this.connections = new Connections(em, options, this.tables, (error) =>
      this.report(error, { operation: 'rollback', key: {} }),
    );
    this.#options = options;
    this.codec = new TextCodec([options.codec ?? []].flat(), options.maxDecodedBytes);
    this.isJoined = joins;
    this.joined = joins ? new JoinedTransaction(em, this.connections) : undefined;
    this.telemetry = telemetryOf(options.telemetry);
    this.retry = options.retry;
  }

  get dialect(): Dialect {
    return this.connections.dialect;
  }

  get system(): DialectName {
    return this.connections.system;
  }

  /**
   * A database of these tables whose calls join the host's transaction that an `EntityManager` is in.
   *
   * @throws InvalidArgumentError if it has other tables, of another schema or ORM.
   */
  join(em: EntityManager): Database {
    refuseOther(em);
    const { tables } = this;
    if (tablesOf(em) !== tables) {
      throw new InvalidArgumentError(
        'The EntityManager that withEntityManager was given has other tables than the service: it is of another MikroORM, or of ' +
          'another schema. Nothing was read or written. Make the service with an EntityManager of that schema, ' +
          "orm.em.fork({ schema: '…' }), and join the transaction with that service.",
      );
    }
    return new Database(em, this.#options, { tables, joins: true });
  }

  /** A database of these tables with other options and the same `settings`, even if the schema of the `EntityManager` has changed. */
  with(options: DatabaseOptions): Database {
    const { postgresql } = this.#options;
    return new Database(this.#em, { ...withoutUndefined({ postgresql }), ...options }, { tables: this.tables });
  }

  /**
   * Runs the work of a public call, with telemetry. Errors become those that the caller may see; the driver's error goes to
   * `onError`.
   *
   * @throws InsideTransactionError inside a host's transaction that the call does not join.
   * @throws InvalidArgumentError if the transaction that it joins has ended.
   * @throws SchemaError with `disableTransactions` in the config.
   */
  call<T>(context: ErrorContext, work: () => Promise<T>): Promise<T> {
    if (!this.telemetry && !this.joined) return this.unobserved(context, work);
    return this.observe(context, () => this.unobserved(context, work));
  }

  /** For commands that read what no public method returns. */
  reader(operation: string): SqlRunner {
    return (work) => this.call({ operation, key: {} }, () => this.run(work));
  }

  /** Makes one span of several calls. */
  observe<T>(context: ErrorContext, work: () => Promise<T>): Promise<T> {
    const joined = this.joined;
    const inTurn = joined ? () => joined.inTurn(work) : work;
    return this.telemetry ? this.telemetry.observe(this.system, context, inTurn) : inTurn();
  }

  /** The call that is under way, if there is telemetry. */
  get observed(): ObservedCall | undefined {
    return this.telemetry?.current;
  }

  /** Like `call`, but without a span: for work that only waits for another call. */
  async unobserved<T>(context: ErrorContext, work: () => Promise<T>): Promise<T> {
    this.refuseTransaction();
    try {
      return await work();
    } catch (error) {
      if (error instanceof CodecError && error.reason !== undefined) this.report(error.reason, context);
      if (isOwn(error)) throw error;
      this.report(error, context);
      throw this.errorOf(error);
    }
  }

  /** @throws InsideTransactionError, InvalidArgumentError, SchemaError like `call`. */
  refuseTransaction(): void {
    if (this.#em.config.get('disableTransactions')) throw transactionsAreDisabled();
    if (this.joined) this.joined.refuseEnded();
    else refuseInside(this.#em);
  }

  /** The error that a caller gets for a driver's error. */
  errorOf(error: unknown): AdkMikroOrmError {
    return publicError(error, this.failureOf(error));
  }

  /** Reports an error to the host, in the driver's own words (contract O8). */
  report(error: unknown, context: ErrorContext): void {
    if (error instanceof AdkMikroOrmError) return;
    callHost(this.#options.onError, error, context);
  }

  /**
   * Runs work in a transaction of MikroORM, and retries it after a failure that may pass. The work must find out whether the
   * earlier transaction was committed, since the answer may have been lost. It may take any time. The transaction is on the
   * connection of an attempt, since MikroORM 7 loses a place in the pool with each connection that is lost in a transaction of its
   * own on PostgreSQL.
   */
  async transactional<Em extends EntityManager, T>(
    em: Em,
    work: (tx: Em) => Promise<T>,
    options?: AttemptOptions,
  ): Promise<T> {
    // Not the `EntityManager` of a `RequestContext`, which may have other tables.
    const begun = () => em.fork({ disableContextResolution: true });
    const { connections } = this;
    return this.tried((attempt) => {
      const deadline = new Deadline(connections);
      return connections.use(deadline, (connection) =>
        connection.ofHost(() =>
          begun().transactional(async (tx) => {
            deadline.clear();
            await connections.set(connection.driver);
            const result = await work(tx);
            attempt.isSent = true;
            return result;
          }),
        ),
      );
    }, options);
  }

  /**
   * Runs the host's work in the transaction of `transactional` that this database joins: see `JoinedTransaction.runHostWork`.
   *
   * @throws FromWork if the work fails for good. A failure of the database that may pass is retried with the whole transaction.
   */
  async runHostWork<T>(tx: EntityManager, work: () => Promise<T>): Promise<T> {
    const flushed = async () => {
      try {
        const result = await work();
        // Otherwise MikroORM flushes at the commit, and a failure of the host's flush would look like ours.
        await tx.flush();
        return result;
      } catch (error) {
        throw this.connections.isPassing(error) ? error : new FromWork(error);
      }
    };
    return this.joined ? this.joined.runHostWork(flushed) : flushed();
  }

  /** Runs statements that need no transaction around them, on one connection. */
  async run<T>(work: (sql: Sql) => Promise<T>, options?: AttemptOptions): Promise<T> {
    const coded = this.#coded(work);
    return this.tried((_, signal) => this.#once(coded, signal), options);
  }

  /** Runs `work` in its own transaction, or in a savepoint of the host's transaction, which a failure does not end. */
  async transaction<T>(work: (sql: Sql) => Promise<T>, options?: TransactionOptions): Promise<T> {
    const { joined } = this;
    const coded = this.#coded(work);
    if (joined) return this.tried(() => joined.savepoint(coded), options);
    const setting = options?.locksRowsOnly ? this.dialect.sql.lockRowsOnly : undefined;
    return this.tried((attempt, signal) => {
      const beforeCommit = () => {
        attempt.isSent = true;
      };
      return this.#onConnection(signal, (connection) => connection.transaction(coded, { setting, beforeCommit }));
    }, options);
  }

  /**
   * Reads rows as of one moment, without locks, so that with several connections nobody waits for it. It may take longer than one
   * attempt: the time limit is for each statement.
   *
   * @param work only reads, outside a host's transaction. A retry runs it from the beginning.
   */
  async snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    const coded = this.#coded(work);
    return this.tried((_, signal) =>
      this.#onConnection(signal, (connection) => {
        const read = (sql: Sql) => {
          const all: Sql['all'] = async (text, values) => {
            connection.restartDeadline();
            return sql.all(text, values);
          };
          return coded({ ...sql, all });
        };
        return connection.transaction(read, this.dialect.sql.snapshot);
      }),
    );
  }

  /** Like `transaction`, for a single statement, which is a transaction by itself. */
  async statement<T>(work: (sql: Sql) => Promise<T>, options?: AttemptOptions): Promise<T> {
    if (this.joined) return this.transaction(work);
    const coded = this.#coded(work);
    const send = (attempt: Attempt) => (sql: Sql) => {
      attempt.isSent = true;
      return coded(sql);
    };
    return this.tried((attempt, signal) => this.#once(send(attempt), signal), options);
  }

  /** Decodes or encodes texts outside of a transaction, and waits for keys. @throws CodecError. */
  code<T>(work: (texts: StoredTexts) => T): Promise<T> {
    if (this.codec.isNone) return Promise.resolve(PLAIN).then(work);
    const texts = new StoredTexts(this.codec);
    return this.tried(() => Promise.resolve(texts).then(work));
  }

  /**
   * Waits for what the host's function promised, as long as an attempt may take (contract O3).
   *
   * @param late gives the error for a function that took longer.
   */
  within<T>(ready: Promise<T>, late: (ms: number) => Error): Promise<T> {
    return inTime(ready, this.connections.timeoutMs, late);
  }

  /** Gives all attempts the same texts, so that they find the keys for which an earlier one has waited. */
  #coded<T>(work: (sql: Sql) => Promise<T>): (sql: Sql) => Promise<T> {
    if (this.codec.isNone) return work;
    const texts = new StoredTexts(this.codec);
    return (sql) => work({ ...sql, texts });
  }

  async #once<T>(work: (sql: Sql) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    if (this.joined) return this.joined.run(work);
    return this.#onConnection(signal, (connection) => connection.run(work));
  }

  #onConnection<T>(signal: AbortSignal | undefined, work: (connection: AttemptConnection) => Promise<T>): Promise<T> {
    const waited = this.observed?.waiting('connection');
    return this.connections.use(new Deadline(this.connections, signal), (connection) => {
      waited?.();
      return work(connection);
    });
  }

  failureOf(error: unknown): Failure {
    return this.connections.failureOf(error);
  }

  /** Runs attempts until one succeeds or fails for good. */
  async tried<T>(
    work: (attempt: Attempt, signal: AbortSignal | undefined) => Promise<T>,
    options: AttemptOptions = {},
  ): Promise<T> {
    let tries: Tries | undefined;
    for (;;) {
      const attempt = { isSent: false, waited: this.observed?.waiting('lock') };
      try {
        const preparing = this.connections.prepare(this.isJoined);
        if (preparing) await preparing;
        return await work(attempt, options.signal);
      } catch (error) {
        tries ??= new Tries(this, options);
        await tries.failed(error, attempt);
      }
    }
  }
}

/**
 * Refuses a call that does not join the transaction around it. Its writes would stay if that transaction is rolled back, and it
 * could wait for a lock, or the only connection, that the transaction keeps until the call ends.
 *
 * @throws InsideTransactionError inside `em.transactional` of the same ORM, and after `em.begin()` on this `EntityManager` or on
 *   that of the request. A transaction of another ORM does not matter.
 */
export function refuseInside(em: EntityManager): void {
  const around = TransactionContext.currentTransactionContext()?.em;
  const isOurs = around?.getConnection() === em.getConnection();
  // If another ORM of the same name has a transaction here, MikroORM confuses the two, and nothing can be found out.
  const asked = isOurs ? around : around?.name === em.name ? undefined : em;
  const transaction = asked?.getTransactionContext<object>();
  // Work that was begun inside `em.transactional` and not awaited still has its context after it has ended.
  if (transaction && isOpen(transaction)) throw new InsideTransactionError();
}
