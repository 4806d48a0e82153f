import { UniqueConstraintViolationException } from '@mikro-orm/core';
import { randomBytes } from 'node:crypto';
import type { ErrorContext } from '../model/options.js';
import { confirm } from './confirm.js';
import type { Sql } from './dialects/dialect.js';
import type { Stores } from './stores/stores.js';
import type { AttemptOptions, Outcome, Transactions } from './transaction.js';

type OnceOptions = Pick<AttemptOptions, 'locksRowsOnly'>;

/**
 * Runs the transactions of one call, whose work must not be done again when the answer to a commit was lost: by then somebody
 * else may have written the same (contract O1). Each leaves a mark in the tables, by which the next try learns that the one
 * before was committed.
 */
export class Once {
  /** The mark of the last transaction; the next one removes it, which saves a commit. */
  #last: string | undefined;

  constructor(
    private readonly transactions: Transactions,
    private readonly stores: Stores,
    private readonly call: ErrorContext,
  ) {}

  /** @returns what the try returned that was committed. */
  async run<T>(work: (sql: Sql) => Promise<T>, options: OnceOptions = {}): Promise<T> {
    const { transactions, stores } = this;
    // In the host's transaction there is one try.
    if (transactions.isJoined) return transactions.transaction(work);
    const outcome: Outcome = {};
    const mark = randomBytes(16).toString('base64url');
    const last = this.#last;
    let isMarking = false;
    let done: { result: T } | undefined;
    const marked = async (sql: Sql) => {
      // First: it waits for the try before, should the server be at its commit still.
      isMarking = true;
      await stores.marks.set(sql, mark);
      isMarking = false;
      if (last !== undefined) await stores.marks.remove(sql, last);
      const result = await work(sql);
      done = { result };
      return result;
    };
    let result: T;
    try {
      result = await transactions.transaction(marked, { ...options, outcome });
    } catch (error) {
      // The mark is there, so the try before was committed.
      const isDone =
        isMarking && outcome.lostAnswer !== undefined && error instanceof UniqueConstraintViolationException;
      if (!isDone || !done) throw error;
      await confirm(transactions, stores, outcome);
      result = done.result;
    }
    this.#last = mark;
    return result;
  }

  /** Removes the last mark. Nothing is thrown: a mark that stays behind takes up some bytes. */
  async end(): Promise<void> {
    const { transactions, stores, call } = this;
    const last = this.#last;
    if (last === undefined) return;
    const unmarked = transactions.run((sql) => stores.marks.remove(sql, last), { retries: () => false });
    await unmarked.catch((error: unknown) => transactions.report(error, call));
  }
}

/** Runs one transaction as `Once` does. */
export async function once<T>(
  transactions: Transactions,
  stores: Stores,
  call: ErrorContext,
  work: (sql: Sql) => Promise<T>,
  options?: OnceOptions,
): Promise<T> {
  const each = new Once(transactions, stores, call);
  const result = await each.run(work, options);
  await each.end();
  return result;
}
