import { createEvent } from '@google/adk';
import { all, holds, same } from './checks.js';
import { range, saying, textsOf } from './events.js';
import { keyOf, type ServiceRule } from './rule.js';

/** Of sections D and E: what several instances do at once. */
export const CONCURRENCY_RULES: readonly ServiceRule[] = [
  {
    rule: 'D8',
    title: 'state and events that are read together belong together, whoever appends',
    level: 'shared',
    async test({ create, append, fresh, stored }) {
      const session = await create({ state: { n: 0 } });
      let isDone = false;
      let reads = 0;
      const appending = async () => {
        try {
          for (const n of range(60).map((i) => i + 1))
            await append(session, { ...saying(String(n)), delta: { n, 'app:n': n } });
        } finally {
          isDone = true;
        }
      };
      const reading = async () => {
        for (; !isDone; reads++) {
          for (const config of [{}, { numRecentEvents: 3 }]) {
            const { state, events } = await fresh(session, config);
            const last = Number(textsOf({ events }).at(-1) ?? 0);
            same([state['n'], state['app:n'] ?? 0], [last, last], `The state that is read with the event ${last}`);
            if (!('numRecentEvents' in config)) same(events.length, last, 'The number of events that are read');
          }
        }
      };
      await all([appending(), reading()]);
      holds(reads > 1, 'There should be time to read while the appends are under way.');
      same((await stored(keyOf(session)))?.events.length, 60, 'The number of events in storage');
    },
  },
  {
    rule: 'E2',
    title: 'a handle that is behind is appended to, and catches up in place',
    level: 'shared',
    async test({ another, create, append, fresh }) {
      const session = await create({ state: { a: 1 } });
      await append(session, saying('first'));
      const behind = await fresh(session);
      const { state, events } = behind;
      const [first] = events;
      await append(session, { ...saying('missed'), delta: { a: 2, b: 2, 'user:c': 2, 'app:d': 2 } });
      const event = createEvent({ author: 'agent', ...saying('mine'), actions: { stateDelta: { e: 3 } } });
      await another.appendEvent({ session: behind, event });

      holds(behind.state === state, "The state of the caller's session should stay the same object.");
      holds(behind.events === events, "The events of the caller's session should stay the same list.");
      holds(events[0] === first, 'An event that was there should stay the same object.');
      holds(events.at(-1) === event, 'The last event should be the object that was appended.');
      same(textsOf(behind), ['first', 'missed', 'mine'], "The texts of the caller's session");
      same(behind, await fresh(session), "The caller's session");
    },
  },
  {
    rule: 'E2',
    title: 'a handle is behind by its events, not by its clock',
    level: 'shared',
    async test({ another, create, append, fresh }) {
      const session = await create();
      const behind = await fresh(session);
      await append(session, { ...saying('missed'), timestamp: 5, delta: { a: 1 } });
      await append(behind, { ...saying('mine'), timestamp: 3 }, another);
      same(textsOf(behind), ['missed', 'mine'], "The texts of the caller's session");
      same(behind.state, { a: 1 }, "The state of the caller's session");
    },
  },
  {
    rule: 'E2',
    title: 'temp: keys and direct writes of a handle that was behind stay',
    level: 'shared',
    async test({ another, create, append, fresh }) {
      const session = await create();
      const behind = await fresh(session);
      behind.state['temp:draft'] = 'x';
      behind.state['direct'] = 1;
      await append(session, { delta: { a: 1 } });
      await append(behind, { delta: { b: 2 } }, another);
      same(behind.state, { 'temp:draft': 'x', direct: 1, a: 1, b: 2 }, "The state of the caller's session");
    },
  },
];
