import { performance } from 'node:perf_hooks';
import { CONTENDERS, type ContenderName } from './contenders/contender.js';
import type { Series } from './statistics.js';

/** The part of one contender in a case. */
export interface Lane {
  /** Prepares n operations; not timed. */
  prepare?(count: number): Promise<void>;
  run(count: number): Promise<void>;
  /** The time to report for the last run, in ms, if it is not the time that the run took. */
  ms?(): number;
  /** The most memory that a run took, in MB, if a limit is promised. */
  memoryMb?(): number;
  /** Runs after the last round, and fails if written rows are missing. */
  verify?(): Promise<void>;
}

export interface Case {
  id: string;
  title: string;
  /** What one operation is. */
  unit: string;
  /** The most operations in a round. */
  maxCount: number;
  /** The fewest, if fewer would measure something else; 1 by default. */
  minCount?: number;
  /** The fewest for the peer; 1 by default. */
  minPeerCount?: number;
  /** Our lane, and those of contenders that can do the same. */
  lanes: { readonly ours: Lane } & Readonly<Partial<Record<ContenderName, Lane>>>;
}

export interface Effort {
  rounds: number;
  /** How long our part of a round should take, in ms. */
  roundMs: number;
  /** How long ours runs beforehand, in ms, until the engine has compiled its code. */
  warmMs: number;
  /** The most time for the peer in all rounds of a case, in ms, including its preparation. */
  peerMs: number;
}

export interface Measured {
  case: Case;
  /** Microseconds per operation, by round. */
  series: Record<ContenderName, Series>;
  /** Microseconds of the process's CPU time per operation, by round. */
  cpu: Record<ContenderName, Series>;
  /** Operations in a round. */
  counts: Record<ContenderName, number>;
  failures: Partial<Record<ContenderName, string>>;
}

/** Runs the cases interleaved: in each round every case, and in every case each contender. */
export async function measure(
  cases: readonly Case[],
  effort: Effort,
  onProgress: (doing: string) => void,
): Promise<Measured[]> {
  const runs: CaseRun[] = [];
  for (const item of cases) {
    onProgress(`${item.title}: warming up`);
    runs.push(await CaseRun.start(item, effort));
  }
  for (let round = 0; round < effort.rounds; round++) {
    for (const run of runs) {
      onProgress(`${run.measured.case.title}: round ${round + 1} of ${effort.rounds}`);
      await run.round(round);
    }
  }
  for (const run of runs) await run.verify();
  return runs.map((run) => run.measured);
}

class CaseRun {
  readonly measured: Measured;
  readonly #effort: Effort;
  #peerMs = 0;

  private constructor(item: Case, effort: Effort) {
    this.#effort = effort;
    this.measured = {
      case: item,
      series: { ours: [], peer: [], floor: [] },
      cpu: { ours: [], peer: [], floor: [] },
      counts: { ours: item.minCount ?? 1, peer: 1, floor: 1 },
      failures: {},
    };
  }

  /** Warms up, and determines how many operations fill a round. */
  static async start(item: Case, effort: Effort): Promise<CaseRun> {
    const run = new CaseRun(item, effort);
    const { counts } = run.measured;
    const { maxCount, minCount = 1, minPeerCount = 1 } = item;
    const begin = performance.now();
    for (let count = minCount; performance.now() - begin < effort.warmMs;) {
      const { ms } = (await run.#time('ours', count)) ?? { ms: Infinity };
      counts.ours = clamp((effort.roundMs / ms) * count, minCount, maxCount);
      count = Math.min(count * 2, counts.ours);
    }
    // As many as ours, so that both have the same events.
    counts.floor = counts.ours;
    await run.#time('floor', counts.floor);

    if (!item.lanes.peer) return run;
    const peerRoundMs = effort.peerMs / (effort.rounds + 1);
    for (let count = minPeerCount; ; count = Math.min(count * 4, counts.ours)) {
      const { ms } = (await run.#time('peer', count)) ?? { ms: Infinity };
      counts.peer = clamp((Math.min(effort.roundMs, peerRoundMs) / ms) * count, minPeerCount, counts.ours);
      if (count >= counts.ours || ms > effort.roundMs / 4) break;
    }
    return run;
  }

  async round(round: number): Promise<void> {
    for (let turn = 0; turn < CONTENDERS.length; turn++) {
      const name = CONTENDERS[(round + turn) % CONTENDERS.length] ?? 'ours';
      // The first round always runs: without it there would be nothing to compare with.
      const isSpent = name === 'peer' && round > 0 && this.#peerMs > this.#effort.peerMs;
      const count = this.measured.counts[name];
      const took = isSpent ? undefined : await this.#time(name, count);
      this.measured.series[name][round] = took && (took.ms * 1000) / count;
      this.measured.cpu[name][round] = took && took.cpu / count;
    }
  }

  async verify(): Promise<void> {
    for (const name of CONTENDERS) {
      if (this.measured.failures[name] !== undefined) continue;
      try {
        await this.measured.case.lanes[name]?.verify?.();
      } catch (error) {
        this.#fail(name, error);
      }
    }
  }

  /** @returns milliseconds, and microseconds of CPU; undefined if the contender fails. */
  async #time(name: ContenderName, count: number): Promise<{ ms: number; cpu: number } | undefined> {
    const lane = this.measured.case.lanes[name];
    if (!lane || this.measured.failures[name] !== undefined) return undefined;
    const begin = performance.now();
    try {
      await lane.prepare?.(count);
      const start = performance.now();
      const before = process.cpuUsage();
      await lane.run(count);
      const { user, system } = process.cpuUsage(before);
      const took = performance.now() - start;
      return { ms: lane.ms?.() ?? took, cpu: user + system };
    } catch (error) {
      this.#fail(name, error);
      return undefined;
    } finally {
      if (name === 'peer') this.#peerMs += performance.now() - begin;
    }
  }

  /** A failure of the peer is a result, too. */
  #fail(name: ContenderName, error: unknown): void {
    if (name !== 'peer') throw error;
    this.measured.failures[name] = error instanceof Error ? error.message.split('\n', 1)[0] || error.name : 'failed';
  }
}

function clamp(value: number, low: number, high: number): number {
  return Math.max(low, Math.min(high, Math.floor(value)));
}
