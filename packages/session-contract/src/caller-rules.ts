import { createSession, type Event, type Session } from '@google/adk';
import { discreet, plain, same } from './checks.js';
import { idsOf, range, saying, textsOf } from './events.js';
import { keyOf, type ServiceRule } from './rule.js';

const SECRET = 'swordfish';

/** Section A: messages of errors, one id in several apps, missing sessions, and handles made by hand. */
export const CALLER_RULES: readonly ServiceRule[] = [
  {
    rule: 'A12',
    title: 'calls that race tell neither SQL nor values',
    level: 'shared',
    async test({ app, service, another }) {
      const key = { appName: app, userId: 'alice', sessionId: 's' };
      const state = { 'app:a': SECRET, b: SECRET };
      const outcomes = await Promise.allSettled(
        range(8).map((i) => (i % 2 ? service : another).createSession({ ...key, state })),
      );
      for (const outcome of outcomes) if (outcome.status === 'rejected') discreet(outcome.reason, [SECRET]);
    },
  },
  {
    rule: 'A13',
    title: 'one session id lives in several apps and for several users',
    level: 'every',
    async test({ service, app, create, append, stored }) {
      const sessions: Session[] = [];
      for (const [appName, userId] of [
        [app, 'alice'],
        [`${app}-sub`, 'alice'],
        [app, 'bob'],
      ] as const)
        sessions.push(await create({ appName, userId, sessionId: 's', state: { who: appName + userId } }));
      // The same event id as well: AgentTool's events and the caller's may meet.
      for (const session of sessions) await append(session, { ...saying(session.appName + session.userId), id: 'e' });
      const [, sub] = sessions;
      for (const isDeleted of [false, true]) {
        if (isDeleted && sub) await service.deleteSession(keyOf(sub));
        for (const session of sessions) {
          const who = session.appName + session.userId;
          const read = await stored(keyOf(session));
          const expected = isDeleted && session === sub ? undefined : [{ who }, [who]];
          same(read && [read.state, textsOf(read)], expected, `State and texts in storage of ${who}`);
          same(session.events.length, 1, `The number of events of the session of ${who}`);
        }
      }
    },
  },
  {
    rule: 'A14',
    title: 'deleting a missing session resolves',
    level: 'every',
    async test({ service, app, create }) {
      await service.deleteSession({ appName: app, userId: 'alice', sessionId: 'never' });
      const session = await create();
      for (const _ of range(2)) await service.deleteSession(keyOf(session));
    },
  },
  {
    rule: 'A15',
    title: 'an event without actions or invocationId is accepted',
    level: 'every',
    async test({ service, create, fresh }) {
      const session = await create();
      const bare = { id: 'bare', author: 'agent', timestamp: 5 };
      await service.appendEvent({ session, event: { ...bare } as Event });
      same((await fresh(session)).events, [bare], 'The events that are read');
      await service.appendEvent({ session, event: { ...bare, id: 'two', actions: {} } as Event });
      same(idsOf(await fresh(session)), ['bare', 'two'], 'The ids of the events that are read');
    },
  },
  {
    rule: 'A15',
    title: 'a handle made by hand is accepted',
    level: 'every',
    async test({ another, create, append, fresh }) {
      const session = await create({ state: { a: 1 } });
      await append(session, saying('first'));
      const { id, appName, userId } = session;
      const byHand = createSession({ id, appName, userId });
      await append(byHand, { ...saying('second'), delta: { b: 2 } }, another);
      const read = await fresh(session);
      same(textsOf(read), ['first', 'second'], 'The texts of the events that are read');
      same(read.state, { a: 1, b: 2 }, 'The state that is read');
    },
  },
  {
    rule: 'A15',
    title: 'a clone of a handle is accepted and works on',
    level: 'every',
    async test({ create, append, fresh }) {
      const session = await create({ state: { a: 1 } });
      await append(session, saying('first'));
      const clone = plain(session) as Session;
      await append(clone, { ...saying('second'), delta: { b: 2 } });
      await append(clone, saying('third'));
      same(textsOf(clone), ['first', 'second', 'third'], 'The texts of the clone');
      same(clone.state, { a: 1, b: 2 }, 'The state of the clone');
      same(textsOf(await fresh(session)), ['first', 'second', 'third'], 'The texts of the events that are read');
    },
  },
];
