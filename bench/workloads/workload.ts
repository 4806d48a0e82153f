import type { ContenderName, Contenders } from '../contenders/contender.js';
import { CONTENDERS } from '../contenders/contender.js';
import type { Case, Lane } from '../measure.js';

/** How much there is of everything; `--quick` has less. */
export interface Scale {
  longHistory: number;
  manySessions: number;
  deletedEvents: number;
}

export const FULL_SCALE: Scale = { longHistory: 100_000, manySessions: 100_000, deletedEvents: 10_000 };
export const QUICK_SCALE: Scale = { longHistory: 10_000, manySessions: 10_000, deletedEvents: 1_000 };

/** Opens contenders in new databases, all of them by default; closed by the caller. */
export type Open = (names?: readonly ContenderName[]) => Promise<Contenders>;

/** Cases that are measured in the same rounds. */
export interface Workload {
  name: string;
  cases(open: Open, scale: Scale): Promise<Case[]>;
  /** What is compared with itself. */
  comparisons?(scale: Scale): Comparison[];
  /** What a reader should know, for the results. */
  note?: string;
}

/** How much longer ours takes where there is more of something. */
export interface Comparison {
  id: string;
  title: string;
  /** Ids of cases of the workload. */
  more: string;
  less: string;
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
