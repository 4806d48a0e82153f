import { InMemorySessionService } from '@google/adk';
import { MikroOrmSessionService } from '../../src/index.js';
import { SERVICE_RULES } from '../../packages/session-contract/src/contract.js';
import { DURABILITY_RULES } from '../../packages/session-contract/src/durability-rules.js';
import {
  checkSessionService,
  describeSessionServiceContract,
  type ServiceStore,
} from '../../packages/session-contract/src/index.js';
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

test('suites run all of them except those that reopen a store', () => {
  const inSuites = new Set(suites.flatMap(({ rules }) => rules).map(nameOf));
  expect(PUBLISHED.filter((name) => !inSuites.has(name))).toEqual(DURABLE);
});

test('they are in the order of docs/contract.md, and docs/session-contract.md has them by level', async () => {
  const order = Object.keys(RULES);
  const places = SERVICE_RULES.map(({ rule }) => order.indexOf(rule));
  expect(places).toEqual([...places].sort((a, b) => a - b));
  // `ADK_TEST_UPDATE=1 npx jest test/contract/published -t order` rewrites it.
  await expectGenerated('docs/session-contract.md', 'published', publishedTable(SERVICE_RULES));
});

/** The service of this package on a database that other processes can open, or that is in memory. */
async function openOwn({ open, hasConnections }: OwnHarness): Promise<ServiceStore> {
  const { orm, peer, service, another, connect, close } = await open();
  if (!hasConnections) return { service, another, close };
  const reopen = async ({ killed }: { killed: boolean }) => {
    // A killed process closes nothing.
    if (!killed) for (const each of [orm, peer]) await each.close(true);
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

test('a rule for several instances is left out if there is one, and an error says what was found', async () => {
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
  await expect(checkSessionService(harness(), wrong)).rejects.toThrow(RangeError);
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
