// test/mikro-orm-7 has MikroORM 7 and its packages. A copy of this repository below that folder finds them before the
// repository's own, and so does every process that it starts.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, rmSync } from 'node:fs';
import path from 'node:path';

export const repository = path.resolve(import.meta.dirname, '..');
export const folder = path.join(repository, 'test/mikro-orm-7');
export const copy = path.join(folder, 'copy');

/**
 * Runs a command. If it fails, this process exits with the same code.
 *
 * @param {string} command
 * @param {string[]} args
 * @param {import('node:child_process').SpawnSyncOptions} options
 */
function run(command, args, options) {
  const { status, error } = spawnSync(command, args, { stdio: 'inherit', ...options });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

/** Finds the Node.js for MikroORM 7, which needs 22.17. On Node.js 20 it ends the process without a message. */
function findNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > 22 || (major === 22 && minor >= 17)) return process.execPath;
  const installed = path.join(folder, 'node_modules', `node-${process.platform}-${process.arch}`, 'bin/node');
  if (existsSync(installed)) return installed;
  throw new Error('MikroORM 7 needs Node.js 22.17 or later.');
}

/** Installs MikroORM 7 if it is missing, and makes the copy. */
export function prepareCopy() {
  if (!existsSync(path.join(folder, 'node_modules/.package-lock.json'))) {
    run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: folder });
  }

  rmSync(copy, { recursive: true, force: true });
  const listed = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: repository,
    encoding: 'utf8',
  });
  if (listed.status !== 0) throw listed.error ?? new Error(listed.stderr);
  for (const file of listed.stdout.split('\0')) {
    const from = path.join(repository, file);
    // Git also lists files that were deleted since the last commit.
    if (file === '' || from.startsWith(folder + path.sep) || !existsSync(from)) continue;
    cpSync(from, path.join(copy, file), { preserveTimestamps: true });
  }

  // These exist only for MikroORM 6. MikroORM 7's command line does not work in a project that names them.
  const onlyIn6 = ['better-sqlite', 'reflection'].map((name) => `devDependencies.@mikro-orm/${name}`);
  run('npm', ['pkg', 'delete', '--loglevel=error', ...onlyIn6], { cwd: copy });
}

/**
 * Runs a program with the Node.js that MikroORM 7 needs.
 *
 * @param {string} program
 * @param {string[]} args
 * @param {string} cwd
 */
export function runOn7(program, args, cwd) {
  const node = findNode();
  run(node, [program, ...args], {
    cwd,
    env: {
      ...process.env,
      // Some tests start `node` by name.
      PATH: path.dirname(node) + path.delimiter + (process.env['PATH'] ?? ''),
      // Here a test finds MikroORM 6, and a Node.js that runs it.
      ADK_TEST_MIKRO_ORM_6: repository,
      ADK_TEST_NODE_6: process.execPath,
    },
  });
}
