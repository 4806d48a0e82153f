import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { once } from 'node:events';
import { adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, SessionProjection, migrate } from '../../../src/index.js';
import { range } from '../../contract/tools.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';
import { firstReports } from './first-report.js';
import type { Job, Report } from './projection-worker.js';

const run = firstReports<{ job: Job; report: Report }>('test/faults/processes/projection-worker.ts');

test.each(availableDatabases())(
  'J5 a projection that is killed in a transaction continues after the last one on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    const rows = async () => {
      const found = (await orm.em.getConnection().execute('select seq from ledger order by seq')) as { seq: number }[];
      return found.map(({ seq }) => seq);
    };
    try {
      await migrate(orm);
      await orm.em.getConnection().execute('create table ledger (seq integer not null)', [], 'run');
      const service = new MikroOrmSessionService(orm.em);
      const session = await service.createSession({ appName: 'app', userId: 'ada', sessionId: 's' });
      const events = range(3).map(() => createEvent({ author: 'agent' }));
      await service.appendEvents({ session, events });

      const killed = await run({ database, hangs: true });
      expect(killed.report).toBe('hangs');
      expect(await rows()).toEqual([]);
      const hasEnded = once(killed.child, 'exit');
      killed.child.kill('SIGKILL');
      await hasEnded;

      expect((await run({ database, hangs: false })).report).toBe('done');
      expect(await rows()).toEqual([0, 1, 2, 3]);
      expect(await SessionProjection.list(orm.em)).toMatchObject([{ name: 'ledger', behind: 0 }]);
    } finally {
      await orm.close(true);
      await database.drop();
    }
  },
);
