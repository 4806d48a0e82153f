import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, rmdirSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** How many bytes are written at once: smaller pieces fill the rest. */
const PIECES = [1024 * 1024, 4096, 1];

/** Whether a disk can be made for a test: on Linux, as root. */
export const hasSmallDisk = (() => {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false;
  const folder = mkdtempSync(path.join(tmpdir(), 'adk-disk-'));
  const isMounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder]).status === 0;
  if (isMounted) execFileSync('umount', [folder]);
  rmdirSync(folder);
  return isMounted;
})();

/** A disk that a test can fill. */
export class SmallDisk {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'adk-disk-'));
  readonly #ballast = path.join(this.folder, 'ballast');

  constructor(megabytes: number) {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=0777`, 'tmpfs', this.folder]);
  }

  /** Takes all the space that is left. */
  fill(): void {
    const file = openSync(this.#ballast, 'a');
    for (const size of PIECES) {
      const piece = Buffer.alloc(size);
      try {
        // A partial write counts.
        for (;;) writeSync(file, piece);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    }
    closeSync(file);
  }

  empty(): void {
    rmSync(this.#ballast, { force: true });
  }

  remove(): void {
    execFileSync('umount', ['--lazy', this.folder]);
    rmdirSync(this.folder);
  }
}
