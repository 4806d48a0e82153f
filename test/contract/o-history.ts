import { EventLog, MikroOrmSessionService, SessionMaintenance } from '../../src/index.js';
import type { OwnStore } from '../harnesses/harness.js';
import { OFTEN_MS, idsIn, read } from './log-tools.js';
import { Suite } from './rule.js';
import { errorOf, eventOf, expectCode, idsOf, plain, remember } from './tools.js';

/** Of section O what a restore or a failover to a replica that was behind leaves. */
export const historySuite = new Suite();

const KEY = { appName: 'app', userId: 'alice', sessionId: 's' };

const writing = (id: string) => eventOf({ id, actions: { stateDelta: { last: id, [id]: true } } });

/** Takes the session back to what it was after the events a and b. */
async function goBack({ orm, query }: OwnStore): Promise<void> {
  for (const sql of [
    'delete from adk_events where seq > 2',
    'update adk_sessions set last_seq = 2',
    "update adk_session_states set value = '\"b\"', event_id = 'b' where state_key = 'last'",
    "delete from adk_session_states where state_key = 'c'",
    "update adk_counters set value = 2 where name = 'position'",
  ]) {
    await orm.em.getConnection().execute(sql);
  }
  expect(await query('select last_seq from adk_sessions')).toEqual([{ last_seq: 2 }]);
}

async function withThreeEvents({ service }: OwnStore) {
  const session = await service.createSession(KEY);
  for (const id of ['a', 'b', 'c']) await service.appendEvent({ session, event: writing(id) });
  return session;
}

const storedIds = async ({ query }: OwnStore) =>
  (await query<{ event_id: string }>('select event_id from adk_events order by seq')).map((row) => row.event_id);

historySuite.own('O2', 'an append on a handle that is ahead of its session reads it anew', async ({ scratch }) => {
  const store = await scratch();
  const { service } = store;
  const session = await withThreeEvents(store);
  await goBack(store);
  const { state, events } = session;
  await service.appendEvent({ session, event: writing('d') });

  expect(await storedIds(store)).toEqual(['a', 'b', 'd']);
  expect(idsOf(session)).toEqual(['a', 'b', 'd']);
  expect(session.state).toBe(state);
  expect(session.events).toBe(events);
  expect(plain(session)).toEqual(plain(await service.getSession(KEY)));
});

historySuite.own('O2', 'a lost event that is appended again is new', async ({ scratch }) => {
  const store = await scratch();
  const session = await withThreeEvents(store);
  const [, , lost] = session.events;
  await goBack(store);
  await store.service.appendEvents({ session, events: [lost!, writing('d')] });
  expect(await storedIds(store)).toEqual(['a', 'b', 'c', 'd']);
  expect(plain(session)).toEqual(plain(await store.service.getSession(KEY)));
});

historySuite.own('O2', 'with reject a handle that is ahead is stale, and nothing is written', async ({ scratch }) => {
  const store = await scratch();
  const session = await withThreeEvents(store);
  await goBack(store);
  const unchanged = remember(session);
  const strict = new MikroOrmSessionService(store.orm.em, { onStaleSession: 'reject' });
  await expectCode(strict.appendEvent({ session, event: writing('d') }), 'ADK_STALE_SESSION');
  unchanged();
  expect(await storedIds(store)).toEqual(['a', 'b']);
});

historySuite.own('O2', 'a cursor ahead of the log is told, with the place to go on from', async ({ scratch }) => {
  const store = await scratch();
  await withThreeEvents(store);
  const log = new EventLog(store.orm.em);
  const ofSession = log.session(KEY);
  const newest = [(await log.head()).position, await ofSession.head()];
  expect(newest).toEqual([3, 3]);
  await goBack(store);

  for (const entries of [log.since(3), log.watch(3), ofSession.since(3), ofSession.watch(3)]) {
    const error = await errorOf(read(entries));
    expect(error).toMatchObject({ code: 'ADK_LOG_WENT_BACK', position: 2 });
  }
  const session = (await store.service.getSession(KEY))!;
  await store.service.appendEvent({ session, event: writing('d') });
  expect(idsIn(await read(log.since(2)))).toEqual(['d']);
  expect(idsIn(await read(ofSession.since(2)))).toEqual(['d']);
});

historySuite.own('O2', 'an epoch tells a reader whose cursor the log has passed again', async ({ scratch }) => {
  const store = await scratch();
  await withThreeEvents(store);
  const log = new EventLog(store.orm.em, { pollIntervalMs: OFTEN_MS });
  const cursor = await log.head();
  expect(cursor).toEqual({ position: 3, epoch: 0 });
  const watching = log.watch(cursor)[Symbol.asyncIterator]();
  const next = errorOf(watching.next());

  await goBack(store);
  const maintenance = new SessionMaintenance(store.orm.em);
  expect(await maintenance.beginLogEpoch()).toEqual({ position: 2, epoch: 1 });
  const session = (await store.service.getSession(KEY))!;
  for (const id of ['d', 'e', 'f']) await store.service.appendEvent({ session, event: writing(id) });

  const wentBack = { code: 'ADK_LOG_WENT_BACK', position: 2, epoch: 1 };
  // It may have looked before the epoch began.
  expect(await next).toMatchObject({ code: 'ADK_LOG_WENT_BACK', position: 2 });
  for (const entries of [log.since(cursor), log.watch(cursor)])
    expect(await errorOf(read(entries))).toMatchObject(wentBack);
  // Who was behind has seen nothing that is gone.
  expect(await errorOf(read(log.since({ position: 1, epoch: 0 })))).toMatchObject({ ...wentBack, position: 1 });
  expect(idsIn(await read(log.since({ position: 2, epoch: 1 })))).toEqual(['d', 'e', 'f']);
  // A later epoch does not hide where the first one ended.
  await maintenance.beginLogEpoch();
  expect(await errorOf(read(log.since(cursor)))).toMatchObject({ ...wentBack, epoch: 2 });
  expect((await log.head()).epoch).toBe(2);
  await expectCode(
    Promise.resolve().then(() => log.since({ position: 1 } as never)),
    'ADK_INVALID_ARGUMENT',
  );
});

for (const ofSession of [false, true]) {
  historySuite.own(
    'O2',
    `a watcher of ${ofSession ? 'a session' : 'the log'} is told when the log goes back`,
    async ({ scratch }) => {
      const store = await scratch();
      await withThreeEvents(store);
      const log = new EventLog(store.orm.em, { pollIntervalMs: OFTEN_MS });
      const entries = (ofSession ? log.session(KEY) : log).watch(0)[Symbol.asyncIterator]();
      for (const id of ['a', 'b', 'c']) expect((await entries.next()).value).toMatchObject({ event: { id } });
      const next = errorOf(entries.next());
      await goBack(store);
      expect(await next).toMatchObject({ code: 'ADK_LOG_WENT_BACK', position: 2 });
    },
  );
}
