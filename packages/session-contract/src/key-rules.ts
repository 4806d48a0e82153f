import { same } from './checks.js';
import { idsOf, saying, textsOf } from './events.js';
import { randomName, randomNumbers, type Alphabet } from './random.js';
import { keyOf, type ServiceRule } from './rule.js';

const ALICES = ['alice', 'Alice', 'alice ', 'alicé', 'alice\u0301', 'ALICE', ' alice'];

/** The greatest length of a state key and of an event id, so that the key of a row has at most 2,600 bytes. */
const ROOM: [Alphabet, stateKey: number, eventId: number][] = [
  ['ascii', 255, 191],
  ['bmp', 255, 191],
  ['emoji', 140, 140],
];

/** Tests of section D: names, ids and state keys. */
export const KEY_RULES: readonly ServiceRule[] = [
  {
    rule: 'D6',
    title: 'users that differ by a byte are different users',
    level: 'every',
    async test({ app: appName, service, create, append, stored }) {
      for (const userId of ALICES) {
        const session = await create({ userId, sessionId: 's', state: { 'user:name': userId } });
        await append(session, saying(userId));
      }
      for (const userId of ALICES) {
        const read = await stored({ appName, userId, sessionId: 's' });
        const expected = [{ 'user:name': userId }, [userId]];
        same(read && [read.state, textsOf(read)], expected, `State and texts in storage of ${JSON.stringify(userId)}`);
        const { sessions } = await service.listSessions({ appName, userId });
        same(
          sessions.map((session) => session.userId),
          [userId],
          'The users of a list of one',
        );
      }
      await service.deleteSession({ appName, userId: 'alice', sessionId: 's' });
      const { sessions } = await service.listSessions({ appName });
      same(sessions.length, ALICES.length - 1, 'The number of sessions after the deletion of one');
    },
  },
  {
    rule: 'D6',
    title: 'so are apps, sessions, events and state keys',
    level: 'every',
    async test({ app, create, append, fresh }) {
      for (const name of ALICES) await create({ appName: app + name, sessionId: 's', state: { 'app:name': name } });
      for (const name of ALICES) {
        const session = await create({ sessionId: name, state: { name } });
        for (const id of ALICES) await append(session, { id, delta: { [id]: id } });
        const read = await fresh(session);
        same(idsOf(read), ALICES, 'The ids of the events that are read');
        const state = { name, ...Object.fromEntries(ALICES.map((key) => [key, key])) };
        same(read.state, state, 'The state that is read');
        const twin = await fresh({ ...session, appName: app + name, id: 's' });
        same(twin.state, { 'app:name': name }, `The state of the session of the app ${JSON.stringify(app + name)}`);
      }
    },
  },
  ...ROOM.map(([alphabet, stateKey, eventId]): ServiceRule => ({
    rule: 'D7',
    title: `keys of the greatest length are stored and read (${alphabet})`,
    level: 'every',
    async test({ app, service, append, fresh, stored }) {
      const random = randomNumbers();
      const name = (length: number) => randomName(random, length, alphabet);
      const key = { appName: app + name(128 - app.length), userId: name(191), sessionId: name(191) };
      const state = { [name(stateKey)]: 1, [`user:${name(255)}`]: 2, [`app:${name(255)}`]: 3 };
      const session = await service.createSession({ ...key, state });
      same((await fresh(session)).state, state, 'The state that is read');
      const id = name(eventId);
      await append(session, { id, delta: state });
      const read = await fresh(session);
      same([read.state, idsOf(read)], [state, [id]], 'State and events that are read');
      const { sessions } = await service.listSessions({ appName: key.appName, userId: key.userId });
      same(sessions.map(keyOf), [key], 'The keys of the listed sessions');
      await service.deleteSession(key);
      same(await stored(key), undefined, 'The deleted session in storage');
    },
  })),
];
