import { all, plain, same } from './checks.js';
import { range, saying, textsOf } from './events.js';
import { keyOf, type DurableRule } from './rule.js';

/** How a process ends. */
const ENDS: [how: string, killed: boolean][] = [
  ['its service was closed', false],
  ['its process was killed', true],
];

/** Tests of section O, about a store that is opened again. */
export const DURABILITY_RULES: readonly DurableRule[] = [
  ...ENDS.flatMap(([how, killed]): DurableRule[] => [
    {
      rule: 'O9',
      title: `what was acknowledged is there after ${how}`,
      level: 'durable',
      async test({ create, append, service, another, fresh, reopen }) {
        const session = await create({ state: { a: 1, 'app:b': 2, 'user:c': 3 } });
        for (const i of range(3)) await append(session, { ...saying(String(i)), delta: { a: i, [`user:${i}`]: i } });
        await append(session, { ...saying('new'), id: session.events[1]?.id });
        const deleted = await create({ sessionId: 'deleted' });
        await service.deleteSession(keyOf(deleted));
        const sessions = [session];
        for (const i of range(4)) {
          const other = await create({ state: { i } });
          await append(other, { delta: { [`app:${i}`]: i } }, i % 2 ? service : another);
          sessions.push(other);
        }
        const before = await all(sessions.map(async (each) => plain(await fresh(each))));
        // Nothing comes between this answer and the end.
        const last = await create({ state: { last: true } });
        const reopened = await reopen({ killed });
        const read = await all(sessions.map((each) => reopened.getSession(keyOf(each))));
        same(read, before, 'The sessions that are read');
        same((await reopened.getSession(keyOf(last)))?.state['last'], true, 'The state of the newest session');
        same(await reopened.getSession(keyOf(deleted)), undefined, 'The session that was deleted');
      },
    },
    {
      rule: 'O9',
      title: `a session continues after ${how}, also with an earlier handle`,
      level: 'durable',
      async test({ create, append, reopen }) {
        const session = await create();
        await append(session, { ...saying('before'), delta: { a: 1, b: 1 } });
        const reopened = await reopen({ killed });
        await append(session, { ...saying('after'), delta: { b: 2 } }, reopened);
        const read = await reopened.getSession(keyOf(session));
        same(read && textsOf(read), ['before', 'after'], 'The texts of the events that are read');
        same(read?.state, { a: 1, b: 2 }, 'The state that is read');
      },
    },
  ]),
];
