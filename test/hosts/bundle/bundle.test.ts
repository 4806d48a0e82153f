import { execFile } from 'node:child_process';
import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { availableDatabases, createDatabase } from '../../support/servers.js';

// Inside the repository, since a module finds packages in the folders above it.
const bundle = path.resolve(`node_modules/.cache/adk-mikro-orm/host-${process.pid}.mjs`);

/** Native modules, and drivers that knex loads and nobody here has. */
const NOT_BUNDLED = ['better-sqlite3', 'sqlite3', 'libsql', 'mysql', 'oracledb', 'tedious'];

beforeAll(async () => {
  await mkdir(path.dirname(bundle), { recursive: true });
  await build({
    entryPoints: [path.resolve('test/hosts/bundle/host.ts')],
    outfile: bundle,
    bundle: true,
    minify: true,
    platform: 'node',
    format: 'esm',
    external: NOT_BUNDLED,
    banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
    logLevel: 'error',
  });
});

afterAll(() => rm(bundle, { force: true }));

test.each(availableDatabases())('a host that is bundled and minified works on %s', async (name) => {
  const { options, drop } = await createDatabase(name);
  const { driver: _driver, ...connection } = options;
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [bundle, name, JSON.stringify(connection)]);
    expect(JSON.parse(stdout)).toEqual({
      isMinified: true,
      isWhole: true,
      state: { 'user:name': 'Ada' },
      authors: ['user'],
      token: 1,
      lastSeq: [1],
      missing: { name: 'SessionNotFoundError', code: 'ADK_SESSION_NOT_FOUND' },
      refused: { name: 'DatabaseError', code: 'ADK_DATABASE', reason: 'NotNullConstraintViolationException' },
    });
  } finally {
    await drop();
  }
});

test('a host that keeps sessions loads neither the importers of other stores nor the studio and the command line', async () => {
  const { metafile } = await build({
    entryPoints: ['src/index.ts'],
    bundle: true,
    write: false,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    metafile: true,
    // Imported modules are loaded even if they are not used.
    treeShaking: false,
  });
  const files = Object.keys(metafile.inputs);
  expect(files).toContain('src/sessions/session-service.ts');
  expect(files.filter((file) => /transfer\/foreign|src\/(cli|studio)|import-from/.test(file))).toEqual([]);
});
