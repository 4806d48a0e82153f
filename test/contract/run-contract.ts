import { LogLevel, setLogLevel } from '@google/adk';
import { helpersOf } from '../../src/testing/context.js';
import { HARNESSES } from '../support/harnesses/index.js';
import type { Harness, OwnStore, Store } from '../support/harnesses/harness.js';
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

  // ADK's database service loses some races now and then, which is its matter; ours may not lose any.
  if (!harness.own) jest.retryTimes(3);

  describe(harness.name, () => {
    let store: Store;
    // What ADK's services and MikroORM print of the failures that are expected of them is no result of these tests.
    if (!harness.own) {
      beforeAll(() => {
        setLogLevel(LogLevel.ERROR);
        jest.spyOn(console, 'error').mockReturnValue();
      });
      afterAll(() => jest.restoreAllMocks());
    }
    beforeAll(async () => {
      store = await harness.open();
    });
    afterAll(() => store.close());

    for (const rule of suites.flatMap(({ rules }) => rules)) defineTest(harness, rule, () => store);
  });
}

function defineTest(harness: Harness, rule: Rule, store: () => Store): void {
  const name = nameOf(rule);
  if (harness.own) {
    if (rule.own && rule.where && !rule.where(harness)) return;
    test(name, () =>
      withScratch(harness.open, async (scratch) => {
        const ownStore = store() as OwnStore;
        await rule.test({ ...ownStore, ...helpersOf(ownStore.service, ownStore.another), harness, scratch });
      }),
    );
    return;
  }
  if (rule.own) return;
  const run = async () => {
    try {
      await rule.test({ ...store(), ...helpersOf(store().service, store().another) });
    } finally {
      await store().settle?.();
    }
  };
  const deviation = harness.deviations[name] ?? harness.races[name];
  if (deviation === undefined) test(name, run);
  else test(`${name} — not here: ${deviation}`, () => expectFailure(run, name in harness.races ? MOST_RACES : 1));
}

/** A race is lost sooner or later. */
const MOST_RACES = 30;

async function expectFailure(run: () => Promise<void>, attempts: number): Promise<void> {
  for (let attempt = 1; attempt <= attempts; attempt++) {
    try {
      await run();
    } catch {
      return;
    }
  }
  throw new Error('This holds now: take it from the deviations');
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
