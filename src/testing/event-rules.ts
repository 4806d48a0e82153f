import type { GetSessionConfig, Session } from '@google/adk';
import { holds, same } from './checks.js';
import { idsOf, range } from './events.js';
import type { RuleContext, ServiceRule } from './rule.js';

/** Ten events, with the ids 0 to 9, at 10, 20, … 100. */
async function tenEvents({ create, append }: RuleContext): Promise<Session> {
  const session = await create();
  for (const i of range(10)) await append(session, { id: String(i), timestamp: 10 * (i + 1) });
  return session;
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
    'afterTimestamp counts fractions of a millisecond',
    [
      [{ afterTimestamp: 69.999 }, '6789'],
      [{ afterTimestamp: 70.001 }, '789'],
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

/** Of section C: events. */
export const EVENT_RULES: readonly ServiceRule[] = [
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
    title: 'a filter by time takes every event that matches, in append order',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      for (const [i, timestamp] of [50, 10, 40, 20, 30].entries()) await append(session, { id: String(i), timestamp });
      same(idsOf(await fresh(session, { afterTimestamp: 15 })), ['0', '2', '3', '4'], 'The ids after 15');
      const two = await fresh(session, { afterTimestamp: 15, numRecentEvents: 2 });
      same(idsOf(two), ['3', '4'], 'The ids of the newest 2 after 15');
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
