import { randomInt } from 'node:crypto';
import { MikroORM } from '@mikro-orm/core';
import fc from 'fast-check';
import { adkEntities } from '../../../entities/index.js';
import { EventLog, migrate } from '../../../src/index.js';
import { Fold, expectSame, tablesOf } from '../../support/fold.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';
import { SLOTS, sequence } from './operations.js';
import { Pair } from './pair.js';

/** `ADK_TEST_SEED=… npx jest test/contract/differential` runs the sequences of an earlier run. */
const seed = Number(process.env['ADK_TEST_SEED'] ?? randomInt(2 ** 31));
const numRuns = process.env['ADK_TEST_LONG'] ? 300 : 100;

beforeAll(() => {
  process.stdout.write(`Differential test: ADK_TEST_SEED=${seed}\n`);
});

test.each(availableDatabases())(
  'random operations show the same as in memory, on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    try {
      await migrate(orm);
      const log = new EventLog(orm.em);
      let app = 0;
      await fc.assert(
        fc.asyncProperty(sequence, async (operations) => {
          const appName = `app ${app++}`;
          const pair = new Pair(orm.em, appName);
          for (const operation of operations) {
            await pair.run(operation);
            // J2: the log says what the tables hold.
            expectSame(await Fold.of(log, appName), await tablesOf(orm, appName));
          }
          await pair.compareAll(SLOTS);
        }),
        { seed, numRuns },
      );
    } finally {
      await orm.close(true);
      await database.drop();
    }
  },
  600_000,
);
