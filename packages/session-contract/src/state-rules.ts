import type { Session } from '@google/adk';
import { all, holds, plain, same } from './checks.js';
import { range } from './events.js';
import { oneOf, randomNumbers } from './random.js';
import { keyOf, type RuleContext, type ServiceRule } from './rule.js';

const ALL_SCOPES = { a: 1, 'app:a': 2, 'user:a': 3 };

const WRITES: [way: string, write: (context: RuleContext) => Promise<Session>][] = [
  ['createSession', ({ create }) => create({ state: ALL_SCOPES })],
  [
    'appendEvent',
    async ({ create, append }) => {
      const session = await create();
      await append(session, { delta: ALL_SCOPES });
      return session;
    },
  ],
];

const ODD_KEYS = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'prototype'];
const ODD_NAMES = ODD_KEYS.flatMap((key) => [key, `app:${key}`, `user:${key}`]);
const oddState = (): Record<string, unknown> =>
  Object.defineProperties(
    {},
    Object.fromEntries(
      ODD_NAMES.map((name) => [name, { value: { polluted: 1 }, enumerable: true, writable: true, configurable: true }]),
    ),
  );

/** Tests of section B: state. */
export const STATE_RULES: readonly ServiceRule[] = [
  ...WRITES.map(([way, write]): ServiceRule => ({
    rule: 'B1',
    title: `${way} gives keys to app, user and session by their prefix`,
    level: 'every',
    async test(context) {
      const { app, service, create, fresh } = context;
      const session = await write(context);
      same(session.state, ALL_SCOPES, "The state of the caller's session");
      same((await fresh(session)).state, ALL_SCOPES, 'The state that is read');
      const shared = { 'app:a': 2, 'user:a': 3 };
      same((await create()).state, shared, 'The state of another session of the user');
      same((await create({ userId: 'bob' })).state, { 'app:a': 2 }, "The state of another user's session");
      same((await create({ appName: `${app}2` })).state, {}, "The state of another app's session");
      const other = await service.getSession(keyOf(await create()));
      same(other?.state, shared, 'The state that is read of another session');
    },
  })),
  {
    rule: 'B1',
    title: 'only the first prefix counts',
    level: 'every',
    async test({ create, append, fresh }) {
      const state = {
        'app:user:a': 1,
        'user:app:a': 2,
        'user:user:a': 3,
        'other:a': 4,
        'App:a': 5,
        'application:a': 6,
      };
      const session = await create({ state });
      same((await fresh(session)).state, state, 'The state that is read');
      await append(session, { delta: state });
      same((await fresh(session)).state, state, 'The state that is read after an append');
    },
  },
  {
    rule: 'B2',
    title: 'concurrent appends of other sessions lose no app: or user: key',
    level: 'shared',
    async test({ service, another, create, append, stored }) {
      await append(await create(), { delta: { 'app:first': 0, 'user:first': 0 } });
      const sessions = await all(range(12).map(() => create()));
      await all(
        sessions.map((session, i) =>
          append(session, { delta: { [`app:${i}`]: i, [`user:${i}`]: i } }, i % 2 ? service : another),
        ),
      );
      const scoped = ['app:', 'user:'].flatMap((prefix) => [
        [`${prefix}first`, 0] as const,
        ...range(12).map((i) => [`${prefix}${i}`, i] as const),
      ]);
      const [first] = sessions;
      same(first && (await stored(keyOf(first)))?.state, Object.fromEntries(scoped), 'The state');
    },
  },
  {
    rule: 'B2',
    title: 'concurrent creations lose no app: or user: key, nor do appends beside them',
    level: 'shared',
    async test({ service, another, app: appName, create, append, stored }) {
      const session = await create({ state: { 'app:first': 0 } });
      await all(
        range(12).map(async (i): Promise<unknown> => {
          const by = i % 2 ? service : another;
          const state = { [`app:${i}`]: i, [`user:${i}`]: i };
          if (i % 3 === 0) return append({ ...session, state: {}, events: [] }, { delta: state }, by);
          return by.createSession({ appName, userId: 'alice', state });
        }),
      );
      const scoped = ['app:', 'user:'].flatMap((prefix) => range(12).map((i) => [`${prefix}${i}`, i] as const));
      const expected = { 'app:first': 0, ...Object.fromEntries(scoped) };
      same((await stored(keyOf(session)))?.state, expected, 'The state');
    },
  },
  {
    rule: 'B2',
    title: 'concurrent appends from two handles of a session lose no key',
    level: 'shared',
    async test({ another, create, append, fresh, stored }) {
      const session = await create();
      const peer = await fresh(session);
      await all(
        range(10).map((i) =>
          i % 2 ? append(session, { delta: { [i]: i } }) : append(peer, { delta: { [i]: i } }, another),
        ),
      );
      const expected = Object.fromEntries(range(10).map((i) => [i, i]));
      same((await stored(keyOf(session)))?.state, expected, 'The state');
    },
  },
  {
    rule: 'B2',
    title: 'the last value is kept whole, without merging',
    level: 'shared',
    async test({ another, create, append, fresh, stored }) {
      const session = await create({ state: { a: { x: 1, deep: { y: 1 } }, 'app:a': { x: 1 }, list: [1, 2, 3] } });
      const peer = await fresh(session);
      await append(session, { delta: { a: { z: 1, deep: {} } } });
      await append(peer, { delta: { a: { deep: { w: 1 } }, 'app:a': { y: 1 }, list: [4] } }, another);
      const expected = { a: { deep: { w: 1 } }, 'app:a': { y: 1 }, list: [4] };
      same((await stored(keyOf(session)))?.state, expected, 'The state in storage');
      same((await fresh(session)).state, expected, 'The state that is read');
    },
  },
  {
    rule: 'B2',
    title: 'null, false, 0 and the empty string are values',
    level: 'every',
    async test({ create, append, fresh }) {
      const empty = { a: null, b: false, c: 0, d: '', e: {}, f: [], 'app:a': null, 'user:a': null };
      const session = await create({ state: empty });
      same((await fresh(session)).state, empty, 'The state that is read');
      await append(session, { delta: { a: 1, 'app:a': 1, 'user:a': 1 } });
      await append(session, { delta: empty });
      same(session.state, empty, "The state of the caller's session after an append");
      same((await fresh(session)).state, empty, 'The state that is read after an append');
    },
  },
  {
    rule: 'B4',
    title: 'after any append the handle equals what a fresh getSession returns',
    level: 'every',
    async test({ app, create, append, fresh }) {
      const random = randomDeltas();
      for (const run of range(25)) {
        const session = await create({ appName: `${app} ${run}`, state: random() });
        for (const _ of range(run % 6)) {
          await append(session, { delta: random() });
          const read = await fresh(session);
          const where = `of run ${run}, after ${session.events.length} events`;
          same(session.state, read.state, `The state of the caller's session (${where})`);
          same({ ...session, state: 0 }, { ...read, state: 0 }, `The caller's session (${where})`);
        }
      }
    },
  },
  {
    rule: 'B4',
    title: 'also when the handle was behind',
    level: 'shared',
    async test({ another, create, append, fresh }) {
      const session = await create({ state: { a: 1 } });
      const behind = await fresh(session);
      await append(session, { delta: { a: 2, 'app:b': 2, 'user:c': 2, d: { deep: true } } });
      await append(session, { delta: { a: 3 } });
      await append(behind, { delta: { e: 4 } }, another);
      same(behind, await fresh(session), 'The session object that was behind');
    },
  },
  {
    rule: 'B5',
    title: 'createSession stores __proto__, constructor and toString as plain keys',
    level: 'every',
    async test({ create, fresh }) {
      const session = await create({ state: oddState() });
      sameOdd(session, await fresh(session));
    },
  },
  {
    rule: 'B5',
    title: 'appendEvent does so too',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      await append(session, { delta: oddState() });
      sameOdd(session, await fresh(session));
    },
  },
];

function sameOdd(...sessions: readonly Session[]): void {
  for (const { state } of sessions) {
    same(Object.keys(state).sort(), [...ODD_NAMES].sort(), 'The keys of the state');
    same(Object.getOwnPropertyDescriptor(state, '__proto__')?.value, { polluted: 1 }, 'The value of the key __proto__');
    holds(!('polluted' in state), 'The value of the key __proto__ became the prototype of the state.');
  }
  holds(!('polluted' in {}), 'A key of the state became a property of all objects.');
}

/** State deltas of keys and values that meet each other. */
function randomDeltas(): () => Record<string, unknown> {
  const random = randomNumbers();
  const prefixes = ['', 'app:', 'user:', 'temp:'];
  const names = ['a', 'b', 'constructor'];
  const values = [0, -7, null, undefined, [], ['x', 'y'], 'text', { deep: [1] }];
  return () =>
    Object.fromEntries(
      range(random(5)).map(() => {
        const name = `${oneOf(random, prefixes)}${oneOf(random, names)}`;
        const value = oneOf(random, values);
        return [name, value === undefined ? undefined : plain(value)];
      }),
    );
}
