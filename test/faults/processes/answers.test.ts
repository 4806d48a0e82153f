import { createEvent } from '@google/adk';
import { AdkEvent, AdkOpenCall } from '../../../entities/index.js';
import { MikroOrmSessionService } from '../../../src/index.js';
import type { ChildError } from './child.js';
import { openDatabases } from './opened.js';
import { keyOf } from './protocol.js';

const PROCESSES = 16;

const { opened, openedChild } = openDatabases();

test('H5 sixteen processes answer one call: one of them runs the agent', async () => {
  const children = await Promise.all(Array.from({ length: PROCESSES }, openedChild));
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
