import { readFileSync, writeFileSync } from 'node:fs';
import { pageOfDiagram, pictureOfKeys } from '../../../site/diagram.js';

const [, diagram = ''] = /^```mermaid\n(.*?)^```$/ms.exec(readFileSync('docs/tables.md', 'utf8')) ?? [];
const svg = /<svg.*<\/svg>/s.exec(pageOfDiagram(diagram))?.[0] ?? '';

test('the diagram of the site has every table with its columns, and a line for each relation', () => {
  const blocks = [...diagram.matchAll(/^ {2}(\w+) \{\n(.*?)^ {2}\}$/gms)];
  expect(blocks.length).toBeGreaterThan(10);
  for (const [, name, body = ''] of blocks) {
    expect(svg).toContain(`class="name">${name}</text>`);
    const columns = body
      .trim()
      .split('\n')
      .map((line) => line.trim().split(' ')[1]);
    const [, shown = ''] = svg.split(`class="name">${name}</text>`);
    const [texts = ''] = shown.split('<rect');
    expect([...texts.matchAll(/>(\w+)<\/text><text [^>]*class="type"/g)].map(([, column]) => column)).toEqual(columns);
  }
  const lines = [...svg.matchAll(/<title>(\w+) has many (\w+): /g)].map(([, one, many]) => [one, many]);
  expect(lines).toEqual([...diagram.matchAll(/^ {2}(\w+) \S+ (\w+) :/gm)].map(([, one, many]) => [one, many]));
});

test('the picture in the README has every table with its keys', () => {
  const picture = pictureOfKeys(diagram);
  // `ADK_TEST_UPDATE=1 npx jest test/hosts/docs/site-diagram` draws it again.
  if (process.env['ADK_TEST_UPDATE']) writeFileSync('docs/tables.svg', picture);
  expect(readFileSync('docs/tables.svg', 'utf8')).toBe(picture);
});

test('no two tables of the diagram overlap', () => {
  const boxes = [...svg.matchAll(/<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"/g)].map(([, ...all]) =>
    all.map(Number),
  );
  for (const [i, [x = 0, y = 0, width = 0, height = 0]] of boxes.entries())
    for (const [left = 0, top = 0, wide = 0, high = 0] of boxes.slice(i + 1))
      expect(x + width <= left || left + wide <= x || y + height <= top || top + high <= y).toBe(true);
});

test('a column that cannot be read, and a relation of no table, are errors', () => {
  expect(() => pageOfDiagram('erDiagram\n  a {\n    string\n  }\n')).toThrow('A column of a could not be read');
  expect(() => pageOfDiagram('erDiagram\n  a ||--o{ b : "x"\n  a {\n    string c\n  }\n')).toThrow('no table');
});
