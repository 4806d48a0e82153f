import { execFile } from 'node:child_process';
import { cp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';
import { installPackage } from '../schema/host-folder.js';
import { errorsOf } from './app.js';

const repository = path.resolve(__dirname, '../../..');
const tsc = createRequire(__filename).resolve('typescript/bin/tsc');
const run = promisify(execFile);

/** The packages of docs/testing.md, except MikroORM and ADK, and the programs of jest and Vitest. */
const INSTALLED = ['.bin', '@swc', '@types', 'jest', 'vitest'];

/** Projects with one test each, which docs/testing.md shows. */
const EXAMPLES = ['jest-commonjs', 'jest-esm', 'vitest'];

/** A class with a decorator of `experimentalDecorators`, and what `emitDecoratorMetadata` says of its property. */
const DECORATED = `
export const types: Record<string, unknown> = {};

const noted = (_key: string, type: unknown) => (_target: object, name: string) => {
  types[name] = type;
};
Object.assign(Reflect, { metadata: noted });

const Property = () => (_target: object, _name: string) => undefined;

export class Ticket {
  @Property()
  title!: string;
}
`;

/** On the MikroORM that this test itself runs on. */
describe('docs/testing.md', () => {
  const env = { ...process.env, NO_COLOR: '1', FORCE_COLOR: undefined };
  let folder: string;

  beforeAll(async () => {
    folder = await installPackage();
    const modules = path.join(folder, 'node_modules');
    const installed = path.join(path.dirname(require.resolve('jest/package.json')), '..');
    for (const name of INSTALLED) await symlink(path.join(installed, name), path.join(modules, name), 'junction');
    for (const example of EXAMPLES) {
      await cp(path.join(repository, 'examples/testing', example), path.join(folder, example), { recursive: true });
      await symlink(modules, path.join(folder, example, 'node_modules'), 'junction');
    }
  }, 900_000);

  afterAll(() => rm(folder, { recursive: true, force: true }));

  /** @returns the output of `npm test`, whether or not the tests pass. */
  async function npmTest(example: string, ...args: string[]): Promise<string> {
    // On a busy machine a test takes longer than the few seconds that jest and Vitest allow.
    const call = run('npm', ['test', '--', '--testTimeout=120000', ...args], { cwd: path.join(folder, example), env });
    const { stdout, stderr } = await call.catch((error: unknown) => error as { stdout: string; stderr: string });
    return stdout + stderr;
  }

  test('the tests for jest and Vitest type-check', async () => {
    const sources = EXAMPLES.map((example) => `${example}/agent.test.ts`);
    const flags = ['--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', '--module', 'nodenext', '--noEmit'];
    const check = await run(process.execPath, [tsc, ...flags, ...sources], { cwd: folder }).catch(
      (error: unknown) => error as { stdout: string },
    );
    expect(errorsOf(check.stdout)).toEqual([]);
  }, 900_000);

  test.each([
    { example: 'jest-commonjs', passed: /^Tests: +1 passed, 1 total$/m },
    { example: 'jest-esm', passed: /^Tests: +1 passed, 1 total$/m },
    { example: 'vitest', passed: /^ +Tests +1 passed \(1\)$/m },
  ])('the test of examples/testing/$example passes', async ({ example, passed }) => {
    expect(await npmTest(example)).toMatch(passed);
  });

  test('jest fails on ES modules without the line of the configuration that names them', async () => {
    const config = JSON.stringify({ transform: { '\\.ts$': '@swc/jest' } });
    expect(await npmTest('jest-commonjs', '--config', config)).toMatch(/Must use import to load ES Module: /);
  });

  test.each(['jest-commonjs', 'jest-esm'])('%s compiles decorators, and imports that name .js', async (example) => {
    const write = (file: string, text: string) => writeFile(path.join(folder, example, file), text);
    await write('decorated.ts', DECORATED);
    await write(
      'decorated.test.ts',
      "import { types } from './decorated.js';\ntest('has types', () => expect(types).toEqual({ title: String }));\n",
    );
    expect(await npmTest(example, 'decorated')).toMatch(/^Tests: +1 passed, 1 total$/m);
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

    // The page shows the test once, and for Vitest only the additional line.
    const [test, sameTest, vitestTest] = await Promise.all(
      EXAMPLES.map((example) => read(`examples/testing/${example}/agent.test.ts`)),
    );
    expect(sameTest).toBe(test);
    const [, line = ''] = /^```ts\n(import .* from 'vitest';\n)```$/m.exec(page) ?? [];
    expect(vitestTest).toContain(line);
    expect(vitestTest?.replace(line, '')).toBe(test);
  });
});
