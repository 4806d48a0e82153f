/** A table of a Mermaid `erDiagram`. */
interface Table {
  name: string;
  columns: readonly { name: string; type: string; keys: string; words: string }[];
}

interface Diagram {
  tables: readonly Table[];
  /** From the table with one row to the one with many. */
  relations: readonly { one: string; many: string; words: string }[];
}

function parsed(diagram: string): Diagram {
  const tables = [...diagram.matchAll(/^ {2}(\w+) \{\n(.*?)^ {2}\}$/gms)].map(([, name = '', body = '']) => {
    const columns = [...body.matchAll(/^ {4}(\w+) (\w+)((?:,? (?:PK|FK|UK))*)(?: "(.*)")?$/gm)].map(
      ([, type = '', column = '', keys = '', words = '']) => ({ name: column, type, keys: keys.trim(), words }),
    );
    if (columns.length !== body.trim().split('\n').length) throw new Error(`A column of ${name} could not be read`);
    return { name, columns };
  });
  const relations = [...diagram.matchAll(/^ {2}(\w+) \S+ (\w+) : "(.*)"$/gm)].map(
    ([, one = '', many = '', words = '']) => ({ one, many, words }),
  );
  return { tables, relations };
}

/**
 * Draws a Mermaid `erDiagram` as SVG, whose colors are those of the site, light and dark. What a column is for stands in a table below.
 * Mermaid itself would be larger than the rest of the site.
 */
export function pageOfDiagram(text: string): string {
  const { tables, relations } = parsed(text);
  const details = tables.map(({ name, columns }) => {
    const rows = columns.map((each) => `| \`${each.name}\` | ${each.type} | ${each.keys} | ${each.words} |`);
    return [`## \`${name}\``, '', '| Column | Type | Key | |', '| --- | --- | --- | --- |', ...rows].join('\n');
  });
  return [`<div class="diagram" tabindex="0">${drawn({ tables, relations })}</div>`, ...details].join('\n\n');
}

const STYLE = `
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328 }
.type { text-anchor: end; fill: #59636e }
.name { font-weight: 600; fill: #0550ae }
rect, path { fill: none; stroke: #d1d9e0 }
rect { fill: #f6f8fa }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .type { fill: #9198a1 } .name { fill: #79c0ff } rect, path { stroke: #3d444d } rect { fill: #161b22 }
}
`;

/** Draws a Mermaid `erDiagram` as a picture of its own, small enough for a front page: with primary and unique keys alone. */
export function pictureOfKeys(text: string): string {
  const { tables, relations } = parsed(text);
  const keysOf = ({ columns }: Table) => columns.filter(({ keys }) => /PK|UK/.test(keys));
  const svg = drawn({ tables: tables.map((table) => ({ ...table, columns: keysOf(table) })), relations });
  const opened = svg.indexOf('>') + 1;
  return `${svg.slice(0, opened).replace('<svg', '<svg xmlns="http://www.w3.org/2000/svg"')}<style>${STYLE}</style>${svg.slice(opened)}\n`;
}

const WIDTH = 224;
const GAP = 40;
const LINE = 15;
const HEAD = 22;
const COLUMNS = 3;

const heightOf = ({ columns }: Table) => HEAD + columns.length * LINE + 6;

/** Puts each table to the left of the tables that refer to it, and a table without relations into the shortest column. */
function drawn({ tables, relations }: Diagram): string {
  const ends = Array.from({ length: COLUMNS }, () => 0);
  const places = new Map<string, { table: Table; x: number; y: number }>();
  const manyOf = ({ name }: Table) =>
    tables.filter((table) => relations.some(({ one, many }) => one === name && many === table.name));
  const depthOf = (table: Table): number => Math.max(0, ...manyOf(table).map((each) => 1 + depthOf(each)));
  const place = (table: Table, column: number, top = 0): void => {
    const y = Math.max(top, ends[column] ?? 0);
    ends[column] = y + heightOf(table) + GAP / 2;
    places.set(table.name, { table, x: column * (WIDTH + GAP), y });
    for (const each of manyOf(table)) place(each, column + 1, y);
  };
  const first = tables.filter(({ name }) => !relations.some(({ many }) => many === name));
  const isAlone = (table: Table) => depthOf(table) === 0;
  // The longest rows first: they would leave room above them.
  for (const table of first.filter((each) => !isAlone(each)).sort((a, b) => depthOf(b) - depthOf(a))) place(table, 0);
  for (const table of first.filter(isAlone)) place(table, ends.indexOf(Math.min(...ends)));

  const lines = relations.map(({ one, many, words }) => {
    const [from, to] = [places.get(one), places.get(many)];
    if (!from || !to) throw new Error(`${one} and ${many} are related, and one of them is no table`);
    const [x, y, end] = [from.x + WIDTH, from.y + HEAD / 2, to.y + HEAD / 2];
    // The feet say that there may be many.
    const feet = `M${to.x - 9} ${end}L${to.x} ${end - 6}M${to.x - 9} ${end}L${to.x} ${end + 6}`;
    return `<path d="M${x} ${y}H${to.x - GAP / 2}V${end}H${to.x}${feet}"><title>${one} has many ${many}: ${words}</title></path>`;
  });
  const boxes = [...places.values()].map(({ table, x, y }) => {
    const rows = table.columns.map(({ name, type, keys }, i) => {
      const at = `y="${y + HEAD + (i + 1) * LINE - 2}"`;
      const kind = keys.includes('PK') ? ' class="key"' : '';
      const what = `${type}${keys && ` ${keys}`}`;
      return `<text x="${x + 8}" ${at}${kind}>${name}</text><text x="${x + WIDTH - 8}" ${at} class="type">${what}</text>`;
    });
    const box = `<rect x="${x}" y="${y}" width="${WIDTH}" height="${heightOf(table)}" rx="4"/><path d="M${x} ${y + HEAD}h${WIDTH}"/>`;
    return `${box}<text x="${x + 8}" y="${y + 15}" class="name">${table.name}</text>${rows.join('')}`;
  });
  const [width, height] = [COLUMNS * (WIDTH + GAP) - GAP, Math.max(...ends) - GAP / 2];
  const label = `The tables: ${relations.map(({ one, many }) => `${one} has many ${many}`).join(', ')}`;
  return `<svg viewBox="-1 -1 ${width + 2} ${height + 2}" role="img" aria-label="${label}">${[...lines, ...boxes].join('')}</svg>`;
}
