import { execFile } from 'node:child_process';
import { readFile, readdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Verdict } from '../../../packages/session-contract/src/index.js';
import { installPackage } from '../schema/host-folder.js';

const run = promisify(execFile);

interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

const INSTALLED = 'node_modules/adk-session-contract';

let project: string;

beforeAll(async () => {
  // Has ADK, and this package as the service to test.
  project = await installPackage();
  const open = 'open: async () => ({ service: new InMemorySessionService() })';
  await write(
    'in-memory.mjs',
    `import { InMemorySessionService } from '@google/adk'; export default { name: 'in memory', ${open} };`,
  );
  await write(
    'in-memory.cjs',
    `const { InMemorySessionService } = require('@google/adk'); module.exports = { name: 'in memory', ${open} };`,
  );
  await write(
    'ours.mjs',
    `import { testSessionService } from 'adk-mikro-orm/testing'; export default { name: 'ours', open: testSessionService };`,
  );
  await write('nameless.mjs', 'export const open = async () => ({});');
}, 900_000);

afterAll(() => rm(project, { recursive: true, force: true }));

const write = (file: string, text: string) => writeFile(path.join(project, file), text);

const node = (...args: string[]): Promise<Ended> =>
  run(process.execPath, args, { cwd: project }).then(
    (ended) => ({ code: 0, ...ended }),
    (error: unknown) => error as Ended,
  );

const judge = (...args: string[]) => node(path.join(INSTALLED, 'dist/esm/src/main.js'), ...args);

test('the command prints which rules are held, broken and left out', async () => {
  const { code, stdout } = await judge('in-memory.mjs', '--json');
  expect(code).toBe(1);
  const verdicts = JSON.parse(stdout) as Verdict[];
  expect(verdicts).toContainEqual({
    ...{ rule: 'B1', level: 'every', result: 'broken', error: expect.stringMatching(/should be .* and is/) },
    title: 'createSession gives keys to app, user and session by their prefix',
  });
  expect(new Set(verdicts.map(({ result }) => result))).toEqual(new Set(['held', 'broken', 'left out']));

  const table = await judge('in-memory.cjs');
  expect(table.code).toBe(1);
  expect(table.stdout).toMatch(
    /^rule +level +result +in memory\nA1 +every +held +.*^B1 +every +broken +createSession gives keys/ms,
  );
  expect(table.stdout).toContain('\nB1 createSession gives keys to app, user and session by their prefix\nThe state');
});

test('a service that keeps every rule of the level passes', async () => {
  const { code, stdout, stderr } = await judge('ours.mjs', '--level', 'every');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).not.toMatch(/ broken /);
});

test('it has no MikroORM in it', async () => {
  const files = await readdir(path.join(project, INSTALLED, 'dist'), { recursive: true });
  const scripts = files.filter((file) => file.endsWith('.js'));
  expect(scripts.length).toBeGreaterThan(2);
  for (const file of scripts)
    expect(await readFile(path.join(project, INSTALLED, 'dist', file), 'utf8')).not.toMatch(/@mikro-orm/);
});

test.each([
  [[], /^Usage: /],
  [['nowhere.mjs'], /There is no file nowhere\.mjs/],
  [['nameless.mjs'], /no default export with a name and a function open/],
  [['in-memory.mjs', '--level', 'all'], /--level must be one of every, shared, durable/],
  [['in-memory.mjs', '--level', 'shared'], /level shared need another/],
  [['in-memory.mjs', '--url', 'sqlite::memory:'], /Unknown option '--url'/],
])('%j is a wrong command line', async (args, message) => {
  expect(await judge(...args)).toMatchObject({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
});

test.each([
  ['--input-type=module', "import { checkSessionService } from 'adk-session-contract';"],
  ['--input-type=commonjs', "const { checkSessionService } = require('adk-session-contract');"],
])('it is imported with %s', async (type, load) => {
  const { stdout } = await node(type, '--eval', `${load} console.log(typeof checkSessionService);`);
  expect(stdout).toBe('function\n');
});
