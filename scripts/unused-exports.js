/** Finds exports that no other file imports. `npm run lint` then fails, since whoever changes an export must check its users. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';

const CHECKED = /^(src|entities|migrations|packages\/[\w-]+\/src)\//;

/** @returns the sources of a package's entries. @param {string} file its package.json */
const entriesOf = (file) =>
  [...readFileSync(file, 'utf8').matchAll(/"default":\s*"\.\/dist\/(?:esm|cjs)\/(.*)\.js"/g)].map(([, built]) =>
    path.join(path.dirname(file), `${built}.ts`),
  );

const list = ['ls-files', '-co', '--exclude-standard', '*.ts', '*.mts', '*.js', '*.mjs', '*package.json'];
const files = execFileSync('git', list, { encoding: 'utf8' }).trim().split('\n').filter(existsSync);
const entries = new Set(files.filter((file) => file.endsWith('package.json')).flatMap(entriesOf));

/** All imports as `file name`; the name `*` means all exports of a file. @type {Set<string>} */
const imported = new Set();
/** @type {[file: string, name: string][]} */
const exported = [];

/** @param {ts.NamedImports | ts.NamedExports} names */
const namesOf = ({ elements }) => elements.map(({ propertyName, name }) => (propertyName ?? name).text);

/** @param {string} file @param {ts.Node | undefined} specifier @param {readonly string[]} names */
function use(file, specifier, names) {
  if (!specifier || !ts.isStringLiteralLike(specifier) || !specifier.text.startsWith('.')) return;
  const target = path.join(path.dirname(file), specifier.text).replace(/(\.[jt]s)?$/, '.ts');
  for (const name of names) imported.add(`${target} ${name}`);
}

/** @param {string} file @param {ts.Node} node */
function visit(file, node) {
  if (ts.isImportDeclaration(node)) {
    const { name, namedBindings } = node.importClause ?? {};
    const named = namedBindings && ts.isNamedImports(namedBindings) ? namesOf(namedBindings) : undefined;
    use(file, node.moduleSpecifier, [...(name ? ['default'] : []), ...(named ?? ['*'])]);
  } else if (ts.isExportDeclaration(node)) {
    const named = node.exportClause && ts.isNamedExports(node.exportClause);
    use(file, node.moduleSpecifier, named ? namesOf(/** @type {ts.NamedExports} */ (node.exportClause)) : ['*']);
  } else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) use(file, node.argument.literal, ['*']);
  else if (ts.isCallExpression(node)) use(file, node.arguments[0], ['*']);
  else if (ts.canHaveModifiers(node) && ts.getModifiers(node)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword))
    for (const { name } of ts.isVariableStatement(node)
      ? node.declarationList.declarations
      : [/** @type {ts.ClassDeclaration} */ (node)])
      if (name && ts.isIdentifier(name)) exported.push([file, name.text]);
  ts.forEachChild(node, (child) => visit(file, child));
}

for (const file of files)
  if (!file.endsWith('json'))
    visit(file, ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.ESNext));

for (const [file, name] of exported) {
  if (!CHECKED.test(file) || entries.has(file) || ['*', name].some((each) => imported.has(`${file} ${each}`))) continue;
  console.error(`${file}: nobody imports ${name}. Remove its export.`);
  process.exitCode = 1;
}
