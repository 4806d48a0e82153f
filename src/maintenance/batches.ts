import { callHost } from '../model/host-callbacks.js';
import type { HostKey } from '../database/statements/host-keys.js';
import type { SessionKey } from '../model/keys.js';
import type { Counts, KeptByKey, MaintenanceResult } from '../model/results.js';
import { pause } from '../model/signals.js';
import type { BatchOptions } from './options.js';

/** How many sessions that foreign keys keep are named at most. */
const MOST_NAMED = 100;

/** Counts what one call does, and decides when it must end. */
export class Batches<Kind extends string = never> {
  /** How many rows a transaction deletes or rewrites at most. */
  readonly size: number;
  readonly isDryRun: boolean;
  readonly includesLeased: boolean;
  readonly #options: BatchOptions;
  readonly #done: MaintenanceResult<Kind>['done'];
  #skipped = 0;
  #batches = 0;
  #more = false;
  readonly #pauseMs: number;
  #isPauseDue = false;
  readonly #kept: KeptByKey[] = [];
  readonly #referring = new Map<HostKey, number | undefined>();

  /**
   * @param kinds what the result always counts.
   * @param turnMs the pause if the options give none.
   */
  constructor(options: BatchOptions, kinds: readonly Kind[], size: number, turnMs = 0) {
    this.#done = Object.fromEntries(kinds.map((kind) => [kind, 0])) as MaintenanceResult<Kind>['done'];
    this.#options = options;
    this.#pauseMs = options.pauseMs ?? turnMs;
    this.size = size;
    this.isDryRun = options.dryRun ?? false;
    this.includesLeased = options.includeLeased ?? false;
  }

  get result(): MaintenanceResult<Kind> {
    const referring = [...this.#referring].map(([{ table, constraint, rule }, rows]) => ({
      table,
      constraint,
      rule,
      ...(rows !== undefined && { rows }),
    }));
    return {
      done: { ...this.#done },
      ...{ skipped: this.#skipped, batches: this.#batches, more: this.#more },
      ...(this.#kept.length > 0 && { kept: [...this.#kept] }),
      ...(referring.length > 0 && { referring }),
    };
  }

  /** Skips a session that a foreign key keeps. */
  keep(session: SessionKey, key?: HostKey): void {
    this.count({ skipped: 1 });
    if (key && this.#kept.length < MOST_NAMED)
      this.#kept.push({ ...session, table: key.table, constraint: key.constraint });
  }

  /** Counts rows of the host that refer to sessions. */
  refer(key: HostKey, rows?: number): void {
    this.#referring.set(key, rows === undefined ? undefined : (this.#referring.get(key) ?? 0) + rows);
  }

  /** Called before each transaction and each page; waits for the pause. @returns whether the work may continue. */
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
    return this.#batches >= maxBatches || signal?.aborted === true;
  }

  /**
   * Whether the signal has fired, or a batch was refused: then the call reads nothing more. After the last of `maxBatches` it reads on,
   * to find out whether there is more to do.
   */
  isOver(): boolean {
    this.#more ||= this.#options.signal?.aborted === true;
    return this.#more;
  }

  /** Counts what needed no transaction. */
  count({ done = {}, skipped = 0 }: Counts): void {
    const all: Record<string, number> = this.#done;
    for (const [kind, number] of Object.entries(done)) all[kind] = (all[kind] ?? 0) + number;
    this.#skipped += skipped;
  }

  /** Adds what a transaction did. */
  add(counts: Counts = {}): void {
    this.count(counts);
    this.#batches++;
    callHost(this.#options.onProgress, this.result);
    this.#isPauseDue = this.#pauseMs > 0 && !this.isDryRun;
  }
}
