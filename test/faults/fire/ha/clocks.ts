import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Debian: faketime. The library for programs with threads. */
const library = ['x86_64-linux-gnu', 'aarch64-linux-gnu']
  .map((architecture) => `/usr/lib/${architecture}/faketime/libfaketimeMT.so.1`)
  .find((file) => existsSync(file));

export const hasFaketime = library !== undefined;

/** Where the library keeps the memory that its processes share. */
const SHARED = '/dev/shm';

/** A clock that can be set while processes use it. */
export class JumpingClock {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async create(): Promise<JumpingClock> {
    const clock = new JumpingClock(await mkdtemp(path.join(tmpdir(), 'adk-clock-')));
    await clock.jump(0);
    return clock;
  }

  /** The environment that makes a process use it. */
  get env(): NodeJS.ProcessEnv {
    return {
      ...process.env,
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: this.#file,
      FAKETIME_NO_CACHE: '1',
      // A real monotonic clock never goes back, and Node.js aborts if it does.
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      NO_FAKE_STAT: '1',
    };
  }

  /** @param hours how far it is ahead of the true time from now on. */
  async jump(hours: number): Promise<void> {
    const next = `${this.#file}.next`;
    await writeFile(next, `${hours < 0 ? '-' : '+'}${Math.abs(hours)}h\n`);
    // Renamed, so that nobody reads half a file.
    await rename(next, this.#file);
  }

  async remove(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true });
    // A killed process leaves its shared memory behind.
    for (const name of await readdir(SHARED)) {
      const [, pid] = /^(?:sem\.)?faketime_(?:sem|shm)_(\d+)$/.exec(name) ?? [];
      if (pid !== undefined && !existsSync(`/proc/${pid}`)) await rm(path.join(SHARED, name), { force: true });
    }
  }

  get #file(): string {
    return path.join(this.#folder, 'offset');
  }
}
