import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { AdkEvent, adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../src/index.js';
import { range } from '../../contract/tools.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';
import { firstReports } from './first-report.js';
import type { Job, Report } from './turn-worker.js';

const run = firstReports<{ job: Job; report: Report }>('test/faults/processes/turn-worker.ts');

test.each(availableDatabases())(
  'H7 of sixteen workers that find one stored answer, of which the first is killed while it runs, one runs it on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    const service = new MikroOrmSessionService(orm.em);
    try {
      await migrate(orm);
      const session = await service.createSession({ appName: 'app', userId: 'ada', sessionId: 's' });
      const call = { id: 'c1', name: 'ask', args: {} };
      const response = { id: 'c1', name: 'ask', response: { color: 'red' } };
      const events = [
        createEvent({
          author: 'clerk',
          content: { role: 'model', parts: [{ functionCall: call }] },
          longRunningToolIds: ['c1'],
        }),
        createEvent({ author: 'user', content: { role: 'user', parts: [{ functionResponse: response }] } }),
      ];
      await service.appendEvents({ session, events });

      const killed = await run({ database, hangs: true });
      expect(killed.report).toBe('hangs');
      const others = range(15).map(() => run({ database, hangs: false }));
      killed.child.kill('SIGKILL');
      const reports = await Promise.all(others);
      for (const { child } of reports) child.disconnect();
      const said = reports.flatMap(({ report }): string[] => {
        if (typeof report === 'object' && 'said' in report) return report.said;
        // A worker that had no time to renew its lease has written nothing, and the next one runs the answer.
        return JSON.stringify(report).includes('LeaseLostError') ? [] : [JSON.stringify(report)];
      });
      expect(said).toEqual([expect.stringMatching(/^I am \d+\.$/)]);

      const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
      const stored = rows.map(({ data }) => data as { author: string; content: { parts: object[] } });
      expect(stored.map(({ author, content: { parts } }) => [author, ...parts])).toEqual([
        ['clerk', { functionCall: call }],
        ['user', { functionResponse: response }],
        ['clerk', { text: said[0] }],
      ]);
      expect((await service.findAnsweredCalls({ appName: 'app' })).calls).toEqual([]);
    } finally {
      await orm.close(true);
      await database.drop();
    }
  },
  240_000,
);
