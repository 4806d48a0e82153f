import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { HARNESSES } from '../support/harnesses/index.js';
import { CHECKLIST } from './checklist.js';
import { nameOf } from './rule.js';
import { RULES } from './rules.js';
import { suites } from './suites.js';

const tests = suites.flatMap(({ rules }) => rules);
const names = new Set(tests.map(nameOf));

/** The rules that the titles of tests outside the suites begin with, as in `test('B2 E1 eight append …'`. */
async function rulesNamedInTitles(): Promise<string[]> {
  const files = (await readdir('test', { recursive: true })).filter((file) => file.endsWith('.test.ts'));
  const contents = await Promise.all(files.map((file) => readFile(path.join('test', file), 'utf8')));
  const titles = contents.flatMap((content) => [
    ...content.matchAll(/\b(?:test|describe)\b.*\(['"`]((?:[A-Z]\d+ )+)/g),
  ]);
  return titles.flatMap(([, rules = '']) => rules.trim().split(' '));
}

test('every rule of docs/contract.md has a test, and every test a rule', async () => {
  const tested = new Set([...tests.map(({ rule }) => rule), ...(await rulesNamedInTitles())]);
  expect(Object.keys(RULES).filter((rule) => !tested.has(rule))).toEqual([]);
  expect([...tested].filter((rule) => !(rule in RULES))).toEqual([]);
});

test('every rule that a comment cites is in docs/contract.md', async () => {
  for (const folder of [
    'src',
    'entities',
    'migrations',
    ...['cli', 'import', 'studio'].map((name) => `packages/${name}/src`),
  ]) {
    for (const file of (await readdir(folder, { recursive: true })).filter((file) => file.endsWith('.ts'))) {
      const content = await readFile(path.join(folder, file), 'utf8');
      const cited = [...content.matchAll(/\(contract ((?:[A-Z]\d+(?:, )?)+)\)/g)].flatMap(([, rules = '']) =>
        rules.split(', '),
      );
      expect({ file, unknown: cited.filter((rule) => !(rule in RULES)) }).toEqual({ file, unknown: [] });
    }
  }
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

test('before a merge every database runs the contract, on one major at least', async () => {
  const { scripts } = JSON.parse(await readFile('package.json', 'utf8')) as { scripts: Record<string, string> };
  expect(await readFile('.ci/run', 'utf8')).toMatch(/\bnpm test .*[^]*\bnpm run test:7:ci /);
  // On MikroORM 6 all of them but PGlite.
  expect(scripts).toMatchObject({ test: 'jest', 'test:7:ci': expect.stringContaining(' test/contract/pglite.test ') });
});

test('every suite is in the list', async () => {
  const files = (await readdir('test/contract')).filter((file) => /^[a-z]-.*\.ts$/.test(file));
  expect(files).toHaveLength(suites.length);
});

test.each(Object.entries(CHECKLIST))('every case that %s tests has a test here', (_source, cases) => {
  expect(Object.values(cases).filter((name) => !names.has(name))).toEqual([]);
});
