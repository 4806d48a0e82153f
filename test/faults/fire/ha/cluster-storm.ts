import { DeadlockException, type EntityManager } from '@mikro-orm/core';
import { STORM_SESSION, type FailedAppend, type StormHistory, type StormJob } from '../../processes/storm-protocol.js';
import { readTables, type Stored } from '../../processes/tables.js';
import { violations } from '../checker.js';
import { StormProcess } from '../storm.js';
import type { JumpingClock } from './clocks.js';

/** The figures of a storm that docs/benchmarks.md shows. */
export interface Figures {
  acknowledged: number;
  stored: number;
  unknown: number;
  none: number;
}

export interface StormResult {
  figures: Figures;
  /** Failed appends of the writers that wait outages out. */
  failedOfPatient: FailedAppend[];
  failed: FailedAppend[];
  /** The contradictions; none if all is well. */
  found: string[];
}

/** Settings of all processes of a storm. */
export interface StormSettings extends Pick<StormJob, 'retry' | 'name'> {
  /** Each process uses one of these clocks; by default the machine's. */
  clocks?: readonly JumpingClock[];
}

/** Writers of one session and a reader of the log. Every other writer waits outages out. */
export class ClusterStorm {
  readonly writers: readonly StormProcess[];
  readonly #watcher: StormProcess;

  /**
   * @param bundle of `storm-process.ts`.
   * @param urls one for each writer to connect to; the reader connects to the first.
   */
  constructor(bundle: string, urls: readonly string[], { clocks = [], ...settings }: StormSettings = {}) {
    this.#watcher = new StormProcess(bundle, { kind: 'watch', url: urls[0]!, ...settings }, clocks[0]?.env);
    this.writers = urls.map((url, i) => {
      const job = { kind: 'append', url, label: `writer ${i}`, count: 1e9, isPatient: i % 2 === 0 } as const;
      return new StormProcess(bundle, { ...job, ...settings }, clocks[i % clocks.length]?.env);
    });
  }

  /** Waits until each writer has this many more acknowledged appends, and the reader has seen as many. */
  async untilAcknowledged(more: number): Promise<void> {
    await Promise.all([
      ...this.writers.map((writer) => writer.untilAcknowledged(more)),
      this.#watcher.untilSeen(more * this.writers.length),
    ]);
  }

  /** Ends the appends, waits until the reader has seen all of them, and compares. */
  async end(em: EntityManager): Promise<StormResult> {
    for (const writer of this.writers) writer.endAfter(0);
    const histories = await Promise.all(this.writers.map(({ history }) => history));
    const failedOfPatient = histories.flatMap(({ failed }, i) => (i % 2 === 0 ? failed : []));
    const stored = await readStill(em);
    this.#watcher.endAfter(stored.ids.length);
    histories.push(await this.#watcher.history);
    const failed = histories.flatMap((history) => history.failed);
    return { figures: figuresOf(histories, stored), failedOfPatient, failed, found: violations(histories, stored) };
  }

  kill(): void {
    for (const process of [...this.writers, this.#watcher]) process.kill();
  }
}

/** Expects that a replaced primary was not written to any more: it has a part of the events, in order. */
export function expectNotWrittenTo(idsOnOld: readonly string[], ids: readonly string[]): void {
  expect(idsOnOld.length).toBeLessThan(ids.length);
  expect(idsOnOld).toEqual(ids.slice(0, idsOnOld.length));
}

/** Reads again after a conflict: if several servers take writes, the writer of positions may be in the way. */
async function readStill(em: EntityManager): Promise<Stored> {
  for (;;) {
    try {
      return await readTables(em, STORM_SESSION);
    } catch (error) {
      if (!(error instanceof DeadlockException)) throw error;
    }
  }
}

export function figuresOf(histories: readonly StormHistory[], stored: Stored): Figures {
  const failed = histories.flatMap((history) => history.failed);
  return {
    acknowledged: histories.flatMap(({ acknowledged }) => acknowledged).length,
    stored: stored.ids.length,
    unknown: failed.filter(({ outcome }) => outcome === 'unknown').length,
    none: failed.filter(({ outcome }) => outcome === 'none').length,
  };
}
