import { BaseAgent, Runner, createEvent, type Event, type InvocationContext } from '@google/adk';
import { holds, plain, refuses, same } from './checks.js';
import { idsOf, range, saying, textsOf } from './events.js';
import { keyOf, type ServiceRule } from './rule.js';

/** Says how many events it sees, and counts its turns in the state. */
class CountingAgent extends BaseAgent {
  // eslint-disable-next-line @typescript-eslint/require-await -- ADK iterates asynchronously
  protected override async *runAsyncImpl({
    invocationId,
    session,
  }: InvocationContext): AsyncGenerator<Event, void, void> {
    const turns = Number(session.state['turns'] ?? 0) + 1;
    yield createEvent({
      ...saying(`${session.events.length} events`),
      invocationId,
      author: this.name,
      actions: { stateDelta: { turns, 'temp:draft': 'x' } },
    });
  }

  protected override async *runLiveImpl(): AsyncGenerator<Event, void, void> {}
}

const agent = new CountingAgent({ name: 'counter' });
const newMessage = (text: string) => ({ role: 'user', parts: [{ text }] });

/** What a host may forget to give to a Runner, and what the Runner says of it. */
const FORGOTTEN: [what: string, appName: string | undefined, params: object, message: RegExp][] = [
  ['appName', undefined, {}, /^Session lookup failed: appName must be provided/],
  ['userId', 'app', { userId: undefined }, /^Session not found: s$/],
  ['userId', 'app', { userId: null }, /^Session not found: s$/],
  ['sessionId', 'app', { sessionId: undefined }, /^Session not found: undefined$/],
  ['sessionId', 'app', { sessionId: null }, /^Session not found: null$/],
];

/** Changes every list and every object within a value, as a caller may do with what is its own. */
function spoil(value: unknown): void {
  if (typeof value !== 'object' || value === null) return;
  for (const inner of Object.values(value)) spoil(inner);
  if (Array.isArray(value)) value.push('spoiled');
  else Object.assign(value, { spoiled: true });
}

/** Tests of section A: the requests, and the session objects that callers hold. */
export const HANDLE_RULES: readonly ServiceRule[] = [
  {
    rule: 'A1',
    title: 'a Runner keeps a conversation over several turns',
    level: 'every',
    async test({ service, app, create, fresh }) {
      const session = await create();
      const runner = new Runner({ appName: app, agent, sessionService: service });
      for (const text of ['hello', 'again']) {
        const turn = { userId: 'alice', sessionId: session.id, newMessage: newMessage(text) };
        for await (const _event of runner.runAsync(turn)) continue;
      }
      const read = await fresh(session);
      same(textsOf(read), ['hello', '1 events', 'again', '3 events'], 'The texts of the events that are read');
      same(read.state, { turns: 2 }, 'The state that is read');
    },
  },
  {
    rule: 'A1',
    title: 'a Runner says which name or id is missing, in its own words',
    level: 'every',
    async test({ service, app, create }) {
      await create({ sessionId: 's' });
      for (const [what, appName, params, message] of FORGOTTEN) {
        const runner = new Runner({ ...(appName && { appName: app }), agent, sessionService: service });
        const turn = { userId: 'alice', sessionId: 's', newMessage: newMessage('hello'), ...params };
        await refuses(runner.runAsync(turn).next(), `A run without ${what}`, message);
      }
    },
  },
  {
    rule: 'A1',
    title: 'every request of the base class is taken',
    level: 'every',
    async test({ service, app, append }) {
      const key = { appName: app, userId: 'alice', sessionId: 's' };
      const created = await service.createSession({ ...key, state: { a: 1 } });
      const { lastUpdateTime, ...rest } = created;
      const session = { id: 's', appName: app, userId: 'alice', state: { a: 1 }, events: [] };
      same(rest, session, 'The session that createSession gives');
      holds(lastUpdateTime > 0, 'Its lastUpdateTime should be a time.');
      same(await service.getOrCreateSession(key), created, 'What getOrCreateSession gives');
      await append(created, saying('hi'));
      const { sessions } = await service.listSessions({ appName: app });
      same(sessions.map(keyOf), [key], 'The keys of what listSessions gives');
      await service.deleteSession(key);
      same(await service.getSession(key), undefined, 'What getSession gives after deleteSession');
    },
  },
  {
    rule: 'A2',
    title: 'getSession gives the whole of a long history',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create();
      const events: Event[] = [];
      for (const i of range(120)) events.push(await append(session, saying(String(i))));
      same(idsOf(await fresh(session)), idsOf({ events }), 'The ids of the events that are read');
    },
  },
  {
    rule: 'A2',
    title: 'what getSession gives is private to the caller',
    level: 'every',
    async test({ service, create, append, fresh, stored }) {
      const session = await create({ state: { list: [1], 'app:list': [1], 'user:list': [1] } });
      await append(session, { ...saying('hi'), delta: { deep: { list: [1] } } });
      const before = plain(await stored(keyOf(session)));
      const given = plain(await fresh(session));
      const handle = plain(session);
      for (const reader of [
        () => fresh(session),
        () => service.getSession(keyOf(session)),
        () => service.getOrCreateSession(keyOf(session)),
      ]) {
        const read = await reader();
        holds(read !== undefined, 'The session should be read.');
        spoil(read.state);
        for (const event of read.events) spoil(event);
        read.events.push(createEvent());
        same(await service.getSession(keyOf(session)), given, 'The session that the same service reads again');
        same(await stored(keyOf(session)), before, 'The session in storage');
        same(session, handle, "The caller's session");
      }
    },
  },
  {
    rule: 'A2',
    title: 'what listSessions gives is private to the caller',
    level: 'every',
    async test({ app, service, create, stored }) {
      const session = await create({ state: { list: [1], 'app:list': [1], 'user:list': [1] } });
      const before = plain(await stored(keyOf(session)));
      for (const listed of (await service.listSessions({ appName: app })).sessions) spoil(listed.state);
      same(await stored(keyOf(session)), before, 'The session in storage');
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
    // What a caller does to the state object that it passed, or to the handle that it got, is its own affair.
    rule: 'A2',
    title: 'the handle of createSession is private to the caller',
    level: 'every',
    async test({ create, stored }) {
      const state = { list: [1], 'app:list': [1], 'user:list': [1] };
      const before = plain(state);
      const session = await create({ state });
      spoil(session.state);
      same(state, before, 'The state of the request, after a change of the handle');
      same((await stored(keyOf(session)))?.state, before, 'The state in storage, after a change of the handle');
      const other = await create({ state });
      spoil(state);
      same(other.state, before, 'The state of the handle, after a change of the request');
      same((await stored(keyOf(other)))?.state, before, 'The state in storage, after a change of the request');
    },
  },
  {
    rule: 'A2',
    title: 'changes of the request while createSession is under way reach neither handle nor storage',
    level: 'every',
    async test({ create, stored }) {
      const state = { list: [1], 'app:list': [1] };
      const before = plain(state);
      const creating = create({ state });
      spoil(state);
      const session = await creating;
      same(session.state, before, 'The state of the handle');
      same((await stored(keyOf(session)))?.state, before, 'The state in storage');
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
      const event = await append(session, { ...saying('hi'), delta: { list: [1], 'app:list': [1] } });
      const before = plain(await stored(keyOf(session)));
      spoil(event);
      event.author = 'somebody';
      same(await stored(keyOf(session)), before, 'The session in storage');
    },
  },
  {
    rule: 'A3',
    title: 'changes while the append is under way do not reach it either',
    level: 'every',
    async test({ service, create, stored }) {
      const session = await create();
      const parts = [{ text: 'hi' }];
      const list = [1];
      const event = createEvent({ author: 'agent', content: { parts }, actions: { stateDelta: { list } } });
      const appending = service.appendEvent({ session, event });
      parts.push({ text: 'more' });
      list.push(2);
      await appending;
      const read = await stored(keyOf(session));
      same(read?.events[0]?.content, { parts: [{ text: 'hi' }] }, 'The content of the event in storage');
      same(read?.state, { list: [1] }, 'The state in storage');
    },
  },
  {
    rule: 'A4',
    title: 'session.state keeps its identity, and keys outside the delta stay',
    level: 'every',
    async test({ create, append }) {
      const session = await create({ state: { kept: 1 } });
      const { state, events } = session;
      state['temp:draft'] = 'x';
      state['direct'] = { n: 1 };
      await append(session, { delta: { a: 1, 'app:b': 2, 'user:c': 3 } });
      holds(session.state === state, "The state of the caller's session should stay the same object.");
      holds(session.events === events, "The events of the caller's session should stay the same list.");
      const expected = { kept: 1, 'temp:draft': 'x', direct: { n: 1 }, a: 1, 'app:b': 2, 'user:c': 3 };
      same(state, expected, "The state of the caller's session");
    },
  },
];
