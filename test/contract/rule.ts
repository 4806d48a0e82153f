import type { RuleContext, ServiceRule } from '../../src/testing/rule.js';
import type { OwnHarness, OwnStore, Store } from '../support/harnesses/harness.js';

/** A rule of contract.md and one test that holds it. */
export type Rule = SharedRule | OwnRule;

interface CommonRule {
  /** Such as `A10`. */
  rule: string;
  title: string;
}

/** Holds for ADK's own services too, or is a deviation of theirs. */
export interface SharedRule extends CommonRule {
  own: false;
  test(context: Context): Promise<void>;
}

/** Needs what ADK's services don't have: tables, options, other methods. */
export interface OwnRule extends CommonRule {
  own: true;
  /** Where it applies; everywhere by default. */
  where?: (harness: OwnHarness) => boolean;
  test(context: OwnContext): Promise<void>;
}

export type Context = Store & Omit<RuleContext, keyof Store>;

export interface OwnContext extends Omit<Context, keyof Store>, OwnStore {
  harness: OwnHarness;
  /** A database of its own, for the test that breaks it. */
  scratch(): Promise<OwnStore>;
}

export type { EventParams } from '../../src/testing/rule.js';

export const nameOf = ({ rule, title }: Pick<Rule, 'rule' | 'title'>) => `${rule} ${title}`;

/** A list of the tests of one section. */
export class Suite {
  readonly rules: Rule[] = [];

  /** Adds a test that every session service takes. */
  shared(rule: string, title: string, test: SharedRule['test']): void {
    this.rules.push({ own: false, rule, title, test });
  }

  /** Adds the rules that the package publishes. */
  publish(rules: readonly ServiceRule[]): void {
    for (const { rule, title, test } of rules) this.shared(rule, title, test);
  }

  /** Adds a test that only this package's service takes. */
  own(rule: string, title: string, test: OwnRule['test'], where?: OwnRule['where']): void {
    this.rules.push({ own: true, rule, title, test, ...(where && { where }) });
  }
}

/** Several connections to one database, which PGlite does not have. */
export const onServers = ({ server }: OwnHarness) => server !== undefined;

/** What depends on statements and tables alone, and not on a driver: other drivers of the same database would repeat it. */
export const oncePerDialect = ({ name, dialect }: OwnHarness) => name === dialect;

export const onSqlite = ({ dialect }: OwnHarness) => dialect === 'sqlite';

export const withConnections = ({ hasConnections }: OwnHarness) => hasConnections;
