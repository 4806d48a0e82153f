import type { Driver, StatementContext } from '../drivers/driver.js';
import type { StoredTexts } from '../../model/stored-texts.js';
import { after, isPromise } from '../../model/maybe-promise.js';
import { LastUsed } from '../../model/last-used.js';
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
export interface SqlContext extends Omit<StatementContext, 'wants'> {
  texts: StoredTexts;
  /** Whether the database is in this process. */
  isInProcess: boolean;
  /** What each statement begins with; see `clusterPrefix`. */
  prefix: string;
  /** Called before each statement; what it throws is thrown instead of sending it. */
  refuse?: () => void;
  /** Whether the settings were checked in the transaction before. */
  isChecked?: boolean;
}

/**
 * A value in whose place a statement checks the settings of the connection (contract O7): one of a condition or of a row to
 * insert, so that the check comes before anything is written.
 */
class CheckingValue {
  constructor(readonly value: string | number) {}
}

/** Has a statement check the settings where this value is. In a transaction the first statement with values needs one, outside of it each. */
export function checking(value: string | number): unknown {
  return new CheckingValue(value);
}

/** Expressions that check the connection's settings, and fail where one is refused (contract O7). */
export interface CheckExpressions {
  /** Its value is that of its `?`. The database treats it as a constant, and uses the same indexes. */
  readonly around: string;
  /** The same for a statement whose values are whole numbers. Left out where types don't matter. */
  readonly aroundNumber?: string;
}

export function sqlOf(statements: Statements, driver: Driver, check: CheckExpressions, context: SqlContext): Sql {
  const { texts, isInTransaction, isInProcess, prefix, refuse } = context;
  // Once is enough in a transaction; outside, a pooler may send each statement to another connection of the server.
  let { isChecked = false } = context;
  const forRows: StatementContext = { ...context, wants: 'rows' };
  const forChange: StatementContext = { ...context, wants: 'change' };
  const sendNow = (given: string, values: readonly unknown[], as: StatementContext) => {
    refuse?.();
    const text = isChecked || values.length === 0 || driver.hasRightSettings ? given : checked(check, given, values);
    if (isInTransaction && values.length > 0) isChecked = true;
    const plain = values.map((value) => (value instanceof CheckingValue ? value.value : value));
    return statements.send(driver, prefix + text, plain, as);
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

const MOST_TEXTS = 1_000;

const checkedTexts = new WeakMap<CheckExpressions, LastUsed<string>>();

/** @throws TypeError for a statement that has no value to check the settings with. */
function checked(check: CheckExpressions, text: string, values: readonly unknown[]): string {
  let texts = checkedTexts.get(check);
  if (!texts) checkedTexts.set(check, (texts = new LastUsed(MOST_TEXTS)));
  return texts.get(text, () => {
    const position = values.findIndex((value) => value instanceof CheckingValue);
    const value = values[position];
    if (!(value instanceof CheckingValue)) throw new TypeError('The statement does not check the settings.');
    const { around, aroundNumber = around } = check;
    return withCheck(text, position, typeof value.value === 'number' ? aroundNumber : around);
  });
}

function withCheck(text: string, position: number, around: string): string {
  let at = -1;
  for (let i = 0; i <= position; i++) at = text.indexOf('?', at + 1);
  return text.slice(0, at) + around + text.slice(at + 1);
}
