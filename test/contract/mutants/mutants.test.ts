import { LogLevel, setLogLevel } from '@google/adk';
import { SERVICE_RULES } from '../../../packages/session-contract/src/contract.js';
import { checkSessionService, describeSessionServiceContract } from '../../../packages/session-contract/src/index.js';
import { nameOf } from '../rule.js';
import { InMemory } from './in-memory.js';
import { MUTANTS, storeOf, type Mutant } from './mutants.js';

beforeAll(() => setLogLevel(LogLevel.ERROR));

/** The names of the tests of the mutant's rule, in its use, that find it. */
async function found({ rule, fault, level, open }: Mutant): Promise<string[]> {
  const own = new Set(SERVICE_RULES.filter((each) => each.rule === rule && each.level === level).map(nameOf));
  const tests: [name: string, run: () => Promise<void>][] = [];
  const hooks: (() => Promise<void>)[] = [];
  describeSessionServiceContract(
    { name: fault, open },
    {
      describe: (_name, define) => define(),
      test: (name, run) => own.has(name) && tests.push([name, run]),
      beforeAll: (run) => hooks.push(run),
      afterAll: () => undefined,
    },
  );
  for (const hook of hooks) await hook();
  const outcomes: string[] = [];
  for (const [name, run] of tests)
    await run().catch(() => {
      outcomes.push(name);
    });
  return outcomes;
}

test('the service that they are made of keeps the whole contract', async () => {
  const verdicts = await checkSessionService({ name: 'in memory', open: async () => storeOf(InMemory) });
  expect(verdicts.filter(({ result }) => result !== 'held')).toEqual([]);
});

const catching = new Set<string>();

test.each(MUTANTS.map((mutant) => [`${mutant.rule} finds that ${mutant.fault}`, mutant] as const))(
  '%s',
  async (_, mutant) => {
    const names = await found(mutant);
    for (const name of names) catching.add(name);
    expect(names).not.toEqual([]);
  },
);

test('each test of the contract finds one of them', () => {
  expect(SERVICE_RULES.map(nameOf).filter((name) => !catching.has(name))).toEqual([]);
});
