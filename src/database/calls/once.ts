import { UniqueConstraintViolationException } from '@mikro-orm/core';
import { randomBytes } from 'node:crypto';
import type { Sql } from '../dialects/dialect.js';
import type { ErrorContext } from '../../model/options.js';
import { confirm } from './confirm.js';
import type { Database, TransactionOptions } from './database.js';
import type { Outcome } from './retry.js';
import { removeRetryToken, setRetryToken } from './retry-tokens.js';

type OnceOptions = Pick<TransactionOptions, 'locksRowsOnly'>;

/**
 * Runs the transactions of one call, whose work must not be done again when the answer to a commit was lost: by then somebody
 * else may have written the same (contract O1). Each leaves a retry token in the tables, by which the next try learns
 * that the one before was committed.
 */
export class Once {
  readonly #database: Database;
  readonly #call: ErrorContext;
  /** The token of the last transaction; the next one removes it, which saves a commit. */
  #last: string | undefined;

  constructor(database: Database, call: ErrorContext) {
    this.#database = database;
    this.#call = call;
  }

  /** @returns what the try returned that was committed. */
  async run<T>(work: (sql: Sql) => Promise<T>, options: OnceOptions = {}): Promise<T> {
    const database = this.#database;
    // In the host's transaction there is one try.
    if (database.isJoined) return database.transaction(work);
    const outcome: Outcome = {};
    const token = randomBytes(16).toString('base64url');
    const last = this.#last;
    let isSettingToken = false;
    let done: { result: T } | undefined;
    const workWithToken = async (sql: Sql) => {
      // The token comes first: its insert waits for the try before, whose commit the server may still be at work on.
      isSettingToken = true;
      await setRetryToken(sql, token);
      isSettingToken = false;
      if (last !== undefined) await removeRetryToken(sql, last);
      const result = await work(sql);
      done = { result };
      return result;
    };
    let result: T;
    try {
      result = await database.transaction(workWithToken, { ...options, outcome });
    } catch (error) {
      // The token is there, so the try before was committed.
      const isDone =
        isSettingToken && outcome.lostAnswer !== undefined && error instanceof UniqueConstraintViolationException;
      if (!isDone || !done) throw error;
      await confirm(database, outcome);
      result = done.result;
    }
    this.#last = token;
    return result;
  }

  /** Removes the last token. It throws nothing: a token that stays behind takes up some bytes. */
  async end(): Promise<void> {
    const database = this.#database;
    const call = this.#call;
    const last = this.#last;
    if (last === undefined) return;
    const removed = database.run((sql) => removeRetryToken(sql, last), { retries: () => false });
    await removed.catch((error: unknown) => database.report(error, call));
  }
}

/** Runs one transaction as `Once` does. */
export async function once<T>(
  database: Database,
  call: ErrorContext,
  work: (sql: Sql) => Promise<T>,
  options?: OnceOptions,
): Promise<T> {
  const each = new Once(database, call);
  const result = await each.run(work, options);
  await each.end();
  return result;
}
