// Gives the packages in packages/ the version of this one, since they are released together. They are not npm workspaces, because
// `changeset version` would need a changeset for each.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const { version } = read('package.json');
for (const name of readdirSync('packages')) {
  const file = path.join('packages', name, 'package.json');
  writeFileSync(file, JSON.stringify({ ...read(file), version }, undefined, 2) + '\n');
}

/** @param {string} file */
function read(file) {
  /** @type {unknown} */
  const manifest = JSON.parse(readFileSync(file, 'utf8'));
  return /** @type {{ version: string }} */ (manifest);
}
