import { expectGenerated } from '../support/generated.js';
import { DEVIATIONS, deviationsOnCitus } from './citus.js';
import { nameOf } from './rule.js';
import { suites } from './suites.js';

test('the tests that are expected to fail on Citus are tests of the contract', () => {
  const names = new Set(suites.flatMap(({ rules }) => rules).map(nameOf));
  expect(DEVIATIONS.flatMap(({ tests }) => tests).filter((name) => !names.has(name))).toEqual([]);
});

test('docs/scale.md has what does not hold on Citus', async () => {
  // `ADK_TEST_UPDATE=1 npx jest test/contract/citus` rewrites it.
  await expectGenerated('docs/scale.md', 'citus', deviationsOnCitus());
});
