export const THEMES = {
  light: {
    text: '#1f2328',
    muted: '#656d76',
    grid: '#d8dee4',
    blue: '#0969da',
    gray: '#afb8c1',
    green: '#2da44e',
    orange: '#bc4c00',
  },
  dark: {
    text: '#e6edf3',
    muted: '#8d96a0',
    grid: '#30363d',
    blue: '#4493f8',
    gray: '#6e7681',
    green: '#3fb950',
    orange: '#db6d28',
  },
} as const;

export type Theme = (typeof THEMES)[keyof typeof THEMES];

/** Bars of one color. */
export interface Series {
  label: string;
  color: 'blue' | 'gray' | 'green' | 'orange';
}

interface Bar {
  value: number;
  /** The text beside it. */
  text: string;
}

export interface Bars {
  title: string;
  /** What the values mean. */
  hint: string;
  series: readonly Series[];
  /** Each group has a bar for each series, undefined if there is none. */
  groups: readonly { label: string; bars: readonly (Bar | undefined)[] }[];
  /** Formats a value for the scale. */
  tick(value: number): string;
  /** How much room the labels have. */
  left?: number;
  /** The value at which bars begin; below the smallest one by default. */
  from?: number;
}

const WIDTH = 760;
const LEFT = 150;
const RIGHT = 90;
const TOP = 78;
const BAR = 14;
const GAP = 18;
const LEAST_BAR = 2;

/** @returns a picture of bars on a logarithmic scale. */
export function drawBars({ title, hint, series, groups, tick, left = LEFT, from }: Bars, theme: Theme): string {
  const values = groups.flatMap(({ bars }) => bars.flatMap((bar) => (bar ? [bar.value] : [])));
  // Begins below the shortest bar, so that it has a length.
  const least = Math.floor(Math.log10(from ?? Math.min(...values) * 0.7));
  const most = Math.max(least + 1, Math.ceil(Math.log10(Math.max(...values))));
  const x = (value: number) => left + ((Math.log10(value) - least) / (most - least)) * (WIDTH - left - RIGHT);
  const height = TOP + groups.length * (series.length * BAR + GAP) + 26;
  const bottom = height - 26;

  const grid = Array.from({ length: most - least + 1 }, (_, i) => {
    const value = 10 ** (least + i);
    return (
      `<line x1="${px(x(value))}" x2="${px(x(value))}" y1="${TOP - 8}" y2="${bottom}" stroke="${theme.grid}"/>` +
      text(x(value), bottom + 16, tick(value), theme.muted, 'middle')
    );
  });
  const legendWidth = Math.min(190, (WIDTH - left) / series.length);
  const legend = series.map(({ label, color }, i) => {
    const start = left + i * legendWidth;
    return `<rect x="${start}" y="41" width="10" height="10" rx="2" fill="${theme[color]}"/>${text(start + 16, 50, label, theme.text)}`;
  });
  const bars = groups.map((group, i) => {
    const top = TOP + i * (series.length * BAR + GAP);
    const rows = series.map(({ color }, row) => {
      const bar = group.bars[row];
      const y = top + row * BAR;
      if (!bar) return text(left + 4, y + 11, '–', theme.muted);
      return (
        `<rect x="${left}" y="${y + 1}" width="${px(Math.max(LEAST_BAR, x(bar.value) - left))}" height="${BAR - 3}" rx="2" fill="${theme[color]}"/>` +
        text(Math.max(left, x(bar.value)) + 6, y + 11, bar.text, theme.muted)
      );
    });
    return text(left - 10, top + (BAR * series.length) / 2 + 4, group.label, theme.text, 'end') + rows.join('');
  });
  return drawing(title, WIDTH, height, [
    `<text x="${Math.min(left, LEFT)}" y="24" font-size="15" font-weight="600" fill="${theme.text}">${escaped(title)}</text>`,
    text(WIDTH - 12, 24, hint, theme.muted, 'end'),
    ...legend,
    ...grid,
    ...bars,
  ]);
}

/** @returns a picture of these elements. */
export function drawing(title: string, width: number, height: number, elements: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="11.5">`,
    `<title>${escaped(title)}</title>`,
    ...elements,
    '</svg>\n',
  ].join('\n');
}

export const px = (value: number) => value.toFixed(1);

export const escaped = (value: string) => value.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

export function text(x: number, y: number, value: string, color: string, anchor = 'start'): string {
  return `<text x="${px(x)}" y="${px(y)}" fill="${color}" text-anchor="${anchor}">${escaped(value)}</text>`;
}
