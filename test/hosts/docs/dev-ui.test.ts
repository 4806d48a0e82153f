import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { MikroORM } from '@mikro-orm/core';
import { SqliteDriver } from '@mikro-orm/sqlite';
import { AdkEvent, adkEntities } from '../../../entities/index.js';
import type { Page } from 'playwright-core';
import { until } from '../../contract/tools.js';
import { describeInChromium } from '../../support/chromium.js';
import { PACKAGES, installPackage, unpackPackages } from '../schema/host-folder.js';
import { blocksOf } from './blocks.js';

const AGENT = `
import { LlmAgent } from '@google/adk';
export const rootAgent = new LlmAgent({
  name: 'echo',
  model: 'gemini-2.5-flash',
  beforeAgentCallback: async (context) => {
    const [said] = context.userContent.parts;
    await context.saveArtifact('said.txt', said);
    return { role: 'model', parts: [{ text: 'You said: ' + said.text }] };
  },
});`;

/** An agent whose model gives scripted answers, and which keeps a file that it gets. */
const OFFICE = `
import { FunctionTool, LlmAgent } from '@google/adk';
import { z } from 'zod';
import { scriptedModel } from 'adk-mikro-orm/testing';

export const rootAgent = new LlmAgent({
  name: 'office',
  beforeAgentCallback: async (context) => {
    const file = context.userContent?.parts?.find(({ inlineData }) => inlineData);
    if (!file) return undefined;
    await context.saveArtifact('kept.txt', { inlineData: file.inlineData! });
    return { role: 'model', parts: [{ text: 'I keep it.' }] };
  },
  model: scriptedModel(({ contents }) => {
    const parts = contents.at(-1)?.parts ?? [];
    if (parts.some(({ functionResponse }) => functionResponse)) return 'Invoice 17 is paid.';
    const said = parts.map(({ text }) => text ?? '').join('');
    return said.startsWith('Pay') ? { name: 'pay_invoice', args: { invoice: '17' } } : 'You said: ' + said;
  }),
  tools: [
    new FunctionTool({
      name: 'pay_invoice',
      description: 'Pays an invoice.',
      parameters: z.object({ invoice: z.string() }),
      execute: ({ invoice }) => ({ paid: invoice }),
    }),
  ],
});`;

let root: string;
let port: number;
let url: string;

beforeAll(async () => {
  root = await installPackage();
  port = await freePort();
  url = `http://127.0.0.1:${port}`;
  const [block] = blocksOf('docs/dev-ui.md');
  if (!block?.code.includes('port: 8000')) throw new Error('docs/dev-ui.md shows another port');
  await writeFile(path.join(root, 'dev-ui.mjs'), block.code.replace('port: 8000', `port: ${port}`));
  await mkdir(path.join(root, 'agents/echo'), { recursive: true });
  await writeFile(path.join(root, 'agents/echo/agent.mjs'), AGENT);
  await mkdir(path.join(root, 'offices/office'), { recursive: true });
  await writeFile(path.join(root, 'offices/office/agent.ts'), OFFICE);
  await link(root, 'zod');
}, 900_000);

afterAll(() => rm(root, { recursive: true }));

async function link(folder: string, ...names: string[]): Promise<void> {
  for (const name of names) {
    const linked = path.join(folder, 'node_modules', name);
    await mkdir(path.dirname(linked), { recursive: true });
    await symlink(path.resolve('node_modules', name), linked, 'junction');
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

async function start(args = ['dev-ui.mjs']): Promise<ChildProcess> {
  const { DATABASE_URL: _, ...env } = process.env;
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'ignore', 'pipe'] });
  const errors = text(child.stderr);
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`The server ended with ${child.exitCode}: ${await errors}`);
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

test('a conversation of the Dev UI and its file are in our tables, and there again after kill -9', async () => {
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
    expect(await call('GET', `${SESSION}/artifacts/said.txt`)).toEqual({ text: 'Hello!' });
  } finally {
    await end(second);
  }
});

const MAIN = 'node_modules/adk-mikro-orm-cli/dist/esm/src/main.js';

/** Runs the command line of the package that is installed in the folder. */
async function command(folder: string, ...args: string[]): Promise<{ code: number; err: string }> {
  const child = spawn(process.execPath, [MAIN, ...args], { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
  const [err, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  return { code: code as number, err };
}

test('adk-mikro-orm web refuses what it cannot serve, and says what to do', async () => {
  expect(await command(root, 'web', 'none', '--url', 'sqlite::memory:')).toMatchObject({
    code: 2,
    err: expect.stringContaining('There is no folder none.'),
  });
  // It does not create the tables.
  expect(await command(root, 'web', 'agents', '--url', 'sqlite::memory:')).toMatchObject({
    code: 1,
    err: expect.stringContaining('migrat'),
  });

  // Not below the folder, where its packages would be found.
  const alone = `${root}-alone`;
  await unpackPackages(alone, PACKAGES);
  try {
    await link(alone, '@google/adk', '@mikro-orm');
    expect(await command(alone, 'web', '--url', 'sqlite::memory:')).toMatchObject({
      code: 2,
      err: expect.stringContaining('npm install --save-dev @google/adk-devtools'),
    });
  } finally {
    await rm(alone, { recursive: true });
  }
});

describeInChromium('adk-mikro-orm web in a browser', (browser) => {
  const database = 'sqlite:offices.db';
  const serve = () => start([MAIN, 'web', 'offices', '--url', database, '--port', String(port)]);

  async function say(page: Page, said: string, answer: string): Promise<void> {
    await page.locator('textarea').fill(said);
    await page.locator('textarea').press('Enter');
    await page.getByText(answer).last().waitFor();
  }

  /** The stored events: who said or called what. */
  async function stored(): Promise<string[]> {
    const dbName = path.join(root, 'offices.db');
    const orm = await MikroORM.init({ driver: SqliteDriver, dbName, entities: adkEntities() });
    const rows = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
    await orm.close();
    return rows.map(({ data }) => {
      const { author, content } = data as { author: string; content: { parts: Record<string, unknown>[] } };
      const [part] = content.parts;
      return `${author}: ${typeof part?.['text'] === 'string' ? part['text'] : Object.keys(part!).join()}`;
    });
  }

  test('a conversation stays after a reload and kill -9, in two tabs, until one of them deletes it', async () => {
    expect(await command(root, 'migrate', '--url', database)).toMatchObject({ code: 0 });
    let server = await serve();
    const context = await browser().newContext();
    context.setDefaultTimeout(60_000);
    try {
      const page = await context.newPage();
      await page.goto(`${url}/dev-ui/?app=office`);
      await say(page, 'Pay it', 'Invoice 17 is paid.');
      const conversation = [
        'user: Pay it',
        'office: functionCall',
        'office: functionResponse',
        'office: Invoice 17 is paid.',
      ];
      expect(await stored()).toEqual(conversation);

      await page.reload();
      await page.getByText('Invoice 17 is paid.').waitFor();
      await page.getByText('Traces', { exact: true }).click();
      // Both runs of the model, with the tool between them.
      await page.getByText('call_llm').nth(1).waitFor();
      await page.getByText('pay_invoice', { exact: true }).locator('visible=true').first().waitFor();
      await page.getByText('Events', { exact: true }).click();

      await end(server);
      server = await serve();
      await page.reload();
      await page.getByText('Invoice 17 is paid.').waitFor();
      await say(page, 'One', 'You said: One');

      const other = await context.newPage();
      await other.goto(page.url());
      await other.getByText('You said: One').waitFor();
      await say(other, 'Two', 'You said: Two');
      // This tab does not know about it.
      await say(page, 'Three', 'You said: Three');
      const both = ['One', 'Two', 'Three'].flatMap((said) => [`user: ${said}`, `office: You said: ${said}`]);
      expect(await stored()).toEqual([...conversation, ...both]);
      await other.reload();
      for (const said of ['One', 'Two', 'Three']) await other.getByText(`You said: ${said}`).waitFor();

      const session = new URL(page.url()).searchParams.get('session');
      const deleted = await other.evaluate(
        (address) => fetch(address, { method: 'DELETE' }).then(({ status }) => status),
        `/apps/office/users/user/sessions/${session}`,
      );
      expect(deleted).toBe(204);
      const refused = page.waitForResponse((response) => response.url().endsWith('/run_sse'));
      await page.locator('textarea').fill('Four');
      await page.locator('textarea').press('Enter');
      expect((await refused).status()).toBe(404);
      expect(await stored()).toEqual([]);
      await page.reload();
      await page.getByText('Cannot find specified session').waitFor();
    } finally {
      await context.close();
      await end(server);
    }
  });

  test('a file that was uploaded can be downloaded after kill -9', async () => {
    expect(await command(root, 'migrate', '--url', database)).toMatchObject({ code: 0 });
    let server = await serve();
    const context = await browser().newContext();
    context.setDefaultTimeout(60_000);
    try {
      const page = await context.newPage();
      await page.goto(`${url}/dev-ui/?app=office`);
      await page.locator('textarea').waitFor();
      const file = { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('Bring tea.') };
      await page.locator('input[type=file]').first().setInputFiles(file);
      await say(page, 'Keep this.', 'I keep it.');

      await end(server);
      server = await serve();
      await page.reload();
      await page.getByText('Artifact: kept.txt').waitFor();
      await page.getByRole('tab', { name: 'Artifacts' }).click();
      // The file that the agent saved, and the file that the user uploaded.
      for (const place of [page.getByText('file_download'), page.getByText('note.txt')]) {
        const [download] = await Promise.all([page.waitForEvent('download'), place.first().click()]);
        expect(await text(await download.createReadStream())).toBe('Bring tea.');
      }
    } finally {
      await context.close();
      await end(server);
    }
  });
});
