import type { Sql } from '../dialects/dialect.js';
import type { Database } from './database.js';
import type { Outcome } from './retry.js';
import { RetryToken } from './retry-tokens.js';

/**
 * For a call that finds its work done by a try whose answer was lost: waits until that is where an acknowledged commit has
 * to be (contract O9). With a synchronous standby a server shows a commit that the standby may lack, once the connection is
 * gone that waited for it. A commit waits for all that come before it, if it writes, and not if it changes nothing.
 */
export async function confirm(database: Database, outcome: Outcome): Promise<void> {
  if (outcome.lostAnswer === undefined) return;
  // One for each try: nothing is repeated that a lost answer could have done already.
  const write = async (sql: Sql) => {
    const token = new RetryToken(database.tables);
    await token.set(sql);
    return token;
  };
  const token = await database.transaction(write, { outcome });
  token.end({ isCommitted: true });
}
