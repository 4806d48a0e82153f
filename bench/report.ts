import type { CaseResult, ComparisonResult, Results } from './results.js';
import type { Spread } from './statistics.js';
import type { Verdict } from './targets.js';

const line = (text = '') => process.stdout.write(`${text}\n`);

/** Wide enough for every workload, since each is printed as soon as it is done. */
const WIDTHS = [54, 14, 9, 9, 22, 20, 0];

export function printHeader(): void {
  printRow(['', 'ours', 'peer', 'floor', 'times as fast as peer', 'times the floor', 'CPU'], WIDTHS);
}

export function printCases(cases: readonly CaseResult[]): void {
  for (const { title, unit, times, timesAsFast, timesTheFloor, cpuTimesTheFloor, failures, memoryMb } of cases) {
    const ours = time(times.ours) + (unit === 'event' ? '/event' : '');
    const peer = failures.peer === undefined ? time(times.peer) : 'fails';
    const cells = [title, ours, peer, time(times.floor), ratio(timesAsFast), ratio(timesTheFloor)];
    printRow([...cells, ratio(cpuTimesTheFloor)], WIDTHS);
    if (memoryMb !== undefined) line(`    Ours takes ${number(memoryMb)} MB at most`);
    if (failures.peer !== undefined) line(`    The peer fails: ${failures.peer}`);
  }
}

export function printComparisons(comparisons: readonly ComparisonResult[]): void {
  if (comparisons.length > 0) printTable(comparisons.map((item) => [item.title, ratio(item.ratio)]));
}

/** Prints the numbers that people quote. */
export function printHeadline(results: Results): void {
  for (const database of Object.keys(results.databases)) {
    const ours = (id: string) => results.cases.find((item) => item.database === database && item.id === id)?.times.ours;
    const append = ours('append');
    const read = ours('read-1000');
    if (!append || !read) continue;
    const seconds = (append.median * 1_000) / 1e6;
    line(`${database}: 1,000 appends in ${seconds.toFixed(2)} s, 1,000 events read in ${time(read)}`);
  }
}

export function printVerdicts(list: readonly Verdict[]): void {
  printTable([
    ['', 'target', 'database', 'wanted', 'found'],
    ...list.map(({ title, database, wanted, found, isMet }) => [
      isMet ? '✓' : '✗',
      title,
      database,
      wanted,
      found === undefined ? 'not measured' : number(found),
    ]),
  ]);
}

export function printHeading(text: string): void {
  line();
  line(text);
}

/** Prints one line that overwrites itself; nothing if the output is not a terminal. */
export function showProgress(text: string): void {
  if (!process.stderr.isTTY) return;
  const width = process.stderr.columns;
  process.stderr.write(`\r\x1b[K${text.slice(0, width - 1)}`);
}

export function printTable(rows: readonly (readonly string[])[]): void {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  for (const row of rows) printRow(row, widths);
}

function printRow(row: readonly string[], widths: readonly number[]): void {
  const cells = row.map((cell, column) => cell.padEnd(widths[column] ?? 0));
  line(`  ${cells.join('  ').trimEnd()}`);
}

export function time(spread: Spread | undefined): string {
  if (!spread) return '–';
  return duration(spread.median);
}

export function duration(us: number): string {
  if (us < 1_000) return `${us.toFixed(0)} µs`;
  return us < 1e6 ? `${number(us / 1_000)} ms` : `${number(us / 1e6)} s`;
}

function ratio(spread: Spread | undefined): string {
  return spread ? `${number(spread.median)}× (${number(spread.low)}–${number(spread.high)})` : '–';
}

/** Formats a number with three digits. */
export function number(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en-US') : value.toPrecision(3);
}
