import { UniqueConstraintViolationException } from '@mikro-orm/core';
import type { Sql } from '../dialects/dialect.js';
import { confirm } from './confirm.js';
import type { Database, TransactionOptions } from './database.js';
import type { Outcome } from './retry.js';
import { RetryToken } from './retry-tokens.js';

/**
 * Runs a transaction whose work must not be done again when the answer to its commit was lost: by then somebody else may have
 * written the same (contract O1). It leaves a retry token in the tables, by which the next try learns that the one before was
 * committed.
 *
 * @returns what the try returned that was committed.
 */
export async function once<T>(
  database: Database,
  work: (sql: Sql) => Promise<T>,
  options: Pick<TransactionOptions, 'locksRowsOnly'> = {},
): Promise<T> {
  // In the host's transaction there is one try.
  if (database.isJoined) return database.transaction(work);
  const outcome: Outcome = {};
  const token = new RetryToken(database.tables);
  let isSettingToken = false;
  let done: { result: T } | undefined;
  const workWithToken = async (sql: Sql) => {
    // The token comes first: it waits for the try before, whose commit the server may still be at work on.
    isSettingToken = true;
    await token.set(sql);
    isSettingToken = false;
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
    if (!isDone || !done) {
      if (outcome.lostAnswer === undefined) token.end({ isCommitted: false });
      throw error;
    }
    await confirm(database, outcome);
    result = done.result;
  }
  token.end({ isCommitted: true });
  return result;
}
