import { readFile, writeFile } from 'node:fs/promises';

/**
 * Expects a page to have a text between `<!-- name -->` and `<!-- /name -->`. With `ADK_TEST_UPDATE` writes it there first.
 */
export async function expectGenerated(page: string, name: string, text: string): Promise<void> {
  const [start, end] = [`<!-- ${name} -->\n`, `\n<!-- /${name} -->`];
  const [before = '', rest = ''] = (await readFile(page, 'utf8')).split(start);
  const [, after] = rest.split(end);
  expect(after).toBeDefined();
  const current = [before, start, '\n', text, '\n', end, after].join('');
  if (process.env['ADK_TEST_UPDATE']) await writeFile(page, current);
  expect(await readFile(page, 'utf8')).toBe(current);
}
