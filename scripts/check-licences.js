// Fails if a package that is installed with this one, or for work on it, has a licence that is not permissive.
import { readFileSync } from 'node:fs';

const PERMISSIVE = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'CC0-1.0',
  'ISC',
  'MIT',
  'PSF-2.0',
  'Python-2.0',
]);

/** Not permissive, but only for work on this package: they are not installed with it. The name in node_modules, and the licence. */
const FOR_WORK = {
  'axe-core': 'MPL-2.0',
  'caniuse-lite': 'CC-BY-4.0',
  lightningcss: 'MPL-2.0',
  // The driver of @mikro-orm/mariadb, which hosts choose.
  mariadb: 'LGPL-2.1-or-later',
  // Its LICENSE is that of MIT; it says so in a field of older versions of npm.
  'parent-require': undefined,
  // Also MIT.
  spawndamnit: 'SEE LICENSE IN LICENSE',
};

/** @type {unknown} */
const lock = JSON.parse(readFileSync(process.argv[2] ?? 'package-lock.json', 'utf8'));
const { packages } = /** @type {{ packages: Record<string, { license?: string, dev?: boolean }> }} */ (lock);
for (const [folder, { license, dev = false }] of Object.entries(packages)) {
  const name = folder.replace(/^.*node_modules\//, '');
  if (isPermissive(license) || (dev && isForWork(name, license))) continue;
  console.error(`${folder}: ${license ?? 'no licence'}`);
  process.exitCode = 1;
}

/** @param {string | undefined} license an expression of SPDX, with `OR` and `AND` and without parentheses inside. */
function isPermissive(license = '') {
  return license
    .replace(/^\((.*)\)$/, '$1')
    .split(' OR ')
    .some((each) => each.split(' AND ').every((name) => PERMISSIVE.has(name)));
}

/**
 * @param {string} name
 * @param {string | undefined} license
 */
function isForWork(name, license) {
  // Of lightningcss each platform has a package of its own.
  const known = Object.entries(FOR_WORK).find(([each]) => name === each || name.startsWith(`${each}-`));
  return known !== undefined && known[1] === license;
}
