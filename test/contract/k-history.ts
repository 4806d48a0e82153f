import { State, type Event } from '@google/adk';
import { encryption } from '../../src/codecs/index.js';
import { MikroOrmSessionService, SessionMaintenance } from '../../src/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { expectFold, upTo } from './log-tools.js';
import { Suite, oncePerDialect, onServers, type OwnContext } from './rule.js';
import { eventOf, expectCode, idsOf, range } from './tools.js';

export const pastSuite = new Suite({ isOfDialect: true });

/** A session whose state is written in every way; and what its own state was after each number, by what its rows say. */
async function lived({ service, create, append }: OwnContext) {
  const session = await create({ state: { given: 0, n: 0, 'user:u': 0, 'app:x': 0 } });
  const key = keyOf(session);
  for (const n of upTo(4)) {
    const event = { id: `e${n}`, timestamp: n, invocationId: `i${Math.ceil(n / 2)}` };
    const delta = { n, 'user:u': n, 'app:x': n };
    await append(session, { ...event, delta: { ...delta, [`k${n}`]: [n] } });
    if (n === 2) await service.updateState({ ...key, set: { outside: 2, given: 2 }, remove: ['k1'] });
    if (n === 3) await service.updateState({ ...key, remove: ['outside', 'never'] });
    // Appended again with other content, which counts at the place of the event.
    if (n === 2 || n === 3) await append(session, { ...event, delta: { ...delta, given: `rewritten ${n}` } });
  }
  const states: Record<string, unknown>[] = [
    { given: 0, n: 0 },
    { given: 0, n: 1, k1: [1] },
    { given: 2, n: 2, outside: 2 },
    { given: 'rewritten 3', n: 3 },
    // What stands: `k2` and `k3` are left.
    { given: 'rewritten 3', n: 4, k2: [2], k3: [3], k4: [4] },
  ];
  return { session, key, states };
}

pastSuite.own('K4', 'a fork has the events up to a number and the state as it was then', async (context) => {
  const { app, service, another, fresh, append } = context;
  const { session, key, states } = await lived(context);
  const before = await fresh(session);
  for (const at of range(5)) {
    const fork = await service.forkSession(key, { at, as: `fork ${at}` });
    const read = (await another.getSession({ ...key, sessionId: `fork ${at}` }))!;
    expect(fork).toEqual(read);
    expect(read.events).toEqual(before.events.slice(0, at));
    expect(read.state).toEqual({ ...states[at], 'user:u': 4, 'app:x': 4 });
    // It continues by itself, from its number.
    await append(fork, { id: `e${at + 1}`, delta: { n: 'fork' } });
    expect((await fresh(fork)).events).toHaveLength(at + 1);
    // And has a past of its own.
    const again = await service.forkSession(keyOf(fork), { at: Math.min(at, 2), as: `fork of ${at}` });
    expect(again.state).toEqual({ ...states[Math.min(at, 2)], 'user:u': 4, 'app:x': 4 });
  }
  const whole = await service.forkSession(key);
  expect(whole.id).not.toBe(session.id);
  expect(whole.events).toEqual(before.events);
  expect(whole.state).toEqual(before.state);
  expect(await fresh(session)).toEqual(before);
  expect((await service.listSessions({ appName: app })).totalItems).toBe(12);
  // The state that stood is in the past of the fork.
  await append(whole, { id: 'e5', delta: { n: 5 } });
  expect((await service.rewindSession(keyOf(whole), { at: 4 })).state).toEqual(before.state);
  await expectFold(context);
});

pastSuite.own('K4', 'a rewound session is as it was then, and continues from there', async (context) => {
  const { service, fresh, append, query } = context;
  for (const at of [3, 2, 0]) {
    const { session, key, states } = await lived(context);
    const past = (await fresh(session)).events.slice(0, at);
    const rewound = await service.rewindSession(key, { at });
    expect(rewound.events).toEqual(past);
    expect(rewound.state).toEqual({ ...states[at], 'user:u': 4, 'app:x': 4 });
    const [row] = await query<{ create_time: number | string }>(
      'select create_time from adk_sessions where app_name = ? and session_id = ?',
      [key.appName, key.sessionId],
    );
    expect(rewound.lastUpdateTime).toBe(past.at(-1)?.timestamp ?? Number(row!.create_time));
    expect(await fresh(session)).toEqual(rewound);
    await expectFold(context);
    // A handle from before is behind.
    await expectCode(
      append(await fresh(session), {}, new MikroOrmSessionService(context.orm.em)).then(() =>
        append(session, {}, new MikroOrmSessionService(context.orm.em, { onStaleSession: 'reject' })),
      ),
      'ADK_STALE_SESSION',
    );
    await append(session, { id: 'next', delta: { n: 'next' } });
    expect(idsOf(session)).toEqual(idsOf(await fresh(session)));
    expect(idsOf(session).slice(0, at)).toEqual(idsOf({ events: past }));
    const rows = await query<{ seq: number }>(
      'select seq from adk_events where app_name = ? and session_id = ? order by seq',
      [key.appName, key.sessionId],
    );
    expect(rows.map(({ seq }) => seq)).toEqual(upTo(at + 2));
    await expectFold(context);
    // Rewound once more, past what has come since.
    expect((await service.rewindSession(key, { at })).state).toEqual({ ...states[at], 'user:u': 4, 'app:x': 4 });
    await expectFold(context);
  }
});

pastSuite.own('K4', 'a place may be an invocation, and must be in the session', async (context) => {
  const { service, fresh } = context;
  const { session, key, states } = await lived(context);
  const before = await fresh(session);
  const fork = await service.forkSession(key, { beforeInvocationId: 'i2' });
  expect(idsOf(fork)).toEqual(['e1', 'e2']);
  for (const point of [
    { at: 5 },
    { at: -1 },
    { at: 1.5 },
    { at: 1, beforeInvocationId: 'i1' },
    { beforeInvocationId: 'i3' },
  ]) {
    await expectCode(service.forkSession(key, point), 'ADK_INVALID_ARGUMENT');
    await expectCode(service.rewindSession(key, point), 'ADK_INVALID_ARGUMENT');
  }
  await expectCode(service.rewindSession(key, {}), 'ADK_INVALID_ARGUMENT', /needs at or beforeInvocationId/);
  await expectCode(service.forkSession(key, { as: session.id }), 'ADK_SESSION_EXISTS');
  await expectCode(service.forkSession(key, { as: '' }), 'ADK_INVALID_KEY');
  const missing = { ...key, sessionId: 'missing' };
  await expectCode(service.forkSession(missing), 'ADK_SESSION_NOT_FOUND');
  await expectCode(service.rewindSession(missing, { at: 0 }), 'ADK_SESSION_NOT_FOUND');
  expect(await fresh(session)).toEqual(before);
  expect((await service.rewindSession(key, { at: 4 })).events).toEqual(before.events);
  expect((await service.rewindSession(key, { beforeInvocationId: 'i2' })).state).toMatchObject(states[2]!);
});

pastSuite.own('K4', 'a trimmed session is forked and rewound as far as it goes', async (context) => {
  const { app, orm, service } = context;
  const { key, states } = await lived(context);
  await new SessionMaintenance(orm.em).trim({ ...key, keepLast: 1 });
  await expectCode(service.forkSession(key, { at: 2 }), 'ADK_INVALID_ARGUMENT', /from 3 to 4/);
  const fork = await service.forkSession(key, { at: 3 });
  expect([fork.events, fork.state]).toEqual([[], { ...states[3], 'user:u': 4, 'app:x': 4 }]);
  await service.appendEvent({ session: fork, event: eventOf({ id: 'next' }) });
  expect(idsOf(await service.rewindSession(key, { at: 3 }))).toEqual([]);
  await expectFold(context);
  expect((await service.getSession({ ...keyOf(fork), appName: app }))?.events).toHaveLength(1);
});

pastSuite.own('K4', 'events that were rewound and written again count, also after a trim', async (context) => {
  const { orm, service, create, fresh, append } = context;
  const session = await create({});
  const key = keyOf(session);
  const set = async (...values: number[]) => {
    for (const a of values) await append(await fresh(session), { delta: { a } });
  };
  await set(1, 2, 3, 4, 5, 6);
  await service.rewindSession(key, { at: 4 });
  await set(50);
  await service.rewindSession(key, { at: 2 });
  await set(30, 40, 55, 60);
  await new SessionMaintenance(orm.em).trim({ ...key, keepLast: 4 });
  for (const [at, a] of [2, 30, 40, 55, 60].entries())
    expect((await service.forkSession(key, { at: at + 2 })).state).toEqual({ a });
  await expectFold(context);
});

pastSuite.own('K4', 'a key that lost to an earlier event is not in its past', async ({ service, create, append }) => {
  const session = await create({});
  const [older, newer] = ['older', 'newer'].map((value) => {
    const event = eventOf();
    new State({}, event.actions.stateDelta).set('k', value);
    return event;
  }) as [Event, Event];
  await service.appendEvents({ session, events: [newer, older] });
  await append(session, { delta: { k: 'newest' } });
  const fork = await service.forkSession(keyOf(session), { at: 2 });
  await append(fork, { delta: { k: 'after' } });
  for (const { appName, userId, id: sessionId } of [session, fork])
    expect((await service.rewindSession({ appName, userId, sessionId }, { at: 2 })).state).toEqual({ k: 'newer' });
});

pastSuite.own(
  'K4',
  'values of any size are recorded: of a creation, outside a run, and by a trim',
  async (context) => {
    const { app, orm, query } = context;
    const large = (n: number) => String(n).repeat(1_100_000);
    const brief = (state: Record<string, unknown>) =>
      Object.fromEntries(Object.entries(state).map(([k, v]) => [k, typeof v === 'string' ? [v[0], v.length] : v]));
    const codecs = [[], [encryption({ currentKey: 'k', key: () => Buffer.alloc(32, 1) })]];
    for (const [i, codec] of codecs.entries()) {
      const service = new MikroOrmSessionService(orm.em, { codec });
      const maintenance = new SessionMaintenance(orm.em, { codec });
      const key = { appName: app, userId: 'alice', sessionId: `s${i}` };
      const state = { first: large(1), n: 0, second: large(2) };
      const session = await service.createSession({ ...key, state });
      const append = (stateDelta: Record<string, unknown>) =>
        service.appendEvent({ session, event: eventOf({ actions: { stateDelta } }) });
      await append({ n: 1 });
      await service.updateState({ ...key, set: { third: large(3), fourth: large(4) }, remove: ['second'] });
      await append({ n: 2, fourth: 'short' });
      await append({ n: 3, first: 3, third: 3 });
      const { second: _, ...left } = { ...state, third: large(3) };
      const states = [state, { ...left, n: 1, fourth: large(4) }, { ...left, n: 2, fourth: 'short' }];
      const expectPasts = async (first: number) => {
        for (const [at, expected] of states.entries()) {
          if (at < first) continue;
          const { state, id } = await service.forkSession(key, { at });
          expect([at, brief(state)]).toEqual([at, brief(expected)]);
          await service.deleteSession({ ...key, sessionId: id });
        }
        const text =
          "select kind from adk_changes where app_name = ? and kind in ('created', 'state', 'trimmed') and data is null";
        expect(await query(text, [app])).toEqual([]);
      };
      await expectPasts(0);
      for (const keepLast of [2, 1]) {
        await maintenance.trim({ ...key, keepLast });
        await expectPasts(3 - keepLast);
      }
      expect(brief((await service.rewindSession(key, { at: 2 })).state)).toEqual(brief(states[2]!));
      if (codec.length === 0) await expectFold(context);
    }
  },
  oncePerDialect,
);

pastSuite.own('K4', 'a large event is forked', async ({ service, create, append }) => {
  const session = await create();
  const text = 'x'.repeat(2_500_000);
  await append(session, { id: 'large', content: { parts: [{ text }] } });
  const fork = await service.forkSession(keyOf(session));
  expect(fork.events[0]?.content?.parts?.[0]?.text).toBe(text);
});

pastSuite.own('K4', 'a fork and a rewind in a transaction of the host come and go with it', async (context) => {
  const { orm, service, fresh } = context;
  const { session, key } = await lived(context);
  const before = await fresh(session);
  const failed = orm.em.transactional(async (tx) => {
    const inside = service.withEntityManager(tx);
    await inside.forkSession(key, { at: 2, as: 'fork' });
    await inside.rewindSession(key, { at: 1 });
    throw new Error('rolled back');
  });
  await expect(failed).rejects.toThrow('rolled back');
  expect(await fresh(session)).toEqual(before);
  expect(await service.getSession({ ...key, sessionId: 'fork' })).toBeUndefined();
});

pastSuite.own(
  'K4',
  'an event that a transaction of the host rewrites leaves what others have written since its first read',
  async ({ orm, service, another, create, append }) => {
    const session = await create({ state: { given: 1 } });
    const key = keyOf(session);
    await append(session, { id: 'e1', delta: { given: 2, left: 1 } });
    await orm.em.transactional(async (tx) => {
      const inside = service.withEntityManager(tx);
      await inside.getSession(key);
      await another.updateState({ ...key, set: { left: 'outside' }, remove: ['given'] });
      await append(session, { id: 'e1', delta: { n: 1 } }, inside);
    });
    await append(session, { id: 'e2', delta: { n: 2, left: 2, given: 3 } });
    expect((await service.rewindSession(key, { at: 1 })).state).toEqual({ n: 1, left: 'outside' });
  },
  onServers,
);
