import type { Sql } from '../dialects/dialect.js';
import type { Database } from './database.js';
import type { Outcome } from './retry.js';
import { RetryToken } from './retry-tokens.js';

/**
 * Makes sure that a commit whose answer was lost is as durable as an acknowledged one (contract O9). With a synchronous standby, a
 * commit becomes visible when the connection that waited for the standby is lost, even if the standby lacks it. A new commit waits
 * for all earlier ones, but only if it writes.
 */
export async function confirm(database: Database, outcome: Outcome): Promise<void> {
  if (outcome.lostAnswer === undefined) return;
  // Each attempt has its own token, so none can meet the row of an attempt whose answer was lost.
  const write = async (sql: Sql) => {
    const token = new RetryToken(database.tables);
    await token.set(sql);
    return token;
  };
  const token = await database.transaction(write, { outcome });
  token.end({ isCommitted: true });
}
