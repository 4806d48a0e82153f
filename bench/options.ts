import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { isMikroOrm7 } from '../test/support/mikro-orm.js';
import { FILE_DATABASES, SERVERS } from '../test/support/servers.js';
import type { Effort } from './measure.js';
import { WORKLOADS } from './workloads/index.js';
import { FULL_SCALE, QUICK_SCALE, type Scale } from './workloads/workload.js';

export const COMMAND = isMikroOrm7 ? 'npm run bench:7' : 'npm run bench';

export const commandOf = (args: readonly string[]) => (args.length === 0 ? COMMAND : `${COMMAND} -- ${args.join(' ')}`);

/** The folder of the published numbers, relative to where npm runs: the code for MikroORM 7 runs in a copy. */
export const RESULTS_FOLDER = path.resolve('docs/benchmarks', isMikroOrm7 ? 'mikro-orm-7' : '');

export const USAGE = `${COMMAND} -- [options]
  --quick                 less of everything, on SQLite and PostgreSQL, in under a minute
  --only <databases>      better-sqlite, sqlite (MikroORM 6), postgresql, mysql, mariadb, separated by commas
  --workload <names>      create, append, history, state, concurrency, read, list, delete, batch, log;
                          and, only if named, codecs and maintenance, which takes minutes for each database
  --rounds <n>            the number of rounds
  --rtt <ms>              on servers that are so far away: how long a question and its answer are under way
  --out <folder>          where to write results and charts; by default ${path.relative('.', RESULTS_FOLDER)} for a complete run,
                          otherwise a temporary folder
More measurements have their own help: ${COMMAND} -- growth --help for calls with many events, studio --help for the
studio's pages, artifacts --help for artifacts, and memory --help for how well and how fast memories are found.
${COMMAND} -- profile <database> shows where an append spends its time.
ADK_TEST_POSTGRESQL_URL, ADK_TEST_MYSQL_URL and ADK_TEST_MARIADB_URL name the servers. Without the first one,
a PostgreSQL is started. Servers of scripts/test-servers.sh are not durable: their commits do not wait for a disk.`;

export interface BenchOptions {
  databases: readonly string[] | undefined;
  workloads: readonly string[] | undefined;
  effort: Effort;
  scale: Scale;
  /** The time between a question and its answer that the network takes, in ms. */
  rttMs: number;
  /** Whether everything is run in full. */
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
      rtt: { type: 'string', default: '0' },
      out: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  const { quick, only, workload, rounds, rtt, out, help } = values;
  const rttMs = Number(rtt);
  const chosenDatabases = namesOf('only', only, [...FILE_DATABASES, ...SERVERS]);
  const effort: Effort = quick
    ? { rounds: 3, roundMs: 30, warmMs: 60, peerMs: 250 }
    : { rounds: 5, roundMs: 250, warmMs: 500, peerMs: 3_000 };
  if (rounds !== undefined) effort.rounds = Math.max(1, Number.parseInt(rounds, 10) || 1);
  const isComplete = !quick && only === undefined && workload === undefined && rounds === undefined && rttMs === 0;
  return {
    databases: chosenDatabases ?? (rttMs > 0 ? SERVERS : quick ? ['better-sqlite', 'postgresql'] : undefined),
    workloads: namesOf(
      'workload',
      workload,
      WORKLOADS.map(({ name }) => name),
    ),
    effort,
    rttMs,
    scale: quick ? QUICK_SCALE : FULL_SCALE,
    isComplete,
    out: path.resolve(out ?? (isComplete ? RESULTS_FOLDER : path.join(tmpdir(), 'adk-mikro-orm-bench'))),
    isHelp: help,
  };
}

function namesOf(option: string, list: string | undefined, known: readonly string[]): readonly string[] | undefined {
  const names = list?.split(',');
  const unknown = names?.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Error(`--${option} does not know ${unknown}. There are ${known.join(', ')}.`);
  return names;
}
