import { MikroORM } from '@mikro-orm/core';
import { parseArgs } from 'node:util';
import { adkEntities } from '../../src/index.js';
import { createMigrated } from '../../test/support/migrated.js';
import { start, stop } from '../../test/support/run-servers.js';
import { measuredDatabases } from '../environment.js';
import { COMMAND } from '../options.js';
import { printHeading, printTable, showProgress } from '../report.js';
import { indexesOf, inMemory, ours, withStems, type Finder } from './finders.js';
import { labelledSet, type LabelledSet } from './labelled-set.js';
import { LANGUAGES } from './languages.js';
import { qualityOf } from './quality.js';
import { runSpeed } from './speed.js';

const USAGE = `${COMMAND} -- memory [--only <databases>] [--speed]
  How well memories are found: 200 questions about 2,000 memories in eight languages, compared with ADK's service in memory and
  the database's own full-text index. With --speed, how fast instead: searching 100,000 memories, and adding them.`;

/** Guesses of stems that are tried. */
const STEMS = [4, 5, 6].flatMap((letters) => [0.5, 1].map((weight) => ({ letters, weight })));

export async function runMemory(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: { only: { type: 'string' }, speed: { type: 'boolean' }, help: { type: 'boolean', default: false } },
  });
  if (values.help) {
    process.stdout.write(`${USAGE}\n`);
    return;
  }
  if (values.only !== undefined) process.env['ADK_TEST_DATABASES'] = values.only;
  await start();
  try {
    const set = labelledSet();
    if (!values.speed) {
      printHeading('in the process');
      const finders = [await inMemory(set.memories), ...STEMS.map((stems) => withStems(set.memories, stems))];
      await printQuality(finders, set);
    }
    for (const database of measuredDatabases()) {
      showProgress(`${database}: filling the tables`);
      const { options, drop } = await createMigrated(database);
      const orm = await MikroORM.init({ ...options, entities: adkEntities() });
      try {
        if (values.speed) await runSpeed(database, orm.em);
        else {
          printHeading(database);
          await printQuality([await ours(orm.em, set.memories)], set);
          for await (const index of indexesOf(database, orm, set.memories)) await printQuality([index], set);
        }
      } finally {
        await orm.close(true);
        await drop();
      }
    }
  } finally {
    await stop();
  }
}

const LANGUAGE_NAMES = Object.keys(LANGUAGES);

/** Prints, in percent, recall@10 and MRR of all questions, and MRR of each language. */
async function printQuality(finders: readonly Finder[], { questions }: LabelledSet): Promise<void> {
  const rows: string[][] = [];
  for (const finder of finders) {
    const { recall, mrr, ofLanguages } = await qualityOf(finder, questions);
    rows.push([finder.name, ...[recall, mrr, ...ofLanguages.values()].map((share) => share.toFixed(1))]);
  }
  showProgress('');
  printTable([['', 'recall@10', 'MRR', ...LANGUAGE_NAMES], ...rows]);
}
