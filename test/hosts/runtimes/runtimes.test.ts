import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { DATABASES } from '../../support/harnesses/databases.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { availableDatabases, createDatabase, type DatabaseName } from '../../support/servers.js';
import { installPackage } from '../schema/host-folder.js';

const run = promisify(execFile);
/** On MikroORM 7 a copy of the repository is tested; this is the original. */
const repository = process.env['ADK_TEST_MIKRO_ORM_6'] ?? path.resolve(__dirname, '../../..');
const binaries = path.join(repository, 'test/hosts/runtimes/node_modules/.bin');

const RUNTIMES = {
  bun: ['--bun', 'run'],
  deno: ['run', '--allow-all'],
};
type Runtime = keyof typeof RUNTIMES;
const NAMES: readonly Runtime[] = ['bun', 'deno'];

/** Its addon is made for Node.js only; the newer one of MikroORM 7 is not. */
const isOfNode = (name: DatabaseName) => name === 'better-sqlite' && !isMikroOrm7;

const SOURCE = /'(?:\.\.\/){3}(?:packages\/(\w+)\/)?src\/(?:index|(\w+)\/index)\.js'/g;

/** A host's project, with the packed package. */
let folder: string;

beforeAll(async () => {
  const [installed] = await Promise.all([
    installPackage(),
    existsSync(binaries) ||
      run('npm', ['ci', '--no-audit', '--no-fund', '--prefer-offline'], { cwd: path.dirname(path.dirname(binaries)) }),
  ]);
  folder = installed;
  await writeFile(path.join(folder, 'package.json'), JSON.stringify({ type: 'module' }));
  const program = await readFile(path.join(__dirname, 'program.ts'), 'utf8');
  const asOfHost = program.replace(
    SOURCE,
    (_, name?: string, entry?: string) => `'adk-mikro-orm${name ? `-${name}` : ''}${entry ? `/${entry}` : ''}'`,
  );
  await writeFile(path.join(folder, 'program.ts'), asOfHost);
  await mkdir(path.join(folder, 'tests'));
  await cp(path.resolve('examples/testing/jest-esm/agent.test.ts'), path.join(folder, 'tests/agent.test.ts'));
}, 900_000);

afterAll(() => rm(folder, { recursive: true, force: true }));

const start = (runtime: Runtime, ...args: string[]) =>
  run(path.join(binaries, runtime), [...RUNTIMES[runtime], ...args], {
    cwd: folder,
    timeout: 240_000,
    env: { ...process.env, NO_COLOR: '1', FORCE_COLOR: undefined },
  });

async function runProgram(runtime: Runtime, name: DatabaseName): Promise<unknown> {
  const { options, drop } = await createDatabase(name);
  const { driver: _driver, ...connection } = options;
  try {
    const { stdout } = await start(runtime, 'program.ts', DATABASES[name].packageName, JSON.stringify(connection));
    return JSON.parse(stdout);
  } finally {
    await drop();
  }
}

test.each(availableDatabases().filter((name) => !isOfNode(name)))(
  'Bun and Deno run a host as it is on %s, and end it when it has closed its ORM',
  async (name) => {
    const expected = {
      state: { 'user:name': 'Ada' },
      appended: 352,
      inOrder: true,
      parallel: true,
      heard: ['Hello, Ada.'],
      isFileWhole: true,
      logged: 372,
      isWatched: true,
      lease: { token: 1, isHeld: true },
      isMissingTableNamed: true,
      studio: { status: 200, hasText: true },
    };
    const printed = await Promise.all(NAMES.map((runtime) => runProgram(runtime, name)));
    expect(printed).toEqual(NAMES.map(() => expected));
  },
);

test.each(availableDatabases().filter(isOfNode))('%s is for Node.js alone, as the docs say', async (name) => {
  await expect(runProgram('bun', name)).rejects.toThrow(/'better-sqlite3' is not yet supported in Bun/);
  await expect(runProgram('deno', name)).rejects.toThrow(/Deno does not support/);
});

test('bun test runs the test of docs/testing.md', async () => {
  const { stderr } = await run(path.join(binaries, 'bun'), ['test', 'tests/'], { cwd: folder });
  expect(stderr).toMatch(/^ 1 pass$/m);
});

test.each(NAMES)('%s runs the command line', async (runtime) => {
  const { url, drop } = await createDatabase('sqlite');
  const cli = async (command: string) =>
    JSON.parse(
      (await start(runtime, 'node_modules/adk-mikro-orm-cli/dist/esm/src/main.js', command, '--json', '--url', url))
        .stdout,
    ) as unknown;
  try {
    expect(await cli('migrate')).toMatchObject({ migrations: [expect.stringContaining('adk')] });
    expect(await cli('stats')).toMatchObject({ sessions: 0 });
  } finally {
    await drop();
  }
});
