import { getFunctionCalls } from '@google/adk';
import { MikroOrmSessionService, SessionMaintenance, toMessages } from '../../src/index.js';
import { keyOf, type OwnStore } from '../support/harnesses/harness.js';
import { Suite, onInnodb } from './rule.js';
import { count, errorOf, eventOf, expectCode, faulty, range, saying } from './tools.js';

export const pagesSuite = new Suite();

const numbers = ({ events }: { events: readonly { seq: number }[] }) => events.map(({ seq }) => seq);
const from = (first: number, last: number) => range(last - first + 1).map((i) => first + i);

pagesSuite.own('C6', 'pages go both ways by numbers, and hold the events that were appended', async (context) => {
  const { create, service, another, orm } = context;
  const session = await create();
  const events = await count(service, session, 25);
  const key = keyOf(session);
  const pageOf = async (request: Parameters<typeof service.readEvents>[1]) => {
    const page = await another.readEvents(key, request);
    expect(page).toMatchObject({ firstSeq: trimmed + 1, lastSeq: 25 });
    for (const { seq, event } of page.events) expect(event).toEqual(events[seq - 1]);
    return numbers(page);
  };
  let trimmed = 0;
  expect(await pageOf({ limit: 10 })).toEqual(from(16, 25));
  expect(await pageOf({ limit: 10, before: 16 })).toEqual(from(6, 15));
  expect(await pageOf({ limit: 10, before: 6 })).toEqual(from(1, 5));
  expect(await pageOf({ limit: 10, before: 1 })).toEqual([]);
  expect(await pageOf({ limit: 10, after: 0 })).toEqual(from(1, 10));
  expect(await pageOf({ limit: 10, after: 20 })).toEqual(from(21, 25));
  expect(await pageOf({ limit: 10, after: 25 })).toEqual([]);
  expect(await pageOf({ limit: 3, after: 4, before: 20 })).toEqual([17, 18, 19]);
  expect(await pageOf({ after: 4, before: 7 })).toEqual([5, 6]);
  expect(await pageOf({ limit: 3, order: 'desc' })).toEqual([25, 24, 23]);
  expect(await pageOf({ limit: 3, after: 4, order: 'desc' })).toEqual([7, 6, 5]);
  expect(await pageOf({})).toEqual(from(1, 25));

  await new SessionMaintenance(orm.em).trim({ ...key, keepLast: 15 });
  trimmed = 10;
  expect(await pageOf({ limit: 20 })).toEqual(from(11, 25));
  expect(await pageOf({ limit: 10, after: 3 })).toEqual(from(11, 20));
  expect(await pageOf({ limit: 10, before: 11 })).toEqual([]);
});

pagesSuite.own('C6', 'a page takes one statement', async ({ create, service, recorded }) => {
  const session = await create();
  await count(service, session, 3);
  const page = () => service.readEvents(keyOf(session), { limit: 2, before: 3 });
  expect(await recorded(page)).toHaveLength(1);
});

pagesSuite.own('C6', 'an empty session has an empty page, and one that is gone has none', async (context) => {
  const { create, service } = context;
  const session = await create();
  expect(await service.readEvents(keyOf(session))).toEqual({ events: [], firstSeq: 1, lastSeq: 0 });
  const soft = new MikroOrmSessionService(context.orm.em, { deletion: 'soft' });
  await soft.deleteSession(keyOf(session));
  await expectCode(service.readEvents(keyOf(session)), 'ADK_SESSION_NOT_FOUND');
  await expectCode(service.readEvents({ ...keyOf(session), sessionId: 'none' }), 'ADK_SESSION_NOT_FOUND');
});

pagesSuite.own('C6', 'a number above all that an event can have is answered alike', async ({ create, service }) => {
  const session = await create();
  await count(service, session, 3);
  const key = keyOf(session);
  for (const number of [2 ** 31 - 1, 2 ** 31, 2 ** 53 - 1]) {
    expect(numbers(await service.readEvents(key, { after: number }))).toEqual([]);
    expect(numbers(await service.readEvents(key, { after: number, before: number }))).toEqual([]);
    expect(numbers(await service.readEvents(key, { before: number, limit: number }))).toEqual([1, 2, 3]);
    const config = { numRecentEvents: number };
    expect((await service.getSession({ ...key, config }))?.events).toHaveLength(3);
    for (const point of [{ at: number }, { at: number, as: 'fork' }]) {
      const call = 'as' in point ? service.forkSession(key, point) : service.rewindSession(key, point);
      await expectCode(call, 'ADK_INVALID_ARGUMENT', 'at must be from 0 to 3');
    }
  }
});

pagesSuite.own('C6', 'an invalid number of an event is refused', async ({ create, service }) => {
  const key = keyOf(await create());
  for (const request of [{ limit: 0 }, { limit: 1.5 }, { before: -1 }, { after: 0.5 }, { after: NaN }])
    await expectCode(service.readEvents(key, request), 'ADK_INVALID_ARGUMENT');
  const undefinedBound: object = { before: undefined };
  await expectCode(service.readEvents(key, undefinedBound), 'ADK_INVALID_ARGUMENT', 'before');
  const other: object = { order: 'newest' };
  await expectCode(service.readEvents(key, other), 'ADK_INVALID_ARGUMENT', 'order');
});

pagesSuite.own('C6', 'a damaged event is an error only on its page', async (context) => {
  const { create, service, query, orm } = context;
  const session = await create();
  await count(service, session, 9);
  const key = keyOf(session);
  const values = [key.appName, key.userId, key.sessionId];
  await query('delete from adk_events where app_name = ? and user_id = ? and session_id = ? and seq = 5', values);
  expect(await errorOf(service.readEvents(key, { limit: 3, before: 7 }))).toMatchObject({
    code: 'ADK_DAMAGED_SESSION',
    events: [{ from: 5, to: 5, problem: 'missing' }],
  });
  expect(numbers(await service.readEvents(key, { limit: 3 }))).toEqual([7, 8, 9]);
  const reported: Error[] = [];
  const skipping = new MikroOrmSessionService(orm.em, {
    onDamagedEvent: 'skip',
    onDamage: (error) => void reported.push(error),
  });
  expect(numbers(await skipping.readEvents(key, { limit: 3, before: 7 }))).toEqual([4, 6]);
  expect(reported).toMatchObject([{ events: [{ from: 5, to: 5 }] }]);
});

/** Something that happens between the statement that reads a page and the one that reads an event in parts. */
const BETWEEN: Record<string, (store: OwnStore, key: ReturnType<typeof keyOf>) => Promise<unknown>> = {
  trim: ({ peer }, key) => new SessionMaintenance(peer.em).trim({ ...key, keepLast: 2 }),
  rewind: ({ another }, key) => another.rewindSession(key, { at: 4 }),
};

for (const [name, change] of Object.entries(BETWEEN)) {
  pagesSuite.own(
    'C6',
    `a ${name} while a page is read is not damage`,
    async (context) => {
      const { create, service, orm } = context;
      const session = await create();
      const large = 'x'.repeat(600_000);
      for (const text of ['1', '2', large, '4', large, '6'])
        await service.appendEvent({ session, event: saying(text) });
      let isDone = false;
      const before = async (text: string) => {
        if (isDone || !text.includes('adk_event_parts')) return;
        isDone = true;
        await change(context, keyOf(session));
      };
      const page = await new MikroOrmSessionService(faulty(orm.em, { before })).readEvents(keyOf(session), {
        limit: 4,
      });
      expect(isDone).toBe(true);
      expect(numbers(page)).toEqual(name === 'trim' ? [5, 6] : [1, 2, 3, 4]);
    },
    onInnodb,
  );
}

pagesSuite.own('C6', 'messages of a page say which call or answer lies on another', async ({ create, service }) => {
  const session = await create();
  const call = { id: 'c1', name: 'find', args: { a: 1 } };
  const response = { id: 'c1', name: 'find', response: { found: true } };
  await service.appendEvents({
    session,
    events: [
      saying('before'),
      eventOf({ content: { role: 'model', parts: [{ functionCall: call }] } }),
      eventOf({ content: { role: 'user', parts: [{ functionResponse: response }] } }),
      saying('after'),
    ],
  });
  const key = keyOf(session);
  const older = await service.readEvents(key, { before: 3, order: 'desc' });
  expect(toMessages(older)).toMatchObject([{ text: 'before' }, { toolCalls: [{ id: 'c1', isResponseMissing: true }] }]);
  const newer = await service.readEvents(key, { after: 2 });
  expect(toMessages(newer)).toMatchObject([
    { toolCalls: [{ id: 'c1', isCallMissing: true, response: { found: true } }] },
    { text: 'after' },
  ]);
  // Nothing has answered an open call in the newest page.
  await service.appendEvent({
    session,
    event: eventOf({ content: { role: 'model', parts: [{ functionCall: { ...call, id: 'c2' } }] } }),
  });
  const newest = await service.readEvents(key, { after: 4 });
  expect(newest.events.flatMap(({ event }) => getFunctionCalls(event))).toHaveLength(1);
  expect(toMessages(newest)[0]?.toolCalls).toEqual([{ ...call, id: 'c2', isLongRunning: false }]);
  const both = [...older.events.toReversed(), ...newer.events].map(({ event }) => event);
  expect(toMessages(both)[1]?.toolCalls).toEqual([{ ...call, isLongRunning: false, response: { found: true } }]);
});
