import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { PRINTED, appOn, errorsOf } from './app.js';

const repository = path.resolve(__dirname, '../..');
const tsc = createRequire(__filename).resolve('typescript/bin/tsc');
const run = promisify(execFile);

/** The peers of a user on SQLite, with what the type check needs: the package may not ask for more. */
const INSTALLED = [
  '@google/adk',
  '@mikro-orm/better-sqlite',
  '@mikro-orm/core',
  '@mikro-orm/migrations',
  '@types/node',
];

/** What docs/testing.md installs besides, and the programs of jest and Vitest. */
const INSTALLED_FOR_TESTS = [
  '.bin',
  '@mikro-orm/sqlite',
  '@swc/core',
  '@swc/jest',
  '@types/jest',
  'jest',
  'typescript',
  'vitest',
];

/** Projects with one test each, which docs/testing.md shows. */
const EXAMPLES = ['jest-commonjs', 'jest-esm', 'vitest'];

const APP = appOn('better-sqlite');

let project: string;
let tarball: { filename: string; size: number; files: { path: string }[] };

beforeAll(async () => {
  project = await mkdtemp(path.join(tmpdir(), 'adk-package-'));
  const pack = await run('npm', ['pack', '--json', '--pack-destination', project], { cwd: repository });
  // What the build prints comes first.
  [tarball] = JSON.parse(pack.stdout.slice(pack.stdout.indexOf('[\n'))) as [typeof tarball];

  const installed = path.join(project, 'node_modules/adk-mikro-orm');
  await mkdir(installed, { recursive: true });
  await run('tar', ['-xzf', path.join(project, tarball.filename), '--strip-components=1', '-C', installed]);
  for (const name of [...INSTALLED, ...INSTALLED_FOR_TESTS]) {
    const link = path.join(project, 'node_modules', name);
    await mkdir(path.dirname(link), { recursive: true });
    await symlink(path.join(repository, 'node_modules', name), link, 'junction');
  }
  await writeFile(path.join(project, 'package.json'), JSON.stringify({ name: 'app', private: true }));
  await writeFile(path.join(project, 'app.mts'), APP);
  await writeFile(path.join(project, 'app.cts'), APP);
  for (const example of EXAMPLES) {
    await cp(path.join(repository, 'examples/testing', example), path.join(project, example), { recursive: true });
    await symlink(path.join(project, 'node_modules'), path.join(project, example, 'node_modules'), 'junction');
  }
}, 900_000);

afterAll(() => rm(project, { recursive: true, force: true }));

test('the tarball is small and holds what a user needs, and no tests', () => {
  const files = tarball.files.map((file) => file.path);

  expect(tarball.size).toBeLessThan(200_000);
  expect(files.filter((file) => !file.startsWith('dist/')).sort()).toEqual([
    'CHANGELOG.md',
    'LICENSE',
    'README.md',
    'package.json',
  ]);
  expect(files.filter((file) => /test|bench|example/.test(file))).toEqual([]);
});

test('projects in ES modules and in CommonJS type-check, with tests for jest and Vitest', async () => {
  const sources = ['app.mts', 'app.cts', ...EXAMPLES.map((example) => `${example}/agent.test.ts`)];
  const flags = ['--strict', '--exactOptionalPropertyTypes', '--module', 'nodenext', '--outDir', 'built'];
  const check = await run(process.execPath, [tsc, ...flags, ...sources], { cwd: project }).catch(
    (error: unknown) => error as { stdout: string },
  );
  expect(errorsOf(check.stdout)).toEqual([]);
}, 900_000);

test.each(['app.mjs', 'app.cjs'])('an empty project runs %s', async (file) => {
  const { stdout, stderr } = await run(process.execPath, [`built/${file}`], { cwd: project });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual(PRINTED);
});

describe('docs/testing.md', () => {
  const env = { ...process.env, NO_COLOR: '1', FORCE_COLOR: undefined };

  /** @returns what `npm test` has printed, whether the tests pass or not. */
  async function npmTest(example: string, ...args: string[]): Promise<string> {
    // A loaded machine takes longer than the few seconds that jest and Vitest give a test.
    const call = run('npm', ['test', '--', '--testTimeout=120000', ...args], { cwd: path.join(project, example), env });
    const { stdout, stderr } = await call.catch((error: unknown) => error as { stdout: string; stderr: string });
    return stdout + stderr;
  }

  test.each([
    { example: 'jest-commonjs', passed: /^Tests: +1 passed, 1 total$/m },
    { example: 'jest-esm', passed: /^Tests: +1 passed, 1 total$/m },
    { example: 'vitest', passed: /^ +Tests +1 passed \(1\)$/m },
  ])('the test of examples/testing/$example passes', async ({ example, passed }) => {
    expect(await npmTest(example)).toMatch(passed);
  });

  test('jest fails on lodash-es without the line of the configuration that names it', async () => {
    const config = JSON.stringify({ transform: { '\\.ts$': '@swc/jest' } });
    expect(await npmTest('jest-commonjs', '--config', config)).toMatch(
      /Must use import to load ES Module: .*lodash-es/,
    );
  });

  test('it shows the files of the examples as they are', async () => {
    const read = (file: string) => readFile(path.join(repository, file), 'utf8');
    const page = await read('docs/testing.md');
    const blocks = [...page.matchAll(/\]\(\.\.\/examples\/testing\/([^)]+)\):\n\n```\w+\n(.*?)^```$/gms)];
    expect(blocks.map(([, file]) => file)).toEqual([
      'jest-commonjs/agent.test.ts',
      'jest-commonjs/jest.config.js',
      'jest-commonjs/package.json',
      'jest-esm/jest.config.js',
      'jest-esm/package.json',
      'vitest/package.json',
    ]);
    for (const [, file = '', text] of blocks) expect(text).toBe(await read(`examples/testing/${file}`));

    // The test is shown once, and for Vitest the line that it has besides.
    const [test, sameTest, vitestTest] = await Promise.all(
      EXAMPLES.map((example) => read(`examples/testing/${example}/agent.test.ts`)),
    );
    expect(sameTest).toBe(test);
    const [, line = ''] = /^```ts\n(import .* from 'vitest';\n)```$/m.exec(page) ?? [];
    expect(vitestTest).toContain(line);
    expect(vitestTest?.replace(line, '')).toBe(test);
  });
});
