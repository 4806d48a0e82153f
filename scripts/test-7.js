// Runs the tests on MikroORM 7, with jest's own arguments. MikroORM 7 and what belongs to it are installed in
// test/mikro-orm-7; a copy of this repository below that folder finds them there before the ones of the repository, in
// every process that a test starts, too.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, rmSync } from 'node:fs';
import path from 'node:path';

const repository = path.resolve(import.meta.dirname, '..');
const folder = path.join(repository, 'test/mikro-orm-7');
const copy = path.join(folder, 'copy');

/**
 * @param {string} command
 * @param {string[]} args
 * @param {import('node:child_process').SpawnSyncOptions} options
 */
function run(command, args, options) {
  const { status, error } = spawnSync(command, args, { stdio: 'inherit', ...options });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

/** MikroORM 7 asks for Node.js 22.17; on Node.js 20 it ends the process without a word. */
function findNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > 22 || (major === 22 && minor >= 17)) return process.execPath;
  const installed = path.join(folder, 'node_modules', `node-${process.platform}-${process.arch}`, 'bin/node');
  if (existsSync(installed)) return installed;
  throw new Error('MikroORM 7 needs Node.js 22.17 or later.');
}

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
  // Git lists files that were deleted since the last commit, too.
  if (file === '' || from.startsWith(folder + path.sep) || !existsSync(from)) continue;
  cpSync(from, path.join(copy, file), { preserveTimestamps: true });
}

// What stays MikroORM 6. The command line of MikroORM 7 does not work in a project that names it.
const onlyIn6 = ['better-sqlite', 'reflection'].map((name) => `devDependencies.@mikro-orm/${name}`);
run('npm', ['pkg', 'delete', '--loglevel=error', ...onlyIn6], { cwd: copy });

const jest = path.join(repository, 'node_modules/jest/bin/jest.js');
const config = path.join(folder, 'jest.config.js');
const node = findNode();
run(node, [jest, '--config', config, ...process.argv.slice(2)], {
  cwd: copy,
  // Tests start `node` by name as well.
  env: {
    ...process.env,
    PATH: path.dirname(node) + path.delimiter + (process.env['PATH'] ?? ''),
    // Where a test finds MikroORM 6, and a Node.js that it runs on.
    ADK_TEST_MIKRO_ORM_6: repository,
    ADK_TEST_NODE_6: process.execPath,
  },
});
