import type { GetSessionConfig, Session } from '@google/adk';
import { holds, same } from './checks.js';
import { idsOf, range } from './events.js';
import { randomNumbers } from './random.js';
import type { RuleContext, ServiceRule } from './rule.js';

/** Ten events, with the ids 0 to 9, at 10, 20, … 100. */
async function tenEvents({ create, append }: RuleContext): Promise<Session> {
  const session = await create();
  for (const i of range(10)) await append(session, { id: String(i), timestamp: 10 * (i + 1) });
  return session;
}

async function timesComeBack({ create, append, fresh }: RuleContext, times: readonly number[]): Promise<void> {
  const session = await create();
  for (const timestamp of times) {
    await append(session, { timestamp });
    same(session.lastUpdateTime, timestamp, "The lastUpdateTime of the caller's session");
    same((await fresh(session, { numRecentEvents: 1 })).lastUpdateTime, timestamp, 'The lastUpdateTime that is read');
  }
  const read = (await fresh(session)).events.map(({ timestamp }) => timestamp);
  same(read, times, 'The timestamps of the events that are read');
}

/** What `getSession` gives for a config, by the ids of the ten events. */
const CONFIGS: [title: string, expected: [GetSessionConfig, string][]][] = [
  [
    'numRecentEvents gives the newest, 0 and absent give all',
    [
      [{ numRecentEvents: 3 }, '789'],
      [{ numRecentEvents: 1 }, '9'],
      [{ numRecentEvents: 10 }, '0123456789'],
      [{ numRecentEvents: 11 }, '0123456789'],
      [{ numRecentEvents: 0 }, '0123456789'],
      [{}, '0123456789'],
    ],
  ],
  [
    'afterTimestamp is exclusive',
    [
      [{ afterTimestamp: 70 }, '789'],
      [{ afterTimestamp: 100 }, ''],
      [{ afterTimestamp: 5 }, '0123456789'],
    ],
  ],
  [
    'both together give the newest of those after',
    [
      [{ afterTimestamp: 50, numRecentEvents: 2 }, '89'],
      [{ afterTimestamp: 80, numRecentEvents: 5 }, '89'],
      [{ afterTimestamp: 50, numRecentEvents: 0 }, '56789'],
    ],
  ],
];

/** Milliseconds, within what a `Date` can hold. */
const TIMES = [57.57842848181674, 1e-3, -1e-3, 8.64e15, -8.64e15, 2 ** 41 + 1 / 3, 2 ** 41 + 2 ** -12, 1e12 + 1e-3];

/** Tests of section C: times, and what `getSession` gives for them. */
export const EVENT_RULES: readonly ServiceRule[] = [
  {
    rule: 'C3',
    title: 'whole milliseconds come back exactly',
    level: 'every',
    async test(context) {
      await timesComeBack(context, [1, 999, 1_700_000_000_123, 4_102_444_800_001]);
    },
  },
  {
    rule: 'C3',
    title: 'any time comes back exactly, fractions included',
    level: 'every',
    async test(context) {
      const random = randomNumbers();
      const times = range(40).map((i) => random(2 ** (i + 1)) + 1 + random(2 ** 32) / 2 ** 32);
      await timesComeBack(context, [...TIMES, ...times]);
    },
  },
  ...CONFIGS.map(([title, expected]): ServiceRule => ({
    rule: 'C4',
    title,
    level: 'every',
    async test(context) {
      const session = await tenEvents(context);
      for (const [config, ids] of expected)
        same(idsOf(await context.fresh(session, config)).join(''), ids, `The ids with ${JSON.stringify(config)}`);
    },
  })),
  {
    rule: 'C4',
    title: 'afterTimestamp counts fractions of a millisecond',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      for (const timestamp of [70, 70.25, 70.75, 71]) await append(session, { id: String(timestamp), timestamp });
      for (const [afterTimestamp, ids] of [
        [69.75, ['70', '70.25', '70.75', '71']],
        [70.375, ['70.75', '71']],
        [70.5, ['70.75', '71']],
        [70.875, ['71']],
      ] as const)
        same(idsOf(await fresh(session, { afterTimestamp })), ids, `The ids after ${afterTimestamp}`);
    },
  },
  {
    rule: 'C4',
    title: 'a filter by time takes every event that matches, in append order',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      for (const [i, timestamp] of [50, 10, 40, 20, 30].entries()) await append(session, { id: String(i), timestamp });
      same(idsOf(await fresh(session, { afterTimestamp: 15 })), ['0', '2', '3', '4'], 'The ids after 15');
      const two = await fresh(session, { afterTimestamp: 15, numRecentEvents: 2 });
      same(idsOf(two), ['3', '4'], 'The ids of the newest 2 after 15');
      const three = await fresh(session, { afterTimestamp: 25, numRecentEvents: 3 });
      same(idsOf(three), ['0', '2', '4'], 'The ids of the newest 3 after 25');
    },
  },
  {
    rule: 'C4',
    title: 'state and lastUpdateTime are those of the whole session, whichever events are wanted',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create({ state: { created: 1 } });
      const deltas = [{ a: 1, 'app:a': 1 }, { b: 1, 'user:b': 1 }, { a: 2 }, {}, {}];
      for (const [i, delta] of deltas.entries()) await append(session, { timestamp: 10 * (i + 1), delta });
      const { state, lastUpdateTime } = await fresh(session);
      same(state, { created: 1, a: 2, 'app:a': 1, b: 1, 'user:b': 1 }, 'The state that is read');
      for (const config of [
        { numRecentEvents: 1 },
        { afterTimestamp: 35 },
        { afterTimestamp: 50 },
        { afterTimestamp: 15, numRecentEvents: 2 },
      ]) {
        const read = await fresh(session, config);
        const is = [read.state, read.lastUpdateTime];
        same(is, [state, lastUpdateTime], `State and lastUpdateTime with ${JSON.stringify(config)}`);
      }
    },
  },
  {
    rule: 'C4',
    title: 'a filtered handle can be appended to',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      for (const i of range(5)) await append(session, { id: String(i), delta: { n: i } });
      const recent = await fresh(session, { numRecentEvents: 2 });
      same(recent.state, { n: 4 }, 'The state of a session of the newest 2');
      await append(recent, { id: '5' });
      same(idsOf(recent).join(''), '345', 'The ids of that session after an append');
      same(idsOf(await fresh(session)).join(''), '012345', 'The ids of the events that are read');
    },
  },
  {
    rule: 'C5',
    title: 'lastUpdateTime is the creation, then the timestamp of the last appended event',
    level: 'every',
    async test({ create, append, fresh }) {
      const start = Date.now();
      const session = await create();
      holds(session.lastUpdateTime >= start, 'lastUpdateTime should be the time of the creation.');
      same((await fresh(session)).lastUpdateTime, session.lastUpdateTime, 'The lastUpdateTime that is read');
      // Backwards too: a model event is stamped before the model answers.
      for (const timestamp of [5_000, 9_000, 7_000]) {
        await append(session, { timestamp });
        same(session.lastUpdateTime, timestamp, "The lastUpdateTime of the caller's session");
        same((await fresh(session)).lastUpdateTime, timestamp, 'The lastUpdateTime that is read');
      }
    },
  },
];
