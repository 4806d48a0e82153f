import { createEvent, type Event } from '@google/adk';
import { holds, plain, same } from './checks.js';
import { idsOf, range, saying, textsOf } from './events.js';
import { keyOf, type ServiceRule } from './rule.js';

/** Times of 12 events that do not tell their order. */
const TIMES: [title: string, timeOf: (i: number) => number][] = [
  ['with equal timestamps', () => 1_700_000_000_000],
  ['with timestamps that run backwards', (i) => 1_700_000_000_000 - i],
  ['with timestamps in disorder', (i) => 1_700_000_000_000 + ((i * 7) % 12)],
  ['with timestamps apart by less than a millisecond', (i) => 1_700_000_000_000 + i / 1024],
];

/** Of section A: in place of ADK's own service. */
export const HANDLE_RULES: readonly ServiceRule[] = [
  {
    rule: 'A2',
    title: 'getSession gives the whole of a long history',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      const events: Event[] = [];
      for (const i of range(60)) events.push(await append(session, saying(String(i))));
      same(idsOf(await fresh(session)), idsOf({ events }), 'The ids of the events that are read');
    },
  },
  {
    rule: 'A2',
    title: 'what getSession gives is private to the caller',
    level: 'every',
    async test({ create, append, fresh, stored }) {
      const session = await create({ state: { list: [1] } });
      await append(session, saying('hi'));
      const before = plain(await stored(keyOf(session)));
      const read = await fresh(session);
      read.state['list'] = [2];
      read.state['other'] = 1;
      for (const event of read.events) event.content = { parts: [] };
      read.events.push(createEvent());
      same(await stored(keyOf(session)), before, 'The session in storage');
      same(textsOf(await fresh(session)), ['hi'], 'The texts of the events that are read');
    },
  },
  {
    rule: 'A2',
    title: 'a missing session is undefined',
    level: 'every',
    async test({ service, app, create }) {
      const { id } = await create();
      const missing = [
        { appName: app, userId: 'alice', sessionId: 'other' },
        { appName: app, userId: 'bob', sessionId: id },
        { appName: `${app}2`, userId: 'alice', sessionId: id },
      ];
      for (const key of missing) same(await service.getSession(key), undefined, 'What getSession gives');
    },
  },
  {
    rule: 'A3',
    title: 'the event object itself is in the handle',
    level: 'every',
    async test({ service, create }) {
      const session = await create();
      const event = createEvent({ author: 'agent', content: { parts: [{ text: 'hi' }] } });
      holds(
        (await service.appendEvent({ session, event })) === event,
        'appendEvent should return the object it was given.',
      );
      same(session.events.length, 1, "The number of events of the caller's session");
      holds(session.events[0] === event, "The event of the caller's session should be the object that was appended.");
    },
  },
  {
    rule: 'A3',
    title: 'later changes to the object do not reach the stored event',
    level: 'every',
    async test({ create, append, stored }) {
      const session = await create();
      const event = await append(session, saying('hi'));
      const before = plain((await stored(keyOf(session)))?.events);
      event.content?.parts?.push({ text: 'more' });
      event.author = 'somebody';
      same((await stored(keyOf(session)))?.events, before, 'The events in storage');
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
  ...TIMES.map(([title, timeOf]): ServiceRule => ({
    rule: 'A10',
    title: `events load in append order ${title}`,
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      for (const i of range(12)) await append(session, { ...saying(String(i)), timestamp: timeOf(i) });
      const expected = range(12).map(String);
      same(textsOf(await fresh(session)), expected, 'The texts of the events that are read');
      const recent = await fresh(session, { numRecentEvents: 5 });
      same(textsOf(recent), expected.slice(-5), 'The texts of the newest 5');
    },
  })),
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
];
