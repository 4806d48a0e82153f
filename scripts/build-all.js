// Builds all packages. The compiler makes the declarations of all at once, with its own arguments, such as --noCheck: most of its
// time goes to the types of ADK and MikroORM, which it would read again for each package.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { FOLDERS, repository } from './packages.js';

const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const declared = mkdtempSync(path.join(tmpdir(), 'adk-declared-'));

/**
 * @param {string[]} args
 * @param {string} cwd
 */
function run(args, cwd) {
  execFileSync(process.execPath, args, { cwd, stdio: 'inherit' });
}

try {
  run([tsc, '--project', 'tsconfig.packages.json', '--outDir', declared, ...process.argv.slice(2)], repository);
  for (const folder of FOLDERS)
    run([path.join(import.meta.dirname, 'build.js'), declared], path.join(repository, folder));
} finally {
  rmSync(declared, { recursive: true });
}
