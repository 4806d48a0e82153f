import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { AdkSession, adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, SessionMaintenance, migrate } from '../../../src/index.js';
import { FILE_DATABASES, availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';
import { Child, workerBundle } from './child.js';
import { keyOf } from './protocol.js';

const DAY = 24 * 3_600_000;
const OLD = 200;
const EVENTS = 5;

beforeAll(() => workerBundle.build());
afterAll(() => workerBundle.remove());

describe.each(FILE_DATABASES.filter((name) => availableDatabases().includes(name)))(
  'maintenance of a file of %s that another process writes to',
  (name) => {
    let database: TestDatabase;
    let orm: MikroORM;
    let child: Child;

    beforeAll(async () => {
      database = await createDatabase(name);
      orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
      await migrate(orm);
      child = new Child();
      await child.call('open', { name, url: database.url });
    });
    afterAll(async () => {
      await child.kill();
      await orm.close(true);
      await database.drop();
    });

    test('K1 the writer gets its turn between two transactions', async () => {
      const service = new MikroOrmSessionService(orm.em);
      for (let i = 0; i < OLD; i++) {
        const session = await service.createSession(keyOf(`old ${i}`));
        const events = Array.from({ length: EVENTS }, () => createEvent({ timestamp: Date.now() - 2 * DAY }));
        await service.appendEvents({ session, events });
      }
      await service.createSession(keyOf('at work'));
      const lastSeq = async () => {
        const { appName, userId, sessionId: id } = keyOf('at work');
        return (await orm.em.fork().findOneOrFail(AdkSession, { appName, userId, id })).lastSeq;
      };
      const appending = child.call('appendForever', { sessionId: 'at work', label: 'append' }).catch(String);
      await child.untilAcknowledged(1, name);

      const before = await lastSeq();
      const maintenance = new SessionMaintenance(orm.em);
      const pruned = await maintenance.prune({ idleFor: DAY, batchSize: 5 * (EVENTS + 1) });
      const appended = (await lastSeq()) - before;

      expect(pruned).toMatchObject({ done: { sessions: OLD, events: OLD * EVENTS }, batches: OLD / 5, skipped: 0 });
      // Without pauses, it would find the file free only once in many attempts.
      expect(appended).toBeGreaterThanOrEqual(pruned.batches);
      await child.kill();
      expect(await appending).toBe('Error: The process has ended');
    });
  },
);
