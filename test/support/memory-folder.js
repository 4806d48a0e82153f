import { accessSync, constants, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';

const MEMORY = '/dev/shm';
const ROOM = 2 ** 30;

/**
 * The folder for the databases of a test run: in memory if there is room, since on a slow disk tests mostly wait for commits.
 *
 * @returns {string}
 */
export function memoryFolder() {
  try {
    accessSync(MEMORY, constants.W_OK);
    const { bavail, bsize } = statfsSync(MEMORY);
    if (bavail * bsize >= ROOM) return MEMORY;
  } catch {
    // Not Linux, or a container without it.
  }
  return tmpdir();
}
