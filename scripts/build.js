// Builds the package of the current folder: ES modules, CommonJS and their types. The sources are bundled into a few files, since each file that
// Node.js loads costs a host's start about half a millisecond.
import { build, transform } from 'esbuild';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import ts from 'typescript';

const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const ESM = path.resolve('dist/esm');
const CJS = path.resolve('dist/cjs');
/** @type {{ platform: 'node', target: string }} */
const TARGET = { platform: 'node', target: 'node20' };

rmSync('dist', { recursive: true, force: true });
execFileSync(process.execPath, [tsc, '--project', 'tsconfig.build.json', ...process.argv.slice(2)], {
  stdio: 'inherit',
});

/** @type {unknown} */
const read = JSON.parse(readFileSync('package.json', 'utf8'));
const manifest =
  /** @type {{ exports: Record<string, string | { import: { default: string } }>, bin: Record<string, string> }} */ (
    read
  );
const entries = Object.values(manifest.exports).flatMap((entry) =>
  typeof entry === 'string' ? [] : [sourceOf(entry.import.default)],
);
const programs = Object.values(manifest.bin).map(sourceOf);
keepReachable(ESM);
// The declarations of CommonJS are the same: the package.json of their folder says what they are.
cpSync(ESM, CJS, { recursive: true });
for (const { path: file, text } of await bundled([...entries, ...programs])) write(file, text);
// Nobody imports a program, so it has no declarations.
for (const { path: file, text } of await bundled(entries)) {
  // esbuild splits only ES modules, so each file is converted to CommonJS afterwards.
  const { code } = await transform(text, { ...TARGET, format: 'cjs', supported: { 'dynamic-import': false } });
  write(path.join(CJS, path.relative(ESM, file)), code);
}
// Sets the type of this folder's .js files, whatever the package.json above says.
write(path.join(ESM, 'package.json'), JSON.stringify({ type: 'module', sideEffects: false }) + '\n');
write(path.join(CJS, 'package.json'), JSON.stringify({ type: 'commonjs', sideEffects: false }) + '\n');

/** @param {string} built a file that package.json names. */
function sourceOf(built) {
  return path.relative(ESM, built).replace(/\.js$/, '.ts');
}

/**
 * Removes the declarations that no entry needs, which are two thirds of them.
 *
 * @param {string} folder
 */
function keepReachable(folder) {
  const reached = new Set(entries.map((file) => path.join(folder, file.replace(/\.ts$/, '.d.ts'))));
  for (const file of reached) {
    for (const { fileName } of ts.preProcessFile(readFileSync(file, 'utf8')).importedFiles) {
      if (fileName.startsWith('.')) reached.add(path.join(path.dirname(file), fileName.replace(/\.js$/, '.d.ts')));
    }
  }
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    const declaration = path.join(folder, file);
    if (declaration.endsWith('.d.ts') && !reached.has(declaration)) rmSync(declaration);
  }
}

/** @param {string[]} entryPoints */
async function bundled(entryPoints) {
  const { outputFiles } = await build({
    ...TARGET,
    entryPoints,
    bundle: true,
    // Code that two entries share gets its own file, since the classes of entities must exist only once.
    splitting: true,
    chunkNames: 'chunks/[name]-[hash]',
    packages: 'external',
    format: 'esm',
    outbase: '.',
    outdir: ESM,
    write: false,
  });
  return outputFiles;
}

/**
 * @param {string} file
 * @param {string} text
 */
function write(file, text) {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}
