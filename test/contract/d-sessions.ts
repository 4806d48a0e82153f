import { EventLog, MikroOrmSessionService, SessionLeases } from '../../src/index.js';
import { KEY_RULES } from '../../packages/session-contract/src/key-rules.js';
import { randomName, randomNumbers, type Alphabet } from '../../packages/session-contract/src/random.js';
import { SESSION_RULES } from '../../packages/session-contract/src/session-rules.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite } from './rule.js';
import { errorOf, expectCode, eventOf, faulty, idsOf, plain, range, saying, textsOf } from './tools.js';

export const sessionSuite = new Suite();
sessionSuite.publish([...SESSION_RULES, ...KEY_RULES]);

sessionSuite.own('D1', 'the error is an AlreadyExistsError', async ({ create }) => {
  await create({ sessionId: 's' });
  await expectCode(create({ sessionId: 's' }), 'ADK_SESSION_EXISTS');
});

sessionSuite.own('A12', "an error that ADK has, too, has the name of ADK's", async ({ orm, create, append, app }) => {
  const strict = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
  const session = await create({ sessionId: 's' });
  const stale = plain(session);
  await append(session);
  const unknown: Record<string, unknown> = { appName: app, usr: 'alice' };
  const calls: Record<string, (() => Promise<unknown>)[]> = {
    AlreadyExistsError: [() => create({ sessionId: 's' })],
    SessionNotFoundError: [() => append({ ...session, id: 'none' })],
    StaleSessionError: [() => strict.appendEvent({ session: stale, event: saying('x') })],
    InputValidationError: [() => strict.listSessions(unknown as never), () => strict.listSessions({ appName: '' })],
  };
  for (const [name, each] of Object.entries(calls))
    for (const call of each) expect(await errorOf(call())).toHaveProperty('name', name);
});

sessionSuite.own('D3', 'the error is a SessionNotFoundError', async ({ service, create, append, app }) => {
  const session = await create();
  await service.deleteSession(keyOf(session));
  await expectCode(append(session), 'ADK_SESSION_NOT_FOUND');
  await expectCode(append(plain(session)), 'ADK_SESSION_NOT_FOUND');
  const update = { appName: app, userId: 'alice', sessionId: session.id, set: { a: 1 } };
  await expectCode(service.updateState(update), 'ADK_SESSION_NOT_FOUND');
});

sessionSuite.own('D4', 'a deleted session leaves no row', async ({ app, service, create, append, query, recorded }) => {
  const session = await create({ state: { a: 1 } });
  await append(session, { content: { parts: [{ text: 'x'.repeat(2_500_000) }] } });
  const statements = await recorded(() => service.deleteSession(keyOf(session)));
  const words = statements.map(({ text }) => text.split(' ')[0]);
  // Its artifacts go. So does what the log had of the session, and its deletion is recorded.
  expect(words).toEqual([
    'begin',
    expect.stringMatching(/^(select|update)$/),
    'delete',
    'delete',
    'delete',
    'insert',
    'commit',
  ]);
  for (const table of ['adk_sessions', 'adk_events', 'adk_event_parts', 'adk_session_states']) {
    expect(await query(`select * from ${table} where app_name = ?`, [app])).toEqual([]);
  }
});

sessionSuite.own('D5', 'paging by a number that is not whole is refused', async ({ app, service }) => {
  for (const request of [
    { limit: -1 },
    { limit: 1.5 },
    { offset: -1 },
    { limit: 1, offset: 0.5 },
    { limit: 1, page: 0 },
    { limit: 1, page: -1 },
  ]) {
    await expectCode(service.listSessions({ appName: app, ...request }), 'ADK_INVALID_ARGUMENT');
  }
});

const random = randomNumbers();
const name = (length: number, alphabet: Alphabet) => randomName(random, length, alphabet);

for (const alphabet of ['ascii', 'bmp', 'emoji'] as const) {
  sessionSuite.own(
    'D7',
    `keys one longer are refused before any write (${alphabet})`,
    async ({ app, service, append, create, query }) => {
      const key = { appName: app, userId: 'alice', sessionId: 's' };
      for (const [field, max] of [
        ['appName', 128],
        ['userId', 191],
        ['sessionId', 191],
      ] as const) {
        const bad = { ...key, [field]: name(max + 1, alphabet) };
        for (const call of [
          () => service.createSession({ ...bad, state: { 'app:a': 1 } }),
          () => service.getOrCreateSession(bad),
          () => service.getSession(bad),
          () => service.deleteSession(bad),
          () => service.updateState({ ...bad, set: { 'app:a': 1, a: 1 } }),
          () =>
            append({
              id: bad.sessionId,
              appName: bad.appName,
              userId: bad.userId,
              state: {},
              events: [],
              lastUpdateTime: 0,
            }),
          ...(field === 'sessionId' ? [] : [() => service.listSessions(bad), () => service.getUserState(bad)]),
          ...(field === 'appName' ? [() => service.getAppState(bad)] : []),
        ]) {
          await expectCode(call(), 'ADK_INVALID_KEY');
        }
      }
      const session = await create();
      await expectCode(append(session, { id: name(192, alphabet) }), 'ADK_INVALID_KEY');
      for (const prefix of ['', 'user:', 'app:']) {
        const state = { 'app:first': 1, [prefix + name(256, alphabet)]: 1 };
        await expectCode(append(session, { delta: state }), 'ADK_INVALID_KEY');
        await expectCode(create({ state }), 'ADK_INVALID_KEY');
      }
      expect(await query('select state_key from adk_app_states where app_name = ?', [app])).toEqual([]);
      expect(await query('select session_id from adk_sessions where app_name = ?', [app])).toEqual([
        { session_id: session.id },
      ]);
      expect(await query('select event_id from adk_events where app_name = ?', [app])).toEqual([]);
    },
  );
}

sessionSuite.own('D7', 'a name of millions of characters is refused before they are counted', async (context) => {
  const { app, orm, service, append, create } = context;
  const session = await create();
  const long = 'x'.repeat(10_000_000);
  const key = keyOf(session);
  const leases = new SessionLeases(orm.em);
  const counted = jest.spyOn(Array, 'from');
  const calls = [
    () => service.createSession({ ...key, sessionId: long }),
    () => service.createSession({ ...key, appName: long }),
    () => service.getSession({ ...key, userId: long }),
    () => service.getOrCreateSession({ ...key, sessionId: long }),
    () => service.deleteSession({ ...key, sessionId: long }),
    () => service.listSessions({ appName: long }),
    () => service.forkSession(key, { as: long }),
    () => service.updateState({ ...key, set: { [long]: 1 } }),
    () => service.updateState({ ...key, remove: [`user:${long}`] }),
    () => append(session, { id: long }),
    () => append(session, { delta: { [`app:${long}`]: 1 } }),
    () => append({ ...session, id: long }),
    () => leases.acquire({ ...key, sessionId: long }, { holder: 'a' }),
    () => leases.acquire(key, { holder: long }),
    () => service.describeSession(key, { title: long }),
    () => service.describeSession(key, { labels: { a: long } }),
    async () => new EventLog(orm.em).since(0, { appName: long }),
  ];
  try {
    for (const call of calls) expect((await errorOf(call())).message.length).toBeLessThan(1_000);
    const large = counted.mock.calls.filter(([text]) => typeof text === 'string' && text.length > 1_000);
    expect(large.length).toBe(0);
  } finally {
    counted.mockRestore();
  }
  expect((await service.listSessions({ appName: app })).sessions).toHaveLength(1);
});

sessionSuite.own('D7', 'empty names, NUL and lone surrogates are refused', async ({ app, service, create, append }) => {
  const session = await create();
  for (const bad of ['', 'a\0b', 'a\ud800b', '\udfff']) {
    const key = { appName: app, userId: 'alice', sessionId: 's' };
    await expectCode(service.createSession({ ...key, appName: bad }), 'ADK_INVALID_KEY');
    await expectCode(service.createSession({ ...key, userId: bad }), 'ADK_INVALID_KEY');
    // Without an id one is made.
    if (bad) await expectCode(service.createSession({ ...key, sessionId: bad }), 'ADK_INVALID_KEY');
    await expectCode(service.getSession({ ...key, sessionId: bad }), 'ADK_INVALID_KEY');
    await expectCode(append({ ...session, id: bad }), 'ADK_INVALID_KEY');
    await expectCode(service.appendEvent({ session, event: { ...eventOf(), id: bad } }), 'ADK_INVALID_KEY');
    for (const prefix of ['', 'user:', 'app:']) {
      await expectCode(append(session, { delta: { [prefix + bad]: 1 } }), 'ADK_INVALID_KEY');
      await expectCode(create({ state: { [prefix + bad]: 1 } }), 'ADK_INVALID_KEY');
    }
  }
});

sessionSuite.own('D7', 'the key of a row has at most 2,600 bytes', async ({ service, append, create, fresh }) => {
  // 128 + 191 + 191 characters of four bytes are 2,040; so 140 of four are left for an event id or a state key.
  const key = { appName: name(128, 'emoji'), userId: name(191, 'emoji'), sessionId: name(191, 'emoji') };
  const session = await service.createSession(key);
  const longest = name(140, 'emoji');
  await append(session, { id: longest, delta: { [longest]: 1 } });
  expect(idsOf(await fresh(session))).toEqual([longest]);
  await expectCode(append(session, { id: `${longest}x` }), 'ADK_INVALID_KEY', /2600 bytes/);
  await expectCode(append(session, { delta: { [`${longest}x`]: 1 } }), 'ADK_INVALID_KEY', /2600 bytes/);
  await expectCode(create({ ...key, sessionId: name(191, 'emoji'), state: { [`${longest}x`]: 1 } }), 'ADK_INVALID_KEY');
  // The row of a user has no session id.
  await append(session, { delta: { [`user:${longest}x`]: 1 } });
  expect((await fresh(session)).events).toHaveLength(2);
});

sessionSuite.own(
  'D8',
  'a session that is deleted and created again between two reads is one or the other',
  async ({ another, create, service, app }) => {
    const key = { appName: app, userId: 'alice', sessionId: 's' };
    let done = false;
    const recreating = (async () => {
      for (const life of range(15)) {
        const session = await create({ sessionId: 's', state: { life } });
        await service.appendEvents({ session, events: range(3).map(() => saying(String(life))) });
        await service.deleteSession(key);
      }
      done = true;
    })();
    while (!done) {
      const read = await another.getSession(key);
      if (!read) continue;
      expect(new Set([...textsOf(read), String(read.state.life)]).size).toBe(1);
      expect([0, 3]).toContain(read.events.length);
    }
    await recreating;
  },
);

sessionSuite.own(
  'D8',
  'state and events that are read together belong together, also while events are rewritten and sessions taken back',
  async ({ orm, another, append, create, fresh }) => {
    const session = await create();
    await append(session, { id: 'a', content: { parts: [{ text: '0' }] }, delta: { n: 0 } });
    let n = 0;
    const change = async () => {
      if (++n % 3 === 0) await another.rewindSession(keyOf(session), { at: 1 });
      else {
        const content = { parts: [{ text: String(n) }] };
        await append(await fresh(session), { id: 'b', content, delta: { n } }, another);
      }
    };
    // Between two statements of a read, if there are several, and beside it.
    let selects = 0;
    const before = async (text: string) => {
      if (text.startsWith('select') && ++selects === 2) await change();
    };
    const reader = new MikroOrmSessionService(faulty(orm.em, { before }));
    for (const config of [
      {},
      { numRecentEvents: 1 },
      { afterTimestamp: 1 },
      { afterTimestamp: 1, numRecentEvents: 1 },
    ]) {
      for (const _ of range(6)) {
        selects = 0;
        const [read] = await Promise.all([reader.getSession({ ...keyOf(session), config }), change()]);
        expect([config, Number(textsOf(read!).at(-1))]).toEqual([config, read!.state.n]);
      }
    }
  },
);
