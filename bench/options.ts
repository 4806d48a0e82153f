import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { Effort } from './measure.js';
import { FULL_SCALE, QUICK_SCALE, type Scale } from './workloads/workload.js';

/** Where the published numbers are. */
export const RESULTS_FOLDER = fileURLToPath(new URL('../docs/benchmarks', import.meta.url));

export const USAGE = `npm run bench -- [options]
  --quick                 less of everything, on SQLite and PostgreSQL, in under a minute
  --only <databases>      better-sqlite, sqlite, postgresql, mysql, mariadb, with commas between them
  --workload <names>      create, append, history, state, concurrency, read, list, delete, batch, log
  --rounds <n>            how many rounds
  --out <folder>          where results and charts go; by default docs/benchmarks for a complete run,
                          a folder of the system's temporary files for any other
Servers are taken from ADK_TEST_POSTGRESQL_URL, ADK_TEST_MYSQL_URL and ADK_TEST_MARIADB_URL; without the first
one a PostgreSQL of its own is started.`;

export interface BenchOptions {
  databases: string | undefined;
  workloads: readonly string[] | undefined;
  effort: Effort;
  scale: Scale;
  /** Whether everything is run, and in full. */
  isComplete: boolean;
  out: string;
  isHelp: boolean;
}

export function benchOptions(args: string[]): BenchOptions {
  const { values } = parseArgs({
    args,
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      workload: { type: 'string' },
      rounds: { type: 'string' },
      out: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  const { quick, only, workload, rounds, out, help } = values;
  const effort: Effort = quick
    ? { rounds: 3, roundMs: 30, warmMs: 60, peerMs: 250 }
    : { rounds: 5, roundMs: 250, warmMs: 500, peerMs: 3_000 };
  if (rounds !== undefined) effort.rounds = Math.max(1, Number.parseInt(rounds, 10) || 1);
  const isComplete = !quick && only === undefined && workload === undefined && rounds === undefined;
  return {
    databases: only ?? (quick ? 'better-sqlite,postgresql' : undefined),
    workloads: workload?.split(','),
    effort,
    scale: quick ? QUICK_SCALE : FULL_SCALE,
    isComplete,
    out: path.resolve(out ?? (isComplete ? RESULTS_FOLDER : path.join(tmpdir(), 'adk-mikro-orm-bench'))),
    isHelp: help,
  };
}
