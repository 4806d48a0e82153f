import type { OwnedRows } from '../owned/owned-rows.js';
import { dropUnwrittenPages } from '../log/stored-projections.js';
import { UserNotErasedError } from '../model/errors.js';
import type { MaintenanceResult } from '../model/results.js';
import type { DeletionRun } from './deletion-run.js';
import type { EraseUserOptions } from './options.js';
import { WholeSessions } from './whole-sessions.js';

/** See `SessionMaintenance.eraseUser`. */
export async function eraseUser<Kind extends string>(
  run: DeletionRun<Kind>,
  { appName, userId }: EraseUserOptions,
  kinds: readonly OwnedRows[],
): Promise<MaintenanceResult<'sessions' | 'events' | Kind>> {
  const { batches } = run;
  const erase = async (areFirst: boolean) => {
    for (const kind of kinds)
      if ((kind.rows?.precedeSessions ?? false) === areFirst) await run.deleteRows(kind, { appName, userId });
  };
  const result = await run.run(
    () => batches.result,
    async () => {
      await erase(true);
      await run.walk(new WholeSessions(run, () => true), { appName, userId, by: 'key' });
      // A projection may add memories while sessions exist, and those of sessions that it has read before.
      if (!batches.isDryRun && (await batches.mayBegin())) await run.write(dropUnwrittenPages);
      await erase(false);
    },
  );
  // If there is more to do, the next call finds the skipped sessions again.
  if (result.skipped > 0 && !result.more && !batches.isDryRun) throw new UserNotErasedError(result);
  return result;
}
