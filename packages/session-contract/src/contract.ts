import { APPEND_RULES } from './append-rules.js';
import { CALLER_RULES } from './caller-rules.js';
import { CannotJudge, UsageError } from './checks.js';
import { CONCURRENCY_RULES } from './concurrency-rules.js';
import { helpersOf } from './context.js';
import { DURABILITY_RULES } from './durability-rules.js';
import { EVENT_RULES } from './event-rules.js';
import { HANDLE_RULES } from './handle-rules.js';
import { JSON_RULES } from './json-rules.js';
import { KEY_RULES } from './key-rules.js';
import {
  LEVELS,
  type CommonRule,
  type DurableContext,
  type DurableRule,
  type Level,
  type ServiceHarness,
  type ServiceRule,
  type ServiceStore,
} from './rule.js';
import { SESSION_RULES } from './session-rules.js';
import { STATE_RULES } from './state-rules.js';

/** The rules that are published, in the order of docs/contract.md. */
export const SERVICE_RULES: readonly (ServiceRule | DurableRule)[] = [
  ...HANDLE_RULES,
  ...APPEND_RULES,
  ...CALLER_RULES,
  ...STATE_RULES,
  ...JSON_RULES,
  ...EVENT_RULES,
  ...SESSION_RULES,
  ...KEY_RULES,
  ...CONCURRENCY_RULES,
  // Last, since they replace the store.
  ...DURABILITY_RULES,
];

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
  /**
   * `left out`: the store lacks what the level needs, or the caller wants a lower one; of A8, the service extends the base class of
   * another copy of `@google/adk`.
   */
  result: 'held' | 'broken' | 'left out';
  /** The error, if it is broken. */
  error?: unknown;
}

/**
 * Defines a test for each rule that a session service of ADK must keep. A rule of the level `shared`
 * or `durable` passes if the store has no `another` or no `reopen`.
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
    let judged: Judged | undefined;
    before(async () => {
      judged = { store: await harness.open() };
    });
    after(async () => judged?.store.close?.());
    for (const rule of SERVICE_RULES) {
      test(`${rule.rule} ${rule.title}`, async () => {
        const opened = judged;
        if (!opened) throw new Error('The store of the service was not opened.');
        if (!allows(opened.store, rule.level)) return;
        const { result, error } = await verdictOf(rule, () => rule.test(contextOf(opened)));
        if (result === 'broken') throw error;
      });
    }
  });
}

export interface CheckOptions {
  /** The highest level to check. By default, all levels that the store can be checked for. */
  level?: Level;
}

/**
 * Judges a session service without a test framework.
 *
 * @param harness how to open the service.
 * @returns the result of each rule, in the order of docs/contract.md.
 * @throws RangeError if there is no such level, or the store lacks what its rules need; and errors of opening or closing the store.
 */
export async function checkSessionService(harness: ServiceHarness, { level }: CheckOptions = {}): Promise<Verdict[]> {
  if (level !== undefined && !LEVELS.includes(level))
    throw new UsageError(`level must be one of ${LEVELS.join(', ')}.`);
  const judged: Judged = { store: await harness.open() };
  try {
    const wanted = LEVELS.slice(0, level === undefined ? undefined : LEVELS.indexOf(level) + 1);
    const lacking = level && wanted.find((each) => !allows(judged.store, each));
    if (lacking !== undefined)
      throw new UsageError(
        `The rules of the level ${lacking} need ${NEEDED[lacking] ?? ''} of what open() returns. Or choose a lower level.`,
      );
    const verdicts: Verdict[] = [];
    for (const rule of SERVICE_RULES)
      verdicts.push(
        await verdictOf(
          rule,
          wanted.includes(rule.level) && allows(judged.store, rule.level)
            ? () => rule.test(contextOf(judged))
            : undefined,
        ),
      );
    return verdicts;
  } finally {
    await judged.store.close?.();
  }
}

/** @param test left out if the rule is not judged. */
export async function verdictOf(
  { rule, title, level }: CommonRule & { level: Level },
  test?: () => Promise<void>,
): Promise<Verdict> {
  const described = { rule, title, level };
  if (!test) return { ...described, result: 'left out' };
  try {
    await test();
    return { ...described, result: 'held' };
  } catch (error) {
    if (error instanceof CannotJudge) return { ...described, result: 'left out' };
    return { ...described, result: 'broken', error };
  }
}

/** What the rules of a level need of the store besides the service. */
const NEEDED: Record<Level, keyof ServiceStore | undefined> = {
  every: undefined,
  shared: 'another',
  durable: 'reopen',
};

function allows(store: ServiceStore, level: Level): boolean {
  const needed = NEEDED[level];
  return needed === undefined || store[needed] !== undefined;
}

/** The store, until a rule has opened it again. */
interface Judged {
  store: ServiceStore;
}

function contextOf(judged: Judged): DurableContext {
  const { service, another = service } = judged.store;
  return {
    service,
    another,
    ...helpersOf(service, another),
    stored: (key) => another.getSession(key),
    reopen: async (how) => {
      const store = await judged.store.reopen?.(how);
      if (!store) throw new Error('There is no reopen() in what open() returned.');
      judged.store = store;
      return store.service;
    },
  };
}
