import { createEvent, type Event, type Session } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import {
  MikroOrmArtifactService,
  MikroOrmMemoryService,
  MikroOrmSessionService,
  SessionLeases,
  type Lease,
} from '../../../src/index.js';
import { Distance } from '../../support/distance.js';
import { HARNESSES } from '../../support/harnesses/index.js';
import { keyOf, type OwnStore } from '../../support/harnesses/harness.js';
import { LONG_LEASE } from '../tools.js';

/** How often each call waits for the server (contract T1): statements that travel together count once. */

/** On PostgreSQL, MariaDB and MySQL. */
type Trips = readonly [postgresql: number, mariadb: number, mysql: number];

const PLACES: Readonly<Record<string, number>> = { postgresql: 0, mariadb: 1, mysql: 2 };

/** The trips of a statement's first use on a connection. On MariaDB and MySQL it is prepared before values are bound (O7). */
const NEW: Trips = [1, 2, 2];

/** What calls are made with. */
class Services {
  readonly sessions: MikroOrmSessionService;
  readonly artifacts: MikroOrmArtifactService;
  readonly memory: MikroOrmMemoryService;
  readonly leases: SessionLeases;
  #count = 0;

  constructor(orm: MikroORM) {
    this.sessions = new MikroOrmSessionService(orm.em);
    this.artifacts = new MikroOrmArtifactService(orm.em);
    this.memory = new MikroOrmMemoryService(orm.em);
    this.leases = new SessionLeases(orm.em, LONG_LEASE);
  }

  /** A new session, read as a call would read it. */
  async session(...events: Event[]): Promise<Session> {
    const session = await this.sessions.createSession({ appName: 'app', userId: 'alice', state: { a: 1 } });
    if (events.length > 0) await this.sessions.appendEvents({ session, events });
    return session;
  }

  /** A user with memories, of an app with memories. */
  async user(): Promise<{ appName: string; userId: string }> {
    const owner = { appName: `app ${++this.#count}`, userId: 'alice' };
    for (const userId of [owner.userId, undefined])
      await this.memory.addMemory({
        appName: owner.appName,
        ...(userId !== undefined && { userId }),
        memories: ['tea', 'coffee'].map((text) => ({ content: { role: 'user', parts: [{ text: `likes ${text}` }] } })),
      });
    return owner;
  }

  async artifact() {
    const address = { ...keyOf(await this.session()), filename: 'file' };
    await this.artifacts.saveArtifact({ ...address, artifact: { text: 'first' } });
    return address;
  }

  lease(key: ReturnType<typeof keyOf>): Promise<Lease> {
    return this.leases.acquire(key, { holder: 'me' });
  }
}

const says = (text: string, delta: Record<string, unknown> = {}) =>
  createEvent({ author: 'agent', content: { parts: [{ text }] }, actions: { stateDelta: delta } });

const asks = () =>
  createEvent({
    ...{ author: 'agent', longRunningToolIds: ['c'] },
    content: { role: 'model', parts: [{ functionCall: { id: 'c', name: 'approve', args: {} } }] },
  });

const answers = () =>
  createEvent({
    author: 'user',
    content: { role: 'user', parts: [{ functionResponse: { id: 'c', name: 'approve', response: {} } }] },
  });

/** A call, after what must be there before it. */
const of =
  <T>(before: (services: Services) => Promise<T>, call: (services: Services, made: T) => Promise<unknown>) =>
  async (services: Services) => {
    const made = await before(services);
    return () => call(services, made);
  };

type Prepared = (services: Services) => Promise<() => Promise<unknown>>;

const none = () => Promise.resolve();
const asked = (s: Services) => s.session(says('x'), asks());
const waiting = async (s: Services) => (await s.sessions.getSession(keyOf(await asked(s))))!;
const spoken = (s: Services) => s.session(says('one'), says('two'));
const keyed = async (s: Services) => keyOf(await s.session());
const held = async (s: Services) => s.lease(keyOf(await s.session()));
const leased = async (s: Services) => {
  const { sessionService, session } = await held(s);
  return { sessionService, session: (await s.sessions.getSession(session))! };
};
const artifact = (s: Services) => s.artifact();
const user = (s: Services) => s.user();

const CALLS: Readonly<Record<string, readonly [Trips, Prepared]>> = {
  appendEvent: [[1, 1, 5], of(spoken, (s, session) => s.sessions.appendEvent({ session, event: says('x', { a: 1 }) }))],
  'appendEvent that opens a call': [
    [2, 2, 7],
    of(spoken, (s, session) => s.sessions.appendEvent({ session, event: asks() })),
  ],
  'appendEvent that answers a call': [
    [2, 2, 7],
    of(asked, (s, session) => s.sessions.appendEvent({ session, event: answers() })),
  ],
  'appendEvent with a call that waits': [
    [2, 2, 6],
    of(waiting, (s, session) => s.sessions.appendEvent({ session, event: says('x') })),
  ],
  createSession: [
    [2, 2, 6],
    of(none, (s) => s.sessions.createSession({ appName: 'app', userId: 'alice', state: { a: 1 } })),
  ],
  getSession: [[1, 1, 1], of(spoken, (s, session) => s.sessions.getSession(keyOf(session)))],
  getOrCreateSession: [[1, 1, 1], of(keyed, (s, key) => s.sessions.getOrCreateSession(key))],
  readEvents: [[1, 1, 1], of(spoken, (s, session) => s.sessions.readEvents(keyOf(session)))],
  listSessions: [[2, 2, 2], of(spoken, (s, { userId }) => s.sessions.listSessions({ appName: 'app', userId }))],
  'listSessions of a page': [[2, 2, 3], of(spoken, (s) => s.sessions.listSessions({ appName: 'app', limit: 1 }))],
  findSessions: [[1, 1, 1], of(spoken, (s) => s.sessions.findSessions({ appName: 'app' }))],
  findOpenCalls: [[1, 1, 1], of(asked, (s) => s.sessions.findOpenCalls({ appName: 'app' }))],
  describeSession: [[2, 2, 5], of(keyed, (s, key) => s.sessions.describeSession(key, { title: 'x' }))],
  updateState: [[2, 2, 7], of(keyed, (s, key) => s.sessions.updateState({ ...key, set: { a: 2 } }))],
  'updateState of a user': [
    [2, 2, 5],
    of(none, (s) => s.sessions.updateState({ appName: 'app', userId: 'alice', set: { 'user:a': 2 } })),
  ],
  getUserState: [[1, 1, 1], of(none, (s) => s.sessions.getUserState({ appName: 'app', userId: 'alice' }))],
  deleteSession: [[2, 2, 7], of(spoken, (s, session) => s.sessions.deleteSession(keyOf(session)))],
  saveArtifact: [[2, 2, 5], of(artifact, (s, at) => s.artifacts.saveArtifact({ ...at, artifact: { text: 'second' } }))],
  loadArtifact: [[1, 1, 1], of(artifact, (s, at) => s.artifacts.loadArtifact(at))],
  listArtifactKeys: [[1, 1, 1], of(keyed, (s, key) => s.artifacts.listArtifactKeys(key))],
  listVersions: [[1, 1, 1], of(artifact, (s, at) => s.artifacts.listVersions(at))],
  deleteArtifact: [[2, 2, 4], of(artifact, (s, at) => s.artifacts.deleteArtifact(at))],
  addSessionToMemory: [[2, 2, 7], of(spoken, (s, session) => s.memory.addSessionToMemory(session))],
  searchMemory: [[1, 1, 2], of(user, (s, owner) => s.memory.searchMemory({ ...owner, query: 'Who likes tea?' }))],
  'searchMemory that finds nothing': [
    [1, 1, 2],
    of(user, (s, owner) => s.memory.searchMemory({ ...owner, query: 'else' })),
  ],
  listMemories: [[1, 1, 1], of(user, (s, owner) => s.memory.listMemories({ ...owner, limit: 10 }))],
  'acquire a lease': [[2, 2, 3], of(keyed, (s, key) => s.lease(key))],
  'release a lease': [[1, 1, 1], of(held, (_, lease) => lease.release())],
  'append under a lease': [
    [1, 1, 4],
    of(leased, (_, { sessionService, session }) => sessionService.appendEvent({ session, event: says('x') })),
  ],
};

const servers = Object.entries(HARNESSES).filter(([name]) => name in PLACES);

describe.each(servers)('%s', (name, harness) => {
  if (!harness.isAvailable()) {
    test.skip('is not available', () => undefined);
    return;
  }

  let store: OwnStore;
  let distance: Distance;
  let services: Services;

  beforeAll(async () => {
    store = await harness.open();
    distance = await Distance.to(String(store.orm.config.get('clientUrl')));
    services = new Services(await store.connect({ clientUrl: distance.url, pool: { min: 1, max: 1 } }));
  });
  afterAll(async () => {
    await store.close();
    await distance.close();
  });

  test('T1 each call waits for the server as often as the contract says', async () => {
    const found: Record<string, number> = {};
    const expected: Record<string, number> = {};
    for (const [call, [trips, prepare]] of Object.entries(CALLS)) {
      // The first two prepare statements, and leave a retry token.
      for (let run = 0; run < 3; run++) {
        const work = await prepare(services);
        distance.trips = 0;
        const result = await work();
        found[call] = distance.trips;
        if (result && typeof result === 'object' && 'release' in result) await (result as Lease).release();
      }
      expected[call] = trips[PLACES[name]!]!;
    }
    expect(found).toEqual(expected);
  });

  test('T1 the first call on a connection waits for the check of server and settings', async () => {
    const orm = await store.connect({ clientUrl: distance.url, pool: { min: 1, max: 1 } });
    const sessions = new MikroOrmSessionService(orm.em);
    // MikroORM opens the connection.
    await orm.em.getConnection().execute('select 1');
    const counted = async (call: () => Promise<unknown>) => {
      distance.trips = 0;
      await call();
      return distance.trips;
    };
    const list = () => counted(() => sessions.listSessions({ appName: 'nothing' }));
    const find = () => counted(() => sessions.findOpenCalls({ appName: 'nothing' }));
    const again = NEW[PLACES[name]!]!;
    expect([await list(), await list(), await find(), await find()]).toEqual([again + 1, 1, again, 1]);
  });
});
