import type { SessionContent } from '../contenders/contender.js';
import { APP } from './sessions.js';
import { count, lanes, type Workload } from './workload.js';

const PAGE = 50;
const SESSIONS_PER_USER = 100;

/** Each number of sessions in databases of its own. */
export const list: Workload = {
  name: 'list',
  note: 'The newest page of an app, with state and totals. Filled by SQL, 100 sessions a user.',
  async cases(open, { manySessions }) {
    const cases = [];
    for (const size of [1_000, manySessions]) {
      const contenders = await open();
      cases.push({
        id: `list-of-${size}`,
        title: `List ${PAGE} of ${count(size)} sessions`,
        unit: 'page',
        maxCount: 100,
        lanes: await lanes(contenders, async (contender) => {
          await contender.fill(sessions(size));
          return {
            async run(times) {
              for (let i = 0; i < times; i++) {
                const found = await contender.list(APP, PAGE);
                if (found !== PAGE) throw new Error(`${contender.name} listed ${found} sessions instead of ${PAGE}.`);
              }
            },
          };
        }),
      });
    }
    return cases;
  },
  comparisons: ({ manySessions }) => [
    {
      id: 'list-of-many',
      title: `Page of ${PAGE} among ${count(manySessions)} sessions against among 1,000`,
      more: `list-of-${manySessions}`,
      less: 'list-of-1000',
    },
  ],
};

function* sessions(size: number): Generator<SessionContent> {
  for (let i = 0; i < size; i++) {
    const userId = `user-${Math.floor(i / SESSIONS_PER_USER)}`;
    const isFirst = i % SESSIONS_PER_USER === 0;
    const state = {
      step: i,
      city: 'Lisbon',
      ...(isFirst && { 'user:language': 'pt' }),
      ...(i === 0 && { 'app:open': true }),
    };
    yield { key: { appName: APP, userId, sessionId: `session-${i}` }, state, events: [] };
  }
}
