import type { Event, Session } from '@google/adk';
import {
  DamagedSessionError,
  EventLog,
  MikroOrmSessionService,
  SessionMaintenance,
  type Damage,
  type MikroOrmSessionServiceOptions,
} from '../../src/index.js';
import { keyOf, type OwnStore } from '../support/harnesses/harness.js';
import { onMysql, read, upTo } from './log-tools.js';
import { Suite, type OwnContext } from './rule.js';
import { errorOf, eventOf, expectCode, nestedText, idsOf, plain, remember, saying, textsOf } from './tools.js';

export const damageSuite = new Suite({ isOfDialect: true });

const OF_SESSION = 'app_name = ? and user_id = ? and session_id = ?';

/** How a test damages the rows of a session with five events, and the damage that must be reported. */
interface Damaging {
  title: string;
  sql: string;
  values?: readonly unknown[];
  events: readonly Damage['events'][number][];
}

const at = (problem: Damage['events'][number]['problem'], from: number, to = from): Damage['events'][number] => ({
  from,
  to,
  problem,
});

const deleting = (title: string, where: string, ...events: Damage['events'][number][]): Damaging => ({
  title,
  sql: `delete from adk_events where ${where} and ${OF_SESSION}`,
  events,
});

const storing = (data: string | null): Damaging => ({
  title: `${data} instead of an event`,
  sql: `update adk_events set data = ? where seq = 3 and ${OF_SESSION}`,
  values: [data],
  events: [at('unreadable', 3)],
});

/** As another program may store it; what writes it again cannot. */
const deep: Damaging = {
  ...storing(`{"id":"e3","author":"agent","custom":${nestedText(5_000)}}`),
  title: 'an event nested 5,000 levels deep',
};

/** PostgreSQL's column takes nothing that is not JSON. */
const cutOff = storing('{"id": "e3", "author');

export const damagings = ({ harness }: OwnContext): readonly Damaging[] => [
  deleting('the first event missing', 'seq = 1', at('missing', 1)),
  deleting('one in the middle missing', 'seq = 3', at('missing', 3)),
  deleting('the last one missing', 'seq = 5', at('missing', 5)),
  deleting('several missing', 'seq in (1, 2, 4)', at('missing', 1, 2), at('missing', 4)),
  deleting('all missing', 'seq > 0', at('missing', 1, 5)),
  ...['5', 'null', '[]', '"text"', 'true', null].map(storing),
  deep,
  ...(harness.columns.refuseOtherThanJson ? [] : [cutOff, storing('')]),
  {
    title: 'numbers that run past last_seq',
    sql: `update adk_sessions set last_seq = 3 where ${OF_SESSION}`,
    events: [at('uncounted', 4, 5)],
  },
  {
    title: 'a last_seq that runs past the numbers',
    sql: `update adk_sessions set last_seq = 2000000000 where ${OF_SESSION}`,
    events: [at('missing', 6, 2_000_000_000)],
  },
  {
    title: 'a last_seq of 0',
    sql: `update adk_sessions set last_seq = 0 where ${OF_SESSION}`,
    events: [at('uncounted', 1, 5)],
  },
];

const valuesOf = (session: Session) => [session.appName, session.userId, session.id];

/** A session of the events e1 to e5, at 10 to 50, that leave `n: 5`. */
export async function five(
  { create, service }: Pick<OwnContext, 'create' | 'service'>,
  sessionId?: string,
): Promise<Session> {
  const session = await create({ ...(sessionId && { sessionId }), state: { kept: 1 } });
  const events = upTo(5).map((n) =>
    saying(`e${n}`, { id: `e${n}`, timestamp: 10 * n, actions: { stateDelta: { n } } }),
  );
  await service.appendEvents({ session, events });
  return session;
}

/** Damages sessions of their own in every way. */
export async function* damaged(context: OwnContext): AsyncGenerator<{ damaging: Damaging; session: Session }> {
  for (const damaging of damagings(context)) {
    const session = await five(context);
    await context.query(damaging.sql, [...(damaging.values ?? []), ...valuesOf(session)]);
    yield { damaging, session };
  }
}

/** A service on the same database, and the damage that it reports. */
function reporting(
  { orm }: Pick<OwnStore, 'orm'>,
  options: MikroOrmSessionServiceOptions = {},
): { service: MikroOrmSessionService; reported: DamagedSessionError[] } {
  const reported: DamagedSessionError[] = [];
  return {
    service: new MikroOrmSessionService(orm.em, { ...options, onDamage: (error) => reported.push(error) }),
    reported,
  };
}

const isIn = (events: readonly Damage['events'][number][]) => (id: string) => {
  const seq = Number(id.slice(1));
  return events.some(({ from, to }) => from <= seq && seq <= to);
};

const IDS = upTo(5).map((n) => `e${n}`);

async function rows({ query }: Pick<OwnStore, 'query'>, session: Session): Promise<[number, string][]> {
  const found = await query<{ seq: number; event_id: string }>(
    `select seq, event_id from adk_events where ${OF_SESSION} order by seq`,
    valuesOf(session),
  );
  return found.map(({ seq, event_id }) => [seq, event_id]);
}

damageSuite.own('I1', 'getSession reports every damaged number, and returns nothing', async (context) => {
  for await (const { damaging, session } of damaged(context)) {
    const error = await errorOf(context.another.getSession(keyOf(session)));
    expect(error).toBeInstanceOf(DamagedSessionError);
    expect([damaging.title, (error as DamagedSessionError).events]).toEqual([damaging.title, damaging.events]);
    expect(error).toMatchObject({ code: 'ADK_DAMAGED_SESSION', ...keyOf(session), stateKeys: [] });
    expect(error.message).toContain(`Session ${session.id} of user alice in app ${context.app} is damaged: event `);
    for (const { from, to } of damaging.events)
      expect(error.message).toContain(from === to ? ` ${from}` : `${from}-${to}`);
    expect(error.message).toContain('rows in events');
  }
});

damageSuite.own('I1', 'getOrCreateSession throws the same, and writes nothing', async (context) => {
  for await (const { damaging, session } of damaged(context)) {
    const before = await rows(context, session);
    const statements = await context.recorded(async () => {
      const error = await errorOf(context.service.getOrCreateSession({ ...keyOf(session), state: { n: 0 } }));
      expect([damaging.title, error]).toEqual([damaging.title, expect.objectContaining({ events: damaging.events })]);
    });
    expect(statements.filter(({ text }) => !text.startsWith('select'))).toEqual([]);
    expect(await rows(context, session)).toEqual(before);
  }
});

damageSuite.own('I1', 'the message has a bounded length, and the fields list everything', async (context) => {
  const { service, create, query, another } = context;
  const session = await create();
  await service.appendEvents({ session, events: upTo(400).map(() => eventOf()) });
  await query(`delete from adk_events where seq % 2 = 0 and ${OF_SESSION}`, valuesOf(session));
  const error = (await errorOf(another.getSession(keyOf(session)))) as DamagedSessionError;
  expect(error.events).toEqual(upTo(200).map((n) => at('missing', 2 * n)));
  expect(error.message).toContain('event 2, 4, 6, 8, 10, 12, 14, 16, 18, 20 and 190 more missing');
});

damageSuite.own(
  'I1',
  'numRecentEvents reads the newest numbers, and damage before them is not reported',
  async (context) => {
    const { another } = context;
    const recent = async (where: string, numRecentEvents: number) => {
      const session = await five(context);
      await context.query(`delete from adk_events where ${where} and ${OF_SESSION}`, valuesOf(session));
      return another.getSession({ ...keyOf(session), config: { numRecentEvents } });
    };
    expect(idsOf((await recent('seq = 2', 3))!)).toEqual(['e3', 'e4', 'e5']);
    expect(await errorOf(recent('seq = 3', 3))).toMatchObject({ events: [at('missing', 3)] });
    expect(await errorOf(recent('seq in (1, 5)', 3))).toMatchObject({ events: [at('missing', 5)] });
    expect(await errorOf(recent('seq > 0', 3))).toMatchObject({ events: [at('missing', 3, 5)] });
    expect(await errorOf(recent('seq = 1', 9))).toMatchObject({ events: [at('missing', 1)] });
  },
);

damageSuite.own('I1', 'a missing event has the time of the event after it', async (context) => {
  const { another } = context;
  const since = async (where: string, afterTimestamp: number, numRecentEvents?: number) => {
    const session = await five(context);
    await context.query(`delete from adk_events where ${where} and ${OF_SESSION}`, valuesOf(session));
    return another.getSession({
      ...keyOf(session),
      config: { afterTimestamp, ...(numRecentEvents !== undefined && { numRecentEvents }) },
    });
  };
  for (const newest of [undefined, 2, 9]) {
    expect(idsOf((await since('seq = 2', 30, newest))!)).toEqual(['e4', 'e5']);
    expect(await errorOf(since('seq = 5', 30, newest))).toMatchObject({ events: [at('missing', 5)] });
    expect(await errorOf(since('seq = 5', 99, newest))).toMatchObject({ events: [at('missing', 5)] });
    expect(await errorOf(since('seq > 0', 30, newest))).toMatchObject({ events: [at('missing', 1, 5)] });
    expect((await since('seq = 1', 50, newest))!.events).toEqual([]);
  }
  expect(await errorOf(since('seq in (1, 3)', 30))).toMatchObject({ events: [at('missing', 3)] });
  expect(await errorOf(since('seq = 1', 10))).toMatchObject({ events: [at('missing', 1)] });
  // Two are asked for, and two are there.
  expect(idsOf((await since('seq = 3', 10, 2))!)).toEqual(['e4', 'e5']);
  expect(await errorOf(since('seq = 4', 10, 2))).toMatchObject({ events: [at('missing', 4)] });
});

damageSuite.own('I1', 'a filter by time reports unreadable events in its range', async (context) => {
  const { another, query } = context;
  const session = await five(context);
  await query(`update adk_events set data = '5' where seq = 3 and ${OF_SESSION}`, valuesOf(session));
  const since = (config: object) => another.getSession({ ...keyOf(session), config });
  expect(idsOf((await since({ afterTimestamp: 30 }))!)).toEqual(['e4', 'e5']);
  expect(idsOf((await since({ afterTimestamp: 10, numRecentEvents: 2 }))!)).toEqual(['e4', 'e5']);
  for (const config of [{ afterTimestamp: 20 }, { afterTimestamp: 20, numRecentEvents: 3 }]) {
    expect(await errorOf(since(config))).toMatchObject({ events: [at('unreadable', 3)] });
  }
  await query(`update adk_sessions set last_seq = 3 where ${OF_SESSION}`, valuesOf(session));
  for (const config of [{ afterTimestamp: 20 }, { afterTimestamp: 10, numRecentEvents: 1 }]) {
    const events = [at('unreadable', 3), at('uncounted', 4, 5)];
    expect(await errorOf(since(config))).toMatchObject({ events });
  }
});

damageSuite.own(
  'I1',
  'an export that is refused names all damage among the events that it has read',
  async (context) => {
    const { app, orm, query } = context;
    const session = await five(context);
    await query(`delete from adk_events where seq = 2 and ${OF_SESSION}`, valuesOf(session));
    const changed = '[ "adk-codec", [], "x" ]';
    await query(`update adk_events set data = ? where seq > 3 and ${OF_SESSION}`, [changed, ...valuesOf(session)]);
    const exported = read(new SessionMaintenance(orm.em).exportSessions({ appName: app }));
    expect(await errorOf(exported)).toMatchObject({
      events: [at('missing', 2), at('unreadable', 4, 5)],
      encodings: [expect.any(String)],
    });
  },
);

damageSuite.own(
  'I1',
  'an event in parts of which one is lost is damaged',
  async (context) => {
    const { service, create, another, query } = context;
    for (const where of ['part = 0', 'part = 1', 'part = 2', 'part in (0, 1)', 'part >= 0']) {
      const session = await create();
      const events = [saying('a'), saying('x'.repeat(2_500_000)), saying('b')];
      await service.appendEvents({ session, events });
      expect(textsOf((await another.getSession(keyOf(session)))!).map((text) => text?.length)).toEqual([
        1, 2_500_000, 1,
      ]);
      await query(`delete from adk_event_parts where ${where} and ${OF_SESSION}`, valuesOf(session));
      expect(await errorOf(another.getSession(keyOf(session)))).toMatchObject({ events: [at('unreadable', 2)] });
      const { service: skipping, reported } = reporting(context, { onDamagedEvent: 'skip' });
      expect(textsOf((await skipping.getSession(keyOf(session)))!)).toEqual(['a', 'b']);
      expect(reported).toMatchObject([{ events: [at('unreadable', 2)] }]);
      // What is appended again is whole again.
      await service.appendEvent({ session, event: events[1]! });
      expect((await another.getSession(keyOf(session)))?.events).toHaveLength(3);
    }
  },
  onMysql,
);

damageSuite.own(
  'I1',
  'parts that are JSON by themselves are not read as the event',
  async ({ service, create, another, query }) => {
    const session = await create();
    await service.appendEvent({ session, event: saying('x'.repeat(1_500_000)) });
    await query(`update adk_event_parts set text = '{}' where part = 1 and ${OF_SESSION}`, valuesOf(session));
    await query(`delete from adk_event_parts where part = 0 and ${OF_SESSION}`, valuesOf(session));
    expect(await errorOf(another.getSession(keyOf(session)))).toMatchObject({ events: [at('unreadable', 1)] });
  },
  onMysql,
);

const STATE_TABLES = ['adk_session_states', 'adk_user_states', 'adk_app_states'];

/** A store whose columns of state accept any text, like those of the other databases. */
async function stateStore({ scratch, harness }: OwnContext): Promise<OwnStore> {
  const store = await scratch();
  const { takeAnyText } = harness.columns;
  if (takeAnyText) for (const table of STATE_TABLES) await store.query(takeAnyText(table, 'value'));
  return store;
}

const KEY = { appName: 'app', userId: 'alice', sessionId: 's' };

const STATE = { a: 1, b: 2, 'user:a': 3, 'user:b': 4, 'app:a': 5, 'app:b': 6 };

/** Makes the value of `a` in all scopes unreadable. */
async function damageState({ query }: OwnStore): Promise<void> {
  for (const table of STATE_TABLES) await query(`update ${table} set value = '{"cut' where state_key = 'a'`);
}

const DAMAGED_KEYS = ['a', 'user:a', 'app:a'];

damageSuite.own('I1', 'a state value that is not JSON is reported by its key, in every scope', async (context) => {
  const store = await stateStore(context);
  const { service, another } = store;
  await service.createSession({ ...KEY, state: STATE });
  await damageState(store);
  for (const call of [() => another.getSession(KEY), () => another.getOrCreateSession(KEY)]) {
    const error = (await errorOf(call())) as DamagedSessionError;
    expect(error).toMatchObject({ code: 'ADK_DAMAGED_SESSION', ...KEY, events: [] });
    expect([...error.stateKeys].sort()).toEqual([...DAMAGED_KEYS].sort());
    expect(error.message).toContain('session_states, user_states, app_states');
    expect(error.message).not.toContain('cut');
  }
  await expectCode(another.getUserState(KEY), 'ADK_DAMAGED_SESSION', /state of user alice in app app .* user:a/);
  await expectCode(another.getAppState(KEY), 'ADK_DAMAGED_SESSION', /state of app app .* app:a/);
  // A value that is set again can be read.
  await service.updateState({ ...KEY, set: { a: 1, 'user:a': 3 }, remove: ['app:a'] });
  expect((await another.getSession(KEY))?.state).toEqual({ a: 1, b: 2, 'user:a': 3, 'user:b': 4, 'app:b': 6 });
});

damageSuite.own('I1', 'a fork and a rewind to a point before the damage need no damaged row', async (context) => {
  const { service, query } = context;
  for await (const { damaging, session } of damaged(context)) {
    const key = keyOf(session);
    const [row] = await query<{ last_seq: number }>(
      `select last_seq from adk_sessions where ${OF_SESSION}`,
      valuesOf(session),
    );
    const first = Math.min(...damaging.events.map(({ from }) => from), row!.last_seq);
    // A point at the session's end needs all of it.
    if (first === 0) continue;
    // A value that nobody needs may be damaged as well.
    await query(
      `update adk_session_states set value = 'null and void' where ${OF_SESSION} and state_key = 'n'`,
      valuesOf(session),
    ).catch(() => undefined);
    const before = await rows(context, session);
    const expected = { ids: IDS.slice(0, first - 1), state: first === 1 ? { kept: 1 } : { kept: 1, n: first - 1 } };
    const shown = (one: Session) => ({ title: damaging.title, ids: idsOf(one), state: one.state });
    for (const refused of [
      () => service.forkSession(key, { at: first, as: `refused ${session.id}` }),
      () => service.rewindSession(key, { at: first }),
    ])
      expect([damaging.title, await errorOf(refused())]).toEqual([damaging.title, expect.any(DamagedSessionError)]);
    const fork = await service.forkSession(key, { at: first - 1, as: `fork of ${session.id}` });
    expect(shown(fork)).toEqual({ title: damaging.title, ...expected });
    expect(await rows(context, session)).toEqual(before);
    const rewound = await service.rewindSession(key, { at: first - 1 });
    for (const one of [rewound, (await service.getSession(key))!])
      expect(shown(one)).toEqual({ title: damaging.title, ...expected });
    await service.appendEvent({ session: rewound, event: saying('after', { id: 'after', timestamp: 90 }) });
    expect(idsOf((await service.getSession(key))!)).toEqual([...expected.ids, 'after']);
  }
});

damageSuite.own('I1', 'a point before an invocation is found after the damage, and refused', async (context) => {
  const { service, query, create } = context;
  const session = await create();
  const events = upTo(6).map((n) =>
    saying(`e${n}`, { id: `e${n}`, timestamp: n, invocationId: `i${Math.ceil(n / 2)}` }),
  );
  await service.appendEvents({ session, events });
  const key = keyOf(session);
  await query(`update adk_events set data = '[]' where seq = 3 and ${OF_SESSION}`, valuesOf(session));
  // Event 3 may be the first one of its invocation.
  for (const beforeInvocationId of ['i2', 'i3'])
    await expectCode(service.rewindSession(key, { beforeInvocationId }), 'ADK_DAMAGED_SESSION', 'event 3');
  expect(idsOf(await service.rewindSession(key, { beforeInvocationId: 'i1' }))).toEqual([]);
});

damageSuite.own('I1', 'a value that is nested 5,000 levels deep damages only its row', async (context) => {
  const { query, orm, service, app } = context;
  const { service: skipping } = reporting(context, { onDamagedEvent: 'skip' });
  const session = await five(context);
  const key = keyOf(session);
  await service.updateState({ ...key, set: { outside: 1, 'user:u': 1, 'app:x': 1 } });
  const handle = (await service.getSession(key))!;
  const text = nestedText(5_000);
  await query(`update adk_session_states set value = ? where ${OF_SESSION} and state_key = 'kept'`, [
    text,
    ...valuesOf(session),
  ]);
  await query(`update adk_user_states set value = ? where app_name = ?`, [text, app]);
  await query(`update adk_app_states set value = ? where app_name = ?`, [text, app]);
  await query(deep.sql, [...(deep.values ?? []), ...valuesOf(session)]);
  const expected = { events: deep.events, stateKeys: expect.arrayContaining(['kept', 'user:u', 'app:x']) };
  const maintenance = new SessionMaintenance(orm.em);
  const calls = [
    () => service.getSession(key),
    () => service.forkSession(key, { as: 'fork' }),
    () => service.forkSession(key, { at: 4, as: 'fork' }),
    () => service.rewindSession(key, { at: 4 }),
  ];
  for (const call of calls) await expectCode(call(), 'ADK_DAMAGED_SESSION');
  await expectCode(read(maintenance.exportSessions({ appName: app })), 'ADK_DAMAGED_SESSION');
  expect(await errorOf(service.getSession(key))).toMatchObject(expected);
  expect((await skipping.getSession(key))!.state).toEqual({ n: 5, outside: 1 });
  expect((await skipping.listSessions({ appName: app })).sessions.map(({ state }) => state)).toEqual([
    { n: 5, outside: 1 },
  ]);

  const { service: appending } = reporting(context);
  for (const id of ['e6', 'e7']) await appending.appendEvent({ session: handle, event: saying(id, { id }) });
  await appending.appendEvent({ session: handle, event: saying('again', { id: 'e5', timestamp: 50 }) });
  const log = new EventLog(orm.em);
  for (const entries of [log.since(0, { appName: app }), log.session(key).since(0)])
    expect((await read(entries)).map((entry) => entry.error?.code)).toEqual(
      upTo(7).map((n) => (n === 3 ? 'ADK_DAMAGED_EVENT' : undefined)),
    );
  // An entry of the log that is not an event, too.
  await query(`update adk_changes set data = ? where app_name = ? and kind in ('created', 'state', 'rewritten')`, [
    `{"set":${text},"deep":${text}}`,
    app,
  ]);
  expect((await read(log.complete().since(0, { appName: app }))).length).toBeGreaterThanOrEqual(7);
  await maintenance.repair(key);
  const repaired = (await service.getSession(key))!;
  expect([idsOf(repaired), repaired.state]).toEqual([['e1', 'e2', 'e3', 'e4', 'e5', 'e6', 'e7'], { n: 5, outside: 1 }]);
});

damageSuite.own('I1', 'an event is rewritten beside a state value that is not JSON', async (context) => {
  const store = await stateStore(context);
  const { service } = store;
  const session = await service.createSession({ ...KEY, state: STATE });
  const append = (id: string, stateDelta: Record<string, unknown>) =>
    service.appendEvent({ session, event: eventOf({ id, actions: { stateDelta } }) });
  await append('e1', { a: 2, n: 1 });
  await damageState(store);
  await append('e1', { n: 2 });
  await service.updateState({ ...KEY, set: { a: 1, 'user:a': 3, 'app:a': 5 } });
  await append('e2', { n: 3, b: 3 });
  expect((await service.rewindSession(KEY, { at: 1 })).state).toMatchObject({ ...STATE, n: 2 });
});

damageSuite.own(
  'K2',
  'a trim keeps the state that an event wrote which cannot be read',
  async ({ orm, service, create, append, fresh, query }) => {
    const session = await create({ state: { given: 1 } });
    const key = keyOf(session);
    for (const name of ['a', 'b', 'c', 'd']) await append(session, { id: name, delta: { [name]: name, last: name } });
    await query(`update adk_events set data = '[]' where event_id = 'b' and ${OF_SESSION}`, valuesOf(session));
    await query(`delete from adk_events where event_id = 'a' and ${OF_SESSION}`, valuesOf(session));
    await new SessionMaintenance(orm.em).trim({ ...key, keepLast: 2 });
    const state = { given: 1, a: 'a', b: 'b', c: 'c' };
    expect((await service.forkSession(key, { at: 3 })).state).toEqual({ ...state, last: 'c' });
    expect((await fresh(session)).state).toEqual({ ...state, d: 'd', last: 'd' });
    expect((await service.rewindSession(key, { at: 3 })).state).toEqual({ ...state, last: 'c' });
  },
);

damageSuite.own(
  'I1',
  'each call names the same changes that cannot be read',
  async ({ orm, service, create, append, query }) => {
    const session = await create();
    const key = keyOf(session);
    for (const n of [1, 2, 3]) await append(session, { delta: { n } });
    for (const outside of [1, 2]) await service.updateState({ ...key, set: { outside } });
    await append(session, { delta: { n: 4 } });
    await service.updateState({ ...key, set: { outside: 3 } });
    const maintenance = new SessionMaintenance(orm.em);
    await maintenance.trim({ ...key, keepLast: 2 });
    const damage = (where: string) =>
      query(`update adk_changes set data = '[]' where ${where} and ${OF_SESSION}`, valuesOf(session));
    await damage(`kind in ('state', 'trimmed')`);
    const named = [
      { from: 0, to: 0, problem: 'change' },
      { from: 3, to: 4, problem: 'change' },
    ];
    expect(await errorOf(service.forkSession(key))).toMatchObject({ events: named });
    expect((await maintenance.repair(key)).damage).toEqual(named);
    await damage(`kind = 'trimmed'`);
    const exported = read(maintenance.exportSessions({ appName: key.appName }));
    expect(await errorOf(exported)).toMatchObject({ events: [named[0]] });
  },
);

damageSuite.own(
  'I1',
  'a change that cannot be read damages the past after it, and repair empties it',
  async ({ orm, service, create, append, fresh, query }) => {
    const session = await create({ state: { given: 1 } });
    const key = keyOf(session);
    await append(session, { delta: { n: 1 } });
    await service.updateState({ ...key, set: { outside: 1 } });
    for (const n of [2, 3]) await append(session, { delta: { n } });
    const maintenance = new SessionMaintenance(orm.em);
    for (const [kind, from, fine] of [
      ['state', 1, 0],
      ['created', 0, undefined],
    ] as const) {
      await query(`update adk_changes set data = '[]' where kind = '${kind}' and ${OF_SESSION}`, valuesOf(session));
      const { state } = await fresh(session);
      if (fine !== undefined)
        expect((await service.forkSession(key, { at: fine, as: `fork ${kind}` })).state).toEqual({ given: 1 });
      for (const refused of [
        () => service.forkSession(key, { at: 2 }),
        () => service.rewindSession(key, { at: 2 }),
        () => service.forkSession(key),
        () => read(maintenance.exportSessions({ appName: key.appName })),
      ])
        expect(await errorOf(refused())).toMatchObject({ events: [{ from, to: from, problem: 'change' }] });
      const repaired = await maintenance.repair(key);
      expect(repaired.damage).toEqual([{ from, to: from, problem: 'change' }]);
      expect(repaired.changes).toEqual([{ kind, seq: from, content: Buffer.from('[]') }]);
      expect((await maintenance.repair(key)).damage).toEqual([]);
      expect((await service.forkSession(key)).state).toEqual(state);
      expect(await fresh(session)).toMatchObject({ state });
    }
    expect((await service.rewindSession(key, { at: 2 })).state).toEqual({ n: 2 });
  },
);

damageSuite.own('I1', 'values of any type of JSON are state, and not damaged', async ({ create, fresh }) => {
  const state = { five: 5, nothing: null, list: [], text: 'text', no: false };
  expect((await fresh(await create({ state }))).state).toEqual(state);
});

damageSuite.own('I2', 'sessions with damaged values are listed with the others, and reported', async (context) => {
  const store = await stateStore(context);
  const { service: writer } = store;
  await writer.createSession({ ...KEY, state: STATE });
  await writer.createSession({ ...KEY, sessionId: 't', state: { a: 1, c: 3 } });
  await writer.createSession({ ...KEY, userId: 'bob', sessionId: 'u', state: { c: 3, 'user:c': 4 } });
  await damageState(store);
  await store.query("delete from adk_session_states where session_id = 't' and state_key = 'a'");

  for (const request of [{}, { limit: 9 }, { userId: 'alice' }]) {
    const { service, reported } = reporting(store);
    const { sessions } = await service.listSessions({ appName: 'app', ...request });
    const states = Object.fromEntries(sessions.map(({ id, state }) => [id, state]));
    expect(states).toEqual({
      s: { b: 2, 'user:b': 4, 'app:b': 6 },
      t: { c: 3, 'user:b': 4, 'app:b': 6 },
      ...('userId' in request ? {} : { u: { c: 3, 'user:c': 4, 'app:b': 6 } }),
    });
    // Once for each owner, however many sessions show the value.
    expect(reported.map(({ userId, sessionId, stateKeys }) => [userId, sessionId, ...stateKeys]).sort()).toEqual([
      ['', '', 'app:a'],
      ['alice', '', 'user:a'],
      ['alice', 's', 'a'],
    ]);
  }
});

damageSuite.own(
  'I2',
  'a session is created beside damaged state of its user and app, and that is reported',
  async (context) => {
    const store = await stateStore(context);
    await store.service.createSession({ ...KEY, state: STATE });
    await damageState(store);
    const { service, reported } = reporting(store);
    const created = await service.createSession({ ...KEY, sessionId: 't', state: { own: 1 } });
    expect(created.state).toEqual({ own: 1, 'user:b': 4, 'app:b': 6 });
    expect(reported).toMatchObject([{ sessionId: 't', stateKeys: ['user:a', 'app:a'] }]);
    expect(await store.query("select session_id from adk_sessions where session_id = 't'")).toHaveLength(1);
  },
);

damageSuite.own('I2', 'without onDamage the process warns, once for each session', async (context) => {
  const { scratch } = context;
  const store = await scratch();
  const sessions = [];
  for (const sessionId of ['s', 't']) {
    const session = await store.service.createSession({ ...KEY, sessionId });
    await store.service.appendEvents({ session, events: upTo(3).map(() => eventOf()) });
    sessions.push(session);
  }
  await store.query('delete from adk_events where seq = 2');
  const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
  try {
    for (const _ of upTo(2)) {
      const service = new MikroOrmSessionService(store.orm.em, { onDamagedEvent: 'skip' });
      for (const session of sessions) expect((await service.getSession(keyOf(session)))?.events).toHaveLength(2);
    }
    expect(warn.mock.calls.map(([error]) => (error as unknown as DamagedSessionError).sessionId)).toEqual(['s', 't']);
    expect(warn.mock.calls[0]?.[0]).toBeInstanceOf(DamagedSessionError);
  } finally {
    warn.mockRestore();
  }
});

damageSuite.own('I2', 'an onDamage that throws stops nothing', async (context) => {
  const { orm, query } = context;
  const session = await five(context);
  await query(`delete from adk_events where seq = 3 and ${OF_SESSION}`, valuesOf(session));
  const service = new MikroOrmSessionService(orm.em, {
    onDamagedEvent: 'skip',
    onDamage: () => {
      throw new Error('of the host');
    },
  });
  expect(idsOf((await service.getSession(keyOf(session)))!)).toEqual(['e1', 'e2', 'e4', 'e5']);
});

damageSuite.own('I2', "a session's log reports what is missing, once for each gap, and continues", async (context) => {
  const { orm, query } = context;
  const session = await five(context);
  const log = new EventLog(orm.em).session(keyOf(session));
  const seen = async (after: number, filter = {}) =>
    (await read(log.since(after, filter))).map(({ seq, event, error }) => [seq, event?.id ?? error?.code]);
  await query(`delete from adk_events where seq in (1, 2, 4) and ${OF_SESSION}`, valuesOf(session));
  const damaged = 'ADK_DAMAGED_EVENT';
  expect(await seen(0)).toEqual([
    [2, damaged],
    [3, 'e3'],
    [4, damaged],
    [5, 'e5'],
  ]);
  expect(await seen(2)).toEqual([
    [3, 'e3'],
    [4, damaged],
    [5, 'e5'],
  ]);
  expect(await seen(0, { author: 'nobody' })).toEqual([
    [2, damaged],
    [4, damaged],
  ]);
  expect(await seen(0, { afterTimestamp: 1 })).toEqual([
    [3, 'e3'],
    [5, 'e5'],
  ]);
  await query(`delete from adk_events where ${OF_SESSION}`, valuesOf(session));
  expect(await seen(2)).toEqual([[5, damaged]]);
  await query(`update adk_sessions set last_seq = 0 where ${OF_SESSION}`, valuesOf(session));
  expect(await seen(0)).toEqual([]);
});

damageSuite.own('I3', 'with skip getSession returns what can be read, and reports the rest', async (context) => {
  for await (const { damaging, session } of damaged(context)) {
    const { service, reported } = reporting(context, { onDamagedEvent: 'skip' });
    const read = (await service.getSession(keyOf(session)))!;
    expect([damaging.title, idsOf(read)]).toEqual([damaging.title, IDS.filter((id) => !isIn(damaging.events)(id))]);
    expect(read.state).toEqual({ kept: 1, n: 5 });
    expect(reported).toHaveLength(1);
    expect(reported[0]).toMatchObject({ ...keyOf(session), events: damaging.events });
    expect(await service.getOrCreateSession(keyOf(session))).toEqual(read);
  }
});

damageSuite.own('I3', 'with skip the state lacks the values that cannot be read', async (context) => {
  const store = await stateStore(context);
  await store.service.createSession({ ...KEY, state: STATE });
  await damageState(store);
  const { service, reported } = reporting(store, { onDamagedEvent: 'skip' });
  expect((await service.getSession(KEY))?.state).toEqual({ b: 2, 'user:b': 4, 'app:b': 6 });
  expect(reported).toMatchObject([{ ...KEY, stateKeys: DAMAGED_KEYS }]);
  expect(await service.getUserState(KEY)).toEqual({ 'user:b': 4 });
  expect(await service.getAppState(KEY)).toEqual({ 'app:b': 6 });
  expect(reported).toHaveLength(3);
});

damageSuite.own('I3', 'a healthy session reports nothing', async (context) => {
  const { service, reported } = reporting(context, { onDamagedEvent: 'skip' });
  const session = await five(context);
  const filters = [{}, { numRecentEvents: 2 }, { afterTimestamp: 20 }, { afterTimestamp: 99, numRecentEvents: 2 }];
  for (const config of filters) await service.getSession({ ...keyOf(session), config });
  await service.listSessions({ appName: context.app });
  expect(reported).toEqual([]);
});

damageSuite.own('I4', 'appends to a handle that was read before succeed, whatever is damaged', async (context) => {
  for (const onStaleSession of ['rebase', 'reject'] as const) {
    for await (const { damaging, session } of damaged(context)) {
      const { service } = reporting(context, { onStaleSession });
      const before = await rows(context, session);
      // Twice: what a first append has found must not stop the next.
      const events = [saying('new', { id: 'new', actions: { stateDelta: { n: 6 } } }), eventOf({ id: 'newer' })];
      for (const event of events) expect(await service.appendEvent({ session, event })).toBe(event);
      const after = await rows(context, session);
      const last = Math.max(...damaging.events.map(({ to }) => to), 5);
      expect([damaging.title, after]).toEqual([damaging.title, [...before, [last + 1, 'new'], [last + 2, 'newer']]]);
      expect(idsOf(session)).toEqual([...IDS, 'new', 'newer']);
      expect(session.events.slice(-2)).toEqual(events);
      expect(session.state).toMatchObject({ kept: 1, n: 6 });
    }
  }
});

damageSuite.own('I4', 'a handle that is behind gets what can be read, and the rest is reported', async (context) => {
  for (const damaging of damagings(context)) {
    const session = await context.create();
    const behind = await context.fresh(session);
    const clone = plain(behind);
    const events = upTo(5).map((n) => saying(`e${n}`, { id: `e${n}`, actions: { stateDelta: { n } } }));
    await context.service.appendEvents({ session, events });
    await context.query(damaging.sql, [...(damaging.values ?? []), ...valuesOf(session)]);

    const isUncounted = damaging.events[0]?.problem === 'uncounted';
    for (const [i, handle] of [behind, clone].entries()) {
      const { service, reported } = reporting(context);
      const event = saying('new', { id: `new ${i}` });
      expect(await service.appendEvent({ session: handle, event })).toBe(event);
      // Events above the last number count from now on.
      const there = isUncounted ? IDS : IDS.filter((id) => !isIn(damaging.events)(id));
      const appended = i === 0 ? ['new 0'] : ['new 0', 'new 1'];
      expect([damaging.title, idsOf(handle)]).toEqual([damaging.title, [...there, ...appended]]);
      expect(handle.events.at(-1)).toBe(event);
      expect(handle.state).toEqual({ n: 5 });
      if (isUncounted && i === 1) expect(reported).toEqual([]);
      else expect(reported).toMatchObject([{ ...keyOf(session), events: damaging.events }]);
    }
    const { service } = reporting(context, { onDamagedEvent: 'skip' });
    expect(plain(await service.getSession(keyOf(session)))).toEqual(plain(clone));
  }
});

damageSuite.own('I4', 'a handle that is behind gets no unreadable state', async (context) => {
  const store = await stateStore(context);
  const session = await store.service.createSession(KEY);
  const behind = (await store.another.getSession(KEY))!;
  const event = eventOf({ actions: { stateDelta: STATE } });
  await store.service.appendEvent({ session, event });
  await damageState(store);
  const { service, reported } = reporting(store);
  await service.appendEvent({ session: behind, event: saying('new', { actions: { stateDelta: { b: 7 } } }) });
  expect(behind.state).toEqual({ b: 7, 'user:b': 4, 'app:b': 6 });
  expect(reported).toMatchObject([{ ...KEY, stateKeys: DAMAGED_KEYS }]);
  // A write makes the value whole again.
  await service.appendEvent({
    session: behind,
    event: eventOf({ actions: { stateDelta: { a: 1, 'user:a': 3, 'app:a': 5 } } }),
  });
  expect((await store.another.getSession(KEY))?.state).toEqual({ ...STATE, b: 7 });
});

damageSuite.own('I4', 'an event that is appended again makes its damaged row whole', async (context) => {
  for (const data of ['5', 'null', null]) {
    const session = await five(context);
    const [third, fifth] = [session.events[2]!, session.events[4]!];
    await context.service.updateState({ ...keyOf(session), set: { n: 'set since' } });
    await context.query(`update adk_events set data = ? where seq in (3, 5) and ${OF_SESSION}`, [
      data,
      ...valuesOf(session),
    ]);
    for (const event of [third, fifth]) await context.service.appendEvent({ session, event });
    const read = await context.fresh(session);
    expect(idsOf(read)).toEqual(IDS);
    // And takes nothing back that was written since.
    expect(read.state).toEqual({ kept: 1, n: 'set since' });
    expect(await rows(context, session)).toEqual(IDS.map((id, i) => [i + 1, id]));
  }
});

damageSuite.own('I4', 'an event whose row is missing is appended as a new one', async (context) => {
  const session = await five(context);
  const { service } = reporting(context);
  await context.query(`delete from adk_events where seq in (3, 5) and ${OF_SESSION}`, valuesOf(session));
  await service.appendEvent({ session, event: session.events[4]! });
  expect(await rows(context, session)).toEqual([
    [1, 'e1'],
    [2, 'e2'],
    [4, 'e4'],
    [6, 'e5'],
  ]);
  expect(session.events.filter(({ id }) => id === 'e5')).toHaveLength(1);
});

damageSuite.own('I4', 'an event above last_seq that is appended again counts, once', async (context) => {
  const session = await five(context);
  const older = plain(session);
  older.events.splice(3);
  await context.query(`update adk_sessions set last_seq = 3 where ${OF_SESSION}`, valuesOf(session));
  const { service, reported } = reporting(context, { onStaleSession: 'reject' });
  await service.appendEvent({ session: older, event: session.events[4]! });
  expect(reported).toMatchObject([{ events: [at('uncounted', 4, 5)] }]);
  expect(await rows(context, session)).toEqual(IDS.map((id, i) => [i + 1, id]));
  expect(idsOf(await context.fresh(session))).toEqual(IDS);
  expect(idsOf(older)).toEqual(IDS);
});

damageSuite.own('I4', 'a host’s transaction also appends after last_seq', async (context) => {
  const { orm, query } = context;
  const session = await five(context);
  await query(`update adk_sessions set last_seq = 3 where ${OF_SESSION}`, valuesOf(session));
  const { service } = reporting(context);
  await orm.em
    .fork()
    .transactional((tx) => service.withEntityManager(tx).appendEvent({ session, event: eventOf({ id: 'e6' }) }));
  expect(idsOf(await context.fresh(session))).toEqual([...IDS, 'e6']);
});

for (const [title, value, path, what] of [
  ['a Buffer', Buffer.from('x'), '', 'Uint8Array'],
  ['a typed array', new Float32Array([1]), '', 'Float32Array'],
  ['a typed array with toJSON', Object.assign(new Uint8Array(1), { toJSON: () => [0] }), '', 'Uint8Array'],
  ['a DataView', new DataView(new ArrayBuffer(1)), '', 'DataView'],
  ['undefined in a list', [1, undefined], '[1]', 'undefined'],

  ['a list with an empty place', [1, , 3], '[1]', 'undefined'],
  ['what toJSON leaves out of a list', [{ toJSON: () => undefined }], '[0]', 'undefined'],
  ['-0', -0, '', '-0'],
  ['-0 deep inside', { a: [{ b: -0 }] }, '.a[0].b', '-0'],
  ['an invalid Date', new Date(NaN), '', 'an invalid Date'],
  ['a boxed number', Object(5), '', 'Number'],
  ['a boxed string', Object('x'), '', 'String'],
  ['a boxed boolean', Object(false), '', 'Boolean'],
  ['URLSearchParams', new URLSearchParams('a=1'), '', 'URLSearchParams'],
] as const) {
  damageSuite.own('I6', `${title} is refused with its path, before anything is written`, async (context) => {
    const { app, service, create, append, stored, query } = context;
    const session = await create();
    await append(session);
    const before = await stored(keyOf(session));
    const unchanged = remember(session);
    const at = (prefix: string) => ({
      code: 'ADK_UNSERIALIZABLE_VALUE',
      path: prefix + path,
      message: expect.stringContaining(what),
    });
    const state = { a: { value } };
    expect(await errorOf(append(session, { delta: state }))).toMatchObject(at('actions.stateDelta.a.value'));
    expect(await errorOf(append(session, { output: state }))).toMatchObject(at('output.a.value'));
    expect(await errorOf(create({ sessionId: 'refused', state }))).toMatchObject(at('state.a.value'));
    const update = { ...keyOf(session), set: { b: 1, 'app:b': 1, ...state } };
    expect(await errorOf(service.updateState(update))).toMatchObject(at('set.a.value'));
    unchanged();
    expect(await stored(keyOf(session))).toEqual(before);
    expect(await query('select session_id from adk_sessions where app_name = ?', [app])).toHaveLength(1);
  });
}

damageSuite.own(
  'I6',
  'state that is set to undefined is refused, and not left as it was',
  async ({ service, create, fresh }) => {
    const session = await create({ state: { a: 1 } });
    await expectCode(
      service.updateState({ ...keyOf(session), set: { a: undefined } }),
      'ADK_UNSERIALIZABLE_VALUE',
      /^set.a is undefined/,
    );
    expect((await fresh(session)).state).toEqual({ a: 1 });
  },
);

damageSuite.own(
  'I6',
  'the state of a live handle shows what a later read returns',
  async ({ create, append, fresh, service }) => {
    const date = new Date(5);
    const text = '1970-01-01T00:00:00.005Z';
    const price = { amount: 5, toJSON: () => '5 EUR' };
    const kept = { a: [1] };
    const delta = {
      date,
      nested: { list: [date], price },
      kept,
      'app:date': date,
      'user:price': price,
    };
    const expected = {
      date: text,
      nested: { list: [text], price: '5 EUR' },
      kept,
      'app:date': text,
      'user:price': '5 EUR',
    };
    const session = await create({ state: { created: date } });
    expect(session.state).toEqual({ created: text });
    const event: Event = await append(session, { delta });
    expect(session.state).toEqual({ created: text, ...expected });
    expect((await fresh(session)).state).toEqual(session.state);
    expect(plain(event.actions.stateDelta)).toEqual(expected);
    // What JSON does not change is the caller's own object.
    expect(session.state.kept).toBe(kept);
    expect(delta.date).toBe(date);

    await service.updateState({ ...keyOf(session), set: { date: new Date(6) } });
    expect((await fresh(session)).state.date).toBe('1970-01-01T00:00:00.006Z');
  },
);

damageSuite.own(
  'I6',
  'values that ADK itself leaves undefined or names by symbols are not refused',
  async (context) => {
    const { create, append, fresh } = context;
    const session = await create();
    const output = { absent: undefined, kept: [{ absent: undefined }], [Symbol('mark')]: 1 };
    await append(session, { output, errorCode: undefined });
    expect(plain((await fresh(session)).events[0]?.output)).toEqual({ kept: [{}] });
  },
);
