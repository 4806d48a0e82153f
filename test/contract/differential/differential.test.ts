import { createHash } from 'node:crypto';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { compression, encryption, type Codec } from '../../../src/codecs/index.js';
import { EventLog, migrate } from '../../../src/index.js';
import { expectSame, folded, tablesOf } from '../../support/fold.js';
import { expectOfRandom } from '../../support/random.js';
import type { PropertyName } from '../../support/seeds.js';
import { availableDatabases, createDatabase, type DatabaseName } from '../../support/servers.js';
import { SLOTS, pastSequence, sequence } from './operations.js';
import { Pair } from './pair.js';

const RUNS = 60;

/** What random operations find is rarely the dialect's: on the first database all cases run, on the others the first of them. */
const runsOn = (name: DatabaseName) =>
  name === availableDatabases()[0] || process.env['ADK_TEST_EXPLORE'] ? RUNS : RUNS / 6;

async function compare(
  property: PropertyName,
  name: DatabaseName,
  sequences = sequence,
  { codec = [], runs = RUNS }: { codec?: readonly Codec[]; runs?: number } = {},
): Promise<void> {
  const database = await createDatabase(name);
  const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
  try {
    await migrate(orm);
    const log = new EventLog(orm.em, { codec });
    let app = 0;
    await expectOfRandom(
      property,
      sequences,
      async (operations) => {
        const appName = `app ${app++}`;
        const pair = new Pair(orm.em, appName, { codec });
        for (const operation of operations) {
          await pair.run(operation);
          // J2: the log says what the tables hold.
          expectSame(await folded(log, appName), await tablesOf(orm, appName, codec));
        }
        await pair.compareAll(SLOTS);
        if (sequences === pastSequence) for (const slot of SLOTS) await pair.comparePasts(slot);
      },
      { runs },
    );
  } finally {
    await orm.close(true);
    await database.drop();
  }
}

test.each(availableDatabases())(
  'random operations show the same as in memory, on %s',
  (name) => compare('operations', name, sequence, { runs: runsOn(name) }),
  600_000,
);

test.each(availableDatabases())(
  'K4 random pasts are what they were in memory, on %s',
  (name) => compare('pasts', name, pastSequence, { runs: runsOn(name) }),
  600_000,
);

/** What differs with a codec is the same on every database. */
test('M1 random operations show the same with a codec as in memory', async () => {
  const key = (id: string) => createHash('sha256').update(id).digest();
  const codec = [compression({ minBytes: 100 }), encryption({ currentKey: ({ userId }) => `of ${userId}`, key })];
  const [name] = availableDatabases();
  await compare('operations', name!, sequence, { codec, runs: RUNS / 10 });
  await compare('pasts', name!, pastSequence, { codec, runs: RUNS / 10 });
}, 600_000);
