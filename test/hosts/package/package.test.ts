import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import ts from 'typescript';
import { packPackage, unpackPackages } from '../schema/host-folder.js';
import { PRINTED, appOn, errorsOf } from './app.js';

const repository = path.resolve(__dirname, '../../..');
const tsc = createRequire(__filename).resolve('typescript/bin/tsc');
const run = promisify(execFile);

/** A user's peers on SQLite, and what the type check needs. The package must not need more. */
const INSTALLED = [
  '@google/adk',
  '@mikro-orm/better-sqlite',
  '@mikro-orm/core',
  '@mikro-orm/migrations',
  '@types/node',
];

const APP = appOn('better-sqlite');

let project: string;
let tarball: string;
/** The paths in the tarball. */
let files: string[];

beforeAll(async () => {
  project = await mkdtemp(path.join(tmpdir(), 'adk-package-'));
  tarball = await packPackage();
  const { stdout } = await run('tar', ['-tzf', tarball]);
  files = [...stdout.matchAll(/^package\/(.+)$/gm)].map(([, file = '']) => file);
  await unpackPackages(project, ['.', 'packages/http', 'packages/import', 'packages/studio']);
  for (const name of INSTALLED) {
    const link = path.join(project, 'node_modules', name);
    await mkdir(path.dirname(link), { recursive: true });
    await symlink(path.join(repository, 'node_modules', name), link, 'junction');
  }
  await writeFile(path.join(project, 'package.json'), JSON.stringify({ name: 'app', private: true }));
  await writeFile(path.join(project, 'app.mts'), APP);
  await writeFile(path.join(project, 'app.cts'), APP);
}, 900_000);

afterAll(() => rm(project, { recursive: true, force: true }));

test('the tarball is small and holds what a user needs, and no tests', async () => {
  expect((await stat(tarball)).size).toBeLessThan(950_000);
  expect([...new Set(files.map((file) => file.split('/')[0]))].sort()).toEqual([
    'CHANGELOG.md',
    'CONTRIBUTING.md',
    'LICENSE',
    'README.md',
    'SECURITY.md',
    'dist',
    'docs',
    'examples',
    'package.json',
  ]);
  expect(files.filter((file) => /node_modules/.test(file))).toEqual([]);
  expect(files.filter((file) => file.startsWith('dist/') && /\.test\.|\/(test|bench|examples)\//.test(file))).toEqual(
    [],
  );
});

test.each(['esm', 'cjs'])('its declarations of %s are those that an entry leads to', async (format) => {
  const installed = path.join(project, 'node_modules/adk-mikro-orm');
  const folder = `dist/${format}/`;
  const manifest = JSON.parse(await readFile('package.json', 'utf8')) as { exports: Record<string, unknown> };
  const entries = JSON.stringify(manifest.exports).match(new RegExp(`${folder}[^"]*\\.d\\.ts`, 'g')) ?? [];
  const program = ts.createProgram(
    entries.map((entry) => path.join(installed, entry)),
    { module: ts.ModuleKind.NodeNext, skipLibCheck: true },
  );
  const reached = program
    .getSourceFiles()
    .map(({ fileName }) => path.relative(installed, fileName))
    .filter((file) => file.startsWith(folder));
  const packed = files.filter((file) => file.startsWith(folder) && file.endsWith('.d.ts'));
  expect(packed.sort()).toEqual(reached.sort());
});

test('a dependency whose licence is not permissive is refused', async () => {
  const check = (lock: string) => run(process.execPath, ['scripts/check-licences.js', lock], { cwd: repository });
  await check('package-lock.json');
  const lock = path.join(project, 'lock.json');
  const packages = {
    'node_modules/a': { license: 'MIT OR GPL-3.0' },
    'node_modules/b': { license: 'GPL-3.0' },
    'node_modules/c': {},
    // Used only for work on this package.
    'node_modules/mariadb': { license: 'LGPL-2.1-or-later' },
    'node_modules/d/node_modules/mariadb': { license: 'LGPL-2.1-or-later', dev: true },
  };
  await writeFile(lock, JSON.stringify({ packages }));
  await expect(check(lock)).rejects.toMatchObject({
    code: 1,
    stderr: ['b: GPL-3.0', 'c: no licence', 'mariadb: LGPL-2.1-or-later', '']
      .map((each) => each && `node_modules/${each}`)
      .join('\n'),
  });
});

/** For readers of the repository and of the site: pages link to them, and the tarball leaves them out. */
const LEFT_OUT = ['adk-services', 'architecture', 'benchmarks', 'contract', 'growth', 'scale', 'session-contract'];

test('every link of its pages leads to a file of the tarball, or to a page that it leaves out', async () => {
  const leftOut = LEFT_OUT.map((name) => `docs/${name}.md`);
  expect(leftOut.filter((page) => files.includes(page) || !existsSync(path.join(repository, page)))).toEqual([]);
  const installed = path.join(project, 'node_modules/adk-mikro-orm');
  const broken: string[] = [];
  for (const page of files.filter((file) => file.endsWith('.md'))) {
    const markdown = await readFile(path.join(installed, page), 'utf8');
    for (const [, link = ''] of markdown.matchAll(/\]\((?!https?:|#)([^)#]+)/g)) {
      const file = path.posix.join(path.posix.dirname(page), link);
      // The link may lead to a folder.
      if (![...files, ...leftOut].some((each) => each === file || each.startsWith(`${file}/`)))
        broken.push(`${page}: ${link}`);
    }
  }
  expect(broken).toEqual([]);
});

test('the rules that declarations cite are in the contract, and the entry says where that is', async () => {
  const installed = path.join(project, 'node_modules/adk-mikro-orm');
  const contract = await readFile(path.join(repository, 'docs/contract.md'), 'utf8');
  const declared = files.filter((file) => file.endsWith('.d.ts'));
  const declarations = await Promise.all(declared.map((file) => readFile(path.join(installed, file), 'utf8')));
  const cited = new Set(
    declarations.flatMap((text) => [...text.matchAll(/\(contract ([A-Z]\d+)/g)].map(([, rule = '']) => rule)),
  );
  expect(cited.size).toBeGreaterThan(5);
  expect([...cited].filter((rule) => !contract.includes(`**${rule}. `))).toEqual([]);
  const entry = await readFile(path.join(installed, 'dist/esm/src/index.d.ts'), 'utf8');
  expect(entry).toContain('docs/contract.md');
});

test('an import loads a few files of the package, and nothing else than ADK and the core of MikroORM', async () => {
  const script = `
    require('@google/adk');
    require('@mikro-orm/core');
    const before = new Set(Object.keys(require.cache));
    require('adk-mikro-orm');
    console.log(JSON.stringify(Object.keys(require.cache).filter((file) => !before.has(file))));`;
  const { stdout } = await run(process.execPath, ['-e', script], { cwd: project });
  const loaded = JSON.parse(stdout) as string[];
  expect(loaded.filter((file) => !file.includes('node_modules/adk-mikro-orm/dist/cjs/'))).toEqual([]);
  expect(loaded.length).toBeLessThan(15);
  expect(loaded.filter((file) => file.includes('codecs'))).toEqual([]);
});

test('telemetry needs a package, and says which', async () => {
  const script = `
    const { MikroOrmSessionService } = <PACKAGE>;
    const { MikroORM } = <DRIVER>;
    const { adkEntities } = <ENTITIES>;
    const orm = await MikroORM.init({ dbName: ':memory:', entities: adkEntities() });
    try {
      new MikroOrmSessionService(orm.em, { telemetry: true });
      console.log('loaded');
    } catch ({ code, message }) {
      console.log(code, message);
    }
    await orm.close();`;
  const using = (load: (name: string) => string) =>
    script
      .replace('<PACKAGE>', load('adk-mikro-orm'))
      .replace('<DRIVER>', load('@mikro-orm/better-sqlite'))
      .replace('<ENTITIES>', load('adk-mikro-orm/entities'));
  await writeFile(
    path.join(project, 'telemetry.mjs'),
    using((name) => `await import('${name}')`),
  );
  await writeFile(
    path.join(project, 'telemetry.cjs'),
    `void (async () => {${using((name) => `require('${name}')`)}})();`,
  );
  const printed = async () =>
    Promise.all(
      ['telemetry.mjs', 'telemetry.cjs'].map(async (file) => {
        const { stdout } = await run(process.execPath, [file], { cwd: project });
        return stdout.trim();
      }),
    );

  const missing =
    "ADK_INVALID_ARGUMENT 'telemetry' needs a package that could not be loaded: npm install @opentelemetry/api";
  expect(await printed()).toEqual([missing, missing]);
  const api = path.join(project, 'node_modules/@opentelemetry');
  await mkdir(api);
  await symlink(path.join(repository, 'node_modules/@opentelemetry/api'), path.join(api, 'api'), 'junction');
  expect(await printed()).toEqual(['loaded', 'loaded']);
});

test('a release without repository, homepage, bugs and author is refused', async () => {
  const manifest = JSON.parse(await readFile(path.join(repository, 'package.json'), 'utf8')) as Record<string, unknown>;
  const missing = ['repository', 'homepage', 'bugs', 'author'].filter((field) => manifest[field] === undefined);
  const check = run(process.execPath, [path.join(repository, 'scripts/check-publishable.js')]);
  if (missing.length === 0) await check;
  else await expect(check).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining(missing[0]!) });
});

test('projects in ES modules and in CommonJS type-check', async () => {
  const flags = [
    '--strict',
    '--exactOptionalPropertyTypes',
    '--module',
    'nodenext',
    '--outDir',
    'built',
    'app.mts',
    'app.cts',
  ];
  const check = await run(process.execPath, [tsc, ...flags], { cwd: project }).catch(
    (error: unknown) => error as { stdout: string },
  );
  expect(errorsOf(check.stdout)).toEqual([]);
}, 900_000);

test.each(['app.mjs', 'app.cjs'])('an empty project runs %s', async (file) => {
  const { stdout, stderr } = await run(process.execPath, [`built/${file}`], { cwd: project });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual(PRINTED);
});
