// The packages of this repository: what each has for others, and which sources of others a package may use.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

export const repository = path.resolve(import.meta.dirname, '..');

/** The folders of the packages, by their paths in the repository; this one first. */
export const FOLDERS = [
  '.',
  ...readdirSync(path.join(repository, 'packages')).map((name) => `packages/${name}`),
].filter((folder) => existsSync(path.join(repository, folder, 'package.json')));

/**
 * Pure functions: a package has its own copy of what it uses. All else of another package is loaded from it, since tables, classes and
 * what a process must know once may not exist twice.
 */
export const PURE = [
  'src/model/',
  'src/conversation/',
  'src/database/sql/',
  'entities/dialect-name.ts',
  'entities/mikro-orm.ts',
  'entities/naming.ts',
  'packages/http/src/file-response.ts',
  'packages/http/src/file.ts',
  'packages/http/src/listener.ts',
  'packages/import/src/exact-json.ts',
  'packages/studio/src/operations/days.ts',
  'packages/studio/src/operations/prices.ts',
  'packages/studio/src/operations/tokens.ts',
  'packages/studio/src/operations/words.ts',
];

/** Errors are classes, so they are loaded from the package that exports them. */
const ERRORS = 'src/model/errors.ts';

/**
 * The modules of a package, and their sources.
 *
 * @param {string} folder
 * @param {boolean} isPublic leaves out those without declarations, which only our packages import.
 * @returns {[module: string, source: string][]}
 */
export function entriesOf(folder, isPublic = false) {
  const { name, exports = {} } = manifestOf(folder);
  return Object.entries(exports).flatMap(([key, entry]) =>
    typeof entry === 'string' || (isPublic && esmOf(entry).types === undefined)
      ? []
      : [[path.posix.join(name, key), path.posix.join(folder, sourceOf(esmOf(entry).default))]],
  );
}

const modules = new Map(FOLDERS.flatMap((folder) => entriesOf(folder)).map(([name, source]) => [source, name]));

/**
 * @param {string} source its path in the repository.
 * @param {string} folder of the package that uses it.
 * @returns {string | undefined} the module to import instead of this source; undefined if the package has the source itself.
 * @throws if it may have neither.
 */
export function moduleFor(source, folder) {
  const isOwn = folder === '.' ? !source.startsWith('packages/') : source.startsWith(`${folder}/`);
  if (isOwn) return undefined;
  const module = source === ERRORS ? 'adk-mikro-orm' : modules.get(source);
  if (module === undefined && !PURE.some((pure) => source.startsWith(pure)))
    throw new Error(`${folder} uses ${source}, which no package exports and which is not pure.`);
  return module;
}

/** @param {string} built a file that package.json names. */
export function sourceOf(built) {
  return built.replace(/^\.\/dist\/(esm|cjs)\//, '').replace(/(\.d)?\.[jt]s$/, '.ts');
}

/** @typedef {{ types?: string, default: string }} Built */
/** @typedef {Built | { import: Built, require?: { default: string } }} Exported A module has the one if it is not in CommonJS, too. */

/** @param {Exported} entry */
export function esmOf(entry) {
  return 'import' in entry ? entry.import : entry;
}

/**
 * @param {string} folder
 * @returns {{ name: string, version: string, exports?: Record<string, string | Exported>, bin?: Record<string, string> }}
 */
export function manifestOf(folder) {
  /** @type {unknown} */
  const manifest = JSON.parse(readFileSync(path.join(repository, folder, 'package.json'), 'utf8'));
  return /** @type {ReturnType<typeof manifestOf>} */ (manifest);
}
