import type { SqlRunner, Sql } from '../database/dialects/dialect.js';
import { anything, rule, type Checks } from '../model/arguments.js';
import { MOST_LEVELS } from '../model/json.js';
import { MAX_SEQ } from '../model/seq-ranges.js';

/** What an import does with what is here. */
export interface ImportRules {
  /** What happens to a session that is here. */
  onExisting: 'skip' | 'replace' | 'error';
  /** Whether to replace sessions to which somebody has written here since their import. */
  force: boolean;
  /** Whether the records come from another store, so that an unchanged session has the same numbers and times. */
  isOfOtherStore: boolean;
  /** Whether existing values of apps and users stay. */
  sharedState: 'overwrite' | 'keep';
}

/** An import, as each kind sees it. */
export interface ImportRun {
  readonly rules: ImportRules;
  /** How many rows one transaction writes at most. */
  readonly batchSize: number;
  /** Runs statements that only read. */
  readonly read: SqlRunner;
  /** Runs a transaction. @returns undefined in a dry run, which only counts it. */
  write<T>(work: (sql: Sql) => Promise<T>): Promise<T | undefined>;
  /** Adds to what is done, or to what was left as it is. */
  count(what: 'sessions' | 'events' | 'artifactVersions' | 'memories' | 'skipped', number: number): void;
}

/** Writes the records of one kind in their order. */
export interface RecordWriter {
  /** The types of its records. */
  readonly types: readonly string[];
  /**
   * Checks a record without writing anything.
   *
   * @param name what an error calls it.
   * @returns what writes it, or keeps it until it can be written with others. It throws InvalidArgumentError for a record that is out of
   *   order.
   * @throws InvalidArgumentError, InvalidKeyError or UnserializableValueError for what cannot be stored.
   */
  check(record: { type: string }, name: string): () => Promise<void>;
  /**
   * Writes what is not written yet, before records of another kind. Absent if each record is written when it comes.
   *
   * @throws InvalidArgumentError if records are missing.
   */
  end?(): Promise<void>;
  /** Forgets everything that is not written yet. */
  drop?(): void;
}

export const wholeFrom = (least: number, most = MAX_SEQ) =>
  rule(
    `a whole number from ${least} to ${most}`,
    (value) => Number.isInteger(value) && Number(value) >= least && Number(value) <= most,
  );

/** Checks of what each record has. The names are checked as keys. */
export const inRecord: Checks<{ type: string; appName: string; userId: string; sessionId: string }> = {
  ...{ type: anything, appName: anything, userId: anything, sessionId: anything },
};

/** Two levels more than a value: the change, and its object of state. */
export const RECORDED_LEVELS = MOST_LEVELS + 2;
