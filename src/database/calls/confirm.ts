import type { Database } from './database.js';
import type { Outcome } from './retry.js';

/**
 * Makes sure that a commit whose answer was lost is as durable as an acknowledged one (contract O9). With a synchronous standby, a
 * commit becomes visible when the connection that waited for the standby is lost, even if the standby lacks it. A new commit waits
 * for all earlier ones, but only if it writes: a counter, which Citus has on every node.
 */
export async function confirm(database: Database, outcome: Outcome): Promise<void> {
  if (outcome.lostAnswer === undefined) return;
  await database.transaction((sql) => sql.dialect.operations.increment(sql, 'confirmed', 1), { outcome });
}
