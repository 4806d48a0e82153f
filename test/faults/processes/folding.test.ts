import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { migrate } from '../../../src/index.js';
import { expectSame } from '../../support/fold.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';
import { foldingRun, withoutErased } from './folding-run.js';

const RUNS = process.env['ADK_TEST_LONG'] ? 10 : 1;
const STEPS = process.env['ADK_TEST_LONG'] ? 300 : 60;

const worker = new WorkerBundle('test/faults/processes/folding-worker.ts');

beforeAll(() => worker.build());
afterAll(() => worker.remove());

test.each(availableDatabases())(
  'J2 whatever four processes do at random at once, the log folds to what the tables hold, on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    try {
      await migrate(orm);
      for (let run = 1; run <= RUNS; run++) {
        const target = { orm, database: { name, url: database.url } };
        const { tables, whole, followed } = await foldingRun(worker.path, target, {
          label: `run ${run}`,
          steps: STEPS,
        });
        expectSame(whole, tables);
        for (const folded of followed) expectSame(withoutErased(folded), withoutErased(tables));
      }
    } finally {
      await orm.close(true);
      await database.drop();
    }
  },
  600_000,
);
