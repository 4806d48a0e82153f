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
import { HARNESSES } from '../support/harnesses/index.js';
import type { Harness, OwnHarness } from '../support/harnesses/harness.js';
import { isMikroOrm7 } from '../support/mikro-orm.js';
import { nameOf } from './rule.js';
import { suites } from './suites.js';

const harnessOf = (name: string): Harness => HARNESSES[name]!;

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
  if (!harness.own || !harness.isAvailable()) continue;
  const name = `the published contract on ${harness.name}`;
  describeSessionServiceContract({ name, open: () => openOwn(harness) }, { describe, test, beforeAll, afterAll });
}

test('this package keeps all of it, and what opens a store again is not left out', async () => {
  const sqlite = harnessOf('sqlite') as OwnHarness;
  const verdicts = await checkSessionService({ name: 'sqlite', open: () => openOwn(sqlite) });
  expect(verdicts.filter(({ result }) => result !== 'held')).toEqual([]);
});

/** By those that the tests below judge. */
const brokenBySome = new Set<string>();

// ADK's own service needs the drivers of MikroORM 6.
const REFERENCES = ['reference-in-memory', ...(isMikroOrm7 ? [] : ['reference-database-sqlite'])];

test.each(REFERENCES)('the published contract finds the deviations of %s', async (name) => {
  const harness = harnessOf(name);
  if (harness.own) throw new Error('It is one of ours');
  setLogLevel(LogLevel.ERROR);
  jest.spyOn(console, 'error').mockReturnValue();
  const verdicts = await checkSessionService({
    name,
    open: async () => {
      const store = await harness.open();
      const settled = async () => {
        await store.settle?.();
        await store.close();
      };
      return { service: store.service, another: store.another, close: settled };
    },
  });
  jest.restoreAllMocks();

  expect(verdicts.map(nameOf)).toEqual(PUBLISHED);
  const broken = verdicts.filter(({ result }) => result === 'broken').map(nameOf);
  const isRace = (rule: string) => rule in harness.races;
  expect(broken.filter((rule) => !isRace(rule))).toEqual(
    PUBLISHED.filter((rule) => rule in harness.deviations && !isRace(rule)),
  );
  for (const rule of broken) brokenBySome.add(rule);
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

test('some service breaks each of them', async () => {
  setLogLevel(LogLevel.ERROR);
  for (const Service of [Careless, Sharing]) {
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
