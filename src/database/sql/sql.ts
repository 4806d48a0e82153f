import type { Driver, StatementContext } from '../drivers/driver.js';
import type { StoredTexts } from '../../model/stored-texts.js';
import { after, isPromise } from '../../model/maybe-promise.js';
import { numberOf } from './row-values.js';
import type { Statements } from './statements.js';
import { turnOfEventLoop } from './event-loop.js';

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
interface SqlContext extends Omit<StatementContext, 'wants'> {
  texts: StoredTexts;
  /** Whether the database is in this process. */
  isInProcess: boolean;
  /** What each statement begins with; see `clusterPrefix`. */
  prefix: string;
  /** Called before each statement; what it throws is thrown instead of sending it. */
  refuse?: (() => void) | undefined;
}

export function sqlOf(statements: Statements, driver: Driver, context: SqlContext): Sql {
  const { texts, isInTransaction, isInProcess, prefix, refuse } = context;
  const forRows: StatementContext = { ...context, wants: 'rows' };
  const forChange: StatementContext = { ...context, wants: 'change' };
  const sendNow = (text: string, values: readonly unknown[], as: StatementContext) => {
    refuse?.();
    return statements.send(driver, prefix + text, values, as);
  };
  const send = (text: string, values: readonly unknown[], as: StatementContext) =>
    after(isInProcess ? turnOfEventLoop() : undefined, () => sendNow(text, values, as));
  return {
    texts,
    isInTransaction,
    isJoined: refuse !== undefined,
    async all<Row extends object>(text: string, values: readonly unknown[] = []) {
      const sent = send(text, values, forRows);
      // Each statement is written for the columns of its `Row`; `row-values.ts` checks their values.
      return (isPromise(sent) ? await sent : sent).rows as Row[];
    },
    async run(text, values = []) {
      const sent = send(text, values, forChange);
      const { affectedRows, insertId } = isPromise(sent) ? await sent : sent;
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
