import {
  BaseAgent,
  BaseSessionService,
  Runner,
  State,
  createSession,
  type Event,
  type InvocationContext,
  type Session,
} from '@google/adk';
import { ConnectionException } from '@mikro-orm/core';
import { MikroOrmSessionService } from '../../src/index.js';
import { HANDLE_RULES } from '../../src/testing/handle-rules.js';
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
  textOf,
  textsOf,
} from './tools.js';

export const runnerSuite = new Suite();
runnerSuite.publish(HANDLE_RULES);

/** Says how many events it sees, and counts its turns in the state. */
class CountingAgent extends BaseAgent {
  protected override async *runAsyncImpl({
    invocationId,
    session,
  }: InvocationContext): AsyncGenerator<Event, void, void> {
    const turns = Number(session.state.turns ?? 0) + 1;
    yield saying(`${session.events.length} events`, {
      invocationId,
      author: this.name,
      actions: { stateDelta: { turns, 'temp:draft': 'x' } },
    });
  }

  protected override async *runLiveImpl(): AsyncGenerator<Event, void, void> {}
}

runnerSuite.shared(
  'A1',
  'a Runner keeps a conversation over several turns',
  async ({ service, app, create, fresh }) => {
    const session = await create();
    const runner = new Runner({ appName: app, agent: new CountingAgent({ name: 'counter' }), sessionService: service });
    for (const text of ['hello', 'again']) {
      const newMessage = { role: 'user', parts: [{ text }] };
      for await (const _event of runner.runAsync({ userId: 'alice', sessionId: session.id, newMessage })) continue;
    }
    const read = await fresh(session);
    expect(textsOf(read)).toEqual(['hello', '1 events', 'again', '3 events']);
    expect(read.state).toEqual({ turns: 2 });
    expect(service).toBeInstanceOf(BaseSessionService);
  },
);

runnerSuite.shared(
  'A1',
  'a Runner says which name or id is missing, in its own words',
  async ({ service, app, create }) => {
    const { id } = await create();
    const agent = new CountingAgent({ name: 'counter' });
    const user = { userId: 'alice', sessionId: id };
    const attempts: [config: object, params: object, message: string][] = [
      [{}, user, 'Session lookup failed: appName must be provided in runner constructor (or via app.name)'],
      [{ appName: app }, { ...user, userId: undefined }, `Session not found: ${id}`],
      [{ appName: app }, { ...user, userId: null }, `Session not found: ${id}`],
      [{ appName: app }, { ...user, sessionId: undefined }, 'Session not found: undefined'],
      [{ appName: app }, { ...user, sessionId: null }, 'Session not found: null'],
    ];
    for (const [config, params, message] of attempts) {
      const runner = new Runner({ ...config, agent, sessionService: service });
      const newMessage = { role: 'user', parts: [{ text: 'hello' }] };
      const run = runner.runAsync({ ...params, newMessage } as unknown as Parameters<Runner['runAsync']>[0]);
      expect((await errorOf(run.next())).message).toBe(message);
    }
  },
);

runnerSuite.shared('A1', 'every request of the base class is taken', async ({ service, app }) => {
  const key = { appName: app, userId: 'alice', sessionId: 's' };
  const created = await service.createSession({ ...key, state: { a: 1 } });
  expect(created).toMatchObject({ id: 's', appName: app, userId: 'alice', state: { a: 1 }, events: [] });
  expect(created.lastUpdateTime).toBeGreaterThan(0);
  expect(await service.getOrCreateSession(key)).toMatchObject({ id: 's', state: { a: 1 } });
  const event = saying('hi');
  expect(await service.appendEvent({ session: created, event })).toBe(event);
  expect((await service.listSessions({ appName: app })).sessions.map(({ id }) => id)).toEqual(['s']);
  await service.deleteSession(key);
  expect(await service.getSession(key)).toBeUndefined();
});

// What a caller does to the state object that it passed, or to the handle that it got, is its own affair.
runnerSuite.shared('A2', 'the handle of createSession is private to the caller', async ({ create, stored }) => {
  const state = { list: [1] };
  const session = await create({ state });
  state.list.push(2);
  (session.state.list as number[]).push(3);
  expect((await stored(keyOf(session)))?.state).toEqual({ list: [1] });
});

runnerSuite.shared(
  'A3',
  'changes while the append is under way do not reach it either',
  async ({ create, append, stored }) => {
    const session = await create();
    const delta: Record<string, unknown> = { list: [1] };
    const event = saying('hi', { actions: { stateDelta: delta } });
    const appending = append(session, event);
    event.content!.parts!.push({ text: 'more' });
    (delta.list as number[]).push(2);
    await appending;
    const { events, state } = (await stored(keyOf(session)))!;
    expect(events[0]?.content?.parts).toHaveLength(1);
    expect(state).toEqual({ list: [1] });
  },
);

runnerSuite.shared(
  'A4',
  'session.state keeps its identity, and keys outside the delta stay',
  async ({ create, append }) => {
    const session = await create({ state: { kept: 1 } });
    const { state, events } = session;
    state['temp:draft'] = 'x';
    state.direct = { n: 1 };
    await append(session, { delta: { a: 1, 'app:b': 2, 'user:c': 3 } });
    expect(session.state).toBe(state);
    expect(session.events).toBe(events);
    expect(state).toEqual({ kept: 1, 'temp:draft': 'x', direct: { n: 1 }, a: 1, 'app:b': 2, 'user:c': 3 });
  },
);

runnerSuite.shared('A5', 'a retry of the same event is a no-op', async ({ service, create, stored, fresh }) => {
  const session = await create();
  const event = saying('hi', { timestamp: 1, actions: { stateDelta: { n: 1, 'app:n': 1 } } });
  await service.appendEvent({ session, event });
  await service.appendEvent({ session, event: saying('next', { timestamp: 2 }) });
  const before = await stored(keyOf(session));
  const handle = plain(session);
  await service.appendEvent({ session, event });
  expect(plain(session)).toEqual(handle);
  expect(await stored(keyOf(session))).toEqual(before);

  // And from a handle that read it back.
  const read = await fresh(session);
  await service.appendEvent({ session: read, event: plain(event) });
  expect(await stored(keyOf(session))).toEqual(before);
  expect(plain(read)).toEqual(plain(session));
});

runnerSuite.shared(
  'A5',
  'a retry from a handle that never saw the event is a no-op',
  async ({ service, another, create, fresh, stored }) => {
    const session = await create();
    const behind = await fresh(session);
    const event = saying('hi', { actions: { stateDelta: { n: 1 } } });
    await service.appendEvent({ session, event });
    const before = await stored(keyOf(session));
    await another.appendEvent({ session: behind, event });
    expect(await stored(keyOf(session))).toEqual(before);
    expect(plain(behind)).toEqual(plain(await fresh(session)));
  },
);

runnerSuite.shared(
  'A5',
  'an event whose id is known is replaced at its place',
  async ({ service, create, append, stored, fresh }) => {
    const session = await create();
    await count(service, session, 3);
    const { id } = session.events[1]!;
    const replacement = await append(session, { id, content: { parts: [{ text: 'new' }] } });
    expect(session.events[1]).toBe(replacement);
    expect(textsOf(session)).toEqual(['0', 'new', '2']);
    expect(textsOf((await stored(keyOf(session)))!)).toEqual(['0', 'new', '2']);
    expect(textsOf(await fresh(session))).toEqual(['0', 'new', '2']);
    await append(session, { content: { parts: [{ text: 'last' }] } });
    expect(textsOf(await fresh(session))).toEqual(['0', 'new', '2', 'last']);
  },
);

runnerSuite.shared(
  'A5',
  'an old event that is appended again rolls no newer state back',
  async ({ service, create, append, fresh }) => {
    const session = await create();
    const old = eventOf({ actions: { stateDelta: { n: 1, 'user:n': 1, 'app:n': 1 } } });
    await service.appendEvent({ session, event: plain(old) });
    await append(session, { delta: { n: 2, 'user:n': 2, 'app:n': 2 } });
    await service.appendEvent({ session, event: plain(old) });
    const newer = { n: 2, 'user:n': 2, 'app:n': 2 };
    expect(session.state).toEqual(newer);
    expect((await fresh(session)).state).toEqual(newer);
  },
);

runnerSuite.shared(
  'A5',
  'a replaced event that is the last writer of a key changes it',
  async ({ create, append, fresh }) => {
    const session = await create();
    const { id } = await append(session, { delta: { n: 1, m: 1 } });
    await append(session, { delta: { m: 2 } });
    await append(session, { id, delta: { n: 3, m: 3 } });
    const read = await fresh(session);
    expect(read.state).toEqual({ n: 3, m: 2 });
    expect(session.state).toEqual(read.state);
  },
);

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

runnerSuite.shared('A7', 'temp: keys of createSession never reach storage', async ({ create, stored }) => {
  const session = await create({ state: { 'temp:secret': 'x', kept: 1 } });
  expect((await stored(keyOf(session)))?.state).toEqual({ kept: 1 });
});

runnerSuite.shared('A7', 'temp: keys stay readable on the live handle', async ({ create, append }) => {
  const session = await create();
  const delta = {};
  const state = new State(session.state, delta);
  state.set('temp:draft', 'x');
  state.set('kept', 1);
  await append(session, { delta });
  await append(session, { delta: { other: 1 } });
  expect(session.state['temp:draft']).toBe('x');
});

runnerSuite.shared(
  'A8',
  'of two branches the later write wins, in whatever order their events come',
  async ({ create, append, stored }) => {
    const session = await create();
    const [first, second]: Record<string, unknown>[] = [{}, {}];
    new State(session.state, first).set('k', 'written first');
    new State(session.state, first).set('user:k', 'written first');
    new State(session.state, second).set('k', 'written second');
    new State(session.state, second).set('user:k', 'written second');
    await append(session, { branch: 'b', delta: second });
    await append(session, { branch: 'a', delta: first });
    const winner = { k: 'written second', 'user:k': 'written second' };
    expect(session.state).toEqual(winner);
    expect((await stored(keyOf(session)))?.state).toEqual(winner);
  },
);

runnerSuite.shared('A8', 'it wins also when both appends are under way at once', async ({ create, append, stored }) => {
  const session = await create();
  const [first, second]: Record<string, unknown>[] = [{}, {}];
  new State(session.state, first).set('k', 1);
  new State(session.state, second).set('k', 2);
  await Promise.all([append(session, { delta: second }), append(session, { delta: first })]);
  expect(session.state).toEqual({ k: 2 });
  expect((await stored(keyOf(session)))?.state).toEqual({ k: 2 });
});

runnerSuite.own('A8', 'it wins among events that are written together', async ({ service, create, stored }) => {
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
});

// Each event's delta stays what the event wrote: an audit sees both writes.
runnerSuite.shared('A8', 'the event of a write that lost keeps its delta', async ({ create, append, fresh }) => {
  const session = await create();
  const [first, second]: Record<string, unknown>[] = [{}, {}];
  new State(session.state, first).set('k', 1);
  new State(session.state, second).set('k', 2);
  await append(session, { delta: second });
  await append(session, { delta: first });
  expect((await fresh(session)).events.map(({ actions }) => actions.stateDelta)).toEqual([{ k: 2 }, { k: 1 }]);
});

runnerSuite.shared(
  'A9',
  'parallel appends on one handle take effect in call order',
  async ({ create, append, fresh }) => {
    const session = await create();
    const calls = range(20).map((i) =>
      append(session, { content: { parts: [{ text: String(i) }] }, delta: { last: i } }),
    );
    const events = await Promise.all(calls);
    const read = await fresh(session);
    expect(session.events.map(({ id }) => id)).toEqual(events.map(({ id }) => id));
    expect(idsOf(read)).toEqual(idsOf(session));
    expect(session.state.last).toBe(19);
    expect(read.state.last).toBe(19);
  },
);

runnerSuite.shared(
  'A9',
  'an append that fails does not hold up the ones behind it',
  async ({ create, append, fresh }) => {
    const session = await create();
    const outcomes = await Promise.allSettled([
      append(session, { content: { parts: [{ text: 'a' }] } }),
      append(session, { output: 1n }),
      append(session, { content: { parts: [{ text: 'b' }] } }),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(textsOf(session)).toEqual(['a', 'b']);
    expect(textsOf(await fresh(session))).toEqual(['a', 'b']);
  },
);

runnerSuite.own('A9', 'nor does one that the database fails', async ({ orm, service, create, fresh }) => {
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
  (harness) => withConnections(harness) && !harness.isSynchronous,
);

runnerSuite.own('A11', 'an event that is refused is as it was', async ({ service, create }) => {
  const session = await create();
  const stateDelta = { a: 1, 'temp:b': 2, c: NaN };
  const event = saying('x', { actions: { stateDelta } });
  await expectCode(service.appendEvent({ session, event }), 'ADK_UNSERIALIZABLE_VALUE');
  expect(event.actions.stateDelta).toBe(stateDelta);
  expect(stateDelta).toEqual({ a: 1, 'temp:b': 2, c: NaN });
});

for (const [title, params] of [
  ['a value that JSON cannot carry', { output: 1n }],
  ['a timestamp that is no number', { timestamp: Infinity }],
] as const) {
  runnerSuite.shared('A11', `${title} leaves handle and storage as they were`, async ({ create, append, stored }) => {
    const session = await create({ state: { a: 1 } });
    await append(session, { delta: { a: 2 } });
    const before = await stored(keyOf(session));
    const unchanged = remember(session);
    await expect(append(session, { ...params, delta: { a: 3, b: 1 } })).rejects.toThrow();
    unchanged();
    expect(await stored(keyOf(session))).toEqual(before);
  });
}

runnerSuite.shared('A11', 'a session that is gone leaves the handle as it was', async ({ service, create, append }) => {
  const session = await create({ state: { a: 1 } });
  await append(session, { delta: { a: 2 } });
  await service.deleteSession(keyOf(session));
  const unchanged = remember(session);
  await expect(append(session, { delta: { a: 3 } })).rejects.toThrow();
  unchanged();
});

runnerSuite.own('A11', 'a database that fails leaves the handle as it was', async ({ app, scratch }) => {
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

/** Nothing that a caller could print of the error. */
function expectDiscreet(error: Error, secrets: readonly string[] = []): void {
  const shown = [error.message, String(error), JSON.stringify(error), JSON.stringify(Object.entries(error))].join('\n');
  for (const secret of [SECRET, ...secrets]) expect(shown).not.toContain(secret);
  expect(shown).not.toMatch(/\b(insert into|select .* from|update .* set|delete from|values \()/i);
}

runnerSuite.own(
  'A12',
  'an id that exists, a missing session and a bad value tell no stored data',
  async ({ service, create, append }) => {
    const session = await create({ state: { a: SECRET } });
    expectDiscreet(await errorOf(create({ sessionId: session.id, state: { a: SECRET } })));
    expectDiscreet(await errorOf(append(session, { output: [SECRET, 1n] })));
    await service.deleteSession(keyOf(session));
    expectDiscreet(await errorOf(append(session, { delta: { a: SECRET }, content: { parts: [{ text: SECRET }] } })));
  },
);

runnerSuite.shared('A12', 'calls that race tell neither SQL nor values', async ({ app, service, another }) => {
  const key = { appName: app, userId: 'alice', sessionId: 's' };
  const outcomes = await Promise.allSettled(
    range(8).map((i) => (i % 2 ? service : another).createSession({ ...key, state: { 'app:a': SECRET, b: SECRET } })),
  );
  for (const outcome of outcomes) if (outcome.status === 'rejected') expectDiscreet(outcome.reason as Error);
});

runnerSuite.own('A12', 'a missing table tells neither SQL nor values', async ({ app, scratch }) => {
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
    expectDiscreet(error);
    expect(error).toMatchObject({ code: 'ADK_SCHEMA' });
  }
});

runnerSuite.own('A12', 'a violated constraint tells neither SQL nor values', async ({ app, scratch }) => {
  const { service, query } = await scratch();
  const session = await service.createSession({ appName: app, userId: 'alice' });
  // A constraint of the host's own.
  await query('create unique index one_event_at_a_time on adk_events (timestamp)');
  await service.appendEvent({ session, event: saying('x', { timestamp: 5 }) });
  const error = await errorOf(service.appendEvent({ session, event: saying(SECRET, { timestamp: 5 }) }));
  expectDiscreet(error, ['adk_events', 'one_event_at_a_time', session.id]);
});

runnerSuite.own(
  'A12',
  'a dead server tells no credentials',
  async ({ harness, connect }) => {
    const { options, secret } = harness.unreachable;
    const orm = await connect({ ...options, connect: false });
    const service = new MikroOrmSessionService(orm.em, { retry: { attempts: 2, baseDelayMs: 1 } });
    const error = await errorOf(service.createSession({ appName: 'a', userId: 'alice', state: { a: SECRET } }));
    expectDiscreet(error, [secret]);
    expect(error).toMatchObject({ code: 'ADK_DATABASE' });
  },
  ({ hasConnections }) => hasConnections,
);

runnerSuite.shared(
  'A13',
  'one session id lives in several apps and for several users',
  async ({ service, app, create, append, stored }) => {
    const keys = [
      { appName: app, userId: 'alice', sessionId: 's' },
      { appName: `${app}-sub`, userId: 'alice', sessionId: 's' },
      { appName: app, userId: 'bob', sessionId: 's' },
    ];
    const sessions: Session[] = [];
    for (const key of keys) sessions.push(await create({ ...key, state: { who: `${key.appName} ${key.userId}` } }));
    // The same event id as well: AgentTool's events and the caller's may meet.
    for (const session of sessions)
      await append(session, { id: 'e', content: { parts: [{ text: session.appName + session.userId }] } });
    for (const [i, key] of keys.entries()) {
      const { events, state } = (await stored(key))!;
      expect(events.map(textOf)).toEqual([key.appName + key.userId]);
      expect(state).toEqual({ who: `${key.appName} ${key.userId}` });
      expect(sessions[i]?.events).toHaveLength(1);
    }
    await service.deleteSession(keys[1]!);
    expect(await stored(keys[1]!)).toBeUndefined();
    expect((await stored(keys[0]!))?.events).toHaveLength(1);
    expect((await stored(keys[2]!))?.events).toHaveLength(1);
  },
);

runnerSuite.shared('A14', 'deleting a missing session resolves', async ({ service, app, create }) => {
  await expect(service.deleteSession({ appName: app, userId: 'alice', sessionId: 'never' })).resolves.toBeUndefined();
  const session = await create();
  await service.deleteSession(keyOf(session));
  await expect(service.deleteSession(keyOf(session))).resolves.toBeUndefined();
});

runnerSuite.shared(
  'A15',
  'an event without actions or invocationId is accepted',
  async ({ service, create, fresh }) => {
    const session = await create();
    const event = { id: 'bare', author: 'agent', timestamp: 5 } as Event;
    expect(await service.appendEvent({ session, event })).toBe(event);
    const [read] = (await fresh(session)).events;
    expect(plain(read)).toEqual({ id: 'bare', author: 'agent', timestamp: 5 });
    const actionless = { id: 'two', author: 'agent', timestamp: 6, actions: {} } as Event;
    await service.appendEvent({ session, event: actionless });
    expect(idsOf(await fresh(session))).toEqual(['bare', 'two']);
  },
);

runnerSuite.shared('A15', 'a handle made by hand is accepted', async ({ another, create, append, fresh }) => {
  const session = await create({ state: { a: 1 } });
  await append(session, { content: { parts: [{ text: 'first' }] } });
  const { id, appName, userId } = session;
  const byHand = createSession({ id, appName, userId });
  await append(byHand, { content: { parts: [{ text: 'second' }] }, delta: { b: 2 } }, another);
  const read = await fresh(session);
  expect(textsOf(read)).toEqual(['first', 'second']);
  expect(read.state).toEqual({ a: 1, b: 2 });
});

runnerSuite.shared('A15', 'a clone of a handle is accepted and works on', async ({ create, append, fresh }) => {
  const session = await create({ state: { a: 1 } });
  await append(session, { content: { parts: [{ text: 'first' }] } });
  const clone = structuredClone(plain(session));
  await append(clone, { content: { parts: [{ text: 'second' }] }, delta: { b: 2 } });
  await append(clone, { content: { parts: [{ text: 'third' }] } });
  expect(textsOf(clone)).toEqual(['first', 'second', 'third']);
  expect(textsOf(await fresh(session))).toEqual(['first', 'second', 'third']);
  expect(clone.state).toEqual({ a: 1, b: 2 });
});

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

runnerSuite.own('A11', 'what the caller freezes or changes meanwhile loses nothing', async (context) => {
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
