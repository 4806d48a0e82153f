import { readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { HARNESSES } from '../harnesses/index.js';
import { CHECKLIST } from './checklist.js';
import { deviationsTable } from './deviations-table.js';
import { nameOf } from './rule.js';
import { RULES } from './rules.js';
import { suites } from './suites.js';

const tests = suites.flatMap(({ rules }) => rules);
const names = new Set(tests.map(nameOf));

test('every rule has a test, and every test a rule', () => {
  const tested = new Set(tests.map(({ rule }) => rule));
  expect(Object.keys(RULES).filter((rule) => !tested.has(rule))).toEqual([]);
  expect([...tested].filter((rule) => !(rule in RULES))).toEqual([]);
});

test('no two tests have one name', () => {
  expect(names.size).toBe(tests.length);
});

test('every harness has its test file', async () => {
  for (const name of Object.keys(HARNESSES)) {
    const content = await readFile(path.join('test/contract', `${name}.test.ts`), 'utf8');
    expect(content).toContain(`runContract('${name}');`);
  }
});

test('every suite is in the list', async () => {
  const files = (await readdir('test/contract')).filter((file) => /^[a-z]-.*\.ts$/.test(file));
  expect(files).toHaveLength(suites.length);
});

test('every deviation is that of a test that runs there', () => {
  for (const harness of Object.values(HARNESSES)) {
    if (harness.own) continue;
    const shared = new Set(tests.filter(({ own }) => !own).map(nameOf));
    const deviating = Object.keys({ ...harness.deviations, ...harness.races });
    expect(deviating.filter((name) => !shared.has(name))).toEqual([]);
  }
});

test.each(Object.entries(CHECKLIST))('every case that %s tests has a test here', (_source, cases) => {
  expect(Object.values(cases).filter((name) => !names.has(name))).toEqual([]);
});

/** `ADK_TEST_UPDATE=1 npx jest test/contract/coverage` writes it anew. */
test('the table of deviations in the README is up to date', async () => {
  const [start, end] = ['<!-- deviations -->\n', '\n<!-- /deviations -->'];
  const readme = await readFile('README.md', 'utf8');
  const [before = '', rest = ''] = readme.split(start);
  const [, after] = rest.split(end);
  expect(after).toBeDefined();
  const current = [before, start, '\n', deviationsTable(), '\n', end, after].join('');
  if (process.env['ADK_TEST_UPDATE']) await writeFile('README.md', current);
  expect(await readFile('README.md', 'utf8')).toBe(current);
});
