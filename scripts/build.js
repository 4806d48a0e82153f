import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

rmSync('dist', { recursive: true, force: true });
for (const { project, folder, type } of [
  { project: 'tsconfig.build.json', folder: 'dist/esm', type: 'module' },
  { project: 'tsconfig.cjs.json', folder: 'dist/cjs', type: 'commonjs' },
]) {
  execFileSync(process.execPath, [tsc, '--project', project, ...process.argv.slice(2)], { stdio: 'inherit' });
  // Says what the .js files of the folder are, whatever the package.json above says.
  writeFileSync(`${folder}/package.json`, JSON.stringify({ type, sideEffects: false }) + '\n');
}
