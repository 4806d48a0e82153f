import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { AdkEvent, AdkOpenCall, adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../src/index.js';
import { availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';
import { Child, workerBundle, type ChildError } from './child.js';
import { keyOf } from './protocol.js';

const PROCESSES = 16;

const opened: { database: TestDatabase; orm: MikroORM }[] = [];
const children: Child[] = [];

beforeAll(async () => {
  await workerBundle.build();
  for (const name of availableDatabases()) {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    opened.push({ database, orm });
    await migrate(orm);
  }
});

afterAll(async () => {
  await Promise.all(children.map((child) => child.end()));
  await workerBundle.remove();
  for (const { database, orm } of opened) {
    await orm.close(true);
    await database.drop();
  }
});

test('H5 sixteen processes answer one call: one of them runs the agent', async () => {
  for (let i = 0; i < PROCESSES; i++) {
    const child = new Child();
    children.push(child);
    for (const { database } of opened) await child.call('open', { name: database.name, url: database.url });
  }
  for (const { database, orm } of opened) {
    const { name } = database;
    const key = keyOf('asked');
    const service = new MikroOrmSessionService(orm.em);
    const session = await service.createSession(key);
    const functionCall = { id: 'c1', name: 'ask_user', args: {} };
    const event = createEvent({
      ...{ author: 'agent', longRunningToolIds: ['c1'] },
      content: { role: 'model', parts: [{ functionCall }] },
    });
    await service.appendEvent({ session, event });
    const outcomes = await Promise.all(
      children.map((child) =>
        child
          .call('answer', { name, sessionId: 'asked', id: 'c1' })
          .catch((error: unknown) => (error as ChildError).code),
      ),
    );
    const refused = Array<string>(PROCESSES - 1).fill('ADK_CALL_ANSWERED');
    expect([name, ...outcomes.sort()]).toEqual([name, 1, ...refused]);
    const em = orm.em.fork();
    const rows = await em.find(AdkEvent, { session: { appName: key.appName } }, { orderBy: { seq: 'asc' } });
    expect(rows.map(({ data }) => (data as { author: string }).author)).toEqual(['agent', 'user', 'agent']);
    expect(await em.count(AdkOpenCall, {})).toBe(0);
  }
}, 600_000);
