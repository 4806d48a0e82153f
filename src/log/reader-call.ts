import { Aborted } from '../database/calls/connection.js';
import type { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import type { ErrorContext } from '../model/options.js';
import { onAbort } from '../model/signals.js';

/** How many events a reader has in memory at most. */
export const BATCH = 200;

/** A call that reads the log: runs its statements and its waits, which its signal ends. */
export class ReaderCall {
  readonly signal: AbortSignal | undefined;
  readonly #database: Database;
  readonly #context: ErrorContext;

  constructor(database: Database, context: ErrorContext, signal?: AbortSignal) {
    this.#database = database;
    this.#context = context;
    this.signal = signal;
  }

  /**
   * Runs statements.
   *
   * @throws DatabaseError if the database is still unavailable after all retries; Aborted when the signal fires.
   */
  run<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#call(() => this.#database.run(work, { signal: this.signal }));
  }

  /** Waits without a deadline for work that itself ends when the signal fires. @throws DatabaseError as `run`. */
  wait<T>(work: () => Promise<T>): Promise<T> {
    return this.#database.unobserved(this.#context, work);
  }

  /** Waits for work that others share: the signal ends only the wait. @throws as `run`. */
  waitOrAbort<T>(work: () => Promise<T>): Promise<T> {
    return this.#call(() => this.orAborted(work()));
  }

  /** Yields entries until the signal fires, at most `limit` of them. */
  async *yielded<Entry>(entries: AsyncGenerator<Entry>, limit = Infinity): AsyncGenerator<Entry> {
    if (limit === 0) return;
    let count = 0;
    try {
      for await (const entry of entries) {
        if (this.signal?.aborted) return;
        yield entry;
        if (++count === limit) return;
      }
    } catch (error) {
      if (!(error instanceof Aborted)) throw error;
    }
  }

  /** Measures how far the reader is behind, if calls are observed. @returns a function that ends the measurement. */
  follow(lag: () => number): (() => void) | undefined {
    const { telemetry, system } = this.#database;
    return telemetry?.follow({ system, lag });
  }

  /** Reports a failure for which the call does not fail. */
  readonly report = (error: unknown, operation: string): void => {
    this.#database.report(error, { ...this.#context, operation });
  };

  /** Observes each batch as a call of its own: the time between two batches is the reader's. */
  #call<T>(work: () => Promise<T>): Promise<T> {
    return this.#database.call(this.#context, work);
  }

  /** Waits for work that may be abandoned. @throws Aborted when the signal fires. */
  orAborted<T>(work: Promise<T>): Promise<T> {
    if (!this.signal) return work;
    let stop = () => {};
    const aborted = new Promise<never>((_, reject) => {
      stop = onAbort(this.signal, () => reject(new Aborted()));
    });
    return Promise.race([work, aborted]).finally(stop);
  }
}
