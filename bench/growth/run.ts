import type { DatabaseName } from '../../test/support/servers.js';
import { databaseFacts, machineFacts, packageVersions } from '../environment.js';
import { commandOf } from '../options.js';
import { duration, number, printHeading, printTable, showProgress } from '../report.js';
import { write } from '../write.js';
import { memoryUses } from './memory.js';
import { operationsOf, verify } from './operations.js';
import { GROWTH_USAGE, SMALL, growthOptions, type GrowthOptions } from './options.js';
import { compare } from './percentiles.js';
import { bytesOf, keptPopulation, temporaryPopulation, type Population } from './population.js';
import {
  growthChart,
  memoryRows,
  operationRows,
  sizeText,
  type GrownOperation,
  type GrowthResults,
} from './results.js';
import { startDurable } from './servers.js';

/** Measures calls with few events and with many, on each database. */
export async function runGrowth(args: string[]): Promise<void> {
  const options = growthOptions(args);
  const { databases, size, data, out } = options;
  if (options.isHelp) {
    process.stdout.write(`${GROWTH_USAGE}\n`);
    return;
  }
  printHeading(`${sizeText(SMALL)} against ${sizeText(size)}. Databases are kept in ${data}.`);
  const stop = await startDurable(databases, data);
  // Ctrl-C does not reach the servers, which have no terminal. It comes twice, since tsx forwards it, too.
  let stopping: Promise<void> | undefined;
  process.on('SIGINT', () => {
    stopping ??= stop().finally(() => process.exit(130));
  });
  try {
    const results: GrowthResults = {
      command: commandOf(['growth', ...withoutFolders(args)]),
      date: new Date().toISOString(),
      machine: machineFacts(),
      packages: await packageVersions(),
      small: SMALL,
      large: size,
      databases: {},
      operations: [],
    };
    for (const database of databases) {
      await measureDatabase(database, options, results);
      // Written after each database, so that a failure on another one loses nothing.
      await write(out, 'growth.json', results, [growthChart(results)]);
    }
  } finally {
    await stop();
  }
}

/** Removes paths of this machine from the results. */
function withoutFolders(args: readonly string[]): string[] {
  const isFolder = (arg: string | undefined) => arg !== undefined && /^--(data|out)\b/.test(arg);
  return args.filter((arg, i) => !isFolder(arg) && !(isFolder(args[i - 1]) && !args[i - 1]?.includes('=')));
}

async function measureDatabase(
  database: DatabaseName,
  { size, data, budget }: GrowthOptions,
  results: GrowthResults,
): Promise<void> {
  const { version, settings } = await databaseFacts(database, true);
  const found = Object.entries(settings).map(([name, value]): [string, string] => [
    name,
    value.replace(data, '--data'),
  ]);
  printHeading(`${database} (${version}): ${found.map(([name, value]) => `${name} = ${value}`).join(', ')}`);
  const facts = { version, settings: Object.fromEntries(found) };
  const progress = (doing: string) => showProgress(`${database}: ${doing}`);
  const opened: Population[] = [];
  try {
    const large = await keptPopulation(database, size, data, progress);
    opened.push(large);
    await verify(large);
    const small = await temporaryPopulation(database, SMALL, progress);
    opened.push(small);
    await verify(small);
    const [gigabytes, fillSeconds] = [(await bytesOf(large)) / 1e9, large.fillMs / 1_000];
    const grown = { ...facts, gigabytes, fillSeconds };
    results.databases[database] = grown;

    const operations: GrownOperation[] = [];
    const ofLarge = operationsOf(large, size);
    for (const [i, operation] of operationsOf(small, size).entries()) {
      progress(operation.title);
      const compared = await compare(operation, ofLarge[i]!, budget);
      operations.push({ database, id: operation.id, title: operation.title, ...compared });
    }
    results.operations.push(...operations);
    progress('memory');
    const memory = await memoryUses(large);
    results.databases[database] = { ...grown, memory };
    showProgress('');
    printTable(operationRows(operations));
    printTable(memoryRows(memory));
    printTable([['on the disk', `${number(gigabytes)} GB`, 'filled in', duration(large.fillMs * 1_000)]]);
  } finally {
    for (const population of opened) await population.close();
  }
}
