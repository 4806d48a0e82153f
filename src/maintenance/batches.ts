import { setTimeout } from 'node:timers/promises';
import { aBoolean, aCount, aFunction, aWait, anAbortSignal, type Known } from '../model/arguments.js';
import type { MaintenanceProgress, MaintenanceResult } from '../model/progress.js';

/** How much is done at a time, and in all. */
export interface BatchOptions {
  /** How many rows of sessions and events one transaction deletes at most; 1,000 by default, and never more than 10,000. */
  batchSize?: number;
  /** End after so many transactions; no limit by default. */
  maxBatches?: number;
  /**
   * How long to wait between two transactions, in ms; 0 by default, on SQLite 125: another process that waits for the
   * file's lock looks each 100 ms whether it is free. 0 is faster there where nobody else writes.
   */
  pauseMs?: number;
  /** Ends the work before the next transaction when it fires. Nothing is thrown; `more` of the result is true. */
  signal?: AbortSignal;
  /** Only counts: nothing is written. */
  dryRun?: boolean;
  /** Also sessions whose lease somebody holds; false by default. */
  includeLeased?: boolean;
  /** Called after each transaction with what has been done in all. What it throws ends the work and is thrown. */
  onProgress?: (progress: MaintenanceProgress) => void;
}

export const BATCH_OPTIONS: Known<BatchOptions> = {
  batchSize: aCount,
  maxBatches: aCount,
  pauseMs: aWait,
  signal: anAbortSignal,
  dryRun: aBoolean,
  includeLeased: aBoolean,
  onProgress: aFunction,
};

const DEFAULT_BATCH_SIZE = 1_000;

/** A statement that names each of its rows by a value takes so many on every database. */
export const MAX_BATCH_SIZE = 10_000;

/** Counts what one call does, and says when it is to end. */
export class Batches {
  readonly size: number;
  readonly isDryRun: boolean;
  readonly includesLeased: boolean;
  readonly #options: BatchOptions;
  readonly #done: MaintenanceProgress = { sessions: 0, events: 0, batches: 0 };
  readonly #pauseMs: number;
  #skipped = 0;
  #more = false;
  #isPauseDue = false;

  /** @param turnMs the pause where the options give none. */
  constructor(options: BatchOptions, turnMs = 0) {
    this.#options = options;
    this.#pauseMs = options.pauseMs ?? turnMs;
    this.size = Math.min(options.batchSize ?? DEFAULT_BATCH_SIZE, MAX_BATCH_SIZE);
    this.isDryRun = options.dryRun ?? false;
    this.includesLeased = options.includeLeased ?? false;
  }

  get result(): MaintenanceResult {
    return { ...this.#done, skipped: this.#skipped, more: this.#more };
  }

  /** Asked before each transaction, and before each page of what there is. Waits. @returns whether it may begin. */
  async mayBegin(): Promise<boolean> {
    if (this.#isPauseDue && !this.#mustEnd) {
      this.#isPauseDue = false;
      // The signal ends the wait, which then rejects.
      await setTimeout(this.#pauseMs, undefined, { signal: this.#options.signal }).catch(() => undefined);
    }
    this.#more ||= this.#mustEnd;
    return !this.#more;
  }

  get #mustEnd(): boolean {
    const { maxBatches = Infinity, signal } = this.#options;
    return this.#done.batches >= maxBatches || signal?.aborted === true;
  }

  skip(): void {
    this.#skipped++;
  }

  /** Called after each transaction. */
  add(done: { sessions: number; events: number; skipped: number }): void {
    this.#done.sessions += done.sessions;
    this.#done.events += done.events;
    this.#done.batches++;
    this.#skipped += done.skipped;
    this.#options.onProgress?.({ ...this.#done });
    this.#isPauseDue = this.#pauseMs > 0 && !this.isDryRun;
  }
}
