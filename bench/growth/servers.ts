import { execFile } from 'node:child_process';
import { mkdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import { start, stop } from '../../test/support/run-servers.js';
import { serverUrl, urlVariable } from '../../test/support/run.js';

const SCRIPT = fileURLToPath(new URL('../../scripts/test-servers.sh', import.meta.url));

/** Servers that the script starts; PostgreSQL comes with `npm ci`. */
const SCRIPTED = ['mysql', 'mariadb'] as const;

/**
 * Starts the servers that no URL names, durable, with their data in a folder on a disk.
 *
 * @returns a function that stops them; the data stays.
 */
export async function startDurable(databases: readonly string[], folder: string): Promise<() => Promise<void>> {
  process.env['ADK_TEST_DATABASES'] = databases.join();
  process.env['ADK_TEST_DURABLE'] = folder;
  await mkdir(folder, { recursive: true });
  const started: string[] = [];
  const end = async () => {
    await stop();
    for (const name of started) await stopScripted(path.join(folder, name, 'server.pid'));
  };
  try {
    for (const name of SCRIPTED) {
      if (!databases.includes(name) || serverUrl(name)) continue;
      const { stdout } = await promisify(execFile)(SCRIPT, [name]);
      const [, url] = new RegExp(`export ${urlVariable(name)}=(.*)`).exec(stdout) ?? [];
      process.env[urlVariable(name)] = url;
      started.push(name);
    }
    await start();
    return end;
  } catch (error) {
    await end();
    throw error;
  }
}

/** Waits until the server has written everything; otherwise its next start would have to recover. */
async function stopScripted(pidFile: string): Promise<void> {
  const pid = Number(await readFile(pidFile, 'utf8'));
  process.kill(pid, 'SIGTERM');
  while (isAlive(pid)) await setTimeout(100);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
