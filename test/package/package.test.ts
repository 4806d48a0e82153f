import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

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

const APP = `
import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/better-sqlite';
import {
  AdkMikroOrmError, adkEntities, EventTooLargeError, InvalidKeyError, migrate, MikroOrmSessionService, SchemaError,
  SessionExistsError, SessionNotFoundError, StaleSessionError, UnserializableValueError,
} from 'adk-mikro-orm';
import { adkEntities as sameEntities, AdkSession } from 'adk-mikro-orm/entities';
import { adkMigrations } from 'adk-mikro-orm/migrations';

async function main(): Promise<void> {
  const errors: readonly (typeof AdkMikroOrmError | (new (...args: never[]) => AdkMikroOrmError))[] = [
    EventTooLargeError, InvalidKeyError, SchemaError, SessionExistsError, SessionNotFoundError, StaleSessionError,
    UnserializableValueError,
  ];
  const orm = await MikroORM.init({ dbName: ':memory:', entities: adkEntities() });
  await migrate(orm);

  const service = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
  const session = await service.createSession({ appName: 'shop', userId: 'alice', state: { 'user:name': 'Alice' } });
  await service.appendEvent({ session, event: createEvent({ author: 'user', content: { parts: [{ text: 'hello' }] } }) });
  const missing: unknown = await service
    .appendEvent({ session: { ...session, id: 'missing' }, event: createEvent({ author: 'user' }) })
    .catch((error: unknown) => error);

  const stored = await service.getSession({ appName: 'shop', userId: 'alice', sessionId: session.id });
  console.log(JSON.stringify({
    text: stored?.events[0]?.content?.parts?.[0]?.text,
    state: stored?.state,
    rows: await orm.em.fork().count(AdkSession),
    migrations: adkMigrations('sqlite').length > 0,
    sameEntities: sameEntities === adkEntities,
    errors: errors.every((type) => type.prototype instanceof AdkMikroOrmError),
    missing: missing instanceof SessionNotFoundError,
  }));
  await orm.close();
}
void main();
`;

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
  for (const name of INSTALLED) {
    const link = path.join(project, 'node_modules', name);
    await mkdir(path.dirname(link), { recursive: true });
    await symlink(path.join(repository, 'node_modules', name), link, 'junction');
  }
  await writeFile(path.join(project, 'package.json'), JSON.stringify({ name: 'app', private: true }));
}, 300_000);

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

test.each([
  { system: 'ES modules', source: 'app.mts', output: 'app.mjs' },
  { system: 'CommonJS', source: 'app.cts', output: 'app.cjs' },
])('an empty project in $system type-checks and runs', async ({ source, output }) => {
  await writeFile(path.join(project, source), APP);

  const flags = ['--strict', '--exactOptionalPropertyTypes', '--module', 'nodenext', '--target', 'es2022'];
  const check = await run(process.execPath, [tsc, ...flags, source], { cwd: project }).catch(
    (error: unknown) => error as { stdout: string },
  );
  // The ADK's types name packages that it doesn't install.
  const errors = check.stdout.split('\n').filter((line) => /^(app\.|node_modules\/adk-mikro-orm\/)/.test(line));
  expect(errors).toEqual([]);

  const { stdout, stderr } = await run(process.execPath, [output], { cwd: project });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    text: 'hello',
    state: { 'user:name': 'Alice' },
    rows: 1,
    migrations: true,
    sameEntities: true,
    errors: true,
    missing: true,
  });
});
