import { clearTimeout, setTimeout } from '../../model/clock.js';
import { onAbort } from '../../model/signals.js';
import { beginningWith } from '../orm/host-transaction.js';
import type { Sql } from '../dialects/dialect.js';
import type { Driver } from '../drivers/driver.js';
import type { ReservedConnection } from '../orm/reserved-connection.js';
import { COMMAND, command, rolledBack, type StatementBuffer, type SqlContext, type Statements } from './sql.js';

/** How long an attempt may still take after its signal has fired: if the connection answers in time, the pool can keep it. */
const GRACE_MS = 1_000;

/** An attempt took longer than `timeoutMs`. */
export class TimedOut extends Error {
  /** @param hadConnection false if the pool gave no connection in time. */
  constructor(readonly hadConnection: boolean) {
    super('The attempt took longer than timeoutMs');
  }
}

/** The caller does not want the result any more. */
export class Aborted extends Error {
  constructor() {
    super('The attempt was aborted');
  }
}

export type SentWith = Partial<Pick<SqlContext, 'isInTransaction' | 'prefix' | 'refuse' | 'behind'>>;

/** What an attempt needs to know about its ORM. */
interface ConnectionSource {
  readonly statements: Statements;
  /** Whether the connection must not be used again after this error. */
  spoils(error: unknown): boolean;
  buffer(driver: Driver, sentWith: SentWith, beginning?: readonly string[]): StatementBuffer;
  /** Whether each transaction begins with settings of the host. */
  readonly hasSettings: boolean;
  /** Called with the error of a rollback. */
  rollbackFailed(error: unknown): void;
}

/** How a transaction begins and ends. */
interface TransactionFrame {
  /** Sent before the `begin`. */
  setting?: string | undefined;
  begin?: string | undefined;
  /**
   * Called just before the commit is sent, alone or with others. Until then a lost connection makes the server roll back; afterwards
   * the writes may be stored.
   */
  beforeCommit?: () => void;
}

export class AttemptConnection {
  readonly driver: Driver;
  /** See `DialectConnections.cluster`. */
  prefix = '';
  readonly #source: ConnectionSource;
  readonly #reserved: ReservedConnection;
  readonly #deadline: Deadline;
  #isSpoilt = false;

  constructor(source: ConnectionSource, reserved: ReservedConnection, deadline: Deadline) {
    this.driver = reserved.driver;
    this.#source = source;
    this.#reserved = reserved;
    this.#deadline = deadline;
  }

  /** For `em.setTransactionContext`: the statements of `em` run on this connection. */
  get context(): object {
    return this.#reserved.context();
  }

  /**
   * Runs work that begins a transaction of MikroORM, on this connection.
   *
   * @throws what the work throws. If the transaction may still be open, it is rolled back, or the connection is closed.
   */
  async ofHost<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await beginningWith(this.#reserved.forTransaction, work);
    } catch (error) {
      // After a rollback that fails, MikroORM 6 says that it succeeded.
      if (this.driver.isInTransaction !== false || this.driver.hasFailed) await this.#rollback(error);
      throw error;
    }
  }

  /** Restarts the attempt's time limit: for long work whose statements are each answered in time. */
  restartDeadline(): void {
    this.#deadline.restart();
  }

  /** Runs statements that need no transaction around them. */
  run<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    // What only reads still takes no locks.
    if (this.#source.hasSettings) return this.transaction((sql) => work({ ...sql, isInTransaction: false }));
    return this.#source.buffer(this.driver, { prefix: this.prefix }).run(work);
  }

  /**
   * Runs `work` in a transaction, which begins with its first statement. A transaction without statements sends nothing.
   *
   * @throws the first error, even if the rollback fails, too.
   */
  async transaction<T>(
    work: (sql: Sql, buffer: StatementBuffer) => Promise<T>,
    { setting, begin = 'begin', beforeCommit }: TransactionFrame = {},
  ): Promise<T> {
    const { prefix } = this;
    const beginning = setting === undefined ? [begin] : [setting, begin];
    const buffer = this.#source.buffer(this.driver, { isInTransaction: true, prefix }, beginning);
    try {
      const result = await work(buffer.sql, buffer);
      if (!buffer.isUsed) return result;
      if (buffer.hasBegun && this.driver.isInTransaction === false) throw rolledBack();
      buffer.later('commit', [], beforeCommit);
      await buffer.flush();
      return result;
    } catch (error) {
      // The connection is destroyed, so the server rolls back.
      if (!this.#willBeDestroyed(error) && (await buffer.discard())) await this.#rollback(error);
      throw error;
    }
  }

  async #rollback(reason: unknown): Promise<void> {
    // Otherwise it might never be answered.
    if (this.#willBeDestroyed(reason)) return;
    try {
      await this.#source.statements.send(this.driver, command('rollback'), COMMAND);
    } catch (error) {
      this.spoil();
      this.#source.rollbackFailed(error);
    }
  }

  #willBeDestroyed(error: unknown): boolean {
    return this.#reserved.destroy !== undefined && this.#source.spoils(error);
  }

  /** The connection will be closed at the end, instead of going back to the pool. */
  spoil(): void {
    this.#isSpoilt = true;
  }

  /** @returns undefined if there is nothing to wait for. */
  end(): Promise<void> | undefined {
    const reserved = this.#reserved;
    if (this.#isSpoilt && reserved.destroy) return reserved.destroy();
    reserved.release();
    return undefined;
  }
}

/** The end of an attempt's time. */
export class Deadline {
  readonly #limit: number;
  #timer: NodeJS.Timeout | undefined;
  readonly #stop: (() => void) | undefined;
  #grace: NodeJS.Timeout | undefined;
  #over: Error | undefined;
  /** Ends the current wait. */
  #end: ((error: Error) => void) | undefined;
  /** Whether the pool has given a connection. */
  hasConnection = false;

  /**
   * @param limit in ms, including the wait for a connection; 0 for none (contract O3).
   * @param signal gives the attempt a second to end.
   */
  constructor({ timeoutMs }: { timeoutMs: number }, signal?: AbortSignal) {
    this.#limit = timeoutMs;
    this.#stop =
      signal &&
      onAbort(signal, () => {
        this.#grace = setTimeout(() => this.#isOver(new Aborted()), GRACE_MS);
      });
  }

  #isOver(error: Error): void {
    this.#over = error;
    this.#end?.(error);
  }

  /**
   * Waits for a connection, or for the work on it.
   *
   * @param late is called with a result that comes after the deadline.
   * @throws TimedOut, Aborted at the deadline.
   */
  within<T>(work: Promise<T>, late?: (result: T) => void): Promise<T> {
    // An attempt that never waits needs no timer.
    if (this.#limit > 0) this.#timer ??= setTimeout(() => this.#isOver(new TimedOut(this.hasConnection)), this.#limit);
    return new Promise<T>((resolve, reject) => {
      this.#end = reject;
      if (this.#over) reject(this.#over);
      work.then((result) => (this.#over ? late?.(result) : resolve(result)), reject);
    });
  }

  /** Restarts the time. It does nothing after the deadline, when nobody waits any more. */
  restart(): void {
    if (!this.#over) this.#timer?.refresh();
  }

  clear(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#grace);
    this.#stop?.();
  }
}
