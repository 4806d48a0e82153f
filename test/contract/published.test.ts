import {
  InMemorySessionService,
  LogLevel,
  setLogLevel,
  type AppendEventRequest,
  type CreateSessionRequest,
  type DeleteSessionRequest,
  type Event,
  type GetSessionRequest,
  type ListSessionsRequest,
  type ListSessionsResponse,
  type Session,
} from '@google/adk';
import { MikroOrmSessionService } from '../../src/index.js';
import { SERVICE_RULES } from '../../src/testing/contract.js';
import { DURABILITY_RULES } from '../../src/testing/durability-rules.js';
import { checkSessionService, describeSessionServiceContract, type ServiceStore } from '../../src/testing/index.js';
import { expectGenerated } from '../support/generated.js';
import { HARNESSES } from '../support/harnesses/index.js';
import type { OwnHarness } from '../support/harnesses/harness.js';
import { nameOf } from './rule.js';
import { RULES } from './rules.js';
import { suites } from './suites.js';
import { publishedTable } from './tables.js';

/** The rules that are published, by the names of their tests. */
const PUBLISHED = SERVICE_RULES.map(nameOf);

/** Which ADK's service in memory breaks. */
const PREFIXES = 'createSession gives keys to app, user and session by their prefix';

/** Those that no suite runs. */
const DURABLE = DURABILITY_RULES.map(nameOf);

test('suites run all of them but those that open a store again', () => {
  const inSuites = new Set(suites.flatMap(({ rules }) => rules).map(nameOf));
  expect(PUBLISHED.filter((name) => !inSuites.has(name))).toEqual(DURABLE);
});

test('they are in the order of docs/contract.md, and docs/session-contract.md has them by level', async () => {
  const order = Object.keys(RULES);
  const places = SERVICE_RULES.map(({ rule }) => order.indexOf(rule));
  expect(places).toEqual([...places].sort((a, b) => a - b));
  // `ADK_TEST_UPDATE=1 npx jest test/contract/published -t order` writes it anew.
  await expectGenerated('docs/session-contract.md', 'published', publishedTable(SERVICE_RULES));
});

/** The service of this package on a database that other processes can open, or that is in memory. */
async function openOwn({ open, hasConnections }: OwnHarness): Promise<ServiceStore> {
  const { orm, peer, service, another, connect, close } = await open();
  if (!hasConnections) return { service, another, close };
  const reopen = async () => {
    for (const each of [orm, peer]) await each.close(true);
    const [service, another] = [await connect(), await connect()].map(({ em }) => new MikroOrmSessionService(em));
    return { service: service!, another: another!, reopen, close };
  };
  return { service, another, reopen, close };
}

// With the globals of this framework.
for (const harness of Object.values(HARNESSES)) {
  if (!harness.isAvailable()) continue;
  const name = `the published contract on ${harness.name}`;
  describeSessionServiceContract({ name, open: () => openOwn(harness) }, { describe, test, beforeAll, afterAll });
}

test('this package keeps all of it, and what opens a store again is not left out', async () => {
  const verdicts = await checkSessionService({ name: 'sqlite', open: () => openOwn(HARNESSES['sqlite']!) });
  expect(verdicts.filter(({ result }) => result !== 'held')).toEqual([]);
});

/** Keeps little of what it is given. */
class Careless extends InMemorySessionService {
  override createSession(request: CreateSessionRequest): Promise<Session> {
    return super.createSession({ ...request, sessionId: request.sessionId || 'same', state: { careless: true } });
  }

  override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
    const session = await super.getSession(request);
    if (!session) return null as unknown as undefined;
    return { ...session, events: session.events.slice(-3).reverse(), lastUpdateTime: 1 };
  }

  override async appendEvent({ session, event }: AppendEventRequest): Promise<Event> {
    return super.appendEvent({ session, event: { ...event, timestamp: 7 } });
  }

  override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
    const response = await super.listSessions({ ...request, order: 'asc' });
    return { ...response, sessions: response.sessions.slice(1).reverse() };
  }

  // Whose session it is does not matter to it.
  override async deleteSession({ appName, sessionId }: DeleteSessionRequest): Promise<void> {
    for (const userId of ['alice', 'bob']) await super.deleteSession({ appName, userId, sessionId });
  }
}

/** Gives everybody the one object. */
class Sharing extends InMemorySessionService {
  readonly #given = new Map<string, Session | undefined>();

  override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
    const { appName, userId, sessionId } = request;
    const key = [appName, userId, sessionId].join();
    if (!this.#given.has(key)) this.#given.set(key, await super.getSession(request));
    return this.#given.get(key);
  }
}

/** Damages what it gives, as stores do that are not made for every text and field. */
class Lossy extends InMemorySessionService {
  override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
    const session = await super.getSession(request);
    const damaged = (key: string, value: unknown) => {
      if (['inventedField', '__proto__', 'isolationScope'].includes(key) || value === null) return undefined;
      if (typeof value !== 'string') return value;
      // The encoding of text makes others of lone surrogates.
      const text = Buffer.from(value)
        .toString()
        .replace(/\0|\p{Extended_Pictographic}/gu, '');
      return text === '' ? null : text.slice(0, 65_535);
    };
    return session && JSON.parse(JSON.stringify(session), damaged);
  }

  override async appendEvent(request: AppendEventRequest): Promise<Event> {
    const event = await super.appendEvent(request);
    const { state } = request.session;
    for (const key of Object.keys(state)) if (key.startsWith('temp:')) delete state[key];
    return event;
  }
}

/** Refuses much, and shows its statements. */
class Strict extends InMemorySessionService {
  readonly #created = new Set<string>();

  override async createSession(request: CreateSessionRequest): Promise<Session> {
    const { appName, userId, sessionId, state } = request;
    const key = [appName, userId, sessionId].join();
    if (sessionId && this.#created.has(key))
      throw new Error(`Duplicate key in: insert into sessions values (${JSON.stringify(state)})`);
    this.#created.add(key);
    return super.createSession(request);
  }

  override async getSession(request: GetSessionRequest): Promise<Session | undefined> {
    if (!request.userId || !request.sessionId) throw new Error('A key is missing');
    return super.getSession(request);
  }

  override async appendEvent(request: AppendEventRequest): Promise<Event> {
    const seen = new Set<unknown>();
    JSON.stringify(request.event, (_key, value: unknown) => {
      if (seen.has(value)) throw new Error('A cycle');
      if (typeof value === 'object' && value !== null) seen.add(value);
      return value;
    });
    return super.appendEvent(request);
  }

  override async listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
    const response = await super.listSessions(request);
    if (response.sessions.length === 0) throw new Error('There are no sessions');
    return response;
  }

  override async deleteSession(request: DeleteSessionRequest): Promise<void> {
    if (!(await super.getSession(request))) throw new Error('There is no such session');
    await super.deleteSession(request);
  }
}

/** Takes keys for the same that differ in case, in spaces around, or behind the first 190 characters; also those of apps. */
class Folding extends InMemorySessionService {
  static #folded<Key extends Partial<Record<'appName' | 'userId' | 'sessionId', string>>>(key: Key): Key {
    const fold = (name: string | undefined) => name?.trim().toLowerCase().slice(0, 190);
    const { userId, sessionId } = key;
    return {
      ...key,
      appName: fold(key.appName)?.replace(/-sub$/, ''),
      ...(userId !== undefined && { userId: fold(userId) }),
      ...(sessionId !== undefined && { sessionId: fold(sessionId) }),
    };
  }

  override createSession(request: CreateSessionRequest): Promise<Session> {
    return super.createSession(Folding.#folded(request));
  }

  override getSession(request: GetSessionRequest): Promise<Session | undefined> {
    return super.getSession(Folding.#folded(request));
  }

  override listSessions(request: ListSessionsRequest): Promise<ListSessionsResponse> {
    return super.listSessions(Folding.#folded(request));
  }

  override deleteSession(request: DeleteSessionRequest): Promise<void> {
    return super.deleteSession(Folding.#folded(request));
  }
}

test('some service breaks each of them', async () => {
  setLogLevel(LogLevel.ERROR);
  const brokenBySome = new Set<string>();
  for (const Service of [InMemorySessionService, Careless, Sharing, Lossy, Strict, Folding]) {
    const open = (): ServiceStore => {
      const service = new Service();
      return { service, another: service, reopen: async () => open() };
    };
    const verdicts = await checkSessionService({ name: Service.name, open: async () => open() });
    for (const verdict of verdicts) if (verdict.result === 'broken') brokenBySome.add(nameOf(verdict));
  }
  expect(PUBLISHED.filter((rule) => !brokenBySome.has(rule))).toEqual([]);
});

test('a rule for several instances is left out where there is one, and an error says what was there', async () => {
  const open = async () => ({ service: new InMemorySessionService() });
  const verdicts = await checkSessionService({ name: 'one', open });
  expect(verdicts.filter(({ level }) => level === 'shared').map(({ result }) => result)).toEqual([
    ...Array<string>(SERVICE_RULES.filter(({ level }) => level === 'shared').length).fill('left out'),
  ]);
  expect(verdicts.find(({ title }) => title === PREFIXES)).toMatchObject({
    result: 'broken',
    error: { message: expect.stringMatching(/^The state .* should be \{.*\}, and is \{.*\}\.$/) },
  });
});

test('of a service that extends the base class of another copy of ADK, the order of branches is left out', async () => {
  const foreign = new Proxy(new InMemorySessionService(), { getPrototypeOf: () => null });
  const verdicts = await checkSessionService({ name: 'foreign', open: async () => ({ service: foreign }) });
  const every = verdicts.filter(({ level }) => level === 'every');
  expect(new Set(every.filter(({ result }) => result === 'left out').map(({ rule }) => rule))).toEqual(new Set(['A8']));
});

test('level says up to which level rules are judged, and is refused where the store lacks what they need', async () => {
  const service = new InMemorySessionService();
  const close = jest.fn(() => Promise.resolve());
  const harness = (another?: InMemorySessionService) => ({
    name: 'x',
    open: async () => ({ service, ...(another && { another }), close }),
  });
  const every = await checkSessionService(harness(service), { level: 'every' });
  expect(every.map(({ level, result }) => (level === 'every') === (result !== 'left out'))).not.toContain(false);
  await expect(checkSessionService(harness(), { level: 'shared' })).rejects.toThrow(
    'The rules of the level shared need another of what open() returns. Or choose a lower level.',
  );
  expect(close).toHaveBeenCalledTimes(2);
  const wrong = { level: 'all' as 'every' };
  await expect(checkSessionService(harness(), wrong)).rejects.toMatchObject({ code: 'ADK_INVALID_ARGUMENT' });
});

test.each([
  [{ it: true, before: true }, ['before', 'after']],
  [{ test: true, beforeAll: true }, ['beforeAll', 'afterAll']],
])('it takes the functions of node:test, and those of jest and Vitest', async (_, hooks) => {
  const called: string[] = [];
  const runs: (() => Promise<void>)[] = [];
  const hook = (name: string) => (run: () => Promise<void>) => {
    called.push(name);
    runs.push(run);
  };
  const rules: [string, () => Promise<void>][] = [];
  const describing = { describe: (_name: string, define: () => void) => define() };
  const each = (name: string, run: () => Promise<void>) => rules.push([name, run]);
  const harness = { name: 'x', open: async () => ({ service: new InMemorySessionService() }) };
  if (hooks[0] === 'before')
    describeSessionServiceContract(harness, { ...describing, it: each, before: hook('before'), after: hook('after') });
  else
    describeSessionServiceContract(harness, {
      ...{ ...describing, test: each, beforeAll: hook('beforeAll'), afterAll: hook('afterAll') },
    });
  expect(called).toEqual(hooks);
  expect(rules.map(([name]) => name)).toEqual(PUBLISHED);
  await runs[0]!();
  const runOf = (name: string) => rules.find(([rule]) => rule === name)![1]();
  await expect(runOf(`B1 ${PREFIXES}`)).rejects.toThrow(/should be/);
  await runOf('B1 only the first prefix counts');
});
