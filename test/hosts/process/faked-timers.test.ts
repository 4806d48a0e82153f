import { fork } from 'node:child_process';
import { once } from 'node:events';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities, migrate } from '../../../src/index.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';
import type { Ended } from './faked-timers-process.js';

const bundle = new WorkerBundle('test/hosts/process/faked-timers-process.ts', 'cjs');

beforeAll(() => bundle.build());
afterAll(() => bundle.remove());

test.each(availableDatabases())(
  'O3 calls and streams end in CommonJS while node:test has faked the timers, on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    await migrate(orm);
    await orm.close(true);
    const child = fork(bundle.path, [JSON.stringify({ name, url: database.url })], { execArgv: ['--no-warnings'] });
    try {
      const [message] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as [Ended];
      expect(message).toEqual({
        ended: {
          'parallel appends': 8,
          'a reader of the log': 'watched',
          'a stream of events': 'streamed',
          'a wait for a lease': 's',
          'a pause of maintenance': 9,
        },
      });
    } finally {
      child.kill();
      await database.drop();
    }
  },
);
