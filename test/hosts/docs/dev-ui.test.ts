import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import path from 'node:path';
import { MikroORM } from '@mikro-orm/core';
import { SqliteDriver } from '@mikro-orm/sqlite';
import { AdkEvent, adkEntities } from '../../../entities/index.js';
import { until } from '../../contract/tools.js';
import { installPackage } from '../schema/host-folder.js';
import { blocksOf } from './blocks.js';

const AGENT = `
import { LlmAgent } from '@google/adk';
export const rootAgent = new LlmAgent({
  name: 'echo',
  model: 'gemini-2.5-flash',
  beforeAgentCallback: ({ userContent }) => ({ role: 'model', parts: [{ text: 'You said: ' + userContent.parts[0].text }] }),
});`;

let root: string;
let url: string;

beforeAll(async () => {
  root = await installPackage();
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  const [block] = blocksOf('docs/dev-ui.md');
  if (!block?.code.includes('port: 8000')) throw new Error('docs/dev-ui.md shows another port');
  await writeFile(path.join(root, 'dev-ui.mjs'), block.code.replace('port: 8000', `port: ${port}`));
  await mkdir(path.join(root, 'agents/echo'), { recursive: true });
  await writeFile(path.join(root, 'agents/echo/agent.mjs'), AGENT);
}, 300_000);

afterAll(() => rm(root, { recursive: true }));

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

async function start(): Promise<ChildProcess> {
  const { DATABASE_URL: _, ...env } = process.env;
  const child = spawn(process.execPath, ['dev-ui.mjs'], { cwd: root, env, stdio: ['ignore', 'ignore', 'inherit'] });
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`The server ended with ${child.exitCode}`);
    return fetch(`${url}/version`).then(
      ({ ok }) => ok,
      () => false,
    );
  }, 50);
  return child;
}

async function end(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

const SESSION = '/apps/echo/users/ada/sessions/first';

async function call(method: string, address: string, body?: object): Promise<unknown> {
  const response = await fetch(url + address, {
    method,
    headers: { 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
  expect({ address, status: response.status }).toEqual({ address, status: 200 });
  return response.json();
}

test('a conversation of the Dev UI is in our tables, and there again after kill -9', async () => {
  const first = await start();
  try {
    expect((await fetch(`${url}/dev-ui/`)).status).toBe(200);
    expect(await call('GET', '/list-apps')).toEqual(['echo']);
    await call('POST', SESSION, {});
    const newMessage = { role: 'user', parts: [{ text: 'Hello!' }] };
    await call('POST', '/run', { appName: 'echo', userId: 'ada', sessionId: 'first', newMessage });
  } finally {
    await end(first);
  }

  const orm = await MikroORM.init({
    driver: SqliteDriver,
    dbName: path.join(root, 'sessions.db'),
    entities: adkEntities(),
  });
  const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
  const tables = await orm.em
    .getConnection()
    .execute<{ name: string }[]>(
      `select name from sqlite_master where type = 'table' and name not like 'adk~_%' escape '~'`,
    );
  await orm.close();
  expect(rows.map(({ data }) => (data as { content: { parts: unknown } }).content.parts)).toEqual([
    [{ text: 'Hello!' }],
    [{ text: 'You said: Hello!' }],
  ]);
  expect(tables.map(({ name }) => name).filter((name) => !/^(sqlite_|mikro_orm_migrations)/.test(name))).toEqual([]);

  const second = await start();
  try {
    expect(await call('GET', SESSION)).toMatchObject({ id: 'first', events: [{ author: 'user' }, { author: 'echo' }] });
  } finally {
    await end(second);
  }
});
