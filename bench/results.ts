import type { DatabaseName } from '../test/support/servers.js';
import { CONTENDERS, type ContenderName } from './contenders/contender.js';
import type { Measured } from './measure.js';
import { ratioOf, spreadOf, type Spread } from './statistics.js';
import type { Comparison } from './workloads/workload.js';

/** The content of `results.json`. */
export interface Results {
  command: string;
  date: string;
  /** Whether everything was run in full. */
  isComplete: boolean;
  rounds: number;
  machine: Record<string, string | number>;
  packages: Record<string, string>;
  databases: Record<string, DatabaseFacts>;
  cases: CaseResult[];
  comparisons: ComparisonResult[];
}

export interface DatabaseFacts {
  version: string;
  /** The settings that decide how long a commit waits for the disk. */
  settings: Record<string, string>;
}

export interface CaseResult {
  database: DatabaseName;
  workload: string;
  id: string;
  title: string;
  /** What one operation is. */
  unit: string;
  note?: string;
  /** Times in microseconds. */
  times: Partial<Record<ContenderName, Spread>>;
  /** Operations in a round. */
  counts: Record<ContenderName, number>;
  /** The peer's time divided by ours: how many times as fast ours is. */
  timesAsFast?: Spread;
  /** Our time divided by the floor's. */
  timesTheFloor?: Spread;
  /** The process's CPU time for ours, divided by that for the floor. */
  cpuTimesTheFloor?: Spread;
  failures: Partial<Record<ContenderName, string>>;
  /** The most memory that ours took, if it was measured. */
  memoryMb?: number;
}

/** A comparison of two of our own cases. */
export interface ComparisonResult {
  database: DatabaseName;
  id: string;
  title: string;
  ratio: Spread;
}

/** Which MikroORM the numbers are for. */
export const titleOf = ({ packages }: Results) => `MikroORM ${packages['@mikro-orm/core']}`;

export function caseResult(
  database: DatabaseName,
  workload: { name: string; note?: string },
  { case: { id, title, unit, lanes }, series, cpu, counts, failures }: Measured,
): CaseResult {
  const timesAsFast = ratioOf(series.peer, series.ours);
  const timesTheFloor = ratioOf(series.ours, series.floor);
  const cpuTimesTheFloor = ratioOf(cpu.ours, cpu.floor);
  const times: CaseResult['times'] = {};
  for (const name of CONTENDERS) {
    const spread = spreadOf(series[name].filter((value) => value !== undefined));
    if (spread) times[name] = spread;
  }
  return {
    database,
    workload: workload.name,
    id,
    title,
    unit,
    ...(workload.note !== undefined && { note: workload.note }),
    times,
    counts,
    ...(timesAsFast && { timesAsFast }),
    ...(timesTheFloor && { timesTheFloor }),
    ...(cpuTimesTheFloor && { cpuTimesTheFloor }),
    failures,
    ...(lanes.ours.memoryMb && { memoryMb: lanes.ours.memoryMb() }),
  };
}

export function comparisonResults(
  database: DatabaseName,
  comparisons: readonly Comparison[],
  measured: readonly Measured[],
): ComparisonResult[] {
  const oursOf = (id: string) => measured.find((item) => item.case.id === id)?.series.ours ?? [];
  return comparisons.flatMap(({ id, title, more, less }) => {
    const ratio = ratioOf(oursOf(more), oursOf(less));
    return ratio ? [{ database, id, title, ratio }] : [];
  });
}
