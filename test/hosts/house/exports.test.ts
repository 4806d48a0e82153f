import { readFile } from 'node:fs/promises';
import path from 'node:path';
import ts from 'typescript';
import { ENTRIES as entries } from '../../../scripts/api-report.js';

const ENTRIES = Object.values(entries).map((file) => path.resolve(file));
/** Those of the package itself. */
const OWN = Object.entries(entries)
  .filter(([name]) => /^adk-mikro-orm(\/|$)/.test(name))
  .map(([, file]) => path.resolve(file));

/** Names of types in this package that exported declarations use but no entry exports. */
function unexported(program: ts.Program, entry: string): string[] {
  const checker = program.getTypeChecker();
  const resolved = (symbol: ts.Symbol) =>
    symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const exportsOf = (file: string) =>
    checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)!)!).map(resolved);
  const exported = new Set(exportsOf(entry));
  // Everybody can import the exports of the package's own entries.
  const importable = new Set([...exported, ...OWN.flatMap(exportsOf)]);
  const found = new Set<string>();
  const isHidden = (node: ts.Node) =>
    ts.getJSDocTags(node).some(({ tagName }) => tagName.text === 'internal') ||
    (ts.isClassElement(node) && node.name !== undefined && ts.isPrivateIdentifier(node.name)) ||
    (ts.canHaveModifiers(node) && node.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.PrivateKeyword)) === true;
  const visit = (node: ts.Node) => {
    if (ts.isBlock(node) || isHidden(node)) return;
    if (ts.isTypeReferenceNode(node)) {
      const symbol = checker.getSymbolAtLocation(node.typeName);
      const declared = symbol && resolved(symbol).declarations?.[0];
      const isOurs = declared && !/node_modules/.test(declared.getSourceFile().fileName);
      if (isOurs && !ts.isTypeParameterDeclaration(declared) && !importable.has(resolved(symbol)))
        found.add(symbol.name);
    }
    ts.forEachChild(node, visit);
  };
  for (const symbol of exported) {
    for (const declaration of symbol.declarations ?? []) {
      // Nobody can call the signature of an overloaded implementation.
      if (ts.isClassDeclaration(declaration)) {
        const constructors = declaration.members.filter(ts.isConstructorDeclaration);
        for (const member of declaration.members) {
          if (constructors.length > 1 && ts.isConstructorDeclaration(member) && member.body) continue;
          visit(member);
        }
      } else if (ts.isVariableDeclaration(declaration) && declaration.type) visit(declaration.type);
      else visit(declaration);
    }
  }
  return [...found].sort();
}

test('every type that a public signature mentions is exported by its entry or by one of the package itself', () => {
  const { config } = ts.readConfigFile('tsconfig.json', (file) => ts.sys.readFile(file)) as { config: object };
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, '.');
  const program = ts.createProgram(ENTRIES, options);
  expect(ENTRIES.map((entry) => [path.relative('.', entry), unexported(program, entry)])).toEqual(
    ENTRIES.map((entry) => [path.relative('.', entry), []]),
  );
});

/** The names that an entry exports; without types, if only values count. */
async function namesOf(entry: string, { withTypes }: { withTypes: boolean }): Promise<string[]> {
  const source = ts.createSourceFile('', await readFile(entry, 'utf8'), ts.ScriptTarget.Latest);
  return source.statements
    .filter(ts.isExportDeclaration)
    .flatMap(({ exportClause, isTypeOnly }) =>
      exportClause && ts.isNamedExports(exportClause)
        ? exportClause.elements.flatMap((each) => (withTypes || !(isTypeOnly || each.isTypeOnly) ? each.name.text : []))
        : [],
    );
}

test('the package has at most 110 names, and at most 20 functions for the other packages alone', async () => {
  const names = await namesOf(ENTRIES[0]!, { withTypes: true });
  expect(names.length).toBeGreaterThan(90);
  expect(names.length).toBeLessThanOrEqual(110);
  const internal = await namesOf('src/internal.ts', { withTypes: false });
  expect(internal.length).toBeGreaterThan(10);
  expect(internal.length).toBeLessThanOrEqual(20);
});
