import { LlmAgent, Runner, createEvent, type Event } from '@google/adk';
import { AdkEvent, AdkOpenCall } from '../../../entities/index.js';
import { MikroOrmSessionService } from '../../../src/index.js';
import { scriptedModel } from '../../../src/testing/index.js';
import type { ChildError } from './child.js';
import { openDatabases } from './opened.js';
import { keyOf } from './protocol.js';

const PROCESSES = 16;

const { opened, openedChild } = openDatabases();

const asks = () =>
  createEvent({
    ...{ author: 'agent', longRunningToolIds: ['c1'] },
    content: { role: 'model', parts: [{ functionCall: { id: 'c1', name: 'ask_user', args: {} } }] },
  });

const says = (author: string, text: string) =>
  createEvent({ author, content: { role: author === 'user' ? 'user' : 'model', parts: [{ text }] } });

const shown = (content: NonNullable<Event['content']>) =>
  content.parts!.map(({ text, functionCall, functionResponse }) =>
    [content.role, text ?? (functionCall ? 'calls' : functionResponse && 'responds')].join(' '),
  );

test('K7 a process dies with the answer to an old call stored, and the next one continues with a bounded history', async () => {
  for (const { database, orm } of opened) {
    const key = keyOf('answered');
    const unbounded = new MikroOrmSessionService(orm.em);
    const session = await unbounded.createSession(key);
    const between = ['1', '2', '3'].flatMap((n) => [says('user', `Question ${n}`), says('agent', `Answer ${n}`)]);
    await unbounded.appendEvents({
      session,
      events: [says('user', 'Order.'), asks(), says('agent', 'Wait.'), ...between],
    });
    const child = await openedChild();
    const answered = { name: database.name, sessionId: 'answered', id: 'c1', dies: true };
    await expect(child.call('answer', answered)).rejects.toThrow('The process has ended');

    const sessionService = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 2 });
    const stored = (await unbounded.getSession(key))!.events;
    expect(stored.at(-1)).toMatchObject({ author: 'user' });
    expect((await sessionService.findOpenCalls({ appName: key.appName })).calls).toEqual([]);
    const order = ['user Order.', 'model calls', 'user responds', 'model Wait.'];
    const response = { id: 'c1', name: 'ask_user', response: { by: 'another client' } };
    for (const [message, expected] of [
      [{ text: 'Hello?' }, [...order, 'user Question 3', 'model Answer 3', 'user Hello?']],
      // A client that got no answer sends its response again. Events in between are not shown, as with the whole history.
      [{ functionResponse: response }, order.slice(0, 3)],
    ] as const) {
      const fork = await unbounded.forkSession(key, {});
      const model = scriptedModel(['Thank you.']);
      const agent = new LlmAgent({ name: 'agent', model });
      const runner = new Runner({ appName: key.appName, agent, sessionService });
      const run = runner.runAsync({
        userId: key.userId,
        sessionId: fork.id,
        newMessage: { role: 'user', parts: [message] },
      });
      const texts: unknown[] = [];
      for await (const { content } of run) texts.push(content?.parts?.[0]?.text);
      expect([database.name, texts]).toEqual([database.name, ['Thank you.']]);
      expect(model.requests[0]!.contents.flatMap(shown)).toEqual(expected);
    }
  }
}, 600_000);

test('H5 sixteen processes answer one call: one of them runs the agent', async () => {
  const children = await Promise.all(Array.from({ length: PROCESSES }, openedChild));
  for (const { database, orm } of opened) {
    const { name } = database;
    const key = keyOf('asked');
    const service = new MikroOrmSessionService(orm.em);
    const session = await service.createSession(key);
    await service.appendEvent({ session, event: asks() });
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
    const rows = await em.find(
      AdkEvent,
      { session: { appName: key.appName, id: 'asked' } },
      { orderBy: { seq: 'asc' } },
    );
    expect(rows.map(({ data }) => (data as { author: string }).author)).toEqual(['agent', 'user', 'agent']);
    expect(await em.find(AdkOpenCall, { name: 'ask_user', seq: 1 })).toMatchObject([{ openUntil: 2 }]);
  }
}, 600_000);
