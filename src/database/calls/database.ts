import type { EntityManager } from '@mikro-orm/core';
import {
  AdkMikroOrmError,
  CodecError,
  DatabaseError,
  EventTooLargeError,
  InvalidArgumentError,
  SchemaError,
  driverCodeOf,
} from '../../model/errors.js';
import { FAILURES, isUncertain, passingOf, spoilsConnection, type Failure } from '../../model/failures.js';
import { TextCodec } from '../../model/codec.js';
import { callHost } from '../../model/host-callbacks.js';
import type { MaybePromise } from '../../model/maybe-promise.js';
import { StoredTexts, TextsAwaited } from '../../model/stored-texts.js';
import type { CommonOptions, ErrorContext } from '../../model/options.js';
import { onAbort, pause } from '../../model/signals.js';
import {
  Aborted,
  Deadline,
  onConnection,
  type AttemptConnection,
  type ConnectionSource,
  type TransactionHooks,
} from './connection.js';
import type { AppendBatch, AppendsTogether, Dialect } from '../dialects/dialect.js';
import { sqlOf, type Sql } from '../sql/sql.js';
import { resolveDialect } from '../dialects/resolve.js';
import { refuseSettings } from '../dialects/settings.js';
import { supportedDialect, type DialectName } from '../../../entities/dialect-name.js';
import { refuseDriver, refuseServer } from './driver-check.js';
import type { Driver } from '../drivers/driver.js';
import { failureOf } from './failure-of.js';
import { refuseDisabled, refuseInside } from './inside-transaction.js';
import { JoinedTransaction, type JoinedConnection } from './joined-transaction.js';
import { ormConnectionOf, refuseOther, type OrmConnection } from '../orm/orm-connection.js';
import { Stores } from '../stores/stores.js';
import { SharedAppends, type SharingAppend } from './shared-appends.js';
import { SharedCommits } from './shared-commits.js';
import { Statements } from '../sql/statements.js';
import { isObject } from '../../model/objects.js';
import { telemetryOf, type ObservedCall, type Telemetry } from '../../telemetry/telemetry.js';

/** Errors of writes that may be stored all the same: the answer to one of the tries was lost (contract O1). */
const uncertain = new WeakSet<object>();

/** What statements begin with, by the ORM's connection; see `clusterPrefix`. */
const prefixes = new WeakMap<object, string>();

/** Those whose settings were checked. */
const checked = new WeakSet<Driver>();

/** The ORMs whose connection is set up, and those for which that is under way. */
const prepared = new WeakSet<object>();
const beingPrepared = new WeakMap<object, Promise<void>>();

/** See `timeoutMs` and `retry.forMs` of the options. */
const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_RETRY_MS = 30_000;

/** The longest delay of a timer. */
const MOST_MS = 2 ** 31 - 1;

/** Of calls without a codec. */
const PLAIN = new StoredTexts(new TextCodec([]));

/** How long a try waits for a lock of SQLite where the driver does not wait; where it does, see `BUSY_TIMEOUT_MS`. */
const LOCK_TIMEOUT_MS = 10_000;

/** The longest pause between two checks whether the lock is free; each is of random length. */
const LOCK_PAUSE_MS = 10;

/** How many tries deadlocks and lock time-outs get where the host's options have no number. */
const ATTEMPTS = 10;

export interface DatabaseOptions extends CommonOptions {
  /** A database, another program's for example, which is read only: its settings stay as they are. */
  isForeign?: boolean;
}

/** What a `Database` is made within. */
interface Within {
  stores?: Stores;
  joins?: boolean;
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
  /** For a short transaction: where it waits for the only connection it shares a commit with others that do. */
  sharesCommit?: boolean;
}

/** What work of a host's threw that is no failure of the database: the caller gets it as it is. */
export class FromWork extends Error {
  constructor(readonly error: unknown) {
    super();
  }
}

/** What is known of an attempt while it runs. */
interface Attempt {
  /** Whether the statement has been sent that makes its writes last. */
  isSent: boolean;
}

/** The database of a host's ORM: statements and transactions on its connections, with retries (contract E4, E5). */
export class Database {
  readonly dialect: Dialect;
  readonly system: DialectName;
  readonly #em: EntityManager;
  readonly #orm: OrmConnection;
  readonly #statements: Statements;
  readonly codec: TextCodec;
  /** Undefined in another program's database until it is asked for. */
  #stores: Stores | undefined;
  readonly #options: DatabaseOptions;
  readonly #retry: { attempts: number | undefined; forMs: number; baseDelayMs: number; maxDelayMs: number };
  /** The transaction of the host's that the calls join; the host retries what fails there. */
  readonly #joined: JoinedTransaction | undefined;
  /** Undefined where the host has not asked for it. */
  readonly telemetry: Telemetry | undefined;

  /**
   * @param within.stores those of the tables, if they are known.
   * @param within.joins whether the calls join the transaction that `em` is in.
   * @throws SchemaError for a database that is not supported, and when the ORM does not list `adkEntities()`.
   * @throws InvalidArgumentError when `telemetry` needs a package that is not installed.
   */
  constructor(em: EntityManager, options: DatabaseOptions = {}, { stores, joins = false }: Within = {}) {
    refuseOther(em);
    this.#em = em;
    this.system = supportedDialect(em.getPlatform());
    this.dialect = resolveDialect(em.getPlatform());
    this.#orm = ormConnectionOf(em);
    this.#statements = new Statements(em);
    this.#options = options;
    this.codec = new TextCodec([options.codec ?? []].flat(), options.maxDecodedBytes);
    const { attempts, forMs = DEFAULT_RETRY_MS, baseDelayMs = 10, maxDelayMs = 1_000 } = options.retry ?? {};
    this.#retry = { attempts, forMs, baseDelayMs, maxDelayMs };
    this.#joined = joins ? new JoinedTransaction(em, this.connections, this.dialect) : undefined;
    // Now, and not in the first call: the `EntityManager` may have another schema by then.
    this.#stores = stores ?? (options.isForeign ? undefined : Stores.of(em, this.dialect));
    this.telemetry = telemetryOf(options.telemetry);
  }

  /** The statements on the tables. */
  get stores(): Stores {
    return (this.#stores ??= Stores.of(this.#em, this.dialect));
  }

  get isJoined(): boolean {
    return this.#joined !== undefined;
  }

  /**
   * The same tables, in the host's transaction that an `EntityManager` is in.
   *
   * @throws InvalidArgumentError when that has other tables, of another schema or ORM.
   */
  join(em: EntityManager): Database {
    refuseOther(em);
    const { stores } = this;
    if (Stores.of(em, this.dialect) !== stores) {
      throw new InvalidArgumentError(
        'The EntityManager that withEntityManager was given has other tables than the service: it is of another MikroORM, or of ' +
          'another schema. Nothing was read or written. Make a service with an EntityManager of that schema, ' +
          "new MikroOrmSessionService(orm.em.fork({ schema: '…' })), and join the transaction with that.",
      );
    }
    return new Database(em, this.#options, { stores, joins: true });
  }

  /** The same tables with other options, whatever has become of the `EntityManager`. */
  with(options: DatabaseOptions): Database {
    return new Database(this.#em, options, { stores: this.stores });
  }

  /** The host's transaction that calls join. */
  get joinedTransaction(): object | undefined {
    return this.#joined?.current;
  }

  /**
   * Runs a public call's work, observed. What it throws is what the caller may see; the driver's error goes to `onError`.
   *
   * @throws InsideTransactionError inside a transaction of the host's that the call does not join.
   * @throws InvalidArgumentError when the transaction that it joins has ended.
   * @throws SchemaError with `disableTransactions` in the config.
   */
  call<T>(context: ErrorContext, work: () => Promise<T>): Promise<T> {
    return this.observe(context, () => this.unobserved(context, work));
  }

  /** Observes what may consist of several calls as one. */
  observe<T>(context: ErrorContext, work: () => Promise<T>): Promise<T> {
    const joined = this.#joined;
    const inTurn = joined ? () => joined.inTurn(work) : work;
    return this.telemetry ? this.telemetry.observe(this.system, context, inTurn) : inTurn();
  }

  /** The call that is under way here, where calls are observed. */
  get observed(): ObservedCall | undefined {
    return this.telemetry?.current;
  }

  /** Does as `call` for what only waits for others' work. */
  async unobserved<T>(context: ErrorContext, work: () => Promise<T>): Promise<T> {
    refuseDisabled(this.#em);
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

  /** @throws InsideTransactionError, InvalidArgumentError as `call`. */
  refuseTransaction(): void {
    if (this.#joined) this.#joined.refuseEnded();
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
   * Runs work that begins a transaction of the host's ORM itself, and again after a failure that may pass. It has to find out
   * whether the transaction before was committed: the answer may have been lost.
   */
  async retried<T>(work: () => Promise<T>, options?: AttemptOptions): Promise<T> {
    return this.#retried(() => work(), options);
  }

  /** Runs work of a host's in the transaction that is joined, see `JoinedTransaction.whole`. */
  async whole<T>(work: () => Promise<T>): Promise<T> {
    return this.#joined ? this.#joined.whole(work) : work();
  }

  /** Whether an error is one of this database's that may pass. What another server gives may have the same code. */
  isPassing(error: unknown): boolean {
    return this.#statements.hasThrown(error) && this.#passing(this.failureOf(error)) !== undefined;
  }

  /** Runs statements that need no transaction around them, on one connection. */
  async run<T>(work: (sql: Sql) => Promise<T>, options?: AttemptOptions): Promise<T> {
    const texts = this.#texts();
    return this.#retried((_, signal) => this.#once(work, texts, signal), options);
  }

  /** Runs `work` in a transaction: in one of its own, or in a savepoint of the host's, so that its failure leaves the host's whole. */
  async transaction<T>(work: (sql: Sql) => Promise<T>, options?: AttemptOptions): Promise<T> {
    const texts = this.#texts();
    const run = (driver: Driver) => work(this.#sql(driver, true, texts));
    return this.#retried((attempt, signal) => {
      if (this.#joined)
        return this.#joined.savepoint(
          (connection) => this.#inJoined(connection, texts, work),
          (failed) => this.report(failed, { operation: 'rollback', key: {} }),
        );
      const hooks: TransactionHooks = {
        beforeCommit: () => {
          attempt.isSent = true;
        },
        rollbackFailed: (failed) => this.report(failed, { operation: 'rollback', key: {} }),
      };
      if (options?.sharesCommit && this.dialect.connections.defaultPoolMax === 1)
        return SharedCommits.of(this.#orm).run(run, hooks, this.#failsAll, (lead) =>
          this.#onConnection(this.#deadline(signal), lead),
        );
      const setting = options?.locksRowsOnly ? this.dialect.sql.lockRowsOnly : undefined;
      return this.#onConnection(this.#deadline(signal), (connection, prefix) =>
        connection.transaction(() => run(connection.driver), hooks, { setting, prefix }),
      );
    }, options);
  }

  /**
   * Reads rows as of one moment, without locks, so that nobody waits for it where there are several connections. It may take
   * longer than one attempt: each of its statements has that time.
   *
   * @param work only reads, outside of a host's transaction. It is done again from its beginning.
   */
  async snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    const texts = this.#texts();
    return this.#retried((_, signal) =>
      this.#onConnection(this.#deadline(signal), (connection, prefix) => {
        const sql = this.#sql(connection.driver, true, texts);
        const all: Sql['all'] = async (text, values) => {
          connection.restartDeadline();
          return sql.all(text, values);
        };
        return connection.transaction(() => work({ ...sql, all }), {}, { ...this.dialect.sql.snapshot, prefix });
      }),
    );
  }

  /** Runs a single statement as `transaction` does; on its own it is a transaction already. */
  async statement<T>(work: (sql: Sql) => Promise<T>, options?: AttemptOptions): Promise<T> {
    if (this.#joined) return this.transaction(work);
    const send = (attempt: Attempt) => (sql: Sql) => {
      attempt.isSent = true;
      return work(sql);
    };
    const texts = this.#texts();
    return this.#retried((attempt, signal) => this.#once(send(attempt), texts, signal), options);
  }

  /**
   * Writes an append that is a single statement, as `encodedBatch` gives it; with others that wait for a connection where that is possible. What the first
   * try has not written together with them is written alone.
   */
  async append(batch: AppendBatch, options: AttemptOptions): Promise<number | undefined> {
    const { events } = this.stores;
    const write = (sql: Sql) => events.append(sql, batch);
    const together = this.#joined ? undefined : events.togetherWith(batch);
    if (!together) return this.statement(write, options);
    let isFirst = true;
    return this.#retried(async (attempt, signal) => {
      const sent = () => {
        attempt.isSent = true;
      };
      const alone = (sql: Sql) => {
        sent();
        return write(sql);
      };
      if (isFirst) {
        isFirst = false;
        const written = await this.#share({ batch, alone, sent }, together, signal);
        if (written) return written.lastSeq;
        attempt.isSent = false;
      }
      return this.#once(alone, PLAIN, signal);
    }, options);
  }

  async #share(append: SharingAppend, together: AppendsTogether, signal: AbortSignal | undefined) {
    const deadline = this.#deadline(signal);
    const isRefused = (error: unknown) => !isOwn(error) && !this.#failsAll(error);
    try {
      return await SharedAppends.of(this.#orm, together).write(append, deadline, isRefused, (work) =>
        this.#onConnection(deadline, (connection, prefix) => work(this.#sql(connection.driver, false, PLAIN, prefix))),
      );
    } finally {
      deadline.clear();
    }
  }

  /** Whether the state of the database or of the connection has caused an error, so that every other write would fail as well. */
  readonly #failsAll = (error: unknown): boolean => {
    const failure = this.failureOf(error);
    return this.#passing(failure) !== undefined || isUncertain(failure);
  };

  /** Decodes and encodes what needs no statement, at once where the codec need not be waited for. @throws CodecError. */
  code<T>(work: (texts: StoredTexts) => T, texts = this.#texts()): MaybePromise<T> {
    try {
      return texts.all(() => work(texts));
    } catch (error) {
      if (!(error instanceof TextsAwaited)) throw error;
      return this.#within(error.ready).then(() => this.code(work, texts));
    }
  }

  /** @returns what decodes and encodes in one call, which may have several attempts. */
  #texts(): StoredTexts {
    return this.codec.isNone ? PLAIN : new StoredTexts(this.codec);
  }

  /** Waits for a codec as long as an attempt may take (contract O3). @throws CodecError, Aborted. */
  async #within(ready: Promise<unknown>, signal?: AbortSignal): Promise<void> {
    const timeoutMs = this.#options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    let end = () => {};
    const late = new Promise<never>((_, reject) => {
      const isLate = () => reject(new CodecError(`A codec did not answer within ${timeoutMs} ms.`));
      const timer = setTimeout(isLate, timeoutMs === 0 ? MOST_MS : timeoutMs);
      const stop = onAbort(signal, () => reject(new Aborted()));
      end = () => {
        clearTimeout(timer);
        stop();
      };
    });
    try {
      await Promise.race([ready, late]);
    } finally {
      end();
    }
  }

  async #once<T>(work: (sql: Sql) => Promise<T>, texts = PLAIN, signal?: AbortSignal): Promise<T> {
    if (this.#joined) return this.#joined.run((connection) => this.#inJoined(connection, texts, work));
    return this.#onConnection(this.#deadline(signal), (connection, prefix) =>
      work(this.#sql(connection.driver, false, texts, prefix)),
    );
  }

  #deadline(signal: AbortSignal | undefined): Deadline {
    return new Deadline({ timeoutMs: this.#options.timeoutMs ?? DEFAULT_TIMEOUT_MS, signal });
  }

  #onConnection<T>(
    deadline: Deadline,
    work: (connection: AttemptConnection, prefix: string) => Promise<T>,
  ): Promise<T> {
    const waited = this.observed?.waiting('connection');
    return onConnection(
      this.connections,
      deadline,
      (error) => !isOwn(error) && spoilsConnection(this.failureOf(error)),
      async (connection) => {
        waited?.();
        const { driver } = connection;
        const prefix = prefixes.get(this.#orm) ?? (await this.#prefix(driver));
        if (!checked.has(driver)) await this.#checkSettings(driver, false);
        return work(connection, prefix);
      },
    );
  }

  /** What statements begin with; the first call checks the driver and the server. Within the time of an attempt, since the server may be silent. */
  async #prefix(driver: Driver): Promise<string> {
    refuseDriver(driver);
    const sql = this.#sql(driver, false);
    if (!this.#options.isForeign) await refuseServer(sql, this.dialect);
    const prefix = (await this.dialect.connections.clusterPrefix?.(sql)) ?? '';
    prefixes.set(this.#orm, prefix);
    return prefix;
  }

  /** @throws SchemaError when a setting of the next connection is refused; nothing when it cannot be checked. */
  async refuseSettings(): Promise<void> {
    await this.#once(() => Promise.resolve()).catch((error: unknown) => {
      if (error instanceof SchemaError) throw error;
    });
  }

  /** Once for each connection: what a host sets on it later is its own affair. @throws SchemaError. */
  async #checkSettings(driver: Driver, isInTransaction: boolean): Promise<void> {
    const sql = this.#sql(driver, isInTransaction);
    await refuseSettings(this.dialect.connections.settings, (text) => sql.all(text));
    checked.add(driver);
  }

  #sql(driver: Driver, isInTransaction: boolean, texts = PLAIN, prefix = '', refuse?: () => void): Sql {
    const { postgresql, isForeign = false } = this.#options;
    const { isInProcess } = this.#orm;
    return sqlOf(this.#statements, driver, {
      texts,
      isInTransaction,
      isInProcess,
      mayPrepare: postgresql?.preparedStatements ?? true,
      isForeign,
      prefix,
      refuse,
    });
  }

  async #inJoined<T>(
    { driver, refuseEnded }: JoinedConnection,
    texts: StoredTexts,
    work: (sql: Sql) => Promise<T>,
  ): Promise<T> {
    if (!checked.has(driver)) await this.#checkSettings(driver, true);
    return work(this.#sql(driver, true, texts, '', refuseEnded));
  }

  /** What attempts run on. */
  get connections(): ConnectionSource {
    return { orm: this.#orm, statements: this.#statements };
  }

  failureOf(error: unknown): Failure {
    return failureOf(error, this.dialect);
  }

  async #retried<T>(
    work: (attempt: Attempt, signal: AbortSignal | undefined) => Promise<T>,
    { outcome = {}, retries = () => true, signal }: AttemptOptions = {},
  ): Promise<T> {
    let outageBegan: number | undefined;
    let conflicts = 0;
    let lockBegan: number | undefined;
    for (let tries = 1; ; tries++) {
      const attempt = { isSent: false };
      const waited = this.observed?.waiting('lock');
      try {
        const preparing = this.#prepare();
        if (preparing) await preparing;
        return await work(attempt, signal);
      } catch (error) {
        if (error instanceof TextsAwaited) {
          await this.#within(error.ready, signal);
          tries--;
          continue;
        }
        if (isOwn(error)) throw error;
        const failure = this.failureOf(error);
        if (failure === 'lockTimeout' && !this.#joined) {
          // A driver that waited for a lock of SQLite would stop the process, so the attempt is made again until the lock is free.
          lockBegan ??= performance.now();
          if (this.#orm.mustWaitForLocks && performance.now() - lockBegan < LOCK_TIMEOUT_MS) {
            await pause(Math.random() * LOCK_PAUSE_MS);
            waited?.();
            tries--;
            continue;
          }
          waited?.();
        }
        lockBegan = undefined;
        // In a host's transaction nothing is stored before its commit.
        if (attempt.isSent && !this.#joined && isUncertain(failure)) outcome.lostAnswer ??= error;
        if (outcome.lostAnswer !== undefined && isObject(error)) uncertain.add(error);
        const passing = this.#passing(failure);
        if (passing === 'outage') outageBegan ??= performance.now();
        else {
          outageBegan = undefined;
          conflicts++;
        }
        const isRetried =
          !this.#joined && passing !== undefined && retries(failure) && !this.#isGivenUp(tries, conflicts, outageBegan);
        const isConflict = passing === 'conflict';
        this.telemetry?.failed(this.system, this.observed, failure, { isConflict, isRetried });
        if (!isRetried) throw error;
      }
      const longest = Math.min(this.#retry.maxDelayMs, this.#retry.baseDelayMs * 2 ** (tries - 1));
      // The pause is random, or transactions that met once meet again.
      await pause(Math.random() * longest, signal);
      if (signal?.aborted) throw new Aborted();
    }
  }

  /**
   * Opens the ORM's connection and sets it up, each once.
   *
   * @returns undefined where there is nothing to wait for.
   */
  #prepare(): Promise<void> | undefined {
    const opening = this.#orm.open();
    if (opening) return opening.then(() => this.#prepare());
    this.#orm.quiet();
    const { connections } = this.dialect;
    // A host's transaction has SQLite's only connection already; waiting for another one would never end.
    if (!connections.prepare || this.#joined || this.#options.isForeign || prepared.has(this.#orm)) return undefined;
    let preparing = beingPrepared.get(this.#orm);
    if (!preparing) {
      preparing = this.#onConnection(this.#deadline(undefined), async (connection) =>
        connections.prepare?.(this.#em, this.#sql(connection.driver, false)),
      )
        .then(() => void prepared.add(this.#orm))
        .finally(() => beingPrepared.delete(this.#orm));
      beingPrepared.set(this.#orm, preparing);
    }
    return preparing;
  }

  /** A node that has lost its cluster refuses to wait for it by the error of a lock time-out, and at once. */
  #passing(failure: Failure): ReturnType<typeof passingOf> {
    return failure === 'lockTimeout' && prefixes.get(this.#orm) ? 'outage' : passingOf(failure);
  }

  /** @param outageBegan when the present outage was noticed; undefined for what others' transactions cause. */
  #isGivenUp(tries: number, conflicts: number, outageBegan: number | undefined): boolean {
    const { attempts, forMs } = this.#retry;
    if (attempts !== undefined && tries >= attempts) return true;
    // Attempts spent on an outage do not count as conflicts.
    return outageBegan === undefined ? conflicts >= (attempts ?? ATTEMPTS) : performance.now() - outageBegan >= forMs;
  }
}

/** A mistake in the program, the caller's or ours, or an answer of ours; the database has no part in it. */
function isOwn(error: unknown): error is Error {
  return (
    error instanceof Aborted ||
    error instanceof FromWork ||
    error instanceof TextsAwaited ||
    error instanceof AdkMikroOrmError ||
    error instanceof TypeError ||
    error instanceof RangeError
  );
}

/**
 * The error that a caller gets for a driver's error, without the SQL and the values that its message holds (contract A12); of
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
