import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { chmod, chown, mkdtemp } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';

export const hasProgram = (name: string) => spawnSync('which', [name]).status === 0;

/** The folder with the programs of Debian's newest installed PostgreSQL, or of the one on the path. */
export const postgresqlFolder = (() => {
  const folder = '/usr/lib/postgresql';
  try {
    const [newest] = readdirSync(folder).sort((a, b) => Number(b) - Number(a));
    if (newest !== undefined) return `${folder}/${newest}/bin/`;
  } catch {
    // Not Debian.
  }
  return hasProgram('initdb') && hasProgram('pg_basebackup') ? '' : undefined;
})();

/** A program and its first arguments. */
export type Command = readonly [program: string, ...args: string[]];

/** A package that `scripts/test-servers.sh` has unpacked without installing it. */
export class Unpacked {
  readonly folder: string;
  readonly #program: string;

  /** @param program its path in the folder, which also has its libraries. */
  constructor(name: string, program: string) {
    const ofUser = process.getuid?.() === 0 ? '/var/cache' : path.join(homedir(), '.cache');
    this.folder = path.join(process.env.XDG_CACHE_HOME ?? ofUser, 'adk-mikro-orm', name);
    this.#program = path.join(this.folder, program);
  }

  get isThere(): boolean {
    return existsSync(this.#program);
  }

  /** @param more folders with libraries of its own. */
  command(...more: string[]): Command {
    const libraries = [`${this.folder}/usr/lib/x86_64-linux-gnu`, ...more];
    return [`${this.folder}/usr/lib64/ld-linux-x86-64.so.2`, '--library-path', libraries.join(':'), this.#program];
  }
}

/** The account that a server runs as, since it refuses to run as root. Empty if this process is not root's. */
export function accountOf(name: string): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const id = (which: string) => Number(execFileSync('id', [which, name], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

/** A folder that servers of this account may write to. */
export async function serverFolder(name: string, account: string): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), `adk-${name}-`));
  const { uid, gid } = accountOf(account);
  if (uid !== undefined && gid !== undefined) await chown(folder, uid, gid);
  await chmod(folder, 0o755);
  return folder;
}

/** `describe`, or `describe.skip` by a name that says what is missing. */
export function describeWith(missing: string | undefined, name: string, suite: () => void): void {
  if (missing === undefined) describe(name, suite);
  else describe.skip(`${name} (skipped: ${missing})`, suite);
}
