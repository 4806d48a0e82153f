import { createEvent, getFunctionResponses } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, interruptedToolResponses, unansweredFunctionCalls } from '../../../src/index.js';
import { range } from '../../contract/tools.js';
import { createMigrated } from '../../support/migrated.js';
import { availableDatabases } from '../../support/servers.js';
import { firstReports } from './first-report.js';
import type { Job, Report } from './outcome-worker.js';

const run = firstReports<{ job: Job; report: Report }>('test/faults/processes/outcome-worker.ts');

test.each(availableDatabases())(
  'H6 of sixteen processes that run one call, of which the first is killed in its work, one does it on %s',
  async (name) => {
    const database = await createMigrated(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    const rows = async () => (await orm.em.getConnection().execute('select pid from ledger')) as { pid: number }[];
    const service = new MikroOrmSessionService(orm.em);
    const read = async () => (await service.getSession({ appName: 'app', userId: 'ada', sessionId: 's' }))!;
    try {
      await orm.em.getConnection().execute('create table ledger (pid integer not null)', [], 'run');
      const session = await service.createSession({ appName: 'app', userId: 'ada', sessionId: 's' });
      const parts = [{ functionCall: { id: 'call_0', name: 'pay', args: {} } }];
      await service.appendEvent({
        session,
        event: createEvent({ author: 'clerk', content: { role: 'model', parts } }),
      });

      const killed = await run({ database, hangs: true });
      expect(killed.report).toBe('hangs');
      const others = range(15).map(() => run({ database, hangs: false }));
      expect(await rows()).toEqual([]);
      killed.child.kill('SIGKILL');

      const reports = (await Promise.all(others)).map(({ child, report }) => {
        child.disconnect();
        return report;
      });
      const [row] = await rows();
      expect(await rows()).toEqual([row]);
      expect(reports).toEqual(range(15).map(() => ({ result: row!.pid })));
      expect(unansweredFunctionCalls(await read())).toMatchObject([{ response: { result: row!.pid } }]);
    } finally {
      await orm.close(true);
      await database.drop();
    }
  },
  240_000,
);

test.each(availableDatabases())(
  'H6 what a tool has returned is known after its process was killed in the next tool on %s',
  async (name) => {
    const database = await createMigrated(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    try {
      const killed = await run({ database, hangs: true, isTurn: true });
      expect(killed.report).toBe('hangs');
      killed.child.kill('SIGKILL');

      const session = await new MikroOrmSessionService(orm.em).getSession({
        appName: 'app',
        userId: 'ada',
        sessionId: 's',
      });
      const responses = interruptedToolResponses(session!).flatMap(getFunctionResponses);
      expect(responses.map(({ name, response }) => [name, response])).toEqual([
        ['charge', { receipt: 17 }],
        ['mail', { error: expect.stringMatching(/may or may not have taken effect/) }],
      ]);
    } finally {
      await orm.close(true);
      await database.drop();
    }
  },
  240_000,
);
