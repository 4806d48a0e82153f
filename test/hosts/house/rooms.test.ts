import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

const RULE = 'import-x/no-restricted-paths';

/** Runs in its own process, since ESLint's config is an ES module. Only this rule runs; it needs no types. */
const LINT = `
  import { ESLint } from 'eslint';
  const eslint = new ESLint({
    ruleFilter: ({ ruleId }) => ruleId === '${RULE}',
    overrideConfig: { languageOptions: { parserOptions: { projectService: false } } },
  });
  const found = [];
  for (const [file, imported] of JSON.parse(process.argv[1])) {
    const [{ messages }] = await eslint.lintText("export * from '" + imported + "';", { filePath: file });
    found.push(messages.map(({ ruleId }) => ruleId));
  }
  console.log(JSON.stringify(found));
`;

function rulesBroken(imports: readonly (readonly [file: string, imported: string])[]): string[][] {
  const args = ['--input-type=module', '--eval', LINT, JSON.stringify(imports)];
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' })) as string[][];
}

test('the linter refuses an import of a room above or of the inside of a package, and of nothing else', () => {
  const upward = [
    ['src/model/keys.ts', '../database/sql/tables.js'],
    ['src/database/drivers/sqlite.ts', '../orm/orm-connection.js'],
    ['src/database/sql/tables.ts', '../dialects/dialect.js'],
    ['src/database/dialects/sqlite.ts', '../statements/sessions.js'],
    ['src/database/statements/sessions.ts', '../calls/database.js'],
    ['src/database/calls/transaction.ts', '../../sessions/session-service.js'],
    ['src/log/watch/poller.ts', '../../../migrations/migrate.js'],
    ['src/sessions/damage.ts', '../maintenance/repair.js'],
    ['src/index.ts', '../packages/cli/src/program.js'],
    ['packages/studio/src/studio.ts', '../../cli/src/run.js'],
    ['src/sessions/session-service.ts', '../credentials/credential-service.js'],
    ['entities/columns.ts', '../src/index.js'],
    // A package uses what others export.
    ['packages/cli/src/run.ts', '../../../src/sessions/handle.js'],
    ['packages/studio/src/studio.ts', '../../../migrations/status.js'],
    ['packages/cli/src/run.ts', '../../studio/src/html.js'],
    ['packages/http/src/handler.ts', '../../../src/log/event-log.js'],
  ] as const;
  const downward = [
    ['packages/cli/src/run.ts', '../../../src/model/json.js'],
    ['packages/cli/src/run.ts', '../../../src/internal.js'],
    ['packages/cli/src/run.ts', '../../studio/src/internal.js'],
    ['src/sessions/session-service.ts', '../model/keys.js'],
    ['entities/columns.ts', '../src/model/keys.js'],
  ] as const;
  expect(rulesBroken(upward)).toEqual(upward.map(() => [RULE]));
  expect(rulesBroken(downward)).toEqual(downward.map(() => []));
});

test('docs/architecture.md lists every room, and no file that is gone', async () => {
  const text = await readFile('docs/architecture.md', 'utf8');
  const house = /^## The house\n+```\n(.*?)^```/ms.exec(text)?.[1] ?? '';
  const listed: string[] = [];
  let above: string[] = [];
  for (const [, indent = '', name = ''] of house.matchAll(/^( *)(\S+)/gm)) {
    above = [...above.slice(0, indent.length / 2), name];
    listed.push(above.join(''));
  }
  for (const each of listed) expect([each, existsSync(each)]).toEqual([each, true]);
  const inFolder = async (folder: string) =>
    (await readdir(folder, { withFileTypes: true })).map(
      (each) => `${folder}/${each.name}${each.isDirectory() ? '/' : ''}`,
    );
  const rooms = [...(await inFolder('src')), ...(await inFolder('packages')), ...(await inFolder('src/database'))];
  expect(rooms.filter((room) => !listed.includes(room))).toEqual([]);
});

/** Runs a script of `npm run lint` in a folder with these files. */
async function linted(script: string, files: Readonly<Record<string, string>>) {
  const cwd = await mkdtemp(path.join(tmpdir(), 'adk-lint-'));
  await mkdir(path.join(cwd, 'src'));
  for (const [file, content] of Object.entries(files)) await writeFile(path.join(cwd, file), content);
  execFileSync('git', ['init', '--quiet'], { cwd });
  const { status, stderr } = spawnSync(process.execPath, [path.resolve(script)], { cwd, encoding: 'utf8' });
  await rm(cwd, { recursive: true });
  return { status, stderr };
}

test('npm run lint refuses an export that nobody imports, but for those of an entry', async () => {
  const expected = ['Unused', 'unused'].map((name) => `src/b.ts: nobody imports ${name}. Remove its export.\n`);
  expect(
    await linted('scripts/unused-exports.js', {
      'package.json': '{ "exports": { ".": { "default": "./dist/esm/src/index.js" } } }',
      'src/index.ts': "export { used } from './a.js';\nexport const entry: import('./a.js').Used = 1;",
      'src/a.ts': 'export const used = 1;\nexport type Used = number;',
      'src/b.ts': 'export interface Unused {}\nexport const unused = 1;',
    }),
  ).toEqual({ status: 1, stderr: expected.join('') });
});

test('npm run lint refuses files that import each other, also for types alone', async () => {
  const files = { 'src/a.ts': "import { b } from './b.js';", 'src/b.ts': "export { c } from './c.js';" };
  const of = (c: string) => linted('scripts/circles.js', { ...files, 'src/c.ts': c });
  expect(await of("import type { D } from './d.js';")).toEqual({ status: 0, stderr: '' });
  expect(await of("import type { A } from './a.js';")).toEqual({
    status: 1,
    stderr: 'A circle of imports: src/a.ts -> src/b.ts -> src/c.ts -> src/a.ts\n',
  });
});

test('CONTRIBUTING.md says what each folder of the tests is for', async () => {
  const text = await readFile('CONTRIBUTING.md', 'utf8');
  const rooms = ['test/contract', 'test/faults', 'test/hosts', 'test/support'];
  const inRooms = await Promise.all(rooms.map((room) => readdir(room, { withFileTypes: true })));
  const folders = inRooms.flat().filter((entry) => entry.isDirectory());
  expect(folders.map(({ name }) => name).filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
});
