import { readFile, writeFile } from 'node:fs/promises';
import { growthTables, type GrowthResults } from '../../../bench/growth/results.js';
import type { Results } from '../../../bench/results.js';
import { comparisonTable, excerptTable, measurementsTable } from '../../../bench/table.js';

/** After `npm run bench`, `ADK_TEST_UPDATE=1 npx jest test/hosts/docs/measurements` rewrites them. */
test('the measurements in README and docs are those of the last complete run', async () => {
  const results = await resultsOf<Results>('results.json');
  expect(results.isComplete).toBe(true);
  await expectBetween('README.md', 'excerpt', excerptTable(results));
  await expectBetween('docs/benchmarks.md', 'measurements', measurementsTable(results));
  await expectBetween('docs/README.md', 'comparison', comparisonTable(results));
});

/** Likewise after `npm run bench -- growth --out docs/benchmarks`. */
test('the measurements in docs/growth.md are those of the last run with many events', async () => {
  await expectBetween('docs/growth.md', 'growth', growthTables(await resultsOf<GrowthResults>('growth.json')));
});

const resultsOf = async <T>(file: string) => JSON.parse(await readFile(`docs/benchmarks/${file}`, 'utf8')) as T;

/** Compares the text between two comments of a page. */
async function expectBetween(page: string, name: string, text: string): Promise<void> {
  const [start, end] = [`<!-- ${name} -->\n`, `<!-- /${name} -->`];
  const found = await readFile(page, 'utf8');
  const [before = '', rest = ''] = found.split(start);
  const [, after] = rest.split(end);
  expect(after).toBeDefined();
  const current = [before, start, '\n', text, '\n\n', end, after].join('');
  if (process.env['ADK_TEST_UPDATE']) await writeFile(page, current);
  expect(await readFile(page, 'utf8')).toBe(current);
}
