import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { PACKAGES, packPackage } from '../schema/host-folder.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { PRINTED, appOn, errorsOf } from './app.js';

const run = promisify(execFile);
const tsc = createRequire(__filename).resolve('typescript/bin/tsc');

/** The version that is installed here: the newest version may require a package that is not published yet. */
async function versioned(name: string): Promise<string> {
  const { version } = JSON.parse(await readFile(require.resolve(`${name}/package.json`), 'utf8')) as {
    version: string;
  };
  return `${name}@${version}`;
}

const PEERS = ['@google/adk', '@mikro-orm/core', '@mikro-orm/migrations', '@mikro-orm/sqlite'];

/** The override that ADK 2.0.0, which requires MikroORM 6, needs beside MikroORM 7, as in docs/migrations.md. */
const overrides = isMikroOrm7 ? { '@google/adk': { '@mikro-orm/sqlite': '$@mikro-orm/sqlite' } } : {};

describe('npm install in an empty folder', () => {
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'adk-install-'));
    const tarballs: string[] = [];
    for (const each of PACKAGES) tarballs.push(await packPackage(each));
    await writeFile(path.join(folder, 'package.json'), JSON.stringify({ name: 'app', private: true, overrides }));
    const peers = await Promise.all([...PEERS, '@types/node'].map(versioned));
    // Rejects if the peers do not fit: no flag is set that would ignore it.
    await run('npm', ['install', ...tarballs, ...peers], {
      cwd: folder,
      env: { ...process.env, npm_config_ignore_scripts: 'true', npm_config_prefer_offline: 'true' },
    });
    if (!isMikroOrm7) {
      // Compiling it takes minutes and tests nothing of this package. The driver of MikroORM 7 comes compiled.
      const built = path.join(require.resolve('sqlite3/package.json'), '../build/Release');
      await cp(built, path.join(folder, 'node_modules/sqlite3/build/Release'), { recursive: true });
    }
    await writeFile(path.join(folder, 'app.mts'), appOn('sqlite'));
    await writeFile(path.join(folder, 'app.cts'), appOn('sqlite'));
  }, 900_000);

  afterAll(() => rm(folder, { recursive: true, force: true }));

  test('has this MikroORM once for the program, and our declarations fit it', async () => {
    const { stdout } = await run('npm', ['ls', '@mikro-orm/core', '--json', '--depth=0'], { cwd: folder });
    expect(JSON.parse(stdout)).toMatchObject({
      dependencies: { '@mikro-orm/core': { version: expect.stringMatching(isMikroOrm7 ? /^7\./ : /^6\./) } },
    });
    const flags = ['--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', 'false', '--module', 'nodenext'];
    const printed = await run(
      process.execPath,
      [tsc, ...flags, '--target', 'es2023', '--outDir', 'built', 'app.mts', 'app.cts'],
      { cwd: folder },
    ).catch((error: unknown) => error as { stdout: string });
    expect(errorsOf(printed.stdout)).toEqual([]);
  }, 900_000);

  test.each(['app.mjs', 'app.cjs'])('runs %s', async (file) => {
    const { stdout, stderr } = await run(process.execPath, [`built/${file}`], { cwd: folder });
    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual(PRINTED);
  });

  test('has the command line', async () => {
    const cli = async (command: string) => {
      const args = ['node_modules/.bin/adk-mikro-orm', command, '--json', '--url', 'sqlite:cli.db'];
      return JSON.parse((await run(process.execPath, args, { cwd: folder })).stdout) as unknown;
    };
    expect(await cli('migrate')).toMatchObject({
      migrations: [expect.anything(), expect.anything(), expect.anything()],
    });
    expect(await cli('stats')).toMatchObject({ sessions: 0 });
    // Only @mikro-orm/cli finds a config that is not named, and it is not installed.
    await writeFile(
      path.join(folder, 'named.mjs'),
      `import { SqliteDriver } from '@mikro-orm/sqlite';
       import { adkEntities } from 'adk-mikro-orm';
       export default { driver: SqliteDriver, dbName: 'cli.db', entities: adkEntities() };`,
    );
    const named = ['node_modules/.bin/adk-mikro-orm', 'stats', '--json', '--config', 'named.mjs'];
    expect(JSON.parse((await run(process.execPath, named, { cwd: folder })).stdout)).toMatchObject({ sessions: 0 });
    const studio = spawn(
      process.execPath,
      ['node_modules/.bin/adk-mikro-orm', 'studio', '--json', '--port', '0', '--url', 'sqlite:cli.db'],
      { cwd: folder },
    );
    try {
      const [line] = (await once(studio.stdout, 'data')) as [Buffer];
      const { url } = JSON.parse(line.toString()) as { url: string };
      expect(await (await fetch(url)).text()).toContain('No sessions yet');
    } finally {
      studio.kill('SIGINT');
    }
    expect(await once(studio, 'exit')).toEqual([0, null]);
    expect(await cli('doctor')).not.toContainEqual(expect.objectContaining({ state: 'wrong' }));
  });
});
