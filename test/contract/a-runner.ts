import { BaseSessionService, State, type Event, type Session } from '@google/adk';
import { ConnectionException } from '@mikro-orm/core';
import { MikroOrmSessionService, SessionMaintenance } from '../../src/index.js';
import { APPEND_RULES } from '../../packages/session-contract/src/append-rules.js';
import { CALLER_RULES } from '../../packages/session-contract/src/caller-rules.js';
import { discreet } from '../../packages/session-contract/src/checks.js';
import { HANDLE_RULES } from '../../packages/session-contract/src/handle-rules.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, withConnections } from './rule.js';
import {
  count,
  errorOf,
  eventOf,
  expectCode,
  faulty,
  idsOf,
  plain,
  range,
  remember,
  saying,
  takesLock,
  textsOf,
} from './tools.js';

export const runnerSuite = new Suite();
runnerSuite.publish([...HANDLE_RULES, ...APPEND_RULES, ...CALLER_RULES]);

runnerSuite.own('A1', 'the service extends the base class', async ({ service }) => {
  expect(service).toBeInstanceOf(BaseSessionService);
});

runnerSuite.own(
  'A5',
  'an event that is replaced keeps its seq, and has one row',
  async ({ app, service, create, append, query }) => {
    const session = await create();
    await count(service, session, 3);
    const { id } = session.events[1]!;
    for (const text of ['a', 'b'.repeat(2_500_000), 'c']) {
      await append(session, { id, content: { parts: [{ text }] } });
      expect(await query('select seq from adk_events where app_name = ? and event_id = ?', [app, id])).toEqual([
        { seq: 2 },
      ]);
    }
    expect(await query('select seq from adk_event_parts where app_name = ?', [app])).toEqual([]);
  },
);

runnerSuite.own(
  'A5',
  'a lost acknowledgement is retried without a second event or effect',
  async ({ orm, create, fresh }) => {
    const session = await create();
    const service = new MikroOrmSessionService(
      faulty(orm.em, {
        answer: takesLock,
        commit: true,
        error: () => new ConnectionException(new Error('The connection was lost')),
      }),
    );
    const event = saying('hi', { actions: { stateDelta: { n: 1 } } });
    await service.appendEvent({ session, event });
    expect(session.events).toEqual([event]);
    const read = await fresh(session);
    expect(idsOf(read)).toEqual([event.id]);
    expect(session.state).toEqual(read.state);
    await service.appendEvent({ session, event: saying('next') });
    expect(textsOf(await fresh(session))).toEqual(['hi', 'next']);
  },
);

runnerSuite.own(
  'A8',
  'the later write also wins among events that are written together',
  async ({ service, create, stored }) => {
    const together = [
      (session: Session, events: Event[]) => service.appendEvents({ session, events }),
      (session: Session, events: Event[]) =>
        Promise.all([eventOf(), ...events].map((event) => service.appendEvent({ session, event }))),
    ];
    for (const append of together) {
      const session = await create();
      const events = ['first', 'second'].map((value) => {
        const event = eventOf();
        new State({}, event.actions.stateDelta).set('k', value);
        return event;
      });
      await append(session, events.reverse());
      expect(session.state).toEqual({ k: 'second' });
      expect((await stored(keyOf(session)))?.state).toEqual({ k: 'second' });
    }
  },
);

runnerSuite.own(
  'A8',
  'the row of an event, and each copy of it, names the keys that lost to an earlier event',
  async ({ app, orm, service, create, append, query }) => {
    const superseded = async ({ id }: Session) =>
      (
        await query<{ superseded: string | null }>(
          'select superseded from adk_events where app_name = ? and session_id = ? order by seq',
          [app, id],
        )
      ).map((row) => row.superseded);
    const session = await create();
    const [older, newer] = ['older', 'newer'].map((value) => {
      const event = eventOf();
      new State({}, event.actions.stateDelta).set('k', value);
      return event;
    }) as [Event, Event];
    await service.appendEvents({ session, events: [newer, older] });
    await append(session, { delta: { k: 'newest' } });
    expect(await superseded(session)).toEqual([null, '["k"]', null]);
    // The first one has lost to a later event: it counts until then.
    newer.author = older.author = 'another';
    await service.appendEvents({ session, events: [newer, older] });
    expect(await superseded(session)).toEqual([null, '["k"]', null]);
    expect(await superseded(await service.forkSession(keyOf(session), { at: 2 }))).toEqual([null, '["k"]']);

    const maintenance = new SessionMaintenance(orm.em);
    const records = [];
    for await (const record of maintenance.exportSessions({ appName: app }))
      if ('sessionId' in record && record.sessionId === session.id) records.push({ ...record, sessionId: 'imported' });
    await maintenance.importSessions(records);
    expect(await superseded({ ...session, id: 'imported' })).toEqual([null, '["k"]', null]);
    await append(session, { id: older.id, delta: { k: 'now' } });
    expect(await superseded(session)).toEqual([null, null, null]);
  },
);

runnerSuite.own('A9', 'nor does one that fails in the database', async ({ orm, service, create, fresh }) => {
  const session = await create();
  const broken = new MikroOrmSessionService(faulty(orm.em, { statement: takesLock }));
  const outcomes = await Promise.allSettled([
    service.appendEvent({ session, event: saying('a') }),
    broken.appendEvent({ session, event: saying('x') }),
    service.appendEvent({ session, event: saying('b') }),
  ]);
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(textsOf(session)).toEqual(['a', 'b']);
  expect(textsOf(await fresh(session))).toEqual(['a', 'b']);
});

runnerSuite.own(
  'A9',
  'an append waits for the one before it on the same handle',
  async ({ orm, service, create, fresh }) => {
    const session = await create();
    let overtake = () => {};
    const overtaken = new Promise<void>((resolve) => (overtake = resolve));
    const slow = new MikroOrmSessionService(
      faulty(orm.em, { before: async (text) => (takesLock(text) ? overtaken : undefined) }),
    );
    const first = slow.appendEvent({ session, event: saying('first') });
    const second = service.appendEvent({ session, event: saying('second') });
    // Time enough for the second, were it not waiting.
    for (const _ of range(20)) await fresh(session);
    overtake();
    await Promise.all([first, second]);
    expect(textsOf(session)).toEqual(['first', 'second']);
    expect(textsOf(await fresh(session))).toEqual(['first', 'second']);
  },
  // A synchronous driver has one connection for both services, and the first append keeps it.
  withConnections,
);

runnerSuite.own('A11', 'a refused event does not change', async ({ service, create }) => {
  const session = await create();
  const stateDelta = { a: 1, 'temp:b': 2, c: NaN };
  const event = saying('x', { actions: { stateDelta } });
  await expectCode(service.appendEvent({ session, event }), 'ADK_UNSERIALIZABLE_VALUE');
  expect(event.actions.stateDelta).toBe(stateDelta);
  expect(stateDelta).toEqual({ a: 1, 'temp:b': 2, c: NaN });
});

runnerSuite.own('A11', 'if the database fails the handle stays as it was', async ({ app, scratch }) => {
  const { service, query, orm } = await scratch();
  const session = await service.createSession({ appName: app, userId: 'alice', state: { a: 1 } });
  await service.appendEvent({ session, event: saying('hi', { actions: { stateDelta: { a: 2 } } }) });
  const stored = await query('select last_seq, last_update_time from adk_sessions');
  await query('drop table adk_user_states');

  const impatient = new MikroOrmSessionService(orm.em, { retry: { attempts: 2, baseDelayMs: 1 } });
  const unchanged = remember(session);
  for (const stateDelta of [{ a: 3, 'user:b': 1 }, { 'user:b': 1 }]) {
    await expect(impatient.appendEvent({ session, event: saying('x', { actions: { stateDelta } }) })).rejects.toThrow();
    unchanged();
  }
  expect(await query('select last_seq, last_update_time from adk_sessions')).toEqual(stored);
  expect(await query('select event_id from adk_events')).toHaveLength(1);
  expect(await query('select value from adk_session_states')).toHaveLength(1);
});

runnerSuite.own('A11', 'appendEvents is all or nothing', async ({ service, create, stored }) => {
  const session = await create();
  const before = await stored(keyOf(session));
  const unchanged = remember(session);
  const events = [saying('a', { actions: { stateDelta: { a: 1 } } }), saying('b', { output: 1n })];
  await expectCode(service.appendEvents({ session, events }), 'ADK_UNSERIALIZABLE_VALUE');
  unchanged();
  expect(await stored(keyOf(session))).toEqual(before);

  const good = [saying('a'), saying('part', { partial: true }), saying('b', { actions: { stateDelta: { a: 1 } } })];
  expect(await service.appendEvents({ session, events: good })).toEqual(good);
  expect(textsOf(session)).toEqual(['a', 'b']);
  expect(textsOf((await stored(keyOf(session)))!)).toEqual(['a', 'b']);
});

runnerSuite.own(
  'A11',
  'nothing throws after the commit, even when the handle cannot catch up',
  async ({ orm, another, create, append, fresh }) => {
    const session = await create();
    const behind = await fresh(session);
    await append(session, { content: { parts: [{ text: 'first' }] }, delta: { n: 1 } });

    const faults = { statement: (text: string) => text.startsWith('select'), error: () => new Error('no more reads') };
    const broken = new MikroOrmSessionService(faulty(orm.em, faults), { retry: { attempts: 1 } });
    const event = saying('second', { actions: { stateDelta: { m: 2 } } });
    expect(await broken.appendEvent({ session: behind, event })).toBe(event);
    expect(behind.events).toContain(event);
    expect(behind.state.m).toBe(2);
    expect(textsOf(await fresh(session))).toEqual(['first', 'second']);

    // The next append makes up for it.
    await append(behind, { content: { parts: [{ text: 'third' }] } }, another);
    expect(plain(behind)).toEqual(plain(await fresh(session)));
  },
);

const SECRET = 'swordfish';

runnerSuite.own(
  'A12',
  'errors of an existing id, a missing session and a bad value show no stored data',
  async ({ service, create, append }) => {
    const session = await create({ state: { a: SECRET } });
    discreet(await errorOf(create({ sessionId: session.id, state: { a: SECRET } })), [SECRET]);
    discreet(await errorOf(append(session, { output: [SECRET, 1n] })), [SECRET]);
    await service.deleteSession(keyOf(session));
    discreet(await errorOf(append(session, { delta: { a: SECRET }, content: { parts: [{ text: SECRET }] } })), [
      SECRET,
    ]);
  },
);

runnerSuite.own('A12', 'the error of a missing table shows neither SQL nor values', async ({ app, scratch }) => {
  const { service, query } = await scratch();
  const session = await service.createSession({ appName: app, userId: SECRET, sessionId: 's' });
  await query('drop table adk_user_states');
  const key = { appName: app, userId: SECRET, sessionId: 's' };
  for (const call of [
    () => service.appendEvent({ session, event: saying(SECRET, { actions: { stateDelta: { 'user:a': SECRET } } }) }),
    () => service.createSession({ ...key, sessionId: 't', state: { 'user:a': SECRET } }),
    () => service.getSession(key),
    () => service.updateState({ ...key, set: { 'user:a': SECRET } }),
    () => service.getUserState(key),
    () => service.listSessions(key),
  ]) {
    const error = await errorOf(call());
    discreet(error, [SECRET]);
    expect(error).toMatchObject({ code: 'ADK_SCHEMA' });
  }
});

runnerSuite.own('A12', 'the error of a violated constraint shows neither SQL nor values', async ({ app, scratch }) => {
  const { service, query } = await scratch();
  const session = await service.createSession({ appName: app, userId: 'alice' });
  // A constraint of the host's own.
  await query('create unique index one_event_at_a_time on adk_events (timestamp)');
  await service.appendEvent({ session, event: saying('x', { timestamp: 5 }) });
  const error = await errorOf(service.appendEvent({ session, event: saying(SECRET, { timestamp: 5 }) }));
  discreet(error, [SECRET, 'adk_events', 'one_event_at_a_time', session.id]);
});

runnerSuite.own(
  'A12',
  'the error of a dead server shows no credentials',
  async ({ harness, connect }) => {
    const { options, secret } = harness.unreachable;
    const orm = await connect({ ...options, connect: false });
    const service = new MikroOrmSessionService(orm.em, { retry: { attempts: 2, baseDelayMs: 1 } });
    const error = await errorOf(service.createSession({ appName: 'a', userId: 'alice', state: { a: SECRET } }));
    discreet(error, [SECRET, secret]);
    expect(error).toMatchObject({ code: 'ADK_DATABASE' });
  },
  ({ hasConnections }) => hasConnections,
);

runnerSuite.own('A11', 'a handle that cannot be changed is refused before anything is written', async (context) => {
  const { service, create, append, stored } = context;
  const session = await create({ state: { a: 0 } });
  await append(session);
  const key = keyOf(session);
  const before = await stored(key);
  const freezes: ((handle: Session) => unknown)[] = [
    (handle) => Object.freeze(handle),
    (handle) => Object.freeze(handle.state),
    (handle) => Object.seal(handle.state),
    (handle) => Object.preventExtensions(handle.state),
    (handle) => Object.defineProperty(handle.state, 'a', { configurable: false }),
    (handle) => Object.freeze(handle.events),
    (handle) => Object.seal(handle.events),
    (handle) => Object.defineProperty(handle, 'lastUpdateTime', { writable: false }),
  ];
  for (const freeze of freezes) {
    const handle = (await service.getSession(key))!;
    freeze(handle);
    const event = eventOf({ actions: { stateDelta: { a: 1, b: 1 } } });
    await expectCode(service.appendEvent({ session: handle, event }), 'ADK_INVALID_ARGUMENT', /cannot be changed/);
  }
  expect(await stored(key)).toEqual(before);
});

runnerSuite.own('A11', 'nothing is lost if the caller freezes or changes the handle meanwhile', async (context) => {
  const { service, create, stored } = context;
  const changes: ((handle: Session, event: Event) => unknown)[] = [
    (_, event) => Object.freeze(event.actions),
    (_, event) => Object.freeze(event.actions.stateDelta),
    (_, event) => Object.assign(event.actions.stateDelta, { a: 2, b: 2 }),
    (_, event) => Object.assign(event, { actions: undefined }),
    (handle) => Object.freeze(handle.state),
    (handle) => Object.freeze(handle.events),
    (handle) => Object.freeze(handle),
    (handle) => Object.assign(handle, { events: undefined }),
  ];
  for (const change of changes) {
    const session = await create({ state: { a: 0 } });
    const event = eventOf({ actions: { stateDelta: { a: 1 } } });
    const appended = service.appendEvent({ session, event });
    change(session, event);
    await appended;
    expect((await stored(keyOf(session)))?.state).toEqual({ a: 1 });
    expect((await stored(keyOf(session)))?.events).toHaveLength(1);
    // What is frozen stays behind, and is refused by the next append.
    if (session.state['a'] !== 1) {
      const next = service.appendEvent({ session, event: eventOf() });
      await expectCode(next, 'ADK_INVALID_ARGUMENT');
    }
  }
  // Before the call, too.
  const session = await create();
  const event = eventOf({ actions: { stateDelta: { a: 1, 'temp:b': 1 } } });
  Object.freeze(event.actions.stateDelta);
  Object.freeze(event.actions);
  await service.appendEvent({ session, event: Object.freeze(event) });
  expect(session.events).toEqual([event]);
  expect((await stored(keyOf(session)))?.state).toEqual({ a: 1 });
  expect(session.state).toEqual({ a: 1 });
});

runnerSuite.own('A8', 'a write whose append failed beats no older one', async ({ orm, service, create, stored }) => {
  const failingService = new MikroOrmSessionService(faulty(orm.em, { statement: takesLock }));
  for (const isByState of [false, true]) {
    const session = await create();
    const [older, failing] = ['older', 'failing'].map((value) => {
      const event = eventOf();
      // As tools and callbacks do, on the live state, or beside it.
      new State(isByState ? session.state : {}, event.actions.stateDelta).set('k', value);
      return event;
    }) as [Event, Event];
    await expectCode(failingService.appendEvent({ session, event: failing }), 'ADK_DATABASE');
    await service.appendEvent({ session, event: older });
    expect((await stored(keyOf(session)))?.state).toEqual({ k: 'older' });
    await service.appendEvent({ session, event: failing });
    expect((await stored(keyOf(session)))?.state).toEqual({ k: 'failing' });
    expect(session.state).toEqual({ k: 'failing' });
  }
});
