import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { blocksOf, docsPages } from '../docs/blocks.js';
import { PACKAGES, packPackage } from '../schema/host-folder.js';

const run = promisify(execFile);
const repository = path.resolve(__dirname, '../../..');

/** With it, MikroORM and ADK are the newest of the registry, instead of the versions in the pages and the ADK made here. */
const isNewest = Boolean(process.env['ADK_TEST_NEWEST']);

/** Tests that install for minutes, as in the scheduled run; a merge waits for the complete lines alone. */
const installing = process.env['ADK_TEST_FULL'] || isNewest ? test : test.skip;

const pages = [
  'README.md',
  ...docsPages().map((page) => `docs/${page}`),
  ...PACKAGES.slice(1).map((folder) => `${folder}/README.md`),
];

/** The packages of each install command in the pages, without its options. */
const lines = new Set(pages.flatMap(linesOf));
const isComplete = (line: string) => / ?adk-mikro-orm /.test(line);
/** The first lines of the README: for MikroORM 6, and for 7. */
const README = linesOf('README.md').filter(isComplete);
/** What other lines add to a project that has those of the README. */
const additions = [...lines].filter((line) => !isComplete(line));

function linesOf(page: string): string[] {
  const text = readFileSync(path.join(repository, page), 'utf8');
  const commands = text.matchAll(/\b(?:npm install|bun add|deno add)((?: +--?[a-z][\w-]*)*(?: +@?[a-z][\w@./-]*)+)/gi);
  return [...commands].map(([, words = '']) =>
    words
      .split(' ')
      .filter((word) => word && !word.startsWith('-'))
      .join(' '),
  );
}

const majorOf = (line: string) => /@mikro-orm\/core@(\d)/.exec(line)?.[1] ?? '7';

let root: string;
let pnpm: string;
const tarballs = new Map<string, string>();

// What is installed does not depend on the MikroORM that the tests run on.
(isMikroOrm7 ? describe.skip : describe)('every install line, beside an ADK that needs MikroORM 7', () => {
  beforeAll(async () => {
    root = await mkdtemp(path.join(tmpdir(), 'adk-lines-'));
    for (const folder of PACKAGES) {
      const { name } = manifestOf(path.join(repository, folder));
      tarballs.set(name, await packPackage(folder));
    }
    for (const name of ['@google/adk', '@google/adk-devtools'])
      tarballs.set(name, isNewest ? `${name}@latest` : await makeNewer(name));
    await npm(root, 'install', 'pnpm@latest');
    pnpm = path.join(root, 'node_modules/.bin/pnpm');
  }, 900_000);

  afterAll(() => rm(root, { recursive: true, force: true }));

  test('the README has a line for each major version of MikroORM', () => {
    expect(README.map(majorOf)).toEqual(['6', '7']);
    expect(additions).toEqual(expect.arrayContaining(['adk-mikro-orm-cli', 'adk-mikro-orm-studio']));
  });

  test.each([...lines].filter(isComplete))('npm and pnpm accept %s', async (line) => {
    const packages = await packagesOf(line);
    await npm(await emptyFolder(), 'install', '--package-lock-only', '--ignore-scripts', ...packages);
    await run(pnpm, ['add', '--lockfile-only', STRICT, ...packages], { cwd: await emptyFolder() });
  });

  installing.each(['postgresql', 'mysql', 'mariadb', 'sqlite'])(
    'npm and pnpm accept the driver %s of MikroORM 7',
    async (name) => {
      const packages = await packagesOf(README[1]!.replace('libsql', name));
      await npm(await emptyFolder(), 'install', '--package-lock-only', '--ignore-scripts', ...packages);
      await run(pnpm, ['add', '--lockfile-only', STRICT, ...packages], { cwd: await emptyFolder() });
    },
  );

  installing.each(README)('npm and pnpm accept what other lines add to %s', async (line) => {
    const added = additions.filter((each) => majorOf(each) === majorOf(line) || !each.includes('@mikro-orm/'));
    const packages = await packagesOf([line, ...added].join(' '));
    await npm(await emptyFolder(), 'install', '--package-lock-only', '--ignore-scripts', ...packages);
    // Not strictly: packages of others have peers of their own that do not fit each other.
    await run(pnpm, ['add', '--lockfile-only', ...packages], { cwd: await emptyFolder() });
  });

  describe.each(README)('%s', (line) => {
    const onNode = async () => ({
      ...process.env,
      PATH: `${path.dirname(await nodeFor(line))}:${process.env['PATH']}`,
    });

    installing.each(['npm', 'pnpm'])(
      'installed by %s, it runs the first program and the command line',
      async (manager) => {
        const cwd = await emptyFolder();
        const packages = await packagesOf(line);
        // With what it depends on, which is not published either.
        const cli = await packagesOf(
          'adk-mikro-orm-cli adk-mikro-orm-import adk-mikro-orm-studio adk-session-contract',
        );
        if (manager === 'npm') {
          await npm(cwd, 'install', ...packages);
          await npm(cwd, 'install', '-D', ...cli);
        } else {
          await run(pnpm, ['add', ...pnpmOptions(), ...packages], { cwd });
          await run(pnpm, ['add', '-D', ...cli], { cwd });
        }
        const env = await onNode();
        const { code } = blocksOf('README.md')[0]!;
        await writeFile(path.join(cwd, 'first.mjs'), code);
        await run('node', ['first.mjs'], { cwd, env });
        const again = await run('node', ['first.mjs'], { cwd, env });
        expect(again.stdout.match(/^stored: user Hello!$/gm)).toHaveLength(2);

        const command = path.join(cwd, 'node_modules/.bin/adk-mikro-orm');
        const stats = await run(command, ['stats', '--json', '--url', 'sqlite:sessions.db'], { cwd, env });
        expect(JSON.parse(stats.stdout)).toMatchObject({ sessions: 1, events: 4 });

        // The newest driver might be of the other major.
        const [, version = ''] = /core@(\S+)/.exec(packages.join(' ')) ?? [];
        const without = run(command, ['stats', '--url', 'mysql://localhost/agents'], { cwd, env });
        await expect(without).rejects.toMatchObject({
          stderr: expect.stringContaining(`npm install @mikro-orm/mysql@${version}`) as unknown,
        });

        // As TypeScript, in the way that the README says.
        await writeFile(path.join(cwd, 'first.ts'), code);
        expect(readFileSync(path.join(repository, 'README.md'), 'utf8')).toContain('`npm pkg set type=module`');
        await npm(cwd, 'pkg', 'set', 'type=module');
        const typescript =
          majorOf(line) === '6' ? ['node_modules/tsx/dist/cli.mjs'].map((file) => path.join(repository, file)) : [];
        const typed = await run('node', [...typescript, 'first.ts'], { cwd, env });
        expect(typed.stdout.match(/^stored: user Hello!$/gm)).toHaveLength(3);
      },
    );
  });
});

/** Without it pnpm accepts packages whose peers do not fit. */
const STRICT = '--config.strict-peer-dependencies=true';

/** What the README adds for pnpm. */
const pnpmOptions = () =>
  readFileSync(path.join(repository, 'README.md'), 'utf8').match(/(?<=`[^`]*)--allow-build=[^\s`]+/g) ?? [];

interface Manifest {
  name: string;
  version: string;
  dependencies: Record<string, string>;
  devDependencies?: object;
  peerDependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
}

const manifestOf = (folder: string) => JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as Manifest;

/** For pnpm with the tarballs of packages that others name by version, too. */
async function emptyFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(root, 'project-'));
  await writeFile(path.join(folder, 'package.json'), '{ "private": true }');
  const overrides = [...tarballs]
    .filter(([, file]) => file.startsWith('/'))
    .map(([name, file]) => `  '${name}': 'file:${file}'`);
  await writeFile(path.join(folder, 'pnpm-workspace.yaml'), ['overrides:', ...overrides, ''].join('\n'));
  return folder;
}

/** Rejects with npm's words if packages do not fit: no flag is set that would ignore it. */
const npm = (cwd: string, ...args: string[]) =>
  run('npm', args, { cwd, env: { ...process.env, npm_config_prefer_offline: isNewest ? 'false' : 'true' } });

async function packagesOf(line: string): Promise<string[]> {
  const packages = line.split(' ').map(async (each) => {
    const tarball = tarballs.get(each);
    if (tarball !== undefined) return tarball;
    const [, name, major] = /^(@mikro-orm\/[\w-]+)@(\d)/.exec(each) ?? [];
    return isNewest && name && major ? `${name}@${await newestMikroOrm(major)}` : each;
  });
  return Promise.all(packages);
}

const byVersion = (a: string, b: string) => a.localeCompare(b, 'en', { numeric: true });

/** The newest version that all packages have: a release does not publish them in one moment. */
async function newestMikroOrm(major: string): Promise<string> {
  const newest = ['core', 'libsql', 'migrations', 'postgresql'].map(async (name) => {
    const { stdout } = await npm(root, 'view', `@mikro-orm/${name}@${major}`, 'version', '--json');
    return ([JSON.parse(stdout)] as string[]).flat().sort(byVersion).at(-1)!;
  });
  return (await Promise.all(newest)).sort(byVersion)[0]!;
}

/** A package of ADK with the code that is installed here and the requirements of 2.2.1, which this registry may not have. */
async function makeNewer(name: string): Promise<string> {
  const folder = path.join(root, path.basename(name), 'package');
  const installed = path.join(repository, 'node_modules', name);
  await cp(path.join(installed, 'dist'), path.join(folder, 'dist'), { recursive: true });
  const { devDependencies: _, ...manifest } = manifestOf(installed);
  manifest.version = '2.2.1';
  delete manifest.dependencies['@mikro-orm/reflection'];
  for (const required of [manifest.dependencies, manifest.peerDependencies ?? {}])
    for (const each of Object.keys(required)) if (each.startsWith('@mikro-orm/')) required[each] = '^7.2.0';
  await writeFile(path.join(folder, 'package.json'), JSON.stringify(manifest));
  if (name === '@google/adk') await withoutDecorators(path.join(folder, 'dist/esm/sessions/db/schema.js'));
  const tarball = path.join(root, `${path.basename(name)}-2.2.1.tgz`);
  await run('tar', ['-czf', tarball, '-C', path.dirname(folder), 'package']);
  return tarball;
}

/** MikroORM 7 has its decorators elsewhere. Nothing here uses the tables of ADK's own service. */
async function withoutDecorators(schema: string): Promise<void> {
  const text = await readFile(schema, 'utf8');
  const imported = 'import { Entity, JsonType, PrimaryKey, Property } from "@mikro-orm/core";';
  expect(text).toContain(imported);
  const decorators = 'const Entity = () => () => {}, PrimaryKey = Entity, Property = Entity;';
  await writeFile(schema, text.replace(imported, `import { JsonType } from "@mikro-orm/core";\n${decorators}`));
}

/** The Node.js that the README names for the line: MikroORM 7 needs 22.17. */
async function nodeFor(line: string): Promise<string> {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (majorOf(line) === '6' || major > 22 || (major === 22 && minor >= 17)) return process.execPath;
  const name = `node-${process.platform}-${process.arch}`;
  const folder = path.join(repository, 'test/mikro-orm-7');
  const version = manifestOf(folder).optionalDependencies?.[name];
  const places = [folder, root].map((each) => path.join(each, 'node_modules', name, 'bin/node'));
  if (!places.some((file) => existsSync(file))) await npm(root, 'install', `${name}@${version}`);
  return places.find((file) => existsSync(file)) ?? process.execPath;
}
