import { LogLevel, setLogLevel } from '@google/adk';
import { SERVICE_RULES } from '../../packages/session-contract/src/contract.js';
import { checkSessionService } from '../../packages/session-contract/src/index.js';
import type { Deviations } from '../support/harnesses/deviations.js';
import { REFERENCES, adkDatabase, type ReferenceHarness } from '../support/harnesses/references.js';
import { expectGenerated } from '../support/generated.js';
import { nameOf } from './rule.js';
import { deviationsTable } from './tables.js';

/** A race is lost sooner or later. */
const MOST_RUNS = 10;

/** What the published contract finds: the rules that are broken each time, and those of `races` that are broken once. */
async function brokenBy(reference: ReferenceHarness): Promise<string[]> {
  const names = SERVICE_RULES.map(nameOf);
  const results = new Map(names.map((name) => [name, new Set<string>()]));
  const isBroken = (name: string) => {
    const seen = results.get(name)!;
    return name in reference.races ? seen.has('broken') : !seen.has('held');
  };
  const isExpected = (name: string) => isBroken(name) === (name in reference.races || name in reference.deviations);
  for (let run = 1; run === 1 || (run <= MOST_RUNS && !names.every(isExpected)); run++)
    for (const verdict of await checkSessionService(reference)) results.get(nameOf(verdict))!.add(verdict.result);
  return names.filter(isBroken);
}

/** By the name of the service. */
const found = new Map<string, Deviations>();

// What ADK's services and MikroORM print of the failures that are expected of them is no result of these tests.
beforeAll(() => {
  setLogLevel(LogLevel.ERROR);
  jest.spyOn(console, 'error').mockReturnValue();
});
afterAll(() => jest.restoreAllMocks());

/** ADK's service on PostgreSQL takes as long as all others, and breaks few rules of its own: the scheduled run judges it. */
const isJudged = ({ name, isAvailable }: ReferenceHarness) =>
  isAvailable() && (!name.endsWith('PostgreSQL') || Boolean(process.env['ADK_TEST_FULL']));

for (const reference of REFERENCES) {
  const { name, deviations, races } = reference;
  (isJudged(reference) ? test : test.skip)(
    `the published contract finds the deviations of ${name}`,
    async () => {
      const expected = { ...deviations, ...races };
      const broken = await brokenBy(reference);
      found.set(name, Object.fromEntries(broken.map((rule) => [rule, expected[rule] ?? 'breaks it'])));
      expect(broken.sort()).toEqual(Object.keys(expected).sort());
    },
    1_200_000,
  );
}

/** The README says so. Only two databases are judged by all rules, since that takes minutes. */
for (const { name, isAvailable, open } of [adkDatabase('mysql'), adkDatabase('mariadb')]) {
  (isAvailable() ? test : test.skip)(`${name} reads the sessions of Alice for alice`, async () => {
    const { service, close } = await open();
    await service.createSession({ appName: 'app', userId: 'Alice', sessionId: 's', state: { of: 'Alice' } });
    const read = await service.getSession({ appName: 'app', userId: 'alice', sessionId: 's' });
    expect(read?.state).toEqual({ of: 'Alice' });
    await close?.();
  });
}

/** `ADK_TEST_FULL=1 ADK_TEST_UPDATE=1 npx jest test/contract/adk-services` rewrites it. */
(REFERENCES.every(isJudged) ? test : test.skip)('the table in docs/adk-services.md is what was found', () => {
  const services = Array.from(found, ([name, deviations]) => ({ name, deviations }));
  return expectGenerated('docs/adk-services.md', 'deviations', deviationsTable(services));
});
