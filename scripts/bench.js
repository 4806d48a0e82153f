// Runs the benchmark with its own options. Its files are compiled beforehand, like the package's: tsx keeps the names of
// functions, which costs an append as much as some of its statements.
import { build } from 'esbuild';
import { cpSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const repository = path.resolve(import.meta.dirname, '..');
const folder = path.join(repository, 'node_modules/.cache/adk-mikro-orm/bench');

rmSync(folder, { recursive: true, force: true });
await build({
  entryPoints: [
    'mikro-orm.config.ts',
    ...['bench', 'src', 'entities', 'migrations', 'packages/*/src', 'test/support'].map((room) => `${room}/**/*.ts`),
  ],
  absWorkingDir: repository,
  outbase: '.',
  outdir: folder,
  platform: 'node',
  target: 'node20',
  format: 'esm',
});
// Other files that the benchmark reads, imports or starts.
for (const file of ['package.json', 'scripts', ...javaScriptOf('test/support'), ...javaScriptOf('test/hosts/schema')])
  cpSync(path.join(repository, file), path.join(folder, file), { recursive: true });
await import(pathToFileURL(path.join(folder, 'bench/run.js')).href);

/** @param {string} room */
function javaScriptOf(room) {
  return readdirSync(path.join(repository, room))
    .filter((file) => file.endsWith('.js'))
    .map((file) => `${room}/${file}`);
}
