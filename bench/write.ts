import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { THEMES } from './bars.js';
import type { Chart } from './charts.js';
import { printHeading } from './report.js';

/** Writes the results of a run as JSON, and draws its charts. */
export async function write(folder: string, file: string, results: object, charts: readonly Chart[]): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, file), `${JSON.stringify(results, rounded, 2)}\n`);
  for (const { name, svg } of charts) {
    for (const [theme, colors] of Object.entries(THEMES)) {
      await writeFile(path.join(folder, `${name}-${theme}.svg`), svg(colors));
    }
  }
  printHeading(`Written to ${folder}`);
}

/** Drops digits that a measurement does not have: they would be most of the file, which is in the package. */
const rounded = (_: string, value: unknown) =>
  typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(5)) : value;
