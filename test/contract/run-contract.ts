import { helpersOf } from '../../packages/session-contract/src/context.js';
import { HARNESSES } from '../support/harnesses/index.js';
import type { OwnHarness, OwnStore } from '../support/harnesses/harness.js';
import { watchStatements } from '../support/harnesses/statement-log.js';
import { expectedFailures } from './citus.js';
import { CrossingStatements } from './routing/crossing.js';
import { nameOf, oncePerDialect } from './rule.js';
import { coreSuites, suites } from './suites.js';
import { isFirstRun } from '../support/run.js';

/** Defines the tests of all suites for one harness. */
export function runContract(harnessName: string): void {
  const harness = HARNESSES[harnessName];
  if (!harness) throw new Error(`There is no harness ${harnessName}`);
  if (!harness.isAvailable()) {
    test.skip(`${harness.name} is not available`, () => undefined);
    return;
  }

  describe(harness.name, () => {
    const stores = new Stores(harness);
    let store: OwnStore;
    afterAll(() => stores.close());
    beforeAll(async () => {
      store = await stores.open();
    });

    const failing = expectedFailures(harnessName);
    const areRepeated = !oncePerDialect(harness) && !process.env['ADK_TEST_FULL'];
    const isCoreOnly = isFirstRun() && harness.dialect !== 'sqlite';
    for (const { rules, isOfDialect } of isCoreOnly ? coreSuites : suites)
      for (const rule of rules) {
        if (rule.where && !rule.where(harness)) continue;
        const testOfDriver = failing.has(nameOf(rule)) ? test.failing : test;
        (isOfDialect && areRepeated ? test.skip : testOfDriver)(nameOf(rule), () =>
          stores.within((scratch) =>
            rule.test({ ...store, ...helpersOf(store.service, store.another), harness, scratch }),
          ),
        );
      }

    // Last, since it checks the statements of all other tests.
    if (harness.dialect === 'postgresql' && harness.kind === 'server') {
      const crossing = new CrossingStatements();
      watchStatements(crossing.watch);
      test('F7 what is sent is routed, or in the list of what may cross', () => {
        expect(Object.fromEntries(crossing.refused)).toEqual({});
      });
    }
  });
}

/** Those that are open or being opened, also by a hook or a test whose time is up: they would keep the worker of jest alive. */
class Stores {
  readonly #harness: OwnHarness;
  readonly #opened = new Set<Promise<OwnStore>>();

  constructor(harness: OwnHarness) {
    this.#harness = harness;
  }

  open(): Promise<OwnStore> {
    const store = this.#harness.open();
    this.#opened.add(store);
    return store;
  }

  /** Runs work, and closes what it has opened. */
  async within(work: (open: () => Promise<OwnStore>) => Promise<void>): Promise<void> {
    const opened: Promise<OwnStore>[] = [];
    try {
      await work(() => {
        const store = this.open();
        opened.push(store);
        return store;
      });
    } finally {
      await this.close(opened);
    }
  }

  async close(stores: Iterable<Promise<OwnStore>> = this.#opened): Promise<void> {
    for (const store of stores) {
      // What a test that is still running has left is closed with the others, and once.
      if (!this.#opened.delete(store)) continue;
      const opened = await store.catch(() => undefined);
      await opened?.close();
    }
  }
}
