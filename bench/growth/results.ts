import type { DatabaseName } from '../../test/support/servers.js';
import { drawBars, type Series } from '../bars.js';
import { DATABASE_LABELS, factorOf, type Chart } from '../charts.js';
import { duration, number } from '../report.js';
import type { DatabaseFacts } from '../results.js';
import type { Size } from './conversations.js';
import type { MemoryUse } from './memory.js';
import type { Compared } from './percentiles.js';

/** The content of `growth.json`. */
export interface GrowthResults {
  command: string;
  date: string;
  machine: Record<string, string | number>;
  packages: Record<string, string>;
  small: Size;
  large: Size;
  databases: Partial<Record<DatabaseName, GrownDatabase>>;
  operations: GrownOperation[];
}

export interface GrownDatabase extends DatabaseFacts {
  /** The size of the large database. */
  gigabytes: number;
  fillSeconds: number;
  /** Undefined until it is measured. */
  memory?: readonly MemoryUse[];
}

/** Times in microseconds. */
export interface GrownOperation extends Compared {
  database: DatabaseName;
  id: string;
  title: string;
}

export const sizeText = ({ events, sessions }: Size) =>
  `${events.toLocaleString('en-US')} events in ${sessions.toLocaleString('en-US')} sessions`;

const growthOf = ({ small, large }: GrownOperation) => large.p50 / small.p50;

/** For people at a terminal. */
export function operationRows(operations: readonly GrownOperation[]): string[][] {
  return [
    ['', 'small p50', 'p99', 'large p50', 'p99', 'p50 times', 'runs'],
    ...operations.map((operation) => {
      const { title, small, large } = operation;
      const times = [small.p50, small.p99, large.p50, large.p99].map(duration);
      return [title, ...times, factorOf(growthOf(operation)), `${large.samples}`];
    }),
  ];
}

export function memoryRows(memory: readonly MemoryUse[]): string[][] {
  return [
    ['', 'heap', 'resident'],
    ...memory.map(({ what, heap, rss }) => [what, `${number(heap)} MB`, `${number(rss)} MB`]),
  ];
}

/** Both tables as Markdown, for docs/growth.md. */
export function growthTables(results: GrowthResults): string {
  const { databases, operations, large, small } = results;
  const names = databasesOf(results);
  const cell = (database: DatabaseName, id: string) => {
    const found = operations.find((operation) => operation.database === database && operation.id === id);
    if (!found) return '–';
    const pair = ({ p50, p99 }: GrownOperation['small']) => `${duration(p50)} / ${duration(p99)}`;
    return `${pair(found.small)} → ${pair(found.large)}`;
  };
  const memory = memoryOf(results);
  return [
    `${sizeText(small)} → ${sizeText(large)}, p50 / p99:`,
    markdown([
      ['', ...names.map((name) => DATABASE_LABELS[name] ?? name)],
      ...[...titlesOf(operations)].map(([id, title]) => [title, ...names.map((name) => cell(name, id))]),
      ['the database on the disk', ...names.map((name) => `${number(databases[name]?.gigabytes ?? 0)} GB`)],
      ['filling it', ...names.map((name) => duration((databases[name]?.fillSeconds ?? 0) * 1e6))],
    ]),
    ...(memory ? [`Memory of a process (${DATABASE_LABELS[memory.name] ?? memory.name}):`, markdown(memory.rows)] : []),
  ].join('\n\n');
}

/** How much longer each call takes with many events. */
export function growthChart(results: GrowthResults): Chart {
  const names = databasesOf(results);
  const { operations, large, small } = results;
  return {
    name: 'growth',
    svg: (theme) =>
      drawBars(
        {
          title: `Time with ${large.events.toLocaleString('en-US')} events over that with ${small.events.toLocaleString('en-US')}`,
          hint: 'p50, log scale',
          series: names.map((name) => ({ label: DATABASE_LABELS[name] ?? name, color: COLORS[name] })),
          groups: [...titlesOf(operations)].map(([id, title]) => ({
            label: title,
            bars: names.map((name) => {
              const found = operations.find((each) => each.database === name && each.id === id);
              return (
                found && { value: growthOf(found), text: `${factorOf(growthOf(found))}, ${duration(found.large.p50)}` }
              );
            }),
          })),
          tick: factorOf,
          left: 315,
          // A call that takes as long with many events has no bar.
          from: 1,
        },
        theme,
      ),
  };
}

const COLORS: Record<DatabaseName, Series['color']> = {
  sqlite: 'gray',
  'better-sqlite': 'gray',
  postgresql: 'blue',
  mysql: 'orange',
  mariadb: 'green',
};

const databasesOf = ({ databases }: GrowthResults) => Object.keys(databases) as DatabaseName[];

const titlesOf = (operations: readonly GrownOperation[]) => new Map(operations.map(({ id, title }) => [id, title]));

function memoryOf({ databases }: GrowthResults) {
  for (const name of ['postgresql', 'better-sqlite', 'mysql', 'mariadb', 'sqlite'] as const) {
    const memory = databases[name]?.memory;
    if (memory) return { name, rows: memoryRows(memory) };
  }
  return undefined;
}

function markdown(rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const [header = [], ...rest] = rows;
  return [line(header), line(header.map(() => '---')), ...rest.map(line)].join('\n');
}
