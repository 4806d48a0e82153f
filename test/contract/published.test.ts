import { InMemorySessionService, LogLevel, setLogLevel } from '@google/adk';
import { checkSessionService, describeSessionServiceContract } from '../../src/testing/index.js';
import { HARNESSES } from '../support/harnesses/index.js';
import type { Harness } from '../support/harnesses/harness.js';
import { nameOf } from './rule.js';
import { stateSuite } from './b-state.js';

const harnessOf = (name: string): Harness => HARNESSES[name]!;

/** The rules that are published, by the names of their tests. */
const PUBLISHED = stateSuite.rules.filter(({ own }) => !own).map(nameOf);

// With the globals of this framework.
describeSessionServiceContract(
  { name: 'the published contract on this package', open: () => harnessOf('sqlite-in-memory').open() },
  { describe, test, beforeAll, afterAll },
);

test.each(['reference-in-memory', 'reference-database-sqlite'])(
  'the published contract finds the deviations of %s',
  async (name) => {
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
  },
);

test('a rule for several instances is left out where there is one, and an error says what was there', async () => {
  const open = async () => ({ service: new InMemorySessionService() });
  const verdicts = await checkSessionService({ name: 'one', open });
  expect(verdicts.filter(({ level }) => level === 'shared').map(({ result }) => result)).toEqual([
    ...Array<string>(4).fill('left out'),
  ]);
  const [first] = verdicts.filter(({ result }) => result === 'broken');
  expect(first).toMatchObject({
    title: 'createSession gives keys to app, user and session by their prefix',
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
  const [[, broken], , [, held]] = rules as [[string, () => Promise<void>], unknown, [string, () => Promise<void>]];
  await expect(broken()).rejects.toThrow(/should be/);
  await held();
});
