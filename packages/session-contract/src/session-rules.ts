import { all, fails, holds, plain, refuses, same } from './checks.js';
import { idsOf, range, saying, textsOf } from './events.js';
import { keyOf, type RuleContext, type ServiceRule } from './rule.js';

/** Six sessions whose last events are at 10 to 50; `d` and `c` share 30. The ids do not tell the order. */
async function sixSessions({ create, append }: RuleContext): Promise<void> {
  for (const [sessionId, timestamp, userId] of [
    ['e', 40, 'alice'],
    ['d', 30, 'bob'],
    ['a', 20, 'alice'],
    ['c', 30, 'alice'],
    ['b', 10, 'bob'],
    ['f', 50, 'alice'],
  ] as const) {
    // Below the time of creation: an update is what the event says.
    const session = await create({ sessionId, userId, state: { own: sessionId } });
    await append(session, { timestamp, delta: { 'user:who': userId, 'app:x': 1 } });
  }
}

const listedIds = ({ sessions }: { sessions: readonly { id: string }[] }) => sessions.map(({ id }) => id).join('');

/** Of the six sessions in the order of their updates. */
const PAGES: [
  request: { limit?: number; offset?: number; page?: number },
  expected: [ids: string, page: number, limit: number, totalItems: number, totalPages: number],
][] = [
  [{}, ['bacdef', 1, 6, 6, 1]],
  [{ limit: 4 }, ['bacd', 1, 4, 6, 2]],
  [{ limit: 4, page: 2 }, ['ef', 2, 4, 6, 2]],
  [{ limit: 4, page: 9 }, ['', 9, 4, 6, 2]],
  [{ limit: 2, offset: 3 }, ['de', 2, 2, 6, 3]],
  [{ limit: 2, offset: 1, page: 3 }, ['ef', 3, 2, 6, 3]],
  [{ offset: 4 }, ['ef', 1, 6, 6, 1]],
  [{ limit: 0 }, ['', 1, 0, 6, 0]],
  [{ limit: 100 }, ['bacdef', 1, 100, 6, 1]],
];

const EXISTS = /^Session with id s already exists/;
const NOT_FOUND = /^Session .* not found/;

/** Tests of section D: creation, deletion, lists. */
export const SESSION_RULES: readonly ServiceRule[] = [
  {
    rule: 'D1',
    title: 'an id that exists is refused, and the session stays as it is',
    level: 'every',
    async test({ create, append, stored }) {
      const session = await create({ sessionId: 's', state: { a: 1 } });
      await append(session);
      const before = plain(await stored(keyOf(session)));
      const again = create({ sessionId: 's', state: { a: 2, 'app:a': 2 } });
      await refuses(again, 'createSession of an id that exists', EXISTS);
      same(await stored(keyOf(session)), before, 'The session in storage');
    },
  },
  {
    rule: 'D1',
    title: 'of ten that create the same new session one wins, nine learn that it exists',
    level: 'shared',
    async test({ app, service, another, stored }) {
      const key = { appName: app, userId: 'alice', sessionId: 's' };
      const outcomes = await Promise.allSettled(
        range(10).map((i) =>
          (i % 2 ? service : another).createSession({
            ...key,
            state: { winner: i, 'app:winner': i, 'user:winner': i },
          }),
        ),
      );
      const winners = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
      same(winners.length, 1, 'The number of calls that created the session');
      for (const outcome of outcomes)
        if (outcome.status === 'rejected') fails(outcome.reason, 'createSession of an id that exists', EXISTS);
      same((await stored(key))?.state, winners[0]?.state, 'The state in storage');
    },
  },
  {
    // Of several processes that start with an empty store.
    rule: 'D1',
    title: 'concurrent first sessions of a new app and user are all created',
    level: 'shared',
    async test({ app: appName, service, another, stored }) {
      const request = { appName, userId: 'alice', state: { 'app:a': 1 } };
      const sessions = await all(range(8).map((i) => (i % 2 ? service : another).createSession(request)));
      for (const session of sessions)
        same((await stored(keyOf(session)))?.state, { 'app:a': 1 }, 'The state in storage');
    },
  },
  {
    rule: 'D1',
    title: 'a missing id is generated',
    level: 'every',
    async test({ app: appName, service, create, fresh }) {
      const sessions = [await create(), await create(), await create({ sessionId: '' })];
      for (const _ of range(2)) sessions.push(await service.getOrCreateSession({ appName, userId: 'alice' }));
      same(new Set(sessions.map(({ id }) => id)).size, 5, 'The number of ids of five sessions');
      for (const session of sessions) same((await fresh(session)).id, session.id, 'The id that is read');
    },
  },
  {
    rule: 'D2',
    title: 'ten that race for a new session all get the one',
    level: 'shared',
    async test({ app, service, another, stored }) {
      const key = { appName: app, userId: 'alice', sessionId: 's' };
      const sessions = await all(
        range(10).map((i) => (i % 2 ? service : another).getOrCreateSession({ ...key, state: { winner: i } })),
      );
      const read = await stored(key);
      for (const { state } of sessions) same(state, read?.state, 'The state that a call gave');
    },
  },
  {
    rule: 'D2',
    title: 'getOrCreateSession gives the session that is there',
    level: 'every',
    async test({ app, service, create, append }) {
      const session = await create({ sessionId: 's', state: { a: 1 } });
      await append(session);
      const request = { appName: app, sessionId: 's', state: { a: 2 } };
      same(await service.getOrCreateSession({ ...request, userId: 'alice' }), session, 'The session that is there');
      const other = await service.getOrCreateSession({ ...request, userId: 'bob' });
      same(other.state, { a: 2 }, "The state of another user's new session");
    },
  },
  {
    rule: 'D3',
    title: 'appending to a session that was never created fails',
    level: 'every',
    async test({ create, append }) {
      const session = { ...(await create()), id: 'never' };
      await refuses(append(session), 'appendEvent to a session that was never created', /^Session never not found/);
    },
  },
  {
    rule: 'D3',
    title: 'appending to a deleted session fails, and brings nothing back',
    level: 'every',
    async test({ service, create, append, stored }) {
      const session = await create();
      await append(session, { delta: { a: 1 } });
      await service.deleteSession(keyOf(session));
      await refuses(append(session, { delta: { a: 2 } }), 'appendEvent to a deleted session', NOT_FOUND);
      same(await stored(keyOf(session)), undefined, 'The session in storage');
    },
  },
  {
    rule: 'D4',
    title: 'a deleted session is gone, with state and events; app and user state stay',
    level: 'every',
    async test({ service, create, append, stored }) {
      const session = await create({ sessionId: 's', state: { a: 1 } });
      await append(session, { id: 'e', delta: { 'app:a': 1, 'user:a': 1 } });
      await service.deleteSession(keyOf(session));
      same(await service.getSession(keyOf(session)), undefined, 'The deleted session');

      const again = await create({ sessionId: 's' });
      const shared = { 'app:a': 1, 'user:a': 1 };
      same([again.state, again.events], [shared, []], 'State and events of a new session with the id');
      await append(again, { id: 'e' });
      const read = await stored(keyOf(again));
      same([read?.state, read && idsOf(read)], [shared, ['e']], 'Its state and its events in storage');
    },
  },
  {
    rule: 'D4',
    title: 'delete respects the user',
    level: 'every',
    async test({ app, service, create, stored }) {
      const session = await create({ sessionId: 's', state: { a: 1 } });
      await service.deleteSession({ appName: app, userId: 'bob', sessionId: 's' });
      same((await stored(keyOf(session)))?.state, { a: 1 }, "The state of another user's session with the id");
    },
  },
  {
    rule: 'D4',
    title: 'an append that races with the delete lands before it or fails',
    level: 'shared',
    async test({ service, another, create, append, stored }) {
      for (const i of range(10)) {
        const session = await create({ sessionId: 's' });
        const [appended, deleted] = await Promise.allSettled([
          append(session, { ...saying(String(i)), delta: { i } }),
          (i % 2 ? service : another).deleteSession(keyOf(session)),
        ]);
        if (appended.status === 'rejected') fails(appended.reason, 'appendEvent to a deleted session', NOT_FOUND);
        same(deleted.status, 'fulfilled', 'What became of deleteSession');
        same(await stored(keyOf(session)), undefined, 'The deleted session in storage');
        const again = await create({ sessionId: 's' });
        same([again.state, again.events], [{}, []], 'State and events of a new session with the id');
        await service.deleteSession(keyOf(again));
      }
    },
  },
  {
    rule: 'D5',
    title: 'lists the sessions of a user, or of all users',
    level: 'every',
    async test(context) {
      await sixSessions(context);
      for (const [request, expected] of [
        [{}, 'abcdef'],
        [{ userId: 'alice' }, 'acef'],
        [{ userId: 'bob' }, 'bd'],
        [{ userId: 'carol' }, ''],
      ] as const) {
        const listed = await context.service.listSessions({ appName: context.app, ...request });
        same(
          Array.from(listedIds(listed)).sort().join(''),
          expected,
          `The ids of a list with ${JSON.stringify(request)}`,
        );
      }
    },
  },
  {
    rule: 'D5',
    title: 'order is by last update, then by id',
    level: 'every',
    async test(context) {
      await sixSessions(context);
      const { app: appName, service } = context;
      same(listedIds(await service.listSessions({ appName, order: 'asc' })), 'bacdef', "The ids with order: 'asc'");
      same(listedIds(await service.listSessions({ appName, order: 'desc' })), 'fecdab', "The ids with order: 'desc'");
    },
  },
  {
    rule: 'D5',
    title: 'without order the oldest update comes first, then the id',
    level: 'every',
    async test(context) {
      await sixSessions(context);
      same(listedIds(await context.service.listSessions({ appName: context.app })), 'bacdef', 'The ids without order');
    },
  },
  {
    rule: 'D5',
    title: 'listed sessions have their merged state and no events',
    level: 'every',
    async test(context) {
      await sixSessions(context);
      for (const request of [{}, { limit: 3, offset: 1 }, { userId: 'alice' }]) {
        const { sessions } = await context.service.listSessions({ appName: context.app, ...request });
        holds(sessions.length > 0, `The list with ${JSON.stringify(request)} should not be empty.`);
        for (const session of sessions) {
          const { id, userId, events, state, lastUpdateTime } = session;
          same(events, [], 'The events of a listed session');
          same(state, { own: id, 'user:who': userId, 'app:x': 1 }, 'The state of a listed session');
          same(lastUpdateTime, (await context.fresh(session)).lastUpdateTime, 'The lastUpdateTime of a listed session');
        }
      }
    },
  },
  {
    rule: 'D5',
    title: 'pages by limit, offset and page, with the counts',
    level: 'every',
    async test(context) {
      await sixSessions(context);
      const { app: appName, service } = context;
      for (const [request, expected] of PAGES) {
        const list = await service.listSessions({ appName, order: 'asc', ...request });
        const { page, limit, totalItems, totalPages } = list;
        const is = [listedIds(list), page, limit, totalItems, totalPages];
        same(is, expected, `Ids, page, limit, totalItems and totalPages with ${JSON.stringify(request)}`);
      }
    },
  },
  {
    rule: 'D5',
    title: 'without a limit all are listed, however many',
    level: 'every',
    async test({ app: appName, service, create }) {
      for (const i of range(120)) await create({ sessionId: `s${i}` });
      const { sessions, totalItems } = await service.listSessions({ appName });
      same([new Set(sessions.map(({ id }) => id)).size, totalItems], [120, 120], 'The numbers of sessions');
    },
  },
  {
    rule: 'D5',
    title: 'an empty list has the same fields',
    level: 'every',
    async test({ app: appName, service }) {
      const empty = { sessions: [], totalItems: 0, totalPages: 0 };
      same(await service.listSessions({ appName }), { ...empty, page: 1, limit: 0 }, 'An empty list');
      const second = await service.listSessions({ appName, userId: 'alice', limit: 3, page: 2 });
      same(second, { ...empty, page: 2, limit: 3 }, 'The second page of an empty list');
    },
  },
  {
    rule: 'D5',
    title: 'a session from a list can be appended to',
    level: 'every',
    async test({ app: appName, service, create, append, fresh }) {
      const session = await create();
      await append(session, saying('first'));
      const [listed] = (await service.listSessions({ appName })).sessions;
      holds(listed !== undefined, 'The list should not be empty.');
      await append(listed, saying('second'));
      same(textsOf(await fresh(session)), ['first', 'second'], 'The texts of the events that are read');
    },
  },
];
