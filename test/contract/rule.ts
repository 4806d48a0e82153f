import type { RuleContext, ServiceRule } from '../../packages/session-contract/src/rule.js';
import type { OwnHarness, OwnStore } from '../support/harnesses/harness.js';
import { databasesOf } from '../support/servers.js';

/** A rule of contract.md and one test that holds it. */
export interface Rule {
  /** Such as `A10`. */
  rule: string;
  title: string;
  /** The databases to which it applies; all by default. */
  where?: (harness: OwnHarness) => boolean;
  test(context: OwnContext): Promise<void>;
}

export interface OwnContext extends Omit<RuleContext, keyof OwnStore>, OwnStore {
  harness: OwnHarness;
  /** A database of its own, for the test that breaks it. */
  scratch(): Promise<OwnStore>;
}

export type { EventParams } from '../../packages/session-contract/src/rule.js';

export const nameOf = ({ rule, title }: Pick<Rule, 'rule' | 'title'>) => `${rule} ${title}`;

/** A list of the tests of one section. */
export class Suite {
  readonly rules: Rule[] = [];
  /**
   * Whether they test statements and tables more than what a driver does with values and connections. Before a merge the first
   * driver of each dialect runs them, with ADK_TEST_FULL all do.
   */
  readonly isOfDialect: boolean;

  constructor({ isOfDialect = false } = {}) {
    this.isOfDialect = isOfDialect;
  }

  /** Adds the rules that the package publishes. */
  publish(rules: readonly ServiceRule[]): void {
    this.rules.push(...rules);
  }

  /** Adds a test that only this package's service takes: it needs tables, options or other methods. */
  own(rule: string, title: string, test: Rule['test'], where?: Rule['where']): void {
    this.rules.push({ rule, title, test, ...(where && { where }) });
  }
}

/** Several connections to one database, which PGlite does not have. */
export const onServers = ({ server }: OwnHarness) => server !== undefined;

/** For tests that depend only on statements and tables: other drivers of the same database would only repeat them. */
export const oncePerDialect = ({ name, dialect }: OwnHarness) => name === databasesOf(dialect)[0];

/** Databases on which a deadlock rolls back the transaction, and later statements are stored by themselves. */
export const onInnodb = ({ dialect }: OwnHarness) => dialect === 'mysql' || dialect === 'mariadb';

export const onSqlite = ({ dialect }: OwnHarness) => dialect === 'sqlite';

export const withConnections = ({ hasConnections }: OwnHarness) => hasConnections;
