import { drawBars, type Series, type Theme } from './bars.js';
import { CONTENDERS, type ContenderName } from './contenders/contender.js';
import type { DatabaseName } from '../test/support/servers.js';
import { duration, time } from './report.js';
import type { CaseResult, Results } from './results.js';

export interface Chart {
  /** The file's name, without the suffix for light or dark. */
  name: string;
  svg(theme: Theme): string;
}

const LABELS: Record<ContenderName, Series> = {
  ours: { label: 'adk-mikro-orm', color: 'blue' },
  peer: { label: 'DatabaseSessionService', color: 'gray' },
  floor: { label: 'bare driver', color: 'green' },
};

/** How charts name them. */
export const DATABASE_LABELS: Readonly<Record<string, string>> = {
  sqlite: 'SQLite (sqlite3)',
  'better-sqlite': 'SQLite',
  postgresql: 'PostgreSQL',
  mysql: 'MySQL',
  mariadb: 'MariaDB',
} satisfies Record<DatabaseName, string>;

/** The charts for which a run has numbers. */
export function chartsOf(results: Results): Chart[] {
  const databases = Object.keys(results.databases).filter(
    (name) => name !== 'sqlite' || !('better-sqlite' in results.databases),
  );
  const byDatabase = (id: string) =>
    databases.flatMap((database) => {
      const found = results.cases.find((item) => item.database === database && item.id === id);
      return found ? [{ label: DATABASE_LABELS[database] ?? database, result: found }] : [];
    });
  const shown = ['postgresql', 'better-sqlite', ...databases].find((name) => databases.includes(name));
  const atLength = results.cases
    .filter(({ database, id }) => database === shown && id.startsWith('append-at-'))
    .map((result) => ({ label: result.title.replace('Append at ', ''), result }));

  return [
    chart('append', 'Append an event with one state key', byDatabase('append')),
    chart('read', 'Read a session of 1,000 events', byDatabase('read-1000')),
    chart('history', `Append to … events (${DATABASE_LABELS[shown ?? ''] ?? ''})`, atLength),
    chart('concurrency', 'Append an event, 16 sessions at once', byDatabase('concurrent-sessions')),
  ].flatMap((made) => (made ? [made] : []));
}

interface Group {
  label: string;
  result: CaseResult;
}

function chart(name: string, title: string, groups: readonly Group[]): Chart | undefined {
  if (groups.length === 0) return undefined;
  return {
    name,
    svg: (theme) =>
      drawBars(
        {
          title,
          hint: 'time, log scale; less is better',
          series: CONTENDERS.map((contender) => LABELS[contender]),
          groups: groups.map(({ label, result }) => ({ label, bars: CONTENDERS.map((name) => barOf(result, name)) })),
          tick: (us) => duration(us).replace(/\.0+ /, ' '),
        },
        theme,
      ),
  };
}

function barOf({ times }: CaseResult, contender: ContenderName) {
  const spread = times[contender];
  if (!spread) return undefined;
  const factor = contender === 'ours' || !times.ours ? '' : ` · ${factorOf(spread.median / times.ours.median)}`;
  return { value: spread.median, text: time(spread) + factor };
}

export const factorOf = (factor: number) => `${factor >= 10 ? factor.toFixed(0) : factor.toPrecision(2)}×`;
