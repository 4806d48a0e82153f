import { CONTENDERS, type ContenderName } from './contenders/contender.js';
import { time } from './report.js';
import type { CaseResult, Results } from './results.js';

export interface Chart {
  /** The file's name, without what tells light from dark. */
  name: string;
  svg(theme: Theme): string;
}

export const THEMES = {
  light: { text: '#1f2328', muted: '#656d76', grid: '#d8dee4', ours: '#0969da', peer: '#afb8c1', floor: '#2da44e' },
  dark: { text: '#e6edf3', muted: '#8d96a0', grid: '#30363d', ours: '#4493f8', peer: '#6e7681', floor: '#3fb950' },
} as const;

export type Theme = (typeof THEMES)[keyof typeof THEMES];

const LABELS: Record<ContenderName, string> = {
  ours: 'adk-mikro-orm',
  peer: 'DatabaseSessionService',
  floor: 'bare driver',
};

const DATABASES: Record<string, string> = {
  sqlite: 'SQLite (sqlite3)',
  'better-sqlite': 'SQLite',
  postgresql: 'PostgreSQL',
  mysql: 'MySQL',
  mariadb: 'MariaDB',
};

const WIDTH = 760;
const LEFT = 150;
const RIGHT = 90;
const TOP = 78;
const BAR = 14;
const GAP = 18;

/** The charts that a run has the numbers for. */
export function chartsOf(results: Results): Chart[] {
  const databases = Object.keys(results.databases).filter(
    (name) => name !== 'sqlite' || !('better-sqlite' in results.databases),
  );
  const byDatabase = (id: string) =>
    databases.flatMap((database) => {
      const found = results.cases.find((item) => item.database === database && item.id === id);
      return found ? [{ label: DATABASES[database] ?? database, result: found }] : [];
    });
  const shown = ['postgresql', 'better-sqlite', ...databases].find((name) => databases.includes(name));
  const atLength = results.cases
    .filter(({ database, id }) => database === shown && id.startsWith('append-at-'))
    .map((result) => ({ label: result.title.replace('Append at ', ''), result }));

  return [
    chart('append', 'Append an event with one state key', byDatabase('append')),
    chart('read', 'Read a session of 1,000 events', byDatabase('read-1000')),
    chart('history', `Append to a session that has … events (${DATABASES[shown ?? ''] ?? ''})`, atLength),
    chart('concurrency', 'Append an event, 16 sessions at once', byDatabase('concurrent-sessions')),
  ].flatMap((made) => (made ? [made] : []));
}

interface Group {
  label: string;
  result: CaseResult;
}

function chart(name: string, title: string, groups: readonly Group[]): Chart | undefined {
  if (groups.length === 0) return undefined;
  return { name, svg: (theme) => draw(title, groups, theme) };
}

function draw(title: string, groups: readonly Group[], theme: Theme): string {
  const medians = groups.flatMap(({ result }) => Object.values(result.times).map(({ median }) => median));
  // Leaves the shortest bar something to show.
  const least = Math.floor(Math.log10(Math.min(...medians) * 0.7));
  const most = Math.max(least + 1, Math.ceil(Math.log10(Math.max(...medians))));
  const x = (us: number) => LEFT + ((Math.log10(us) - least) / (most - least)) * (WIDTH - LEFT - RIGHT);
  const height = TOP + groups.length * (CONTENDERS.length * BAR + GAP) + 26;
  const bottom = height - 26;

  const grid = Array.from({ length: most - least + 1 }, (_, i) => {
    const us = 10 ** (least + i);
    const label = time({ median: us, low: us, high: us, rounds: 1 }).replace(/\.0+ /, ' ');
    return (
      `<line x1="${px(x(us))}" x2="${px(x(us))}" y1="${TOP - 8}" y2="${bottom}" stroke="${theme.grid}"/>` +
      text(x(us), bottom + 16, label, theme.muted, 'middle')
    );
  });
  const legend = CONTENDERS.map((contender, i) => {
    const left = LEFT + i * 190;
    return `<rect x="${left}" y="41" width="10" height="10" rx="2" fill="${theme[contender]}"/>${text(left + 16, 50, LABELS[contender], theme.text)}`;
  });
  const bars = groups.map(({ label, result }, i) => {
    const top = TOP + i * (CONTENDERS.length * BAR + GAP);
    const rows = CONTENDERS.map((contender, row) => {
      const spread = result.times[contender];
      const y = top + row * BAR;
      if (!spread) return text(LEFT + 4, y + 11, '–', theme.muted);
      const factor =
        contender === 'ours' || !result.times.ours ? '' : ` · ${factorOf(spread.median / result.times.ours.median)}`;
      return (
        `<rect x="${LEFT}" y="${y + 1}" width="${px(x(spread.median) - LEFT)}" height="${BAR - 3}" rx="2" fill="${theme[contender]}"/>` +
        text(x(spread.median) + 6, y + 11, time(spread) + factor, theme.muted)
      );
    });
    return text(LEFT - 10, top + BAR * 1.5 + 4, label, theme.text, 'end') + rows.join('');
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="11.5">`,
    `<title>${escaped(title)}</title>`,
    `<text x="${LEFT}" y="24" font-size="15" font-weight="600" fill="${theme.text}">${escaped(title)}</text>`,
    text(WIDTH - 12, 24, 'time, log scale; less is better', theme.muted, 'end'),
    ...legend,
    ...grid,
    ...bars,
    '</svg>\n',
  ].join('\n');
}

const px = (value: number) => value.toFixed(1);

const factorOf = (factor: number) => `${factor >= 10 ? factor.toFixed(0) : factor.toPrecision(2)}×`;

const escaped = (value: string) => value.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

function text(x: number, y: number, value: string, color: string, anchor = 'start'): string {
  return `<text x="${px(x)}" y="${px(y)}" fill="${color}" text-anchor="${anchor}">${escaped(value)}</text>`;
}
