import type { Session } from '@google/adk';
import { MikroOrmSessionService } from '../../src/index.js';
import { SESSION_RULES } from '../../src/testing/session-rules.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, type Context, withConnections } from './rule.js';
import { errorOf, expectCode, eventOf, faulty, idsOf, plain, range, saying, textsOf } from './tools.js';

export const sessionSuite = new Suite();
sessionSuite.publish(SESSION_RULES);

sessionSuite.own('D1', 'the error is a SessionExistsError', async ({ create }) => {
  await create({ sessionId: 's' });
  await expectCode(create({ sessionId: 's' }), 'ADK_SESSION_EXISTS');
});

// ADK's own users of a database service come up in several processes at once.
sessionSuite.shared(
  'D1',
  'concurrent first sessions of a new app and user are all created',
  async ({ create, another, app, stored }) => {
    const sessions = await Promise.all(
      range(8).map((i) =>
        i % 2
          ? create({ state: { 'app:a': 1 } })
          : another.createSession({ appName: app, userId: 'alice', state: { 'app:a': 1 } }),
      ),
    );
    for (const session of sessions) expect(await stored(keyOf(session))).toBeDefined();
  },
);

sessionSuite.shared(
  'D2',
  'getOrCreateSession gives the session that is there',
  async ({ app, service, create, append }) => {
    const session = await create({ sessionId: 's', state: { a: 1 } });
    await append(session);
    const got = await service.getOrCreateSession({ appName: app, userId: 'alice', sessionId: 's', state: { a: 2 } });
    expect(plain(got)).toEqual(plain(session));
    expect(
      (await service.getOrCreateSession({ appName: app, userId: 'bob', sessionId: 's', state: { a: 2 } })).state,
    ).toEqual({ a: 2 });
  },
);

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
  // The log is told: what it had of the session goes, and its deletion comes.
  expect(words).toEqual(['select', 'begin', 'delete', 'delete', 'insert', 'commit']);
  for (const table of ['adk_sessions', 'adk_events', 'adk_event_parts', 'adk_session_states']) {
    expect(await query(`select * from ${table} where app_name = ?`, [app])).toEqual([]);
  }
});

sessionSuite.shared(
  'D4',
  'an append that races with the delete lands before it or fails',
  async ({ service, another, create, append, stored }) => {
    for (const i of range(10)) {
      const session = await create({ sessionId: 's' });
      const [appended, deleted] = await Promise.allSettled([
        append(session, { content: { parts: [{ text: String(i) }] }, delta: { i } }),
        (i % 2 ? service : another).deleteSession(keyOf(session)),
      ]);
      if (appended.status === 'rejected')
        expect(appended.reason).toHaveProperty('message', expect.stringMatching(/not found/));
      expect(deleted.status).toBe('fulfilled');
      expect(await stored(keyOf(session))).toBeUndefined();
      const again = await create({ sessionId: 's' });
      expect(again).toMatchObject({ state: {}, events: [] });
      await service.deleteSession(keyOf(again));
    }
  },
);

/** Six sessions whose last events are at 10 to 50; `d` and `c` share 30. The ids do not tell the order. */
async function sixSessions({ create, append }: Pick<Context, 'create' | 'append'>): Promise<void> {
  for (const [sessionId, timestamp, userId] of [
    ['e', 40, 'alice'],
    ['d', 30, 'bob'],
    ['a', 20, 'alice'],
    ['c', 30, 'alice'],
    ['b', 10, 'bob'],
    ['f', 50, 'alice'],
  ] as const) {
    // Below the time of creation: an update is what the event says.
    await append(await create({ sessionId, userId, state: { own: sessionId } }), {
      timestamp,
      delta: { 'user:who': userId, 'app:x': 1 },
    });
  }
}

const listedIds = ({ sessions }: { sessions: Session[] }) => sessions.map(({ id }) => id).join('');

sessionSuite.shared('D5', 'pages by limit, offset and page, with the counts', async (context) => {
  await sixSessions(context);
  const list = async (request: { limit?: number; offset?: number; page?: number }) => {
    const response = await context.service.listSessions({ appName: context.app, order: 'asc', ...request });
    const { page, limit, totalItems, totalPages } = response;
    return [listedIds(response), page, limit, totalItems, totalPages];
  };
  expect(await list({})).toEqual(['bacdef', 1, 6, 6, 1]);
  expect(await list({ limit: 4 })).toEqual(['bacd', 1, 4, 6, 2]);
  expect(await list({ limit: 4, page: 2 })).toEqual(['ef', 2, 4, 6, 2]);
  expect(await list({ limit: 4, page: 9 })).toEqual(['', 9, 4, 6, 2]);
  expect(await list({ limit: 2, offset: 3 })).toEqual(['de', 2, 2, 6, 3]);
  expect(await list({ limit: 2, offset: 1, page: 3 })).toEqual(['ef', 3, 2, 6, 3]);
  expect(await list({ offset: 4 })).toEqual(['ef', 1, 6, 6, 1]);
  expect(await list({ limit: 0 })).toEqual(['', 1, 0, 6, 0]);
  expect(await list({ limit: 100 })).toEqual(['bacdef', 1, 100, 6, 1]);
});

sessionSuite.shared('D5', 'an empty list has the same fields', async ({ app, service }) => {
  const empty = { sessions: [], totalItems: 0, totalPages: 0 };
  expect(await service.listSessions({ appName: app })).toEqual({ ...empty, page: 1, limit: 0 });
  expect(await service.listSessions({ appName: app, userId: 'alice', limit: 3, page: 2 })).toEqual({
    ...empty,
    page: 2,
    limit: 3,
  });
});

sessionSuite.own('D5', 'paging that is no whole number is refused', async ({ app, service }) => {
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

sessionSuite.shared(
  'D5',
  'a session from a list can be appended to',
  async ({ app, service, create, append, fresh }) => {
    const session = await create();
    await append(session, { content: { parts: [{ text: 'first' }] } });
    const [listed] = (await service.listSessions({ appName: app })).sessions;
    await append(listed!, { content: { parts: [{ text: 'second' }] } });
    expect(textsOf(await fresh(session))).toEqual(['first', 'second']);
  },
);

const ALICES = ['alice', 'Alice', 'alice ', 'alicé', 'alice\u0301', 'ALICE', ' alice'];

sessionSuite.shared(
  'D6',
  'users that differ by a byte are different users',
  async ({ app, service, create, append, stored }) => {
    for (const userId of ALICES) {
      const session = await create({ userId, sessionId: 's', state: { 'user:name': userId } });
      await append(session, { content: { parts: [{ text: userId }] } });
    }
    for (const userId of ALICES) {
      const { state, events } = (await stored({ appName: app, userId, sessionId: 's' }))!;
      expect([state, textsOf({ events })]).toEqual([{ 'user:name': userId }, [userId]]);
      expect((await service.listSessions({ appName: app, userId })).sessions.map((session) => session.userId)).toEqual([
        userId,
      ]);
    }
    await service.deleteSession({ appName: app, userId: 'alice', sessionId: 's' });
    expect((await service.listSessions({ appName: app })).totalItems).toBe(ALICES.length - 1);
  },
);

sessionSuite.shared('D6', 'so are apps, sessions, events and state keys', async ({ app, create, append, fresh }) => {
  for (const name of ALICES) await create({ appName: app + name, sessionId: 's', state: { 'app:name': name } });
  for (const name of ALICES) {
    const session = await create({ sessionId: name, state: { name } });
    for (const id of ALICES) await append(session, { id, delta: { [id]: id } });
    const read = await fresh(session);
    expect(idsOf(read)).toEqual(ALICES);
    expect(read.state).toEqual({ name, ...Object.fromEntries(ALICES.map((key) => [key, key])) });
    const twin = await fresh({ ...session, appName: app + name, id: 's' });
    expect(twin.state).toEqual({ 'app:name': name });
  }
});

/** Of `length` characters that no compression shortens, since PostgreSQL compresses what it indexes. */
function name(length: number, alphabet: 'ascii' | 'bmp' | 'emoji'): string {
  const [first, size] = { ascii: [0x61, 26], bmp: [0x4e00, 0x5000], emoji: [0x1f300, 0x2ff] }[alphabet] as [
    number,
    number,
  ];
  return range(length)
    .map(() => String.fromCodePoint(first + Math.floor(Math.random() * size)))
    .join('');
}

for (const alphabet of ['ascii', 'bmp', 'emoji'] as const) {
  sessionSuite.shared(
    'D7',
    `keys of the greatest length are stored and read (${alphabet})`,
    async ({ service, append, fresh, stored }) => {
      const bytes = { ascii: 1, bmp: 3, emoji: 4 }[alphabet];
      // Shorter user ids, where the whole key would be above the 2,600 bytes.
      const key = { appName: name(128, alphabet), userId: name(191, alphabet), sessionId: name(191, alphabet) };
      const room = Math.floor(2_600 / bytes) - 510;
      const stateKey = name(Math.min(255, room), alphabet);
      const userKey = `user:${name(255, alphabet)}`;
      const appKey = `app:${name(255, alphabet)}`;
      const state = { [stateKey]: 1, [userKey]: 2, [appKey]: 3 };
      const session = await service.createSession({ ...key, state });
      expect((await fresh(session)).state).toEqual(state);
      const id = name(Math.min(191, room), alphabet);
      await append(session, { id, delta: state });
      const read = await fresh(session);
      expect([read.state, idsOf(read)]).toEqual([state, [id]]);
      expect(
        (await service.listSessions({ appName: key.appName, userId: key.userId })).sessions.map((each) => each.id),
      ).toEqual([key.sessionId]);
      await service.deleteSession(key);
      expect(await stored(key)).toBeUndefined();
    },
  );

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
  // Of a user's row the session id is no part.
  await append(session, { delta: { [`user:${longest}x`]: 1 } });
  expect((await fresh(session)).events).toHaveLength(2);
});

sessionSuite.shared(
  'D8',
  'state and events that are read together belong together, whoever appends',
  async ({ another, create, fresh, service }) => {
    const session = await create({ state: { n: 0 } });
    let done = false;
    const appending = (async () => {
      for (const n of range(60).map((i) => i + 1)) {
        await service.appendEvent({
          session,
          event: saying(String(n), { actions: { stateDelta: { n, 'app:n': n } } }),
        });
      }
      done = true;
    })();
    let reads = 0;
    while (!done) {
      for (const config of [{}, { numRecentEvents: 3 }]) {
        const read = await fresh(session, config);
        const last = Number(textsOf(read).at(-1) ?? 0);
        expect(read.state.n).toBe(last);
        expect(read.state['app:n'] ?? 0).toBe(last);
        if (!('numRecentEvents' in config)) expect(read.events).toHaveLength(last);
      }
      reads++;
    }
    await appending;
    expect(reads).toBeGreaterThan(1);
    expect((await another.getSession(keyOf(session)))?.events).toHaveLength(60);
  },
);

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

sessionSuite.own(
  'D8',
  'what is read again, since something is missing, is of one moment, too',
  async ({ orm, connect, create, query }) => {
    // On SQLite the reader has the only connection.
    const service = new MikroOrmSessionService((await connect()).em);
    for (const config of [{ afterTimestamp: 1 }, { afterTimestamp: 1, numRecentEvents: 3 }]) {
      for (const change of ['deleted', 'created anew', 'appended to']) {
        const session = await create({ state: { life: 'old' } });
        await service.appendEvents({ session, events: range(4).map((i) => saying('old', { id: `e${i}` })) });
        await query(`delete from adk_events where session_id = ? and seq = 3`, [session.id]);
        let reads = 0;
        const reader = new MikroOrmSessionService(
          faulty(orm.em, {
            async before(text) {
              if (!text.startsWith("select 'head'") || ++reads !== 2) return;
              if (change === 'appended to') await service.appendEvent({ session, event: saying('new', { id: 'e9' }) });
              else await service.deleteSession(keyOf(session));
              if (change !== 'created anew') return;
              const anew = await service.createSession({ ...keyOf(session), state: { life: 'new' } });
              await service.appendEvents({ session: anew, events: range(3).map(() => saying('new')) });
            },
          }),
        );
        const reading = reader.getSession({ ...keyOf(session), config });
        if (change === 'appended to') {
          const missing = [{ from: 3, to: 3, problem: 'missing' }];
          expect(await errorOf(reading)).toMatchObject({ events: missing });
        } else {
          const read = await reading;
          expect(read && [read.state.life, ...textsOf(read)]).toEqual(
            change === 'deleted' ? undefined : ['new', 'new', 'new', 'new'],
          );
        }
        expect(reads).toBe(2);
      }
    }
  },
  withConnections,
);
