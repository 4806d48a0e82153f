import { helpersOf } from './context.js';
import type { Level, RuleContext, ServiceHarness, ServiceRule, ServiceStore } from './rule.js';
import { STATE_RULES } from './state-rules.js';

/** The rules that are published. */
export const SERVICE_RULES: readonly ServiceRule[] = [...STATE_RULES];

/** The functions of a test framework: those of jest and Vitest, or of `node:test`. */
export type TestGlobals = {
  describe(this: void, name: string, define: () => void): unknown;
} & (
  | { test(this: void, name: string, run: () => Promise<void>): unknown }
  | { it(this: void, name: string, run: () => Promise<void>): unknown }
) &
  (
    | {
        beforeAll(this: void, run: () => Promise<void>): unknown;
        afterAll(this: void, run: () => Promise<void>): unknown;
      }
    | { before(this: void, run: () => Promise<void>): unknown; after(this: void, run: () => Promise<void>): unknown }
  );

/** Whether a service keeps a rule. */
export interface Verdict {
  /** Such as `A10`. */
  rule: string;
  title: string;
  level: Level;
  /** `left out`: the harness has no other service, or the caller wants no more. */
  result: 'held' | 'broken' | 'left out';
  /** What was thrown where it is broken. */
  error?: unknown;
}

/**
 * Defines a test for each rule that a session service of ADK must keep. A rule of the level `shared` has a test where the store
 * has `another`.
 *
 * ```ts
 * import { after, before, describe, test } from 'node:test';
 * describeSessionServiceContract({ name: 'MyService', open: async () => ({ service: new MyService() }) }, { describe, test, before, after });
 * ```
 *
 * @param harness how to open the service.
 * @param globals of jest, Vitest or `node:test`.
 */
export function describeSessionServiceContract(harness: ServiceHarness, globals: TestGlobals): void {
  const test = 'test' in globals ? globals.test : globals.it;
  const [before, after] =
    'beforeAll' in globals ? [globals.beforeAll, globals.afterAll] : [globals.before, globals.after];
  globals.describe(harness.name, () => {
    let store: ServiceStore | undefined;
    before(async () => {
      store = await harness.open();
    });
    after(async () => store?.close?.());
    for (const rule of SERVICE_RULES) {
      test(`${rule.rule} ${rule.title}`, async () => {
        if (!store) throw new Error('The store of the service was not opened.');
        if (applies(rule, store)) await rule.test(contextOf(store));
      });
    }
  });
}

/**
 * Judges a session service without a test framework.
 *
 * @param harness how to open the service.
 * @returns what became of each rule, in the order of docs/contract.md.
 * @throws what opening or closing the store throws.
 */
export async function checkSessionService(harness: ServiceHarness): Promise<Verdict[]> {
  const store = await harness.open();
  try {
    const verdicts: Verdict[] = [];
    for (const rule of SERVICE_RULES) verdicts.push(await verdictOf(rule, store));
    return verdicts;
  } finally {
    await store.close?.();
  }
}

async function verdictOf(rule: ServiceRule, store: ServiceStore): Promise<Verdict> {
  const { rule: number, title, level } = rule;
  const of = { rule: number, title, level };
  if (!applies(rule, store)) return { ...of, result: 'left out' };
  try {
    await rule.test(contextOf(store));
    return { ...of, result: 'held' };
  } catch (error) {
    return { ...of, result: 'broken', error };
  }
}

const applies = ({ level }: ServiceRule, { another }: ServiceStore) => level === 'every' || another !== undefined;

function contextOf({ service, another = service }: ServiceStore): RuleContext {
  return { service, another, ...helpersOf(service, another), stored: (key) => another.getSession(key) };
}
