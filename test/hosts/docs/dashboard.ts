import { THEMES, drawing, escaped, px, text, type Theme } from '../../../bench/bars.js';
import { evaluate, type Scrape, type Target } from './prometheus.js';

/** The parts of a Grafana dashboard that are drawn. */
export interface Dashboard {
  title: string;
  templating: { list: { type: string; query: string | { query: string } }[] };
  panels: Panel[];
}

interface Panel {
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  fieldConfig: { defaults: { unit: string } };
  targets: Target[];
}

/** A cell of Grafana's grid, which has 24 columns, in pixels. */
const [COLUMN, ROW] = [40, 26];
const COLORS = ['blue', 'orange', 'green', 'gray'] as const;
/** A rate is computed over this many scrapes, like Grafana's interval. */
const SCRAPES_OF_A_RATE = 4;

const names = Object.keys(THEMES.light) as (keyof Theme)[];
const COLOR = Object.fromEntries(names.map((name) => [name, `var(--${name})`])) as Record<keyof Theme, string>;
const declared = (theme: Theme) => `svg { ${names.map((name) => `--${name}: ${theme[name]}`).join('; ')} }`;

const UNITS: Record<string, (value: number) => string> = {
  reqps: (value) => `${short(value)} req/s`,
  cps: (value) => `${short(value)} c/s`,
  Bps: (value) => `${short(value / 1_000)} kB/s`,
  s: (value) => `${short(value * 1_000)} ms`,
  short,
};

/** @returns a picture of the panels at their places in the dashboard, with the values of its queries for these scrapes. */
export function drawDashboard({ title, panels }: Dashboard, scrapes: readonly Scrape[]): string {
  const bottom = Math.max(...panels.map(({ gridPos: { y, h } }) => y + h)) * ROW;
  return drawing(`The dashboard ${title}`, 24 * COLUMN, bottom, [
    `<style>${declared(THEMES.light)} @media (prefers-color-scheme: dark) { ${declared(THEMES.dark)} }</style>`,
    ...panels.map((panel) => drawPanel(panel, scrapes)),
  ]);
}

function drawPanel({ title, gridPos, fieldConfig, targets }: Panel, scrapes: readonly Scrape[]): string {
  const [width, height] = [gridPos.w * COLUMN - 8, gridPos.h * ROW - 8];
  const series = new Map<string, { at: number; value: number }[]>();
  const shown = scrapes.slice(SCRAPES_OF_A_RATE);
  shown.forEach((after, i) => {
    const before = scrapes[i]!;
    for (const target of targets) {
      // A metric has no series before its first value.
      const values = i === shown.length - 1 ? evaluate(target, before, after) : valuesOf(target, before, after);
      for (const [legend, value] of values)
        if (Number.isFinite(value)) series.set(legend, [...(series.get(legend) ?? []), { at: i, value }]);
    }
  });

  const most = Math.max(...[...series.values()].flat().map(({ value }) => value));
  const step = stepOf(most / 3);
  const steps = Math.max(1, Math.ceil(most / step));
  const legends = legendsOf([...series.keys()], width);
  const [left, right, top, bottom] = [66, width - 12, 36, height - 46 - legends.at(-1)!.row * 16];
  const x = (at: number) => left + (at / (shown.length - 1)) * (right - left);
  const y = (value: number) => bottom - (value / (steps * step)) * (bottom - top);
  const format = UNITS[fieldConfig.defaults.unit]!;
  const grid = Array.from({ length: steps + 1 }, (_, i) => {
    const line = `<line x1="${left}" x2="${right}" y1="${px(y(i * step))}" y2="${px(y(i * step))}" stroke="${COLOR.grid}"/>`;
    return line + text(left - 6, y(i * step) + 4, format(i * step), COLOR.muted, 'end');
  });
  const seconds = shown.at(-1)!.seconds - shown[0]!.seconds;
  const lines = [...series.values()].map((values, i) => {
    const { legend, at: entry, row } = legends[i]!;
    const middle = bottom + 30 + row * 16;
    const stroke = `stroke="${COLOR[COLORS[i % COLORS.length]!]}" stroke-width="1.5"${i < COLORS.length ? '' : ' stroke-dasharray="4 2"'}`;
    // Leaves a gap if there is no value, for example because nothing was called.
    const path = values
      .map(({ at, value }, j) => `${values[j - 1]?.at === at - 1 ? 'L' : 'M'}${px(x(at))} ${px(y(value))}`)
      .join('');
    return (
      `<path d="${path}" fill="none" ${stroke}/>` +
      `<line x1="${px(entry)}" x2="${px(entry + 12)}" y1="${middle}" y2="${middle}" ${stroke}/>` +
      text(entry + 16, middle + 4, legend, COLOR.text)
    );
  });
  return [
    `<g transform="translate(${gridPos.x * COLUMN + 4} ${gridPos.y * ROW + 4})">`,
    `<rect width="${width}" height="${height}" rx="4" fill="none" stroke="${COLOR.grid}"/>`,
    `<text class="panel" x="12" y="22" font-weight="600" fill="${COLOR.text}">${escaped(title)}</text>`,
    ...grid,
    text(left, bottom + 16, '0 s', COLOR.muted),
    text(right, bottom + 16, `${seconds.toFixed(0)} s`, COLOR.muted, 'end'),
    ...lines,
    '</g>',
  ].join('\n');
}

/** Places legends side by side, and on a new line if there is no room. */
function legendsOf(legends: readonly string[], width: number) {
  let [next, row] = [14, 0];
  return legends.map((legend) => {
    const needed = legend.length * 6.4 + 30;
    if (next > 14 && next + needed > width) [next, row] = [14, row + 1];
    const at = next;
    next += needed;
    return { legend, at, row };
  });
}

function valuesOf(target: Target, before: Scrape, after: Scrape): Map<string, number> {
  try {
    return evaluate(target, before, after);
  } catch {
    return new Map();
  }
}

/** @returns the value rounded up to 1, 2 or 5 times a power of ten. */
function stepOf(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= value)!;
}

function short(value: number): string {
  return Number(value.toPrecision(3)).toString();
}
