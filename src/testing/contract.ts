import { InvalidArgumentError } from '../model/errors.js';
import { helpersOf } from './context.js';
import {
  LEVELS,
  type Level,
  type RuleContext,
  type ServiceHarness,
  type ServiceRule,
  type ServiceStore,
} from './rule.js';
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
  /** `left out`: the store lacks what the level needs, or the caller wants a lower one. */
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
        if (allows(store, rule.level)) await rule.test(contextOf(store));
      });
    }
  });
}

/** What `checkSessionService` judges by. */
export interface CheckOptions {
  /** The rules of this level and of those before it. By default it is all that the store has what they need for. */
  level?: Level;
}

/**
 * Judges a session service without a test framework.
 *
 * @param harness how to open the service.
 * @returns what became of each rule, in the order of docs/contract.md.
 * @throws InvalidArgumentError when the store lacks what the rules of the level need, and what opening or closing it throws.
 */
export async function checkSessionService(harness: ServiceHarness, { level }: CheckOptions = {}): Promise<Verdict[]> {
  if (level !== undefined && !LEVELS.includes(level))
    throw new InvalidArgumentError(`level has to be one of ${LEVELS.join(', ')}.`);
  const store = await harness.open();
  try {
    const wanted = LEVELS.slice(0, level === undefined ? undefined : LEVELS.indexOf(level) + 1);
    const lacking = level && wanted.find((each) => !allows(store, each));
    if (lacking !== undefined)
      throw new InvalidArgumentError(
        `The rules of the level ${lacking} need ${NEEDED[lacking] ?? ''} of what open() returns. Or choose a lower level.`,
      );
    const verdicts: Verdict[] = [];
    for (const rule of SERVICE_RULES)
      verdicts.push(
        wanted.includes(rule.level) && allows(store, rule.level)
          ? await verdictOf(rule, store)
          : { ...described(rule), result: 'left out' },
      );
    return verdicts;
  } finally {
    await store.close?.();
  }
}

async function verdictOf(rule: ServiceRule, store: ServiceStore): Promise<Verdict> {
  try {
    await rule.test(contextOf(store));
    return { ...described(rule), result: 'held' };
  } catch (error) {
    return { ...described(rule), result: 'broken', error };
  }
}

const described = ({ rule, title, level }: ServiceRule) => ({ rule, title, level });

/** What the rules of a level need of the store besides the service. */
const NEEDED: Record<Level, keyof ServiceStore | undefined> = { every: undefined, shared: 'another' };

function allows(store: ServiceStore, level: Level): boolean {
  const needed = NEEDED[level];
  return needed === undefined || store[needed] !== undefined;
}

function contextOf({ service, another = service }: ServiceStore): RuleContext {
  return { service, another, ...helpersOf(service, another), stored: (key) => another.getSession(key) };
}
