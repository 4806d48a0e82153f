import { number, time } from './report.js';
import { titleOf, type CaseResult, type Results } from './results.js';

const DATABASES = {
  'better-sqlite': 'SQLite',
  postgresql: 'PostgreSQL',
  mysql: 'MySQL',
  mariadb: 'MariaDB',
} as const;

const SHOWN = {
  append: 'append an event with one state key',
  'append-at-100000': 'the same at 100,000 events',
  'append-state-1mb': 'the same with 1 MB of other state',
  'concurrent-sessions': 'append, 16 sessions at once',
  'concurrent-writers': 'append, 8 writers of one session',
  'read-1000': 'read a session of 1,000 events',
  'newest-of-100000': 'read the newest 20 of 100,000 events',
  'append-all-1000': 'append 1,000 events with one call, each',
  'delete-10000': 'delete a session of 10,000 events',
} as const;

/** The results of a run that the site's first page shows. */
const COMPARED = {
  append: 'append an event',
  'append-at-100000': 'append to 100,000 events',
  'append-state-1mb': 'append with 1 MB of state',
  'read-1000': 'read 1,000 events',
  'newest-of-100000': 'read the newest 20 of 100,000',
} as const;

/** The README's table as Markdown: our time, and the speed relative to the peer. */
export function excerptTable(results: Results): string {
  return table(results, '', { append: SHOWN.append }, (found) => {
    const { times, timesAsFast } = found ?? {};
    return times && timesAsFast ? `${time(times.ours)}, ${number(timesAsFast.median)}× as fast` : '–';
  });
}

/** The table of docs/benchmarks.md: our time, the speed relative to the peer, and our time divided by the floor's. */
export function measurementsTable(results: Results): string {
  return table(results, titleOf(results), SHOWN, cell);
}

/** The speed relative to the peer, as Markdown. */
export function comparisonTable(results: Results): string {
  return table(results, '', COMPARED, (found) => {
    const timesAsFast = found?.timesAsFast;
    return timesAsFast ? `${number(timesAsFast.median)}×` : '–';
  });
}

function table(
  results: Results,
  title: string,
  shown: Readonly<Record<string, string>>,
  cellOf: (found: CaseResult | undefined) => string,
): string {
  const databases = Object.entries(DATABASES);
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const rows = Object.entries(shown).map(([id, words]) =>
    line([
      words,
      ...databases.map(([database]) =>
        cellOf(results.cases.find((item) => item.database === database && item.id === id)),
      ),
    ]),
  );
  const header = [title, ...databases.map(([, name]) => name)];
  return [line(header), line(header.map(() => '---')), ...rows].join('\n');
}

function cell(found: CaseResult | undefined): string {
  if (!found) return '–';
  const { times, timesAsFast, timesTheFloor, failures } = found;
  const peer = failures.peer !== undefined ? 'peer fails' : timesAsFast && `**${number(timesAsFast.median)}×**`;
  const floor = timesTheFloor && `floor ${number(timesTheFloor.median)}×`;
  return [time(times.ours), peer, floor].filter(Boolean).join(', ');
}
