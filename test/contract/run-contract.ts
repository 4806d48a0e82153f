import { helpersOf } from '../../packages/session-contract/src/context.js';
import { HARNESSES } from '../support/harnesses/index.js';
import type { OwnHarness, OwnStore } from '../support/harnesses/harness.js';
import { nameOf, type Rule } from './rule.js';
import { suites } from './suites.js';

/** Defines the tests of all suites for one harness. */
export function runContract(harnessName: string): void {
  const harness = HARNESSES[harnessName];
  if (!harness) throw new Error(`There is no harness ${harnessName}`);
  if (!harness.isAvailable()) {
    test.skip(`${harness.name} is not available`, () => undefined);
    return;
  }

  describe(harness.name, () => {
    let store: OwnStore;
    beforeAll(async () => {
      store = await harness.open();
    });
    afterAll(() => store.close());

    for (const rule of suites.flatMap(({ rules }) => rules)) defineTest(harness, rule, () => store);
  });
}

function defineTest(harness: OwnHarness, rule: Rule, store: () => OwnStore): void {
  if (rule.where && !rule.where(harness)) return;
  test(nameOf(rule), () =>
    withScratch(harness.open, (scratch) =>
      rule.test({ ...store(), ...helpersOf(store().service, store().another), harness, scratch }),
    ),
  );
}

/** Hands out stores that are closed when the work is done. */
async function withScratch(
  open: () => Promise<OwnStore>,
  work: (scratch: () => Promise<OwnStore>) => Promise<void>,
): Promise<void> {
  const opened: OwnStore[] = [];
  try {
    await work(async () => {
      const store = await open();
      opened.push(store);
      return store;
    });
  } finally {
    for (const store of opened) await store.close();
  }
}
