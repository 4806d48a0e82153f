import type { Driver } from '../drivers/driver.js';
import type { StoredTexts } from '../../model/stored-texts.js';
import { numberOf } from './row-values.js';
import type { SentContext, Statements } from './statements.js';

/** Runs statements with bound values, in the transaction that it was made for, if any. */
export interface Sql {
  /** Decodes and encodes what the statements read and write. */
  readonly texts: StoredTexts;
  readonly isInTransaction: boolean;
  /** Whether the transaction is a host's, which may have read before. */
  readonly isJoined: boolean;
  /** @returns the rows. */
  all<Row extends object>(text: string, values?: readonly unknown[]): Promise<Row[]>;
  /** @returns how many rows matched, and the number that MySQL's `last_insert_id(…)` returned. */
  run(text: string, values?: readonly unknown[]): Promise<{ affectedRows: number; insertId: number }>;
}

/** Runs statements, with the retries of the caller. */
export type Run = <T>(work: (sql: Sql) => Promise<T>) => Promise<T>;

/** What statements have to know of the call that sends them. */
interface SqlContext extends Omit<SentContext, 'wants'> {
  texts: StoredTexts;
  /** What each statement begins with; see `clusterPrefix`. */
  prefix: string;
}

export function sqlOf(statements: Statements, driver: Driver, context: SqlContext): Sql {
  const { texts, isInTransaction, prefix, refuse } = context;
  return {
    texts,
    isInTransaction,
    isJoined: refuse !== undefined,
    async all<Row extends object>(text: string, values: readonly unknown[] = []) {
      const { rows } = await statements.send(driver, prefix + text, values, { ...context, wants: 'rows' });
      // Each statement is written for the columns of its `Row`; `row-values.ts` checks their values.
      return rows as Row[];
    },
    async run(text, values = []) {
      const sent = statements.send(driver, prefix + text, values, { ...context, wants: 'change' });
      const { affectedRows, insertId } = await sent;
      return { affectedRows: wholeNumber(affectedRows), insertId: wholeNumber(insertId ?? 0) };
    },
  };
}

/** Above 2^53 a driver would have rounded it. */
function wholeNumber(value: unknown): number {
  const number = numberOf(value);
  if (!Number.isSafeInteger(number)) throw new Error(`The driver gave ${typeof value} where a number should be`);
  return number;
}
