import { callHost } from '../model/host-callbacks.js';
import type { MaintenanceProgress, MaintenanceResult } from '../model/progress.js';
import { pause } from '../model/signals.js';
import { deletionBatchSize, type BatchOptions } from './options.js';

/** Counts what one call does, and says when it is to end. */
export class Batches {
  /** How many rows a transaction deletes at most. */
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
    this.size = deletionBatchSize(options);
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
      await pause(this.#pauseMs, this.#options.signal);
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

  /** Called after each transaction with what it has done. */
  add({ sessions = 0, events = 0, skipped = 0 }: { sessions?: number; events?: number; skipped?: number } = {}): void {
    this.#done.sessions += sessions;
    this.#done.events += events;
    this.#done.batches++;
    this.#skipped += skipped;
    callHost(this.#options.onProgress, { ...this.#done });
    this.#isPauseDue = this.#pauseMs > 0 && !this.isDryRun;
  }
}
