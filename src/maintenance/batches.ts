import { callHost } from '../model/host-callbacks.js';
import type { HostKey } from '../database/statements/host-keys.js';
import type { SessionKey } from '../model/keys.js';
import type { KeptByKey, MaintenanceResult } from '../model/results.js';
import { pause } from '../model/signals.js';
import type { BatchOptions } from './options.js';

const NOTHING = {
  sessions: 0,
  events: 0,
  stateKeys: 0,
  artifacts: 0,
  memories: 0,
  credentials: 0,
  texts: 0,
  unreadable: 0,
  skipped: 0,
  batches: 0,
};

const COUNTED = Object.keys(NOTHING) as (keyof typeof NOTHING)[];

/** How many sessions that foreign keys keep are named at most. */
const MOST_NAMED = 100;

/** Counts what one call does, and decides when it must end. */
export class Batches {
  /** How many rows a transaction deletes or rewrites at most. */
  readonly size: number;
  readonly isDryRun: boolean;
  readonly includesLeased: boolean;
  readonly #options: BatchOptions;
  readonly #done = { ...NOTHING, more: false };
  readonly #owned: Record<string, number> = {};
  readonly #pauseMs: number;
  #isPauseDue = false;
  readonly #kept: KeptByKey[] = [];
  readonly #referring = new Map<HostKey, number>();

  /** @param turnMs the pause if the options give none. */
  constructor(options: BatchOptions, size: number, turnMs = 0) {
    this.#options = options;
    this.#pauseMs = options.pauseMs ?? turnMs;
    this.size = size;
    this.isDryRun = options.dryRun ?? false;
    this.includesLeased = options.includeLeased ?? false;
  }

  get result(): MaintenanceResult {
    const referring = [...this.#referring].map(([{ table, constraint, rule }, rows]) => ({
      table,
      constraint,
      rule,
      rows,
    }));
    return {
      ...this.#done,
      owned: { ...this.#owned },
      ...(this.#kept.length > 0 && { kept: [...this.#kept] }),
      ...(referring.length > 0 && { referring }),
    };
  }

  /** Skips a session that a foreign key keeps. */
  keep(session: SessionKey, { table, constraint }: HostKey): void {
    this.count({ skipped: 1 });
    if (this.#kept.length < MOST_NAMED) this.#kept.push({ ...session, table, constraint });
  }

  /** Counts rows of the host that refer to sessions. */
  refer(key: HostKey, rows: number): void {
    this.#referring.set(key, (this.#referring.get(key) ?? 0) + rows);
  }

  /** Called before each transaction and each page; waits for the pause. @returns whether the work may continue. */
  async mayBegin(): Promise<boolean> {
    if (this.#isPauseDue && !this.#mustEnd) {
      this.#isPauseDue = false;
      await pause(this.#pauseMs, this.#options.signal);
    }
    this.#done.more ||= this.#mustEnd;
    return !this.#done.more;
  }

  get #mustEnd(): boolean {
    const { maxBatches = Infinity, signal } = this.#options;
    return this.#done.batches >= maxBatches || signal?.aborted === true;
  }

  /** Counts what needed no transaction. */
  count({ owned = {}, ...found }: Partial<MaintenanceResult>): void {
    // Only these names: `found` may have others.
    for (const name of COUNTED) this.#done[name] += found[name] ?? 0;
    for (const [name, rows] of Object.entries(owned)) this.#owned[name] = (this.#owned[name] ?? 0) + rows;
  }

  /** Adds what a transaction did. */
  add(done: Partial<MaintenanceResult> = {}): void {
    this.count({ ...done, batches: 1 });
    callHost(this.#options.onProgress, this.result);
    this.#isPauseDue = this.#pauseMs > 0 && !this.isDryRun;
  }
}
