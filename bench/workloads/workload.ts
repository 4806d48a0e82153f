import type { ContenderName, Contenders } from '../contenders/contender.js';
import { CONTENDERS } from '../contenders/contender.js';
import { Ours } from '../contenders/ours.js';
import type { Case, Lane } from '../measure.js';

/** The size of everything; `--quick` has less. */
export interface Scale {
  longHistory: number;
  manySessions: number;
  deletedEvents: number;
  countedEvents: number;
  prunedSessions: number;
  transferredEvents: number;
}

export const FULL_SCALE: Scale = {
  longHistory: 100_000,
  manySessions: 100_000,
  deletedEvents: 10_000,
  countedEvents: 1_000_000,
  prunedSessions: 100_000,
  transferredEvents: 100_000,
};
export const QUICK_SCALE: Scale = {
  longHistory: 10_000,
  manySessions: 10_000,
  deletedEvents: 1_000,
  countedEvents: 20_000,
  prunedSessions: 2_000,
  transferredEvents: 5_000,
};

/** Opens contenders in new databases, by default all of them. The caller closes them. */
export type Open = (names?: readonly ContenderName[]) => Promise<Contenders>;

/** Cases that are measured in the same rounds. */
export interface Workload {
  name: string;
  cases(open: Open, scale: Scale): Promise<Case[]>;
  /** Comparisons among our own cases. */
  comparisons?(scale: Scale): Comparison[];
  /** A note for readers of the results. */
  note?: string;
  /** Left out of a run that names no workloads: it would take much longer. */
  isOnlyNamed?: boolean;
  /** The most rounds, if one takes so long that a few must do. Then nothing is warmed up. */
  mostRounds?: number;
}

/** How much longer ours takes with more of something. */
export interface Comparison {
  id: string;
  title: string;
  /** Ids of cases of the workload. */
  more: string;
  less: string;
}

/** Only for our own service: the others would only use up the server's connections. */
export async function oursOf(open: Open): Promise<Ours> {
  const { ours } = await open(['ours']);
  if (!(ours instanceof Ours)) throw new Error('Ours is not ours.');
  return ours;
}

/** A lane for each contender, all built the same way. */
export async function lanes(
  contenders: Contenders,
  build: (contender: Contenders[ContenderName]) => Lane | Promise<Lane>,
): Promise<Record<ContenderName, Lane>> {
  const built: Partial<Record<ContenderName, Lane>> = {};
  for (const name of CONTENDERS) built[name] = await build(contenders[name]);
  return built as Record<ContenderName, Lane>;
}

export const count = (n: number) => n.toLocaleString('en-US');
