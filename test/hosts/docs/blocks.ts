import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import type { Given } from './given.js';

/** The modules that a reader imports, and their sources in this repository. */
const OWN_MODULES: Record<string, string> = {
  'adk-mikro-orm': 'src/index',
  'adk-mikro-orm-http': 'packages/http/src/index',
  'adk-mikro-orm-import': 'packages/import/src/index',
  'adk-mikro-orm/testing': 'src/testing/index',
  'adk-session-contract': 'packages/session-contract/src/index',
  'adk-mikro-orm-studio': 'packages/studio/src/index',
  'adk-mikro-orm/codecs': 'src/codecs/index',
  'adk-mikro-orm/entities': 'entities/index',
  'adk-mikro-orm/migrations': 'migrations/index',
};

export interface Block {
  /** The file that has it. */
  page: string;
  /** The heading above it. */
  heading: string;
  line: number;
  code: string;
  /** Whether it is a complete program, which gets no names of `given.ts`. */
  isProgram?: boolean;
}

/**
 * Pages whose blocks are run elsewhere: by dev-ui.test.ts, test/hosts/schema and test/hosts/package, with the examples. The block of docs/README.md
 * is the README's.
 */
export const OTHER_PAGES = [
  'docs/README.md',
  'docs/dev-ui.md',
  'docs/migrations.md',
  'docs/nestjs.md',
  'docs/testing.md',
];

/** The pages of docs/, by their path in it. */
export function docsPages(): string[] {
  const files = readdirSync('docs', { recursive: true, encoding: 'utf8' });
  return files.filter((file) => file.endsWith('.md')).map((file) => file.replaceAll(path.sep, '/'));
}

/** The pages whose blocks are run here. */
export function pages(): string[] {
  const docs = docsPages().map((file) => `docs/${file}`);
  return ['README.md', ...docs.filter((page) => !OTHER_PAGES.includes(page))];
}

export function blocksOf(page: string): Block[] {
  const markdown = readFileSync(page, 'utf8');
  return [...markdown.matchAll(/^```ts\n(.*?)^```$/gms)].map(({ index, 1: code = '' }) => {
    const above = markdown.slice(0, index);
    const heading = [...above.matchAll(/^#+ (.*)$/gm)].at(-1)?.[1] ?? '';
    return { page, heading, line: above.split('\n').length, code };
  });
}

/** The programs of a page: each block by itself, or all blocks of a guide joined in their order. */
export function programsOf(page: string): Block[] {
  const [first, ...others] = blocksOf(page);
  if (!first || !page.startsWith('docs/guides/')) return blocksOf(page);
  return [{ ...first, code: [first, ...others].map(({ code }) => code).join('\n'), isProgram: true }];
}

/** A block as a module: what it declares is returned by `run`, what it doesn't declare comes from `given.ts`. */
function moduleOf({ code }: Block, names: readonly string[]): string {
  // A comment on the page gives this difference.
  const text = isMikroOrm7 ? code.replace('.schema.updateSchema()', '.schema.update()') : code;
  const source = ts.createSourceFile('block.ts', text, ts.ScriptTarget.ES2023, true);
  const imports: string[] = [];
  const body: string[] = [];
  const imported = new Set<string>();
  const declared = new Set<string>();
  for (const statement of source.statements) {
    if (ts.isImportDeclaration(statement)) {
      imports.push(statement.getText());
      const bindings = statement.importClause?.namedBindings;
      if (bindings && ts.isNamedImports(bindings)) bindings.elements.forEach(({ name }) => imported.add(name.text));
      continue;
    }
    // A config file: its default export becomes `config`.
    body.push(statement.getText().replace(/^export default /, 'const config = '));
    if (ts.isExportAssignment(statement)) declared.add('config');
    if (ts.isFunctionDeclaration(statement) && statement.name) declared.add(statement.name.text);
    if (!ts.isVariableStatement(statement)) continue;
    for (const { name } of statement.declarationList.declarations) {
      const bound = ts.isObjectBindingPattern(name) ? name.elements.map((each) => each.name) : [name];
      for (const each of bound) if (ts.isIdentifier(each)) declared.add(each.text);
    }
  }
  const lent = names.filter((name) => !declared.has(name) && !imported.has(name));
  return [
    ...imports,
    `import type { Given } from './given.js';`,
    `export async function run({ ${lent.join(', ')} }: Given) {`,
    ...body,
    `return { ${[...declared].join(', ')} };`,
    `}`,
  ].join('\n');
}

export interface Compiled {
  /** The type checker's errors. */
  complaints: string[];
  run(given: Given): Promise<Record<string, unknown>>;
}

/** Type-checks the blocks as strictly as the sources, and compiles them in memory. */
export async function compile(root: string, blocks: readonly Block[], names: readonly string[]): Promise<Compiled[]> {
  const modules = new Map(
    blocks.map((block) => [
      path.join(root, `test/hosts/docs/${block.page.replaceAll('/', '-')}-${block.line}.ts`),
      moduleOf(block, block.isProgram ? [] : names),
    ]),
  );
  const { config } = ts.readConfigFile(path.join(root, 'tsconfig.json'), (file) => ts.sys.readFile(file)) as {
    config: object;
  };
  const options: ts.CompilerOptions = {
    ...ts.parseJsonConfigFileContent(config, ts.sys, root).options,
    // Examples do not use every name that they get.
    noUnusedLocals: false,
    noUnusedParameters: false,
    paths: Object.fromEntries(
      Object.entries(OWN_MODULES).map(([name, file]) => [name, [path.join(root, `${file}.ts`)]]),
    ),
  };
  const host = ts.createCompilerHost(options);
  const { readFile, fileExists } = host;
  host.readFile = (file) => modules.get(path.normalize(file)) ?? readFile(file);
  host.fileExists = (file) => modules.has(path.normalize(file)) || fileExists(file);
  const program = ts.createProgram([...modules.keys()], options, host);

  return Promise.all(
    [...modules].map(async ([file, code]) => ({
      complaints: ts
        .getPreEmitDiagnostics(program, program.getSourceFile(file))
        .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n')),
      run: await runnable(root, code),
    })),
  );
}

async function runnable(root: string, code: string): Promise<Compiled['run']> {
  const { outputText } = ts.transpileModule(code, {
    compilerOptions: { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2023 },
  });
  const modules = new Map<string, unknown>();
  for (const [, name = ''] of outputText.matchAll(/require\("(.*?)"\)/g)) {
    const own = OWN_MODULES[name];
    modules.set(name, await import(own ? path.join(root, own) : name));
  }
  const exported: Partial<Compiled> = {};
  // eslint-disable-next-line @typescript-eslint/no-implied-eval, @typescript-eslint/no-unsafe-call -- the page's code
  new Function('require', 'exports', outputText)((name: string) => modules.get(name), exported);
  if (!exported.run) throw new Error('The module of a block exports run');
  return exported.run;
}
