import { createHash, randomInt } from 'node:crypto';
import { MikroORM } from '@mikro-orm/core';
import fc from 'fast-check';
import { adkEntities } from '../../../entities/index.js';
import { compression, encryption, type Codec } from '../../../src/codecs/index.js';
import { EventLog, migrate } from '../../../src/index.js';
import { expectSame, folded, tablesOf } from '../../support/fold.js';
import { availableDatabases, createDatabase, type DatabaseName } from '../../support/servers.js';
import { SLOTS, TIME_LIMIT, pastSequence, sequence, type Operation } from './operations.js';
import { Pair } from './pair.js';

/** `ADK_TEST_SEED=… npx jest test/contract/differential` runs the sequences of an earlier run. */
const seed = Number(process.env['ADK_TEST_SEED'] ?? randomInt(2 ** 31));
const numRuns = process.env['ADK_TEST_LONG'] ? 300 : 60;

beforeAll(() => {
  process.stdout.write(`Differential test: ADK_TEST_SEED=${seed}\n`);
});

interface Comparison {
  codec?: readonly Codec[];
  sequences?: fc.Arbitrary<Operation[]>;
  runs?: number;
}

async function compare(
  name: DatabaseName,
  { codec = [], sequences = sequence, runs = numRuns }: Comparison = {},
): Promise<void> {
  const database = await createDatabase(name);
  const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
  try {
    await migrate(orm);
    const log = new EventLog(orm.em, { codec });
    let app = 0;
    await fc.assert(
      fc.asyncProperty(sequences, async (operations) => {
        const appName = `app ${app++}`;
        const pair = new Pair(orm.em, appName, { codec });
        for (const operation of operations) {
          await pair.run(operation);
          // J2: the log says what the tables hold.
          expectSame(await folded(log, appName), await tablesOf(orm, appName, codec));
        }
        await pair.compareAll(SLOTS);
        if (sequences === pastSequence) for (const slot of SLOTS) await pair.comparePasts(slot);
      }),
      { seed, numRuns: runs, ...TIME_LIMIT },
    );
  } finally {
    await orm.close(true);
    await database.drop();
  }
}

test.each(availableDatabases())(
  'random operations show the same as in memory, on %s',
  (name) => compare(name),
  600_000,
);

test.each(availableDatabases())(
  'K4 random pasts are what they were in memory, on %s',
  (name) => compare(name, { sequences: pastSequence }),
  600_000,
);

/** What differs with a codec is the same on every database. */
test('M1 random operations show the same with a codec as in memory', async () => {
  const key = (id: string) => createHash('sha256').update(id).digest();
  const codec = [compression({ minBytes: 100 }), encryption({ currentKey: ({ userId }) => `of ${userId}`, key })];
  await compare(availableDatabases()[0]!, { codec, runs: numRuns / 10 });
  await compare(availableDatabases()[0]!, { codec, sequences: pastSequence, runs: numRuns / 10 });
}, 600_000);
