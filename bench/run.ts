import type { DatabaseName } from '../test/support/servers.js';
import { runArtifacts } from './artifacts/run.js';
import { start, stop } from '../test/support/run-servers.js';
import { chartsOf } from './charts.js';
import type { Contenders } from './contenders/contender.js';
import { closeContenders, openContenders } from './contenders/open.js';
import { databaseFacts, machineFacts, measuredDatabases, packageVersions } from './environment.js';
import { runGrowth } from './growth/run.js';
import { measure, type Effort } from './measure.js';
import { USAGE, benchOptions, commandOf, type BenchOptions } from './options.js';
import { runProfile } from './profile.js';
import { printCases, printHeader, printComparisons, printHeading, printHeadline, showProgress } from './report.js';
import { runMemory } from './recall/run.js';
import { caseResult, comparisonResults, titleOf, type Results } from './results.js';
import { write } from './write.js';
import { runStudio } from './studio/run.js';
import { WORKLOADS } from './workloads/index.js';
import type { Open, Workload } from './workloads/workload.js';

const args = process.argv.slice(2);

if (args[0] === 'growth') await runGrowth(args.slice(1));
else if (args[0] === 'memory') await runMemory(args.slice(1));
else if (args[0] === 'studio') await runStudio(args.slice(1));
else if (args[0] === 'artifacts') await runArtifacts(args.slice(1));
else if (args[0] === 'profile') await runProfile(args.slice(1));
else await run(benchOptions(args));

async function run(options: BenchOptions): Promise<void> {
  const { databases, workloads, effort, isComplete, out } = options;
  if (options.isHelp) {
    process.stdout.write(`${USAGE}\n`);
    return;
  }
  if (databases !== undefined) process.env['ADK_TEST_DATABASES'] = databases.join();
  await start();
  try {
    const results: Results = {
      command: commandOf(args),
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
        if (workloads?.includes(workload.name) ?? !workload.isOnlyNamed)
          await runWorkload(database, workload, options, results);
      }
      printComparisons(results.comparisons.filter((item) => item.database === database));
    }
    printHeading('');
    printHeadline(results);
    await write(out, 'results.json', results, chartsOf(results));
  } finally {
    await stop();
  }
}

async function runWorkload(
  database: DatabaseName,
  workload: Workload,
  { scale, effort, rttMs }: BenchOptions,
  results: Results,
): Promise<void> {
  const opened: Contenders[] = [];
  const open: Open = async (names) => {
    const contenders = await openContenders(database, names, rttMs);
    opened.push(contenders);
    return contenders;
  };
  const progress = (doing: string) => showProgress(`${database}: ${doing}`);
  try {
    progress(`${workload.name}: filling the tables`);
    const cases = await workload.cases(open, scale);
    const measured = await measure(cases, effortOf(workload, effort), progress);
    showProgress('');
    const found = measured.map((item) => caseResult(database, workload, item));
    results.cases.push(...found);
    results.comparisons.push(...comparisonResults(database, workload.comparisons?.(scale) ?? [], measured));
    printCases(found);
  } finally {
    for (const contenders of opened) await closeContenders(contenders);
  }
}

function effortOf({ mostRounds }: Workload, effort: Effort): Effort {
  return mostRounds === undefined ? effort : { ...effort, rounds: Math.min(effort.rounds, mostRounds), warmMs: 0 };
}
