import { number } from './operations/words.js';
import { html, type Html } from './html.js';

/** A named series: numbers by day. */
export interface Series {
  name: string;
  values: ReadonlyMap<string, number>;
}

/** There are eight colors. If there are more series, the last color is for the sum of all others. */
export const MOST_SERIES = 8;

/** @returns the sum of all days. */
export const sumOf = (values: Series['values']): number => [...values.values()].reduce((sum, value) => sum + value, 0);

function withOthers(series: readonly Series[], days: readonly string[]): readonly Series[] {
  if (series.length <= MOST_SERIES) return series;
  const others = series.slice(MOST_SERIES - 1);
  const values = days.map((day): [string, number] => [
    day,
    others.reduce((sum, each) => sum + (each.values.get(day) ?? 0), 0),
  ]);
  return [...series.slice(0, MOST_SERIES - 1), { name: `${number(others.length)} others`, values: new Map(values) }];
}

const [STEP, HEIGHT, TOP] = [24, 120, 18];

/** How many times as high as the bars beside it one may be. */
const OUTLIER = 4;

/** @returns the height of the chart: that of the highest bar that is no outlier. */
function cutOf(sums: readonly number[]): number {
  const [highest = 0, ...others] = sums.filter((sum) => sum > 0).sort((one, other) => other - one);
  const usual = others[Math.floor(others.length / 10)] ?? highest;
  return (highest > OUTLIER * usual ? (others.find((sum) => sum <= OUTLIER * usual) ?? usual) : highest) || 1;
}

/** A bar for each day, divided by series. @param textOf writes a value. */
export function dayBars(
  title: string,
  days: readonly string[],
  series: readonly Series[],
  textOf: (value: number) => string = number,
): Html {
  const shown = withOthers(series, days);
  const sums = days.map((day) => shown.reduce((sum, { values }) => sum + (values.get(day) ?? 0), 0));
  const most = cutOf(sums);
  const bars = days.flatMap((day, i) => {
    let below = 0;
    return shown.map(({ name, values }, which) => {
      const value = values.get(day) ?? 0;
      const height = Math.min((value / most) * HEIGHT, HEIGHT - below);
      below += height;
      return (
        value > 0 &&
        html`<rect
          class="hue-${which}"
          x="${i * STEP + 3}"
          y="${(TOP + HEIGHT - below).toFixed(1)}"
          width="${STEP - 6}"
          height="${height.toFixed(1)}"
        >
          <title>${day}, ${name}: ${textOf(value)}</title>
        </rect>`
      );
    });
  });
  const cut = sums.map(
    (sum, i) =>
      sum > most &&
      html`<path class="cut" d="M${i * STEP} ${TOP + 9}l${STEP} -7" />
        <text
          class="${i > days.length / 2 && 'end'}"
          x="${i * STEP + (i > days.length / 2 ? STEP - 3 : 3)}"
          y="${TOP - 5}"
        >
          ${textOf(sum)}
        </text>`,
  );
  const [width, bottom] = [days.length * STEP, TOP + HEIGHT];
  const total = shown.map((each) => `${each.name} ${textOf(sumOf(each.values))}`).join(', ');
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <svg viewBox="0 0 ${width} ${bottom + 24}" role="img" aria-label="${title}, ${days[0]} to ${days.at(-1)}: ${total}">
      <line x1="0" x2="${width}" y1="${TOP}" y2="${TOP}" />
      <line x1="0" x2="${width}" y1="${bottom}" y2="${bottom}" />
      <text x="0" y="${TOP + 11}">${textOf(most)}</text>
      <text x="0" y="${bottom + 20}">${days[0]}</text>
      <text class="end" x="${width}" y="${bottom + 20}">${days.at(-1)}</text>
      ${bars} ${cut}
    </svg>
    <ul>
      ${shown.map(({ name }, which) => html`<li class="hue-${which}"><bdi>${name}</bdi></li>`)}
    </ul>
  </figure>`;
}
