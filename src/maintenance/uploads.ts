import { ABANDONED_MS, abandonedUploads, artifactPage, dropUpload, type WalkedArtifact } from '../artifacts/uploads.js';
import { pagesOf } from '../model/pages.js';
import type { DeletionRun } from './deletion-run.js';

/** How many artifacts one query reads. */
const PAGE = 1_000;

/**
 * Removes abandoned saves from streams, of an app or of one user in it, each in a transaction of its own.
 *
 * @param now by the database's clock, in ms.
 */
export async function removeUploads(
  { read, write, batches }: DeletionRun,
  owner: { appName: string; userId: string | undefined },
  now: number,
): Promise<void> {
  const since = now - ABANDONED_MS;
  const pages = pagesOf<WalkedArtifact>(PAGE, (last) => read((sql) => artifactPage(sql, owner, last?.key, PAGE)));
  for await (const page of pages) {
    for (const { key } of page.filter(({ hasUpload }) => hasUpload)) {
      const uploads = await read((sql) => abandonedUploads(sql, key, since));
      if (batches.isDryRun) batches.count({ uploads: uploads.length });
      for (const upload of batches.isDryRun ? [] : uploads) {
        if (!(await batches.mayBegin())) return;
        const isRemoved = await write((sql) => dropUpload(sql, upload, since));
        batches.add({ uploads: isRemoved ? 1 : 0 });
      }
    }
    // Asks on each page, so that a signal ends the walk even if it finds nothing.
    if (page.length === PAGE && !(await batches.mayBegin())) return;
  }
}
