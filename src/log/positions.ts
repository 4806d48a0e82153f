import type { LogHead } from '../database/stores/log-store.js';
import type { Stores } from '../database/stores/stores.js';
import type { Database } from '../database/calls/database.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Failure } from '../model/failures.js';
import type { HistoryEnd } from '../model/log-history.js';

/** Reports a failure to the host that no caller gets as an error. */
export type Report = (error: unknown, operation: string) => void;

/** Where a reader continues, among the entries that have positions. */
const TAKES_NO_WRITES: ReadonlySet<Failure> = new Set([
  'readOnly',
  'refusedByGroup',
  'readOnlyFile',
  'diskFull',
  'notAllowed',
]);

/** How long a database that takes no writes is not asked to, in ms: after a failover positions come soon (contract O4). */
const READ_ONLY_MS = 500;

/** Gives positions to committed events, on behalf of those who read the log (contract G1). */
export class Positions {
  readonly #stores: Stores;
  readonly #database: Database;
  /** What was left by those who gave out positions here, and whose commits are known; one for each that works at a time. */
  readonly #writers: HistoryEnd[] = [];
  /** Writes are not tried before this, by `performance.now()`. */
  #mayWriteAt = -Infinity;

  constructor(database: Database) {
    this.#stores = database.stores;
    this.#database = database;
  }

  /**
   * Gives positions to all events that are committed now, if this account may write.
   *
   * @param report is called, once until a write succeeds, that a write was refused: then other readers give the positions.
   * @param signal ends it, with `Aborted`.
   * @param onHead is called with how far the log goes, before the first transaction and after each.
   * @returns the last position, and whether there are events that could not be given one.
   */
  async assign(
    report: Report,
    signal?: AbortSignal,
    onHead: (head: LogHead) => void = () => undefined,
  ): Promise<LogHead> {
    let head = await this.#database.run((sql) => this.#stores.log.head(sql), { signal });
    onHead(head);
    while (head.isPending && performance.now() >= this.#mayWriteAt) {
      head = await this.#assignSome(head, report, signal);
      onHead(head);
    }
    return head;
  }

  async #assignSome(head: LogHead, report: Report, signal: AbortSignal | undefined): Promise<LogHead> {
    const outcome: Outcome = {};
    // After a failure the writer is not given back: positions may be stored that it does not know of.
    const known = this.#writers.pop();
    try {
      const { writer, ...assigned } = await this.#database.transaction(
        (sql) => this.#stores.positions.assign(sql, outcome.lostAnswer === undefined ? known : undefined),
        {
          outcome,
          // Others may give positions meanwhile, and are heard only between two tries.
          retries: (failure) => !TAKES_NO_WRITES.has(failure),
          signal,
        },
      );
      if (writer) this.#writers.push(writer);
      this.#mayWriteAt = -Infinity;
      return { ...head, ...assigned };
    } catch (error) {
      const failure = this.#database.failureOf(error);
      if (!TAKES_NO_WRITES.has(failure)) throw error;
      if (this.#mayWriteAt === -Infinity) report(error, 'assignPositions');
      // An account without the right to write is meant to read only; a read-only server may be one during a failover.
      this.#mayWriteAt = failure === 'notAllowed' ? Infinity : performance.now() + READ_ONLY_MS;
      return head;
    }
  }
}
