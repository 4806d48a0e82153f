import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { blocksOf } from '../docs/blocks.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { databaseFolder, runPrefix } from '../../support/run.js';
import type { TestDatabase } from '../../support/servers.js';

const run = promisify(execFile);
const repository = path.resolve(__dirname, '../../..');

/** The packages that build this one. On MikroORM 7 a copy of the repository is tested; these are the original's. */
const builders = path.join(process.env['ADK_TEST_MIKRO_ORM_6'] ?? repository, 'node_modules');

/** The folder of a scope's packages that the tests run with. */
const scopeOf = (name: string) => path.join(path.dirname(require.resolve(`${name}/package.json`)), '..');

/** Where MikroORM keeps the previous schema: a file that `migration:create` and `up` write, or nowhere. */
export type Snapshot = 'snapshot from before our package' | 'no snapshot yet' | 'snapshot: false';

/** Where the host keeps its own migrations. */
export type Home = 'list' | 'folder';

/** What a user installs, with the command line. */
export const PACKAGES = [
  '.',
  'packages/cli',
  'packages/http',
  'packages/import',
  'packages/session-contract',
  'packages/studio',
];

const ENTITY = (columns: string) => `
import { defineEntity, p } from '@mikro-orm/core';
export const Ticket = defineEntity({ name: 'Ticket', properties: { id: p.integer().primary(), ${columns} } });`;

const NO_ENTITY = 'export const Ticket = [];';

/** Removed at the end of the run. */
const tarballOf = (folder: string) => path.join(databaseFolder(), `${runPrefix()}${folder.replace('/', '-')}.tgz`);

/**
 * @param folder the folder of the package's package.json.
 * @returns the tarball, packed by a build without a type check. The first call in a run of tests makes those of all packages.
 */
export async function packPackage(folder = '.'): Promise<string> {
  if (!existsSync(tarballOf(folder))) await packAll();
  return tarballOf(folder);
}

async function packAll(): Promise<void> {
  const root = await mkdtemp(path.join(databaseFolder(), `${runPrefix()}pack-`));
  // Packed in a copy: the build begins by removing `dist`, and other tests build, too.
  const copy = path.join(root, 'copy');
  await mkdir(copy);
  for (const name of [
    'docs',
    'entities',
    'examples',
    'migrations',
    'packages',
    'scripts',
    'src',
    'CHANGELOG.md',
    'CONTRIBUTING.md',
    'LICENSE',
    'README.md',
    'SECURITY.md',
    'package.json',
  ]) {
    await cp(path.join(repository, name), path.join(copy, name), { recursive: true });
  }
  for (const name of (await readdir(repository)).filter((file) => file.startsWith('tsconfig'))) {
    await cp(path.join(repository, name), path.join(copy, name));
  }
  await symlink(builders, path.join(copy, 'node_modules'), 'junction');
  // `npm run check:package` packs with a type check.
  await run(process.execPath, [path.join(copy, 'scripts/build-all.js'), '--noCheck'], { cwd: copy });
  for (const folder of PACKAGES) {
    const packed = await mkdtemp(path.join(root, 'packed-'));
    await run('npm', ['pack', '--ignore-scripts', '--pack-destination', packed], { cwd: path.join(copy, folder) });
    const [name = ''] = await readdir(packed);
    // Renamed when it is complete. If two workers ask at once, both make the same file.
    await rename(path.join(packed, name), tarballOf(folder));
  }
  await rm(root, { recursive: true });
}

/** Unpacks packages of this repository, and links what they depend on, in a folder's `node_modules`. */
export async function unpackPackages(root: string, folders: readonly string[]): Promise<void> {
  for (const folder of folders) {
    const tarball = await packPackage(folder);
    const manifest = await readFile(path.join(repository, folder, 'package.json'), 'utf8');
    const { name, dependencies = {} } = JSON.parse(manifest) as {
      name: string;
      dependencies?: Record<string, string>;
    };
    const installed = path.join(root, 'node_modules', name);
    await mkdir(installed, { recursive: true });
    await run('tar', ['-xzf', tarball, '--strip-components=1', '-C', installed]);
    for (const each of Object.keys(dependencies)) {
      const link = path.join(root, 'node_modules', each);
      if (!each.startsWith('adk-') && !existsSync(link)) await symlink(path.join(builders, each), link, 'junction');
    }
  }
}

/** A folder with these packages, packed and installed, in its `node_modules`. Hosts live in folders below it. */
export async function installPackage(folders: readonly string[] = PACKAGES): Promise<string> {
  const root = await mkdtemp(path.join(tmpdir(), 'adk-hosts-'));
  await unpackPackages(root, folders);
  for (const [scope, name] of Object.entries({ '@google': '@google/adk', '@mikro-orm': '@mikro-orm/core' })) {
    await symlink(scopeOf(name), path.join(root, 'node_modules', scope), 'junction');
  }
  return root;
}

/** A host's project, with the config of docs/migrations.md and the `mikro-orm` command. */
export class HostFolder {
  readonly #folder: string;
  readonly #database: TestDatabase;

  private constructor(folder: string, database: TestDatabase) {
    this.#folder = folder;
    this.#database = database;
  }

  static async create(root: string, database: TestDatabase, snapshot: Snapshot, home: Home): Promise<HostFolder> {
    const folder = await mkdtemp(path.join(root, 'host-'));
    await mkdir(path.join(folder, 'migrations'));
    const host = new HostFolder(folder, database);
    const config = await documentedConfig(database, snapshot, home);
    await host.#write(
      'package.json',
      JSON.stringify({
        type: 'module',
        dependencies: { '@mikro-orm/cli': '*' },
        // Each keeps one major of MikroORM from looking for a compiler.
        'mikro-orm': { configPaths: ['./mikro-orm.config.js'], useTsNode: false, preferTs: false },
      }),
    );
    await host.#write('ticket.js', NO_ENTITY);
    await host.#listMigrations();
    if (snapshot === 'snapshot from before our package') await host.#liveWithoutUs(config);
    await host.#write('mikro-orm.config.js', config);
    return host;
  }

  /** Creates tables, migrations and a snapshot by MikroORM alone. */
  async #liveWithoutUs(ours: string): Promise<void> {
    const config = replaced(ours, {
      '...adkEntities()': '',
      AdkMigrator: 'Migrator',
      ...(ours.includes('adkMigrations(') && {
        [`...adkMigrations('${DATABASES[this.#database.name].dialect}'), `]: '',
      }),
    }).replace(/^import .* from 'adk-mikro-orm.*$/gm, '');
    await this.#write('mikro-orm.config.js', `import { Migrator } from '@mikro-orm/migrations';\n${config}`);
    await this.createMigration('title: p.string()', 'drop table ticket');
    await this.mikroOrm('migration:up');
  }

  /**
   * Writes the entity with these columns, and has `migration:create` write the migration to it.
   *
   * @param down what the host adds on SQLite, for which MikroORM writes no `down`.
   */
  async createMigration(columns: string, down: string): Promise<void> {
    await this.#write('ticket.js', ENTITY(columns));
    const before = await this.files();
    // With a name, since MikroORM names files by the second: two in one second would overwrite each other.
    await this.mikroOrm(`migration:create -n ${before.length + 1}`);
    const [name, ...others] = (await this.files()).filter((file) => !before.includes(file));
    if (!name || others.length > 0) throw new Error(`migration:create wrote ${[name, ...others].join()}`);
    const text = await readFile(path.join(this.#folder, 'migrations', name), 'utf8');
    if (!text.includes('down()')) {
      const body = `  async down() { this.addSql('${down}'); }\n}\nexports.`;
      await this.#write(`migrations/${name}`, replaced(text, { '}\nexports.': body }));
    }
    await this.#listMigrations();
  }

  /** Writes the list of migrations, as a host that keeps one does. */
  async #listMigrations(): Promise<void> {
    const names = await this.files();
    await this.#write(
      'your-migrations.js',
      `${names.map((name, i) => `import m${i} from './migrations/${name}';`).join('\n')}
       export const yourMigrations = [${names.map((name, i) => `{ name: '${path.parse(name).name}', class: Object.values(m${i})[0] }`).join(', ')}];`,
    );
  }

  /** The generated files, oldest first. */
  async files(): Promise<string[]> {
    const names = await readdir(path.join(this.#folder, 'migrations'));
    return names.filter((name) => name.endsWith('.cjs')).sort();
  }

  /** The files that MikroORM has written into the folder: migrations and the snapshot. */
  async written(): Promise<string[]> {
    const folder = path.join(this.#folder, 'migrations');
    return Promise.all((await readdir(folder)).map((name) => readFile(path.join(folder, name), 'utf8')));
  }

  /** Runs the command. Rejects with its output if its exit code is not 0. */
  async mikroOrm(command: string): Promise<string> {
    const { stdout } = await run(
      process.execPath,
      [path.join(this.#folder, '../node_modules/@mikro-orm/cli/cli.js'), ...command.split(' ')],
      {
        cwd: this.#folder,
        env: { ...process.env, DATABASE_URL: this.#database.options.dbName ?? this.#database.url, NO_COLOR: '1' },
      },
    );
    return stdout;
  }

  #write(name: string, text: string): Promise<void> {
    return writeFile(path.join(this.#folder, name), text);
  }
}

/** The config of docs/migrations.md, for this database. The block is valid JavaScript. */
async function documentedConfig(database: TestDatabase, snapshot: Snapshot, home: Home): Promise<string> {
  const { dialect, packageName, kind } = DATABASES[database.name];
  const docs = await readFile(path.join(repository, 'docs/migrations.md'), 'utf8');
  const block = blocksOf('docs/migrations.md').find(({ heading }) => heading === 'Beside your own migrations');
  const list = `migrations: { path: './migrations', migrationsList: [...adkMigrations('postgresql'), ...yourMigrations] }`;
  const folder = `migrations: { path: './migrations' }`;
  if (!docs.includes(`\`${folder}\``)) throw new Error('docs/migrations.md no longer shows how to keep a folder');
  // Without a compiler, the test can run only CommonJS.
  const emitted = `migrations: { emit: 'cjs', ${snapshot === 'snapshot: false' ? 'snapshot: false, ' : ''}`;
  const config = replaced(block?.code ?? '', {
    [list]: (home === 'list' ? list : folder).replace('migrations: { ', emitted),
    '@mikro-orm/postgresql': packageName,
    ', Ticket]': '].concat(Ticket)',
    ...(kind === 'file' && { clientUrl: 'dbName' }),
  });
  return home === 'list' ? replaced(config, { "'postgresql'": `'${dialect}'` }) : config;
}

function replaced(text: string, replacements: Record<string, string>): string {
  return Object.entries(replacements).reduce((result, [from, to]) => {
    if (!result.includes(from)) throw new Error(`${from} is not in ${text}`);
    return result.replaceAll(from, to);
  }, text);
}
