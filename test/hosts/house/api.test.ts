import { readFile } from 'node:fs/promises';
import { apiReport } from '../../../scripts/api-report.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';

/** @returns the lines that a change of one file adds to the report. */
async function reportWith(file: string, from: string, to: string): Promise<string[]> {
  const source = await readFile(file, 'utf8');
  expect(source).toContain(from);
  const known = new Set((await readFile('api.md', 'utf8')).split('\n'));
  return apiReport({ [file]: source.replace(from, to) })
    ['api.md']!.split('\n')
    .filter((line) => !known.has(line));
}

// The types of entities in the report come from MikroORM 6.
(isMikroOrm7 ? test.skip : test)(
  'a changed public type shows in the report, a changed comment or private member does not',
  async () => {
    const file = 'src/model/options.ts';
    expect(await reportWith(file, 'defaultNumRecentEvents?: number;', 'defaultNumRecentEvents?: string;')).toEqual([
      '    defaultNumRecentEvents?: string;',
    ]);
    expect(await reportWith(file, 'all by default', 'each by default')).toEqual([]);
  },
  300_000,
);
