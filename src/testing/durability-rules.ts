import { plain, same } from './checks.js';
import { range, saying, textsOf } from './events.js';
import { keyOf, type DurableRule } from './rule.js';

/** Of section O, about a store that is closed and opened again. */
export const DURABILITY_RULES: readonly DurableRule[] = [
  {
    rule: 'O9',
    title: 'what was acknowledged is there after the store was closed and opened again',
    level: 'durable',
    async test({ create, append, service, fresh, reopen }) {
      const session = await create({ state: { a: 1, 'app:b': 2, 'user:c': 3 } });
      for (const i of range(3)) await append(session, { ...saying(String(i)), delta: { a: i, [`user:${i}`]: i } });
      const deleted = await create({ sessionId: 'deleted' });
      await service.deleteSession(keyOf(deleted));
      const before = plain(await fresh(session));
      const reopened = await reopen();
      same(await reopened.getSession(keyOf(session)), before, 'The session that is read');
      same(await reopened.getSession(keyOf(deleted)), undefined, 'The session that was deleted');
    },
  },
  {
    rule: 'O9',
    title: 'a session goes on after that, also with a handle of before',
    level: 'durable',
    async test({ create, append, reopen }) {
      const session = await create();
      await append(session, { ...saying('before'), delta: { a: 1, b: 1 } });
      const reopened = await reopen();
      await append(session, { ...saying('after'), delta: { b: 2 } }, reopened);
      const read = await reopened.getSession(keyOf(session));
      same(read && textsOf(read), ['before', 'after'], 'The texts of the events that are read');
      same(read?.state, { a: 1, b: 2 }, 'The state that is read');
    },
  },
];
