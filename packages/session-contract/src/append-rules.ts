import { BaseSessionService, State, createEvent, type Session } from '@google/adk';
import { CannotJudge, all, holds, plain, refuses, remember, same } from './checks.js';
import { idsOf, range, saying, textsOf } from './events.js';
import { keyOf, type EventParams, type RuleContext, type ServiceRule } from './rule.js';

/** Times of 12 events, by which the events cannot be put in order. */
const TIMES: [title: string, timeOf: (i: number) => number][] = [
  ['with equal timestamps', () => 1_700_000_000_000],
  ['with timestamps that run backwards', (i) => 1_700_000_000_000 - i],
  ['with timestamps in disorder', (i) => 1_700_000_000_000 + ((i * 7) % 12)],
  ['with timestamps apart by less than a millisecond', (i) => 1_700_000_000_000 + i / 1024],
];

/** What no service can store. */
const REFUSED: [title: string, params: EventParams][] = [
  ['a value that JSON cannot carry', { output: 1n }],
  ['a timestamp that is no number', { timestamp: Infinity }],
];

/**
 * The state deltas of two branches that write the same keys, one after the other.
 *
 * @throws CannotJudge if the service extends the base class of another copy of ADK, such as CommonJS beside ES modules: each copy
 *   knows only the order of its own writes.
 */
function twoWrites({ service }: RuleContext, { state }: Session, keys: readonly string[]) {
  if (!(service instanceof BaseSessionService)) throw new CannotJudge();
  const [first, second]: Record<string, unknown>[] = [{}, {}];
  for (const key of keys) {
    new State(state, first).set(key, 'first');
    new State(state, second).set(key, 'second');
  }
  return { first, second };
}

/** Rules of section A about appends. */
export const APPEND_RULES: readonly ServiceRule[] = [
  {
    rule: 'A5',
    title: 'a retry of the same event is a no-op',
    level: 'every',
    async test({ service, create, append, stored, fresh }) {
      const session = await create();
      const event = await append(session, { ...saying('hi'), timestamp: 1, delta: { n: 1, 'app:n': 1 } });
      await append(session, { ...saying('next'), timestamp: 2 });
      const before = plain(await stored(keyOf(session)));
      const handle = plain(session);
      await service.appendEvent({ session, event });
      same(session, handle, "The caller's session");
      same(await stored(keyOf(session)), before, 'The session in storage');

      const read = await fresh(session);
      await service.appendEvent({ session: read, event: { ...event } });
      same(await stored(keyOf(session)), before, 'The session in storage, after a retry on a session that was read');
      same(read, handle, 'The session that was read');
    },
  },
  {
    rule: 'A5',
    title: 'a retry from a handle that never saw the event is a no-op',
    level: 'shared',
    async test({ another, create, append, fresh, stored }) {
      const session = await create();
      const behind = await fresh(session);
      const event = await append(session, { ...saying('hi'), delta: { n: 1 } });
      const before = plain(await stored(keyOf(session)));
      await another.appendEvent({ session: behind, event });
      same(await stored(keyOf(session)), before, 'The session in storage');
      same(behind, await fresh(session), 'The session object that was behind');
    },
  },
  {
    rule: 'A5',
    title: 'an event whose id is known is replaced at its place',
    level: 'every',
    async test({ create, append, stored, fresh }) {
      const session = await create();
      for (const i of range(3)) await append(session, { ...saying(String(i)), id: `e${i}`, timestamp: i + 1 });
      const replacement = await append(session, { ...saying('new'), id: 'e1' });
      holds(session.events[1] === replacement, "The event of the caller's session should be the new object.");
      const stands = ['0', 'new', '2'];
      same(textsOf(session), stands, "The texts of the caller's session");
      const inStorage = await stored(keyOf(session));
      same(inStorage && textsOf(inStorage), stands, 'The texts in storage');
      await append(session, saying('last'));
      same(textsOf(await fresh(session)), [...stands, 'last'], 'The texts of the events that are read');
    },
  },
  {
    rule: 'A5',
    title: 'an old event that is appended again rolls no newer state back',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      const old = { id: 'old', timestamp: 1, delta: { n: 1, 'user:n': 1, 'app:n': 1 } };
      const newer = { n: 2, 'user:n': 2, 'app:n': 2 };
      await append(session, old);
      await append(session, { delta: newer });
      await append(session, old);
      same(session.state, newer, "The state of the caller's session");
      same((await fresh(session)).state, newer, 'The state that is read');
    },
  },
  {
    rule: 'A5',
    title: 'a replaced event that is the last writer of a key changes it',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      const { id } = await append(session, { delta: { n: 1, m: 1 } });
      await append(session, { delta: { m: 2 } });
      await append(session, { id, delta: { n: 3, m: 3 } });
      same((await fresh(session)).state, { n: 3, m: 2 }, 'The state that is read');
      same(session.state, { n: 3, m: 2 }, "The state of the caller's session");
    },
  },
  {
    rule: 'A6',
    title: 'a partial event is returned untouched',
    level: 'every',
    async test({ service, create, stored }) {
      const session = await create();
      const before = plain(await stored(keyOf(session)));
      const handle = plain(session);
      const stateDelta = { a: 1, 'temp:b': 2 };
      const event = createEvent({ author: 'agent', partial: true, timestamp: 5, actions: { stateDelta } });
      const content = plain(event);
      holds(
        (await service.appendEvent({ session, event })) === event,
        'appendEvent should return the object it was given.',
      );
      same(event, content, 'The event');
      same(session, handle, "The caller's session");
      same(await stored(keyOf(session)), before, 'The session in storage');
    },
  },
  {
    rule: 'A7',
    title: 'temp: keys of an event never reach storage',
    level: 'every',
    async test({ create, append, stored }) {
      const session = await create();
      await append(session, { delta: { 'temp:secret': 'x', kept: 1 } });
      const read = await stored(keyOf(session));
      same(read?.state, { kept: 1 }, 'The state in storage');
      same(read?.events[0]?.actions.stateDelta, { kept: 1 }, 'The state delta of the event in storage');
    },
  },
  {
    rule: 'A7',
    title: 'temp: keys of createSession never reach storage',
    level: 'every',
    async test({ create, stored }) {
      const session = await create({ state: { 'temp:secret': 'x', kept: 1 } });
      same((await stored(keyOf(session)))?.state, { kept: 1 }, 'The state in storage');
    },
  },
  {
    rule: 'A7',
    title: 'temp: keys of getOrCreateSession never reach storage',
    level: 'every',
    async test({ app, service, stored }) {
      const key = { appName: app, userId: 'alice', sessionId: 's' };
      await service.getOrCreateSession({ ...key, state: { 'temp:secret': 'x', kept: 1 } });
      same((await stored(key))?.state, { kept: 1 }, 'The state in storage');
    },
  },
  {
    rule: 'A7',
    title: 'temp: keys of an event that replaces another never reach storage',
    level: 'every',
    async test({ create, append, stored }) {
      const session = await create();
      const { id } = await append(session, { ...saying('old'), delta: { kept: 1 } });
      await append(session, { ...saying('new'), id, delta: { 'temp:secret': 'x', kept: 2 } });
      const read = await stored(keyOf(session));
      same(read?.state, { kept: 2 }, 'The state in storage');
      same(read?.events[0]?.actions.stateDelta, { kept: 2 }, 'The state delta of the event in storage');
    },
  },
  {
    rule: 'A7',
    title: 'temp: keys stay readable on the live handle',
    level: 'every',
    async test({ create, append }) {
      const session = await create();
      const delta = {};
      const state = new State(session.state, delta);
      state.set('temp:draft', 'x');
      state.set('kept', 1);
      await append(session, { delta });
      await append(session, { delta: { other: 1 } });
      same(session.state['temp:draft'], 'x', "The value of the key temp:draft in the caller's session");
    },
  },
  {
    rule: 'A8',
    title: 'of two branches the later write wins, in whatever order their events come',
    level: 'every',
    async test(context) {
      const { create, append, stored } = context;
      const session = await create();
      const { first, second } = twoWrites(context, session, ['k', 'user:k']);
      await append(session, { branch: 'b', delta: second });
      await append(session, { branch: 'a', delta: first });
      const winner = { k: 'second', 'user:k': 'second' };
      same(session.state, winner, "The state of the caller's session");
      same((await stored(keyOf(session)))?.state, winner, 'The state in storage');
    },
  },
  {
    rule: 'A8',
    title: 'it wins also when both appends are under way at once',
    level: 'every',
    async test(context) {
      const { create, append, stored } = context;
      const session = await create();
      const { first, second } = twoWrites(context, session, ['k']);
      await all([append(session, { delta: second }), append(session, { delta: first })]);
      same(session.state, { k: 'second' }, "The state of the caller's session");
      same((await stored(keyOf(session)))?.state, { k: 'second' }, 'The state in storage');
    },
  },
  {
    // An audit sees both writes.
    rule: 'A8',
    title: 'the event of a write that lost keeps its delta',
    level: 'every',
    async test(context) {
      const { create, append, fresh } = context;
      const session = await create();
      const { first, second } = twoWrites(context, session, ['k']);
      await append(session, { delta: second });
      await append(session, { delta: first });
      const deltas = (await fresh(session)).events.map(({ actions }) => actions.stateDelta);
      same(deltas, [{ k: 'second' }, { k: 'first' }], 'The state deltas of the events that are read');
    },
  },
  {
    rule: 'A9',
    title: 'parallel appends on one handle take effect in call order',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      const events = await all(range(20).map((i) => append(session, { ...saying(String(i)), delta: { last: i } })));
      const read = await fresh(session);
      for (const [what, { state, events: found }] of [
        ["the caller's session", session],
        ['the session that is read', read],
      ] as const) {
        same(idsOf({ events: found }), idsOf({ events }), `The ids of the events of ${what}`);
        same(state['last'], 19, `The value of the key last in ${what}`);
      }
    },
  },
  {
    rule: 'A9',
    title: 'an append that fails does not hold up the ones behind it',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      const outcomes = await Promise.allSettled([
        append(session, saying('a')),
        append(session, { output: 1n }),
        append(session, saying('b')),
      ]);
      const statuses = outcomes.map(({ status }) => status);
      same(
        statuses,
        ['fulfilled', 'rejected', 'fulfilled'],
        'What became of three appends, of which one has a BigInt,',
      );
      same(textsOf(session), ['a', 'b'], "The texts of the caller's session");
      same(textsOf(await fresh(session)), ['a', 'b'], 'The texts of the events that are read');
    },
  },
  ...TIMES.map(([title, timeOf]): ServiceRule => ({
    rule: 'A10',
    title: `events load in append order ${title}`,
    level: 'every',
    async test({ create, append, fresh }) {
      // A page of a store may be as long, and one with a filter is often read by another statement.
      for (const count of [12, 120]) {
        const session = await create();
        // The ids run backwards, so that they are no order either.
        for (const i of range(count))
          await append(session, { ...saying(String(i)), id: `e${999 - i}`, timestamp: timeOf(i) });
        const expected = range(count).map(String);
        for (const [config, texts] of [
          [{}, expected],
          [{ numRecentEvents: 5 }, expected.slice(-5)],
          [{ numRecentEvents: count - 1 }, expected.slice(1)],
          [{ afterTimestamp: 1 }, expected],
          [{ afterTimestamp: 1, numRecentEvents: 5 }, expected.slice(-5)],
        ] as const)
          same(
            textsOf(await fresh(session, config)),
            texts,
            `The texts of ${count} events with ${JSON.stringify(config)}`,
          );
      }
    },
  })),
  {
    rule: 'A10',
    title: 'events of several instances that append at once are all there, each in its order',
    level: 'shared',
    async test({ service, another, create, append, fresh }) {
      const session = await create();
      const handles = [session, ...(await all(range(3).map(() => fresh(session))))];
      const appended = await all(
        handles.flatMap((handle, writer) =>
          range(5).map((i) =>
            append(
              handle,
              { ...saying(`${writer} ${i}`), delta: { [`${writer} ${i}`]: i } },
              writer % 2 ? another : service,
            ),
          ),
        ),
      );
      const read = await fresh(session);
      same(
        idsOf(read).sort(),
        idsOf({ events: appended }).sort(),
        'The ids of the events that are read, in order of ids',
      );
      for (const writer of handles.keys()) {
        const own = textsOf(read).filter((text) => text?.startsWith(`${writer} `));
        same(
          own,
          range(5).map((i) => `${writer} ${i}`),
          `The texts of the events of one handle`,
        );
      }
      same(Object.keys(read.state).length, appended.length, 'The number of keys that the events wrote');
    },
  },
  {
    rule: 'A10',
    title: 'events of two handles whose clocks differ load in append order',
    level: 'shared',
    async test({ another, create, append, fresh }) {
      const session = await create();
      const peer = await fresh(session);
      for (const i of range(4)) {
        if (i % 2 === 0) await append(session, { ...saying(String(i)), timestamp: 2_000_000 + i });
        else await append(peer, { ...saying(String(i)), timestamp: 1_000_000 + i }, another);
      }
      same(textsOf(await fresh(session)), ['0', '1', '2', '3'], 'The texts of the events that are read');
    },
  },
  ...REFUSED.map(([title, params]): ServiceRule => ({
    rule: 'A11',
    title: `${title} leaves handle and storage as they were`,
    level: 'every',
    async test({ create, append, stored }) {
      const session = await create({ state: { a: 1 } });
      await append(session, { delta: { a: 2 } });
      const before = plain(await stored(keyOf(session)));
      const isUnchanged = remember(session);
      await refuses(append(session, { ...params, delta: { a: 3, b: 1 } }), `appendEvent with ${title}`);
      isUnchanged();
      same(await stored(keyOf(session)), before, 'The session in storage');
    },
  })),
  {
    rule: 'A11',
    title: 'a session that is gone leaves the handle as it was',
    level: 'every',
    async test({ service, create, append }) {
      const session = await create({ state: { a: 1 } });
      await append(session, { delta: { a: 2 } });
      await service.deleteSession(keyOf(session));
      const isUnchanged = remember(session);
      await refuses(append(session, { delta: { a: 3 } }), 'appendEvent to a deleted session');
      isUnchanged();
    },
  },
];
