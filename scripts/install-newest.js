// Installs the newest releases of ADK and of a major version of MikroORM as a user does, without a flag that ignores conflicts:
//   node scripts/install-newest.js . 6
// Changes package.json, and no lock file.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const [folder = '.', major = '6'] = process.argv.slice(2);
const file = path.join(folder, 'package.json');
/** @type {unknown} */
const parsed = JSON.parse(readFileSync(file, 'utf8'));
const manifest =
  /** @type {{ dependencies?: Record<string, string>; devDependencies?: Record<string, string>; overrides?: object }} */ (
    parsed
  );

/** @param {string} a @param {string} b */
const byVersion = (a, b) => a.localeCompare(b, 'en', { numeric: true });

/** @param {string[]} args */
function npm(...args) {
  const { status, stdout } = spawnSync('npm', args, {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
  });
  if (status !== 0) process.exit(status ?? 1);
  return stdout;
}

/** @param {string} name a package, with a range */
function newest(name) {
  /** @type {unknown} */
  const answer = JSON.parse(npm('view', name, 'version', '--json'));
  const versions = /** @type {string[]} */ ([answer].flat());
  return versions.sort(byVersion).at(-1) ?? '';
}

const lists = [manifest.dependencies ?? {}, manifest.devDependencies ?? {}];
const names = lists.flatMap((list) => Object.keys(list)).filter((name) => name.startsWith('@mikro-orm/'));
// A release does not publish all packages in one moment, and they must have the same version.
const [common = ''] = names.map((name) => newest(`${name}@${major}`)).sort(byVersion);
for (const list of lists) {
  for (const name of Object.keys(list)) {
    if (name.startsWith('@mikro-orm/')) list[name] = common;
    if (name.startsWith('@google/adk')) list[name] = newest(`${name}@latest`);
  }
}
// The lines of docs/migrations.md, for drivers of the other major than ADK's.
const drivers = ['sqlite', 'postgresql', 'mysql', 'mariadb'].map((name) => `@mikro-orm/${name}`);
const accepted = Object.fromEntries(drivers.map((name) => [name, `$${name}`]));
manifest.overrides = { ...manifest.overrides, '@google/adk': accepted };
writeFileSync(file, `${JSON.stringify(manifest, undefined, 2)}\n`);
process.stdout.write(npm('install', '--no-package-lock', '--no-audit', '--no-fund'));
