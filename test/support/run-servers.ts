import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import {
  databaseFolder,
  dropOnServer,
  executeOnServer,
  isChosen,
  runPrefix,
  SERVERS,
  serverUrl,
  type ServerName,
  urlVariable,
} from './servers.js';

let embedded: ChildProcess | undefined;

/** Jest's workers inherit what this leaves in the environment. */
export async function start(): Promise<void> {
  process.env['ADK_TEST_RUN'] = randomBytes(4).toString('hex');
  if (isChosen('postgresql') && !serverUrl('postgresql')) {
    process.env[urlVariable('postgresql')] = await startEmbeddedPostgres();
  }
  if (process.env['ADK_TEST_REQUIRE'] === 'all' && missing().length > 0) {
    throw new Error(`ADK_TEST_REQUIRE=all, but not set: ${missing().map(urlVariable).join(', ')}`);
  }
  for (const name of chosen().filter(serverUrl)) await expectAnswer(name);
}

export async function stop(): Promise<void> {
  try {
    for (const name of chosen().filter(serverUrl)) await dropLeftovers(name);
    await removeLeftoverFiles();
  } finally {
    if (embedded?.exitCode === null) {
      embedded.stdin?.end();
      await once(embedded, 'exit');
    }
  }
  // After jest's summary, so that they are the last lines.
  for (const name of missing()) {
    process.stderr.write(
      `Skipped on ${name}: ${urlVariable(name)} is not set. CONTRIBUTING.md says how to get a server.\n`,
    );
  }
}

const chosen = () => SERVERS.filter(isChosen);

const missing = () => chosen().filter((name) => !serverUrl(name));

async function startEmbeddedPostgres(): Promise<string> {
  const script = fileURLToPath(new URL('embedded-postgres.js', import.meta.url));
  embedded = spawn(process.execPath, [script], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: embedded.stdout! });
  const [url] = (await Promise.race([
    once(lines, 'line'),
    once(embedded, 'exit').then(() => Promise.reject(new Error('The embedded PostgreSQL did not start'))),
  ])) as [string];
  return url;
}

async function expectAnswer(name: ServerName): Promise<void> {
  try {
    await executeOnServer(name, 'select 1');
  } catch (error) {
    throw new Error(`The server that ${urlVariable(name)} names does not answer`, { cause: error });
  }
}

async function dropLeftovers(name: ServerName): Promise<void> {
  const [table, column] = name === 'postgresql' ? ['pg_database', 'datname'] : ['schemata', 'schema_name'];
  const databases = await executeOnServer<{ name: string }>(name, `select ${column} as name from ${table}`);
  for (const { name: database } of databases.filter((row) => row.name.startsWith(runPrefix()))) {
    await dropOnServer(name, database);
  }
}

async function removeLeftoverFiles(): Promise<void> {
  const folder = databaseFolder();
  const files = (await readdir(folder)).filter((file) => file.startsWith(runPrefix()));
  for (const file of files) await rm(path.join(folder, file), { recursive: true, force: true });
}
