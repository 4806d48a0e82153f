import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { DatabaseName } from '../test/support/servers.js';
import { start, stop } from '../test/support/run-servers.js';
import { THEMES, chartsOf } from './charts.js';
import type { Contenders } from './contenders/contender.js';
import { closeContenders, openContenders } from './contenders/open.js';
import { databaseFacts, machineFacts, measuredDatabases, packageVersions } from './environment.js';
import { measure, type Effort } from './measure.js';
import { COMMAND, USAGE, benchOptions, type BenchOptions } from './options.js';
import { printCases, printHeader, printComparisons, printHeading, printHeadline, showProgress } from './report.js';
import { caseResult, comparisonResults, titleOf, type Results } from './results.js';
import { WORKLOADS } from './workloads/index.js';
import type { Open, Workload } from './workloads/workload.js';

const options = benchOptions(process.argv.slice(2));

if (options.isHelp) process.stdout.write(`${USAGE}\n`);
else await run(options);

async function run({ databases, workloads, effort, isComplete, out }: BenchOptions): Promise<void> {
  if (databases !== undefined) process.env['ADK_TEST_DATABASES'] = databases.join();
  await start();
  try {
    const results: Results = {
      command: [COMMAND, ...process.argv.slice(2)].join(' '),
      date: new Date().toISOString(),
      isComplete,
      rounds: effort.rounds,
      machine: machineFacts(),
      packages: await packageVersions(),
      databases: {},
      cases: [],
      comparisons: [],
    };
    printHeading(titleOf(results));
    for (const database of measuredDatabases()) {
      const facts = await databaseFacts(database);
      results.databases[database] = facts;
      printHeading(`${database} (${facts.version})`);
      printHeader();
      for (const workload of WORKLOADS) {
        if (workloads?.includes(workload.name) ?? !workload.isOnlyNamed) await runWorkload(database, workload, results);
      }
      printComparisons(results.comparisons.filter((item) => item.database === database));
    }
    printHeading('');
    printHeadline(results);
    await write(results, out);
  } finally {
    await stop();
  }
}

async function runWorkload(database: DatabaseName, workload: Workload, results: Results): Promise<void> {
  const opened: Contenders[] = [];
  const open: Open = async (names) => {
    const contenders = await openContenders(database, names);
    opened.push(contenders);
    return contenders;
  };
  const progress = (doing: string) => showProgress(`${database}: ${doing}`);
  try {
    progress(`${workload.name}: filling the tables`);
    const cases = await workload.cases(open, options.scale);
    const measured = await measure(cases, effortOf(workload), progress);
    showProgress('');
    const found = measured.map((item) => caseResult(database, workload, item));
    results.cases.push(...found);
    results.comparisons.push(...comparisonResults(database, workload.comparisons?.(options.scale) ?? [], measured));
    printCases(found);
  } finally {
    for (const contenders of opened) await closeContenders(contenders);
  }
}

function effortOf({ mostRounds }: Workload): Effort {
  const { effort } = options;
  return mostRounds === undefined ? effort : { ...effort, rounds: Math.min(effort.rounds, mostRounds), warmMs: 0 };
}

async function write(results: Results, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, 'results.json'), `${JSON.stringify(results, null, 2)}\n`);
  for (const { name, svg } of chartsOf(results)) {
    for (const [theme, colors] of Object.entries(THEMES)) {
      await writeFile(path.join(folder, `${name}-${theme}.svg`), svg(colors));
    }
  }
  printHeading(`Written to ${folder}`);
}
