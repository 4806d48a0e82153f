// Fails if a package that is installed with this one, or for work on it, has no permissive licence.
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

/** Packages without a permissive licence that are used only for work on this one, by their names in node_modules. */
const FOR_WORK = {
  'axe-core': 'MPL-2.0',
  'caniuse-lite': 'CC-BY-4.0',
  lightningcss: 'MPL-2.0',
  // The driver of @mikro-orm/mariadb, which hosts choose.
  mariadb: 'LGPL-2.1-or-later',
  // MIT, by its LICENSE, and by a field that older versions of npm had.
  'parent-require': undefined,
  // MIT, too.
  spawndamnit: 'SEE LICENSE IN LICENSE',
};

/** @type {unknown} */
const lock = JSON.parse(readFileSync(process.argv[2] ?? 'package-lock.json', 'utf8'));
const { packages } =
  /** @type {{ packages: Record<string, { license?: string, dev?: boolean, devOptional?: boolean, link?: boolean }> }} */ (
    lock
  );
for (const [folder, { license, dev = false, devOptional = false, link = false }] of Object.entries(packages)) {
  // A package of this repository, listed once more by its folder.
  if (link) continue;
  const name = folder.replace(/^.*node_modules\//, '');
  if (isPermissive(license) || ((dev || devOptional) && isForWork(name, license))) continue;
  console.error(`${folder}: ${license ?? 'no licence'}`);
  process.exitCode = 1;
}

/** @param {string | undefined} license an SPDX expression with `OR` and `AND`, without nested parentheses. */
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
  // lightningcss has a package for each platform.
  const known = Object.entries(FOR_WORK).find(([each]) => name === each || name.startsWith(`${each}-`));
  return known !== undefined && known[1] === license;
}
