import type { Sql } from '../dialects/dialect.js';
import { confirm } from './confirm.js';
import type { Database, TransactionOptions } from './database.js';
import { isDuplicate } from './failure-of.js';
import type { Outcome } from './retry.js';
import { RetryToken } from './retry-tokens.js';

/**
 * Runs a transaction that must not be repeated if the answer to its commit was lost, since somebody else may have written since
 * (contract O1). It leaves a retry token in the tables, from which a retry learns that the earlier attempt was committed.
 *
 * @returns the result of the attempt that was committed.
 */
export async function once<T>(
  database: Database,
  work: (sql: Sql) => Promise<T>,
  options: Pick<TransactionOptions, 'locksRowsOnly'> = {},
): Promise<T> {
  // In the host's transaction there is one attempt.
  if (database.isJoined) return database.transaction(work);
  const outcome: Outcome = {};
  const token = new RetryToken(database.tables);
  let isSettingToken = false;
  let done: { result: T } | undefined;
  const workWithToken = async (sql: Sql) => {
    const setting = token.set(sql);
    if (outcome.lostAnswer !== undefined) {
      // The token comes first: if the server is still committing the earlier attempt, setting the token waits for it.
      isSettingToken = true;
      await setting;
      isSettingToken = false;
    }
    // Otherwise no attempt can have set it, and it travels with the first statements. The work may throw before it waits.
    setting.catch(() => undefined);
    const [result] = await Promise.all([work(sql), setting]);
    done = { result };
    return result;
  };
  let result: T;
  try {
    result = await database.transaction(workWithToken, { ...options, outcome });
  } catch (error) {
    // The token is there, so the earlier attempt was committed.
    const isDone = isSettingToken && outcome.lostAnswer !== undefined && isDuplicate(error);
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

/** Like `once`, and locks only rows, not the gaps between them, where others write. */
export const onceOnRows = <T>(database: Database, work: (sql: Sql) => Promise<T>) =>
  once(database, work, { locksRowsOnly: true });
