import type { Session } from '@google/adk';
import { LockMode, type EntityManager } from '@mikro-orm/core';
import { AdkAppState, AdkUserState } from '../../entities/index.js';
import { STATE_RULES } from '../../packages/session-contract/src/state-rules.js';
import { encryption } from '../../src/codecs/index.js';
import { MikroOrmSessionService, adkServices, type AdkServicesOptions, type SessionKey } from '../../src/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, oncePerDialect, onInnodb, onServers, type OwnContext } from './rule.js';
import { expectCode, eventOf, faulty, idsOf, plain, range, saying, type Faults } from './tools.js';

export const stateSuite = new Suite();
stateSuite.publish(STATE_RULES);

const ALL_SCOPES = { a: 1, 'app:a': 2, 'user:a': 3 };

for (const [way, write] of [
  ['createSession', ({ create }) => create({ state: ALL_SCOPES })],
  [
    'appendEvent',
    async ({ create, append }) => {
      const session = await create();
      await append(session, { delta: ALL_SCOPES });
      return session;
    },
  ],
] as const satisfies [string, (context: Pick<OwnContext, 'create' | 'append'>) => Promise<unknown>][]) {
  stateSuite.own('B1', `${way} stores keys without their prefix, one row each`, async (context) => {
    const { app, query } = context;
    await write(context);
    for (const table of ['adk_session_states', 'adk_app_states', 'adk_user_states']) {
      expect(await query(`select state_key from ${table} where app_name = ?`, [app])).toEqual([{ state_key: 'a' }]);
    }
  });
}

stateSuite.own(
  'B2',
  'keys that differ in case, accent or trailing space are different rows',
  async ({ create, append, stored }) => {
    const keys = ['a', 'A', 'a ', 'á', 'a\u0301', ' a'].flatMap((key) => [key, `app:${key}`, `user:${key}`]);
    const state = Object.fromEntries(keys.map((key, i) => [key, i]));
    const session = await create({ state });
    await append(session, { delta: { A: 'new' } });
    expect((await stored(keyOf(session)))?.state).toEqual({ ...state, A: 'new' });
  },
);

stateSuite.own(
  'B3',
  'the cost of an append does not depend on other state',
  async ({ app, orm: _orm, recorded, service, create, append }) => {
    const cost = async (size: number) => {
      const keys = range(size).flatMap((i) => [`k${i}`, `app:k${i}`, `user:k${i}`]);
      const state = Object.fromEntries(keys.map((key) => [key, 'x'.repeat(100)]));
      const session = await create({ appName: `${app} ${size}`, sessionId: 's', state });
      await append(session, { delta: { k1: 0, 'app:k1': 0 } });
      const statements = await recorded(() =>
        service.appendEvent({
          session,
          event: eventOf({ id: 'e', timestamp: 1, actions: { stateDelta: { k1: 1, 'app:k1': 1 } } }),
        }),
      );
      return {
        texts: statements.map(({ text }) => text),
        bytes: JSON.stringify(statements.map(({ values }) => values)).length,
      };
    };
    const small = await cost(10);
    const large = await cost(400);
    expect(large.texts).toEqual(small.texts);
    // Incarnation and name of the app; not 100 bytes a key.
    expect(Math.abs(large.bytes - small.bytes)).toBeLessThan(50);
  },
);

stateSuite.own(
  'B3',
  'an append waits for no app or user row that its delta does not touch',
  async ({ peer, create, append, fresh, app }) => {
    await create({ state: { 'app:theirs': 1, 'user:theirs': 1 } });
    const session = await create();
    await peer.em.fork().transactional(async (em) => {
      await em.findOneOrFail(AdkAppState, { appName: app, key: 'theirs' }, { lockMode: LockMode.PESSIMISTIC_WRITE });
      await em.findOneOrFail(
        AdkUserState,
        { appName: app, userId: 'alice', key: 'theirs' },
        { lockMode: LockMode.PESSIMISTIC_WRITE },
      );
      await append(session, { delta: { mine: 1 } });
      await append(session, { delta: { 'app:mine': 1, 'user:mine': 1 } });
    });
    expect((await fresh(session)).state).toMatchObject({ mine: 1, 'app:mine': 1, 'user:mine': 1 });
  },
  onServers,
);

stateSuite.own('B6', 'state is read and changed outside a run', async ({ app, service, create, fresh }) => {
  const session = await create({ state: { a: 1, b: 1, 'app:a': 1, 'app:b': 1, 'user:a': 1, 'user:b': 1 } });
  const user = { appName: app, userId: 'alice' };
  await service.updateState({
    ...user,
    sessionId: session.id,
    set: { a: 2, c: 2, 'app:a': 2, 'user:a': { deep: [2] } },
    remove: ['b', 'app:b', 'user:b', 'never'],
  });
  expect(await service.getAppState({ appName: app })).toEqual({ 'app:a': 2 });
  expect(await service.getUserState(user)).toEqual({ 'user:a': { deep: [2] } });
  expect((await fresh(session)).state).toEqual({ a: 2, c: 2, 'app:a': 2, 'user:a': { deep: [2] } });
  expect(await service.getUserState({ ...user, userId: 'bob' })).toEqual({});
  expect(await service.getAppState({ appName: `${app}2` })).toEqual({});
});

stateSuite.own('B6', 'removing a key deletes its row', async ({ app, service, create, query }) => {
  const session = await create({ state: { a: 1, 'app:a': 1, 'user:a': 1 } });
  const key = { appName: app, userId: 'alice', sessionId: session.id };
  await service.updateState({ ...key, remove: ['a', 'app:a', 'user:a'] });
  for (const table of ['adk_session_states', 'adk_app_states', 'adk_user_states']) {
    expect(await query(`select state_key from ${table} where app_name = ?`, [app])).toEqual([]);
  }
});

stateSuite.own('B6', 'app and user keys need no session', async ({ app, service }) => {
  await service.updateState({ appName: app, set: { 'app:a': 1 } });
  await service.updateState({ appName: app, userId: 'alice', set: { 'user:a': 1 } });
  expect(await service.getAppState({ appName: app })).toEqual({ 'app:a': 1 });
  expect(await service.getUserState({ appName: app, userId: 'alice' })).toEqual({ 'user:a': 1 });
});

stateSuite.own('B6', 'impossible values are refused, and nothing is written', async ({ app, service, query }) => {
  const user = { appName: app, userId: 'alice' };
  const good = { 'app:a': 1 };
  for (const request of [
    { appName: app, set: { ...good, 'user:a': 1 } },
    { ...user, set: { ...good, a: 1 } },
    { ...user, sessionId: 's', set: { ...good, 'temp:a': 1 } },
    { ...user, sessionId: 's', remove: ['temp:a'] },
    { ...user, set: good, remove: ['app:a'] },
    { ...user, set: { ...good, 'app:': 1 } },
    { ...user, set: { ...good, ['user:' + 'x'.repeat(256)]: 1 } },
  ]) {
    await expectCode(service.updateState(request), 'ADK_INVALID_KEY');
  }
  await expectCode(
    service.updateState({ ...user, set: { ...good, 'app:b': NaN } }),
    'ADK_UNSERIALIZABLE_VALUE',
    /^set\.app:b /,
  );
  await expectCode(
    service.updateState({ ...user, sessionId: 'missing', set: { ...good, a: 1 } }),
    'ADK_SESSION_NOT_FOUND',
  );
  expect(await query('select state_key from adk_app_states where app_name = ?', [app])).toEqual([]);
});

stateSuite.own(
  'B6',
  'a live handle sees the change when it is read again',
  async ({ app, service, create, append, fresh }) => {
    const session = await create({ state: { a: 1 } });
    await service.updateState({ appName: app, userId: 'alice', sessionId: session.id, set: { b: 2 }, remove: ['a'] });
    await append(session, { delta: { c: 3 } });
    expect((await fresh(session)).state).toEqual({ b: 2, c: 3 });
  },
);

/** What others may do to a session while somebody holds a handle, apart from appending new events. */
const CHANGES = {
  'set and remove state': ({ sessionService }, key) =>
    sessionService.updateState({ ...key, set: { a: 2, added: 1, 'user:a': 2 }, remove: ['gone'] }),
  'write an event again': async ({ sessionService }, key) => {
    const session = (await sessionService.getSession(key))!;
    const actions = { stateDelta: { n: 0, rewritten: 2 } };
    await sessionService.appendEvent({ session, event: eventOf({ id: 'e3', author: 'again', timestamp: 9, actions }) });
  },
  'trim it': ({ maintenance }, key) => maintenance.trim({ ...key, keepLast: 2 }),
  'trim all of it': ({ maintenance }, key) => maintenance.trim({ ...key, keepLast: 0 }),
  'delete and restore it': async ({ sessionService }, key) => {
    await sessionService.deleteSession(key);
    await sessionService.restoreSession(key);
  },
} satisfies Record<string, (others: Services, key: SessionKey) => Promise<unknown>>;

type Services = ReturnType<typeof servicesOf>;

const servicesOf = (em: EntityManager, { sessions, ...options }: AdkServicesOptions) =>
  adkServices(em, { ...options, sessions: { ...sessions, deletion: 'soft' } });

const { 'set and remove state': update, ...others } = CHANGES;

for (const [title, changes] of [
  ...Object.entries(CHANGES).map(([title, change]) => [title, [change]] as const),
  ...Object.entries(others).map(
    ([title, change]) => [`set and remove state, then ${title}`, [update, change]] as const,
  ),
] as const) {
  stateSuite.own(
    'B4',
    `a handle has what others did meanwhile: ${title}`,
    async ({ orm, peer, create, stored }) => {
      for (const options of [{}, { codec: encryption({ currentKey: 'k', key: () => Buffer.alloc(32, 1) }) }]) {
        const { sessionService } = servicesOf(orm.em, options);
        const state = { a: 1, gone: 1, kept: 1 };
        const { id } = await create({ state: {} });
        const session = await sessionService.createSession({ ...keyOf(await create()), sessionId: `of ${id}`, state });
        const events = range(4).map((n) =>
          saying(`e${n}`, { id: `e${n}`, timestamp: n, actions: { stateDelta: { n } } }),
        );
        await sessionService.appendEvents({ session, events });
        const recent = (await sessionService.getSession({ ...keyOf(session), config: { numRecentEvents: 1 } }))!;
        const handles = [session, (await sessionService.getSession(keyOf(session)))!, recent];
        for (const handle of handles) Object.assign(handle.state, { direct: 'd', kept: 'direct', 'temp:t': 't' });

        for (const change of changes) await change(servicesOf(peer.em, options), keyOf(session));
        for (const [i, handle] of handles.entries()) {
          const saysN = (n: number) => saying('mine', { id: `mine ${i} ${n}`, timestamp: 10 * i + n });
          await sessionService.appendEvent({ session: handle, event: saysN(0) });
          await Promise.all([1, 2].map((n) => sessionService.appendEvent({ session: handle, event: saysN(n) })));
          const fresh = (await sessionService.getSession(keyOf(session)))!;
          const own = { 'temp:t': 't', direct: 'd', kept: 'direct' };
          expect(handle.state).toEqual({ ...fresh.state, ...own });
          expect(handle.lastUpdateTime).toBe(fresh.lastUpdateTime);
          expect(plain(handle.events)).toEqual(
            plain(handle === recent ? fresh.events.slice(-handle.events.length) : fresh.events),
          );
        }
        const fresh = await sessionService.getSession(keyOf(session));
        if (!('codec' in options)) expect((await stored(keyOf(session)))?.state).toEqual(fresh?.state);
      }
    },
    oncePerDialect,
  );
}

/** What others do while a handle is behind, after six events. Each was shown wrong by a handle once. */
const MISSED: Record<string, (others: Services, key: SessionKey) => Promise<unknown>> = {
  'a trimmed event that is appended again': async ({ sessionService, maintenance }, key) => {
    await maintenance.trim({ ...key, keepLast: 3 });
    const event = saying('new content', { id: 'e2', timestamp: 20 });
    await sessionService.appendEvent({ session: (await sessionService.getSession(key))!, event });
  },
  'events with state, then a trim of them': async ({ sessionService, maintenance }, key) => {
    const session = (await sessionService.getSession(key))!;
    const stateDelta = { stock: 0, sold: true, 'user:vip': 1 };
    for (const actions of [{ stateDelta }, {}])
      await sessionService.appendEvent({ session, event: eventOf({ timestamp: 20, actions }) });
    await maintenance.trim({ ...key, keepLast: 1 });
  },
  'an event that is rewritten twice': async ({ sessionService }, key) => {
    const session = (await sessionService.getSession(key))!;
    for (const stateDelta of [{ a: 1 }, { b: 2 }])
      await sessionService.appendEvent({
        session,
        event: eventOf({ id: 'e1', timestamp: 1, actions: { stateDelta } }),
      });
  },
  'all of its events': ({ maintenance }, key) => maintenance.trim({ ...key, keepLast: 0 }),
};

for (const [title, change] of Object.entries(MISSED)) {
  stateSuite.own('B4', `a handle that missed it equals what is stored: ${title}`, async ({ orm, peer, create }) => {
    const { sessionService: service } = servicesOf(orm.em, {});
    const session = await create({ state: { stock: 9 } });
    await service.appendEvents({
      session,
      events: range(6).map((n) => saying(`e${n}`, { id: `e${n}`, timestamp: n })),
    });
    const clone = structuredClone(session);
    const again = (await service.getSession(keyOf(session)))!;
    await change(servicesOf(peer.em, {}), keyOf(session));
    const appends: [Session, Parameters<typeof eventOf>[0]][] = [
      [session, { id: 'mine' }],
      [again, { id: 'e1', actions: { stateDelta: { mine: 3 } } }],
      [clone, { id: 'of a clone' }],
      [session, { id: 'mine, later' }],
    ];
    for (const [handle, event] of appends) {
      const before = new Map(handle.events.map((each) => [each.id, { each, text: JSON.stringify(each) }]));
      await service.appendEvent({ session: handle, event: eventOf({ timestamp: 30, ...event }) });
      const fresh = (await service.getSession(keyOf(session)))!;
      expect(handle.state).toEqual(fresh.state);
      expect(plain(handle.events)).toEqual(plain(fresh.events));
      expect(handle.lastUpdateTime).toBe(fresh.lastUpdateTime);
      // What is the same stays the same object.
      for (const event of handle.events) {
        const known = before.get(event.id);
        if (known?.text === JSON.stringify(event)) expect(event).toBe(known.each);
      }
    }
  });
}

stateSuite.own(
  'E2',
  'a change that is not a new event refuses no append',
  async ({ app, orm, peer, service }) => {
    for (const [title, change] of Object.entries(CHANGES)) {
      const session = await service.createSession({ appName: app, userId: 'alice', sessionId: title });
      const events = range(4).map((n) => saying(`e${n}`, { id: `e${n}`, timestamp: n }));
      await service.appendEvents({ session, events });
      await change(servicesOf(peer.em, {}), keyOf(session));
      await servicesOf(orm.em, { sessions: { onStaleSession: 'reject' } }).sessionService.appendEvent({
        session,
        event: saying('x', { id: 'x' }),
      });
      expect(session.events.at(-1)?.id).toBe('x');
    }
  },
  oncePerDialect,
);

stateSuite.own(
  'B4',
  'a handle gets what a transaction that appended to it could not see',
  async ({ orm, peer, service, create, fresh }) => {
    const session = await create({ state: { a: 1 } });
    await service.appendEvents({ session, events: ['e1', 'e2'].map((id) => saying(id, { id })) });
    const others = servicesOf(peer.em, {}).sessionService;
    for (const id of ['new', 'e1']) {
      session.state.direct = id;
      await orm.em.transactional(async (tx) => {
        const joined = service.withEntityManager(tx);
        await joined.getSession(keyOf(session));
        await others.updateState({ ...keyOf(session), set: { a: `beside ${id}` } });
        const actions = { stateDelta: { [id]: 1 } };
        await joined.appendEvent({ session, event: saying('again', { id, actions }) });
        await joined.updateState({ ...keyOf(session), set: { own: id } });
        await joined.appendEvent({ session, event: saying('more', { id: `after ${id}` }) });
      });
      await service.appendEvent({ session, event: saying('last', { id: `last after ${id}` }) });
      const now = await fresh(session);
      expect(now.state).toMatchObject({ a: `beside ${id}`, [id]: 1, own: id });
      expect(session.state).toEqual({ ...now.state, direct: id });
      expect(plain(session.events)).toEqual(plain(now.events));
    }
  },
  // Elsewhere such a transaction sees everything, or its append is refused.
  onInnodb,
);

stateSuite.own('B4', 'a handle that did not catch up gets what others made of its event', async (context) => {
  const { orm, another, create, fresh, append } = context;
  const faults: Faults = {};
  const service = new MikroOrmSessionService(faulty(orm.em, faults), { onError: () => undefined });
  const session = await create();
  const behind = (await service.getSession(keyOf(session)))!;
  await append(session, { id: 'missed' });
  faults.statement = (text) => /union all/.test(text);
  await service.appendEvent({ session: behind, event: saying('mine', { id: 'mine' }) });
  delete faults.statement;
  expect(idsOf(behind)).toEqual(['mine']);
  const event = saying('theirs', { id: 'mine', actions: { stateDelta: { theirs: 1 } } });
  await another.appendEvent({ session: await fresh(session), event });
  await service.appendEvent({ session: behind, event: saying('last') });
  const now = await fresh(session);
  expect(behind.state).toEqual({ theirs: 1 });
  expect(plain(behind.events)).toEqual(plain(now.events));
});

stateSuite.own('B4', 'a handle with an open call from long ago loses it to a trim', async ({ orm, create }) => {
  const service = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 2 });
  const session = await create();
  const call = { functionCall: { id: 'call', name: 'ask', args: {} } };
  await service.appendEvents({
    session,
    events: [
      eventOf({ id: 'call', longRunningToolIds: ['call'], content: { role: 'model', parts: [call] } }),
      ...range(8).map((n) => saying(`e${n}`, { id: `e${n}`, author: 'user' })),
    ],
  });
  const recent = (await service.getSession(keyOf(session)))!;
  expect(idsOf(recent)).toEqual(['call', 'e6', 'e7']);
  await servicesOf(orm.em, {}).maintenance.trim({ ...keyOf(session), keepLast: 5, dropOpenCalls: true });
  await service.appendEvent({ session: recent, event: saying('last', { id: 'last' }) });
  expect(idsOf(recent)).toEqual(['e6', 'e7', 'last']);
});

stateSuite.own(
  'A4',
  'one call with an event in two versions keeps what the caller wrote',
  async ({ create, service }) => {
    const session = await create();
    session.state.direct = 1;
    const events = [1, 2].map((n) => saying('x', { id: 'x', actions: { stateDelta: { n } } }));
    await service.appendEvents({ session, events });
    expect(session.state).toEqual({ direct: 1, n: 2 });
    expect(session.events).toEqual([events[1]]);
  },
);
