import { clearTimeout, setTimeout } from '../../model/clock.js';
import { DatabaseError } from '../../model/errors.js';
import { FAILURES } from '../../model/failures.js';
import { onAbort } from '../../model/signals.js';
import { beginningWith } from '../orm/host-transaction.js';
import type { Sql } from '../dialects/dialect.js';
import type { Driver, DriverResult, StatementContext } from '../drivers/driver.js';
import type { ReservedConnection } from '../orm/reserved-connection.js';
import type { Pipeline, SqlContext, Statements } from './sql.js';

/** How long an attempt may still take after its signal has fired: if the connection answers in time, the pool can keep it. */
const GRACE_MS = 1_000;

/** What ends an attempt early. */
interface AttemptLimits {
  /** In ms, including the wait for a connection; 0 for no limit (contract O3). */
  timeoutMs: number;
  /** Gives the attempt a second to end. */
  signal?: AbortSignal | undefined;
}

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

/** How statements are sent. */
export type SentWith = Partial<Pick<SqlContext, 'isInTransaction' | 'prefix' | 'refuse' | 'behind'>>;

/** What an attempt needs to know about its ORM. */
interface ConnectionSource {
  readonly statements: Statements;
  /** Whether the connection must not be used again after this error. */
  spoils(error: unknown): boolean;
  pipeline(driver: Driver, sentWith: SentWith, beginning?: readonly string[]): Pipeline;
}

export interface TransactionHooks {
  /** Called just before the commit is sent, alone or with others. Until then a lost connection makes the server roll back; afterwards the writes may be stored. */
  beforeCommit?: () => void;
  /** Called with the error of the rollback. */
  rollbackFailed?: (error: unknown) => void;
}

/** How a transaction begins. */
interface TransactionStart {
  /** Sent before the `begin`. */
  setting?: string | undefined;
  begin?: string | undefined;
  /** What the `begin` itself starts with. */
  prefix?: string;
}

/** For a transaction that the server has ended without its work noticing: its commit would store nothing. */
export function rolledBack(): DatabaseError {
  const { rolledBack: failure } = FAILURES;
  return new DatabaseError(failure, failure.reason, undefined, 'none');
}

/** For a statement that begins or ends a transaction or a savepoint. */
export const COMMAND: StatementContext = {
  wants: 'change',
  isInTransaction: true,
  mayPrepare: false,
  isForeign: false,
};

/** The connection of an attempt. */
export class AttemptConnection {
  readonly driver: Driver;
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
  async ofHost<T>(work: () => Promise<T>, rollbackFailed: (error: unknown) => void): Promise<T> {
    try {
      return await beginningWith(this.#reserved.forTransaction, work);
    } catch (error) {
      // After a rollback that fails, MikroORM 6 says that it succeeded.
      if (this.driver.isInTransaction !== false) await this.rollback(error, rollbackFailed);
      throw error;
    }
  }

  /** Restarts the attempt's time limit: for long work whose statements are each answered in time. */
  restartDeadline(): void {
    this.#deadline.restart();
  }

  /** Runs a statement without values. */
  command(text: string): Promise<DriverResult> {
    return this.#source.statements.send(this.driver, text, [], COMMAND);
  }

  /** Runs statements that need no transaction around them. @param prefix see `clusterPrefix`. */
  run<T>(work: (sql: Sql) => Promise<T>, prefix: string): Promise<T> {
    return this.#source.pipeline(this.driver, { prefix }).run(work);
  }

  /**
   * Runs `work` in a transaction, which begins with its first statement. A transaction without statements sends nothing.
   *
   * @throws the first error, even if the rollback fails, too.
   */
  async transaction<T>(
    work: (sql: Sql, pipeline: Pipeline) => Promise<T>,
    { beforeCommit, rollbackFailed }: TransactionHooks = {},
    { setting, begin = 'begin', prefix = '' }: TransactionStart = {},
  ): Promise<T> {
    const beginning = setting === undefined ? [begin] : [setting, begin];
    const pipeline = this.#source.pipeline(this.driver, { isInTransaction: true, prefix }, beginning);
    try {
      const result = await work(pipeline.sql, pipeline);
      if (!pipeline.isUsed) return result;
      if (pipeline.hasBegun && this.driver.isInTransaction === false) throw rolledBack();
      pipeline.later('commit', [], beforeCommit);
      await pipeline.flush();
      return result;
    } catch (error) {
      // The connection is destroyed, so the server rolls back.
      if (!this.#willBeDestroyed(error) && (await pipeline.discard())) await this.rollback(error, rollbackFailed);
      throw error;
    }
  }

  /** @param error the reason. @param failed is called with the error of the rollback. */
  async rollback(error: unknown, failed?: (error: unknown) => void): Promise<void> {
    // Otherwise it might never be answered.
    if (this.#willBeDestroyed(error)) return;
    try {
      await this.command('rollback');
    } catch (rollbackError) {
      this.spoil();
      failed?.(rollbackError);
    }
  }

  #willBeDestroyed(error: unknown): boolean {
    return this.#reserved.destroy !== undefined && this.#source.spoils(error);
  }

  /** The connection will be closed at the end, instead of going back to the pool. */
  spoil(): void {
    this.#isSpoilt = true;
  }

  async end(): Promise<void> {
    const reserved = this.#reserved;
    if (this.#isSpoilt && reserved.destroy) await reserved.destroy();
    else reserved.release();
  }
}

/** The end of an attempt's time. */
export class Deadline {
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #stop: (() => void) | undefined;
  #grace: NodeJS.Timeout | undefined;
  #over: Error | undefined;
  /** Ends the current wait. */
  #end: ((error: Error) => void) | undefined;
  #hadConnection = false;

  constructor({ timeoutMs, signal }: AttemptLimits) {
    if (timeoutMs > 0) this.#timer = setTimeout(() => this.#isOver(new TimedOut(this.#hadConnection)), timeoutMs);
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
   * Waits for a connection first, and then for the work on it.
   *
   * @param late is called with a result that comes after the deadline.
   * @throws TimedOut, Aborted at the deadline.
   */
  async within<T>(work: Promise<T>, late?: (result: T) => void): Promise<T> {
    try {
      return await new Promise<T>((resolve, reject) => {
        this.#end = reject;
        if (this.#over) reject(this.#over);
        work.then((result) => (this.#over ? late?.(result) : resolve(result)), reject);
      });
    } finally {
      this.#hadConnection = true;
    }
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
