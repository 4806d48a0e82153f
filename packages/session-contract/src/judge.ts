import { randomBytes } from 'node:crypto';
import { verdictOf, type Verdict } from './contract.js';
import type { CommonRule, Level } from './rule.js';

interface Store<Service> {
  service: Service;
  another?: Service;
  close?(): Promise<void>;
}

interface Rule<Service> extends CommonRule {
  level: Exclude<Level, 'durable'>;
  test(this: void, context: { service: Service; another: Service; app: string }): Promise<void>;
}

/** Judges an artifact or a memory service. @throws what opening or closing the store throws. */
export async function judge<Service>(
  harness: { open(): Promise<Store<Service>> },
  rules: readonly Rule<Service>[],
): Promise<Verdict[]> {
  const store = await harness.open();
  const { service, another = service } = store;
  const verdicts: Verdict[] = [];
  try {
    for (const rule of rules) {
      const isLeftOut = rule.level === 'shared' && !store.another;
      // A store that is used again has what earlier runs have left.
      const context = { service, another, app: `app-${randomBytes(5).toString('hex')}` };
      verdicts.push(await verdictOf(rule, isLeftOut ? undefined : () => rule.test(context)));
    }
    return verdicts;
  } finally {
    await store.close?.();
  }
}
