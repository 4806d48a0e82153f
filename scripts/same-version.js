// Gives the packages in packages/ the version of this one, since they are released together and need each other in exactly this version.
// `changeset version` raises this package alone: with all in a `fixed` group, the exact peer dependencies would make each release a major
// one.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { FOLDERS, manifestOf, repository } from './packages.js';

const { version } = manifestOf('.');
const names = FOLDERS.map((folder) => manifestOf(folder).name);
for (const folder of FOLDERS.slice(1)) {
  const file = path.join(repository, folder, 'package.json');
  /** @type {unknown} */
  const read = JSON.parse(readFileSync(file, 'utf8'));
  const manifest =
    /** @type {{ version: string, dependencies?: Record<string, string>, peerDependencies?: Record<string, string> }} */ (
      read
    );
  manifest.version = version;
  for (const needed of [manifest.dependencies, manifest.peerDependencies])
    for (const name of names) if (needed?.[name] !== undefined) needed[name] = version;
  writeFileSync(file, JSON.stringify(manifest, undefined, 2) + '\n');
}
const constant = path.join(repository, 'src/model/version.ts');
writeFileSync(constant, readFileSync(constant, 'utf8').replace(/'.*'/, `'${version}'`));
