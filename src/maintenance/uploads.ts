import type { ArtifactKey } from '../artifacts/stored-version.js';
import { ABANDONED_MS, abandonedUploads, dropUpload } from '../artifacts/uploads.js';
import type { DeletionRun } from './deletion-run.js';

/**
 * Removes what is left of saves from streams that nobody will end, of an app or of one user in it: each in a transaction of its own.
 *
 * @param now by the database's clock, in ms.
 */
export async function removeUploads(
  { read, write, batches }: DeletionRun,
  appName: string,
  userId: string | undefined,
  now: number,
): Promise<void> {
  const since = now - ABANDONED_MS;
  let after: ArtifactKey | undefined;
  do {
    const page = await read((sql) => abandonedUploads(sql, { appName, userId }, since, after));
    if (batches.isDryRun) batches.count({ uploads: page.uploads.length });
    for (const upload of batches.isDryRun ? [] : page.uploads) {
      if (!(await batches.mayBegin())) return;
      const isRemoved = await write((sql) => dropUpload(sql, upload, since));
      batches.add({ uploads: isRemoved ? 1 : 0 });
    }
    after = page.last;
    // A signal ends the walk, also if there is nothing to remove.
  } while (after && (await batches.mayBegin()));
}
