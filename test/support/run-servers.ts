import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { DATABASES, SERVERS, repeatedDatabases, type ServerName } from './harnesses/databases.js';
import { areAllRequired, databaseFolder, isChosen, runPrefix, serverUrl, urlVariable } from './run.js';
import { executeOnServer } from './servers.js';

let embedded: ChildProcess | undefined;

/** Starts the servers. Jest's workers inherit their URLs in the environment. */
export async function start(): Promise<void> {
  process.env['ADK_TEST_RUN'] = randomBytes(4).toString('hex');
  if (isChosen('postgresql') && !serverUrl('postgresql')) {
    process.env[urlVariable('postgresql')] = await startEmbeddedPostgres();
  }
  if (areAllRequired() && missing().length > 0) {
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
  // Printed after jest's summary, so that these are the last lines.
  for (const name of missing()) {
    process.stderr.write(
      `Skipped on ${name}: ${urlVariable(name)} is not set. CONTRIBUTING.md says how to get a server.\n`,
    );
  }
  for (const name of repeatedDatabases()) {
    process.stderr.write(
      `Skipped on ${name}, but for some tests: another driver has its dialect. ADK_TEST_DATABASES can name it.\n`,
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
  const { databases, drop } = DATABASES[name].server;
  const rows = await executeOnServer<{ name: string }>(name, databases);
  for (const row of rows.filter((each) => each.name.startsWith(runPrefix()))) {
    await executeOnServer(name, drop(row.name));
  }
}

async function removeLeftoverFiles(): Promise<void> {
  const folder = databaseFolder();
  const files = (await readdir(folder)).filter((file) => file.startsWith(runPrefix()));
  for (const file of files) await rm(path.join(folder, file), { recursive: true, force: true });
}
