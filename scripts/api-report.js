import { createHash } from 'node:crypto';
import path from 'node:path';
import ts from 'typescript';
import { FOLDERS, entriesOf } from './packages.js';

/** The entries that users import, and their sources. */
export const ENTRIES = Object.fromEntries(FOLDERS.flatMap((folder) => entriesOf(folder, true)));

/** How long a declaration may be, in characters. */
const MOST_READABLE = 10_000;

/** The folder of the declarations, which are never written. */
const FOLDER = 'dist/api';

/**
 * Lists the declarations of all public names, by entry and name, without comments. A test checks that the types in them are
 * public, too.
 *
 * @param {Record<string, string>} sources contents that replace files on the disk, by their paths in the repository.
 * @returns {Record<string, string>} the report of each package, by its file.
 */
export function apiReport(sources = {}) {
  const read = ts.readConfigFile('tsconfig.build.json', (file) => ts.sys.readFile(file));
  const { options } = ts.parseJsonConfigFileContent(read.config, ts.sys, '.');
  const entries = Object.values(ENTRIES).map((file) => path.resolve(file));
  const replaced = new Map(Object.entries(sources).map(([file, text]) => [path.resolve(file), text]));

  // `npm run typecheck` checks the sources.
  const declared = programOf(entries, { ...options, noCheck: true, removeComments: true, outDir: FOLDER }, replaced);
  /** @type {Map<string, string>} */
  const declarations = new Map();
  declared.emit(undefined, (file, text) => declarations.set(path.resolve(file), text), undefined, true);

  const files = Object.values(ENTRIES).map((file) => path.resolve(FOLDER, file.replace(/\.ts$/, '.d.ts')));
  // Imports from other packages stay as written.
  const program = programOf(files, { ...options, noEmit: true, noLib: true, types: [] }, declarations, true);
  const checker = program.getTypeChecker();
  const sections = Object.entries(ENTRIES).map(([name, source], i) => {
    const module = checker.getSymbolAtLocation(/** @type {ts.SourceFile} */ (program.getSourceFile(files[i] ?? '')));
    if (!module) throw new Error(`${name} exports nothing`);
    const exported = checker.getExportsOfModule(module).sort((a, b) => (a.name < b.name ? -1 : 1));
    const text = exported.flatMap((symbol) => textsOf(symbol, checker)).join('\n');
    return { source, text: `## ${name}\n\n\`\`\`ts\n${text}\n\`\`\`\n` };
  });
  /** @type {Record<string, string>} */
  const reports = {};
  for (const folder of FOLDERS) {
    const own = new Set(entriesOf(folder, true).map(([, source]) => source));
    const parts = sections.filter(({ source }) => own.has(source)).map(({ text }) => text);
    const text = ['# Public declarations\n', 'Written by `npm run api -- --update`, and compared by CI.\n', ...parts];
    // A package may have no entry, only a program.
    if (parts.length > 0) reports[path.join(folder, 'api.md')] = text.join('\n');
  }
  return reports;
}

/**
 * @param {string[]} roots
 * @param {ts.CompilerOptions} options
 * @param {Map<string, string>} files contents that replace those on the disk.
 * @param {boolean} isAlone whether there are no other files.
 */
function programOf(roots, options, files, isAlone = false) {
  const host = ts.createCompilerHost(options);
  const disk = { ...host };
  const own = /** @param {string} file */ (file) => files.get(path.normalize(file));
  host.readFile = (file) => own(file) ?? disk.readFile(file);
  host.fileExists = (file) => own(file) !== undefined || (!isAlone && disk.fileExists(file));
  // The folders of these files need not exist on the disk.
  if (isAlone) delete host.directoryExists;
  host.getSourceFile = (file, version, ...more) => {
    const text = own(file);
    return text === undefined
      ? disk.getSourceFile(file, version, ...more)
      : ts.createSourceFile(file, text, version, true);
  };
  return ts.createProgram(roots, options, host);
}

/**
 * @param {ts.Symbol} symbol
 * @param {ts.TypeChecker} checker
 */
function textsOf(symbol, checker) {
  const declared = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  return (declared.declarations ?? []).map((declaration) => {
    const node = ts.isVariableDeclaration(declaration) ? declaration.parent.parent : declaration;
    const text = node.getText().replace(/^\s*#private;\n/gm, '');
    if (text.length <= MOST_READABLE) return text;
    // MikroORM infers the types of entities. Nobody reads them, but a change must show.
    return `// ${declared.name}: inferred, with the checksum ${createHash('sha256').update(text).digest('hex').slice(0, 16)}`;
  });
}
