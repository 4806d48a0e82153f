// Installs the newest releases of ADK and of a major version of MikroORM, and leaves the lock file of the pinned ones alone:
//   node scripts/install-newest.js . 6
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

const [folder = '.', major = '6'] = process.argv.slice(2);
/** @type {unknown} */
const manifest = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'));
const { dependencies, devDependencies } =
  /** @type {{ dependencies?: Record<string, string>; devDependencies?: Record<string, string> }} */ (manifest);
const names = Object.keys({ ...dependencies, ...devDependencies });
const newest = [
  ...names.filter((name) => name.startsWith('@google/adk')).map((name) => `${name}@latest`),
  ...names.filter((name) => name.startsWith('@mikro-orm/')).map((name) => `${name}@${major}`),
];
// Forces npm, since the pinned versions in package.json conflict with these.
const { status } = spawnSync('npm', ['install', '--no-save', '--force', '--no-audit', '--no-fund', ...newest], {
  cwd: folder,
  stdio: 'inherit',
});
process.exit(status ?? 1);
