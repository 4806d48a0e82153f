import { readFile, writeFile } from 'node:fs/promises';
import type { Results } from '../../../bench/results.js';
import { measurementsTable } from '../../../bench/table.js';

/** `ADK_TEST_UPDATE=1 npx jest test/hosts/docs/measurements` writes it anew, after `npm run bench`. */
test('the measurements in the README are those of the last complete run of the benchmark', async () => {
  const results = JSON.parse(await readFile('docs/benchmarks/results.json', 'utf8')) as Results;
  expect(results.isComplete).toBe(true);
  const [start, end] = ['<!-- measurements -->\n', '\n<!-- /measurements -->'];
  const readme = await readFile('README.md', 'utf8');
  const [before = '', rest = ''] = readme.split(start);
  const [, after] = rest.split(end);
  expect(after).toBeDefined();
  const current = [before, start, '\n', measurementsTable(results), '\n', end, after].join('');
  if (process.env['ADK_TEST_UPDATE']) await writeFile('README.md', current);
  expect(await readFile('README.md', 'utf8')).toBe(current);
});
