// Builds the package of the current folder: ES modules, CommonJS and their types. The sources are bundled into a few files, since each file that
// Node.js loads costs a host's start about half a millisecond. Sources of another package become imports of that package.
// An argument names the folder where build-all.js has made the declarations of all packages.
import { build, transform } from 'esbuild';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import ts from 'typescript';
import { esmOf, manifestOf, moduleFor, repository, sourceOf } from './packages.js';

const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const folder = path.relative(repository, process.cwd()) || '.';
const ESM = path.resolve('dist/esm');
const CJS = path.resolve('dist/cjs');
const [, , declaredByAll] = process.argv;
const DECLARED = declaredByAll ?? path.resolve('dist/declared');
/** @type {{ platform: 'node', target: string }} */
const TARGET = { platform: 'node', target: 'node20' };

/** Sources of other packages are imported from these. @type {import('esbuild').Plugin} */
const otherPackages = {
  name: 'other packages',
  setup(build) {
    build.onResolve({ filter: /^\.\.?\// }, ({ path: imported, resolveDir }) => {
      const file = path.relative(repository, path.join(resolveDir, imported)).replace(/\.js$/, '.ts');
      const module = moduleFor(file, folder);
      return module === undefined ? undefined : { path: module, external: true };
    });
  },
};

const { exports = {}, bin = {} } = manifestOf(folder);
const modules = Object.values(exports).flatMap((entry) => (typeof entry === 'string' ? [] : [entry]));
const conditions = modules.map(esmOf);
const entries = conditions.map((entry) => sourceOf(entry.default));
const required = modules.flatMap((entry) =>
  'require' in entry && entry.require ? [sourceOf(entry.require.default)] : [],
);
// `internal` has no declarations: the packages that use it are checked with its sources.
const typed = conditions.flatMap(({ types }) => (types === undefined ? [] : [sourceOf(types)]));
const programs = Object.values(bin).map(sourceOf);

rmSync('dist', { recursive: true, force: true });
if (!declaredByAll) {
  execFileSync(process.execPath, [tsc, '--project', 'tsconfig.build.json', '--outDir', DECLARED], { stdio: 'inherit' });
}
mkdirSync(ESM, { recursive: true });
for (const name of folder === '.' ? ['src', 'entities', 'migrations'] : ['src'])
  cpSync(path.join(DECLARED, folder, name), path.join(ESM, name), { recursive: true });
if (!declaredByAll) rmSync(DECLARED, { recursive: true });
keepReachable();
// The declarations of CommonJS are the same: the package.json of their folder says what they are.
if (required.length > 0) cpSync(ESM, CJS, { recursive: true });
for (const { path: file, text } of await bundled([...entries, ...programs])) write(file, text);
// Nobody imports a program, so it has no declarations. A module that waits while it is loaded has no CommonJS.
for (const { path: file, text } of await bundled(required)) {
  // esbuild splits only ES modules, so each file is converted to CommonJS afterwards.
  const { code } = await transform(text, { ...TARGET, format: 'cjs', supported: { 'dynamic-import': false } });
  write(path.join(CJS, path.relative(ESM, file)), code);
}
// Sets the type of this folder's .js files, whatever the package.json above says.
write(path.join(ESM, 'package.json'), JSON.stringify({ type: 'module', sideEffects: false }) + '\n');
write(path.join(CJS, 'package.json'), JSON.stringify({ type: 'commonjs', sideEffects: false }) + '\n');

/** Removes the declarations that no entry needs, which are two thirds of them, and names other packages in the rest. */
function keepReachable() {
  const reached = new Set(typed.map((file) => path.join(ESM, declarationOf(file))));
  for (const file of reached) {
    let text = readFileSync(file, 'utf8');
    for (const { fileName } of ts.preProcessFile(text).importedFiles) {
      if (!fileName.startsWith('.')) continue;
      const imported = fileName.replace(/\.js$/, '.ts');
      const source = path.join(folder, path.relative(ESM, path.dirname(file)), imported);
      const module = moduleFor(source, folder);
      if (module !== undefined) text = text.replaceAll(`'${fileName}'`, `'${module}'`);
      else reached.add(path.join(path.dirname(file), declarationOf(imported)));
    }
    writeFileSync(file, text);
  }
  for (const file of readdirSync(ESM, { recursive: true, encoding: 'utf8' })) {
    const declaration = path.join(ESM, file);
    if (declaration.endsWith('.d.ts') && !reached.has(declaration)) rmSync(declaration);
  }
}

/** @param {string} source */
function declarationOf(source) {
  return source.replace(/\.ts$/, '.d.ts');
}

/** @param {string[]} entryPoints */
async function bundled(entryPoints) {
  if (entryPoints.length === 0) return [];
  const { outputFiles } = await build({
    ...TARGET,
    entryPoints,
    bundle: true,
    // Code that two entries share gets its own file, since the classes of entities must exist only once.
    splitting: true,
    chunkNames: 'chunks/[name]-[hash]',
    packages: 'external',
    plugins: [otherPackages],
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
