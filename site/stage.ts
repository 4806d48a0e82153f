// Makes the sources of the site in site/pages: the pages of docs/, with GitHub's own markup rewritten; the files that they link
// to; and the reference from the docstrings.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pageOfDiagram } from './diagram.js';
import { entriesOf } from '../scripts/packages.js';
import { NAVIGATION, navigationProblems } from './navigation.js';

const SITE = import.meta.dirname;
const REPOSITORY = path.resolve(SITE, '..');
const PAGES = path.join(SITE, 'pages');
const ROOT_PAGES = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md'];

/** How docstrings and pages cite the rules of docs/contract.md. */
const CITED_RULE = /\(contract ([A-Z]\d+)\)/g;

const read = (file: string) => readFileSync(path.join(REPOSITORY, file), 'utf8');

rmSync(PAGES, { recursive: true, force: true });
const docs = readdirSync(path.join(REPOSITORY, 'docs'), { recursive: true, encoding: 'utf8' }).map((file) =>
  file.replaceAll(path.sep, '/'),
);
const pages = docs.filter((file) => file.endsWith('.md'));
const problems = navigationProblems(pages);
if (problems.length > 0) throw new Error(problems.join('\n'));

// Pictures become part of pages; JSON files are served unchanged.
for (const file of docs.filter((each) => /\.(svg|jpg|json)$/.test(each)))
  cpSync(path.join(REPOSITORY, 'docs', file), path.join(PAGES, file.endsWith('.json') ? 'public' : '', file));

/** Other files that pages link to; each becomes a page that shows it. */
const sources = new Set<string>();
for (const page of [...pages.map((file) => `docs/${file}`), ...ROOT_PAGES]) {
  const target = placeOf(page);
  const frontMatter = target === 'index.md' ? '---\nsidebar: false\naside: false\npageClass: front\n---\n\n' : '';
  const text = markup(linked(read(page), page, target));
  write(target, frontMatter + (page === 'docs/errors.md' ? withHeadings(text) : text));
}
for (const file of sources) {
  const language = path.extname(file).slice(1);
  write(placeOf(file), `# ${file}\n\n\`\`\`\`${language}\n${read(file)}\`\`\`\`\n`);
}
reference();
const titles = Object.fromEntries(pages.map((page) => [page, titleOf(read(`docs/${page}`))]));
const groups = NAVIGATION.map(({ title, pages }) => ({
  text: title,
  items: pages.map((page) => ({
    text: titles[page],
    link: `/${placeOf(`docs/${page}`).replace(/(index)?\.md$/, '')}`,
  })),
}));
writeFileSync(path.join(PAGES, 'sidebar.json'), JSON.stringify(groups));

/** The place on the site of a file of the repository. */
function placeOf(file: string): string {
  if (file === 'docs/README.md') return 'index.md';
  if (file.startsWith('docs/')) return file.slice('docs/'.length);
  if (ROOT_PAGES.includes(file)) return file;
  sources.add(file);
  // VitePress reads brackets as a parameter of the route.
  return `source/${file.replace(/[[\]]/g, '')}.md`;
}

/** Rewrites a page's links to files of the repository as links of the site. */
function linked(markdown: string, page: string, target: string): string {
  return outsideOfCode(markdown, (text) =>
    text.replace(/(?<=\]\()(?!\w+:|#)([^)#\s]+)/g, (link: string) => {
      const file = path.posix.join(path.posix.dirname(page), link);
      if (!existsSync(path.join(REPOSITORY, file))) throw new Error(`${page} links to ${link}, which is missing`);
      if (statSync(path.join(REPOSITORY, file)).isDirectory()) throw new Error(`${page} links to ${link}, a folder`);
      const relative = path.posix.relative(path.posix.dirname(target), placeOf(file));
      return relative.startsWith('.') ? relative : `./${relative}`;
    }),
  );
}

/** Rewrites GitHub's own markup for the site. */
function markup(markdown: string): string {
  const text = outsideOfCode(markdown, (each) => each.replace(CITED_RULE, '(contract [$1](/contract#$1))'));
  return (
    text
      .replace(/^```mermaid\n(erDiagram\n.*?)^```$/gms, (_block, diagram: string) => pageOfDiagram(diagram))
      // The site has a switch between light and dark, which `prefers-color-scheme` does not know.
      .replace(
        /<picture>\s*<source [^>]*srcset="([^"]*)">\s*<img alt="([^"]*)" src="([^"]*)">\s*<\/picture>/g,
        '<img class="in-dark" alt="$2" src="./$1"><img class="in-light" alt="$2" src="./$3">',
      )
      .replace(/^- \*\*([A-Z]\d+)(?=\. )/gm, (_start, rule: string) => `- <span id="${rule}"></span>**${rule}`)
  );
}

/** Gives each error a heading with its code, which the search finds and a link can lead to, in place of a row. */
function withHeadings(markdown: string): string {
  return markdown.replace(/<!-- errors -->.*<!-- \/errors -->/s, (table) => {
    const rows = [...table.matchAll(/^\| (`\w+`) \| `(ADK_\w+)` \| (.*) \|$/gm)];
    if (rows.length === 0) throw new Error('docs/errors.md has no table of errors');
    return rows.map(([, name, code, when]) => `## ${code}\n\n${name}: ${when}`).join('\n\n');
  });
}

function outsideOfCode(markdown: string, change: (text: string) => string): string {
  return markdown
    .split(/(^```.*?^```$|`[^`\n]*`)/gms)
    .map((text, i) => (i % 2 === 0 ? change(text) : text))
    .join('');
}

/** Makes TypeDoc's pages for every entry that users of the service import. */
function reference(): void {
  const entries = ['.', 'packages/http', 'packages/import', 'packages/studio'].flatMap((folder) =>
    entriesOf(folder, true),
  );
  const files = entries.map(([, file]) => path.join('..', file));
  execFileSync(path.join(SITE, 'node_modules/.bin/typedoc'), files, { cwd: SITE, stdio: 'inherit' });
  for (const file of readdirSync(path.join(PAGES, 'reference'), { recursive: true, encoding: 'utf8' })) {
    if (file.endsWith('.md'))
      write(`reference/${file}`, markup(readFileSync(path.join(PAGES, 'reference', file), 'utf8')));
  }
  for (const [module, file] of entries)
    if (!existsSync(path.join(PAGES, 'reference', module)))
      throw new Error(`${file} has no comment with "@module ${module}", the name that the reference gives it`);
}

function titleOf(markdown: string): string {
  const [, title] = /^# (.*)$/m.exec(markdown) ?? [];
  if (title === undefined) throw new Error('A page begins with its title: # …');
  return title.replaceAll('`', '');
}

function write(file: string, text: string): void {
  mkdirSync(path.dirname(path.join(PAGES, file)), { recursive: true });
  writeFileSync(path.join(PAGES, file), text);
}
