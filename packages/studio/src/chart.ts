import { number } from './operations/words.js';
import { html, type Html } from './html.js';

/** A named series: numbers by day. */
export interface Series {
  name: string;
  values: ReadonlyMap<string, number>;
}

/** There are eight colors. More series are not shown. */
const MOST_SERIES = 8;

/** @returns the sum of all days. */
export const sumOf = ({ values }: Series): number => [...values.values()].reduce((sum, value) => sum + value, 0);

const [STEP, HEIGHT, TOP] = [24, 120, 18];

/** A bar for each day, divided by series. */
export function dayBars(title: string, days: readonly string[], series: readonly Series[]): Html {
  const shown = series.slice(0, MOST_SERIES);
  const most = Math.max(1, ...days.map((day) => shown.reduce((sum, { values }) => sum + (values.get(day) ?? 0), 0)));
  const bars = days.flatMap((day, i) => {
    let below = 0;
    return shown.map(({ name, values }, which) => {
      const value = values.get(day) ?? 0;
      const height = (value / most) * HEIGHT;
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
          <title>${day}, ${name}: ${number(value)}</title>
        </rect>`
      );
    });
  });
  const [width, bottom] = [days.length * STEP, TOP + HEIGHT];
  const total = shown.map((each) => `${each.name} ${number(sumOf(each))}`).join(', ');
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <svg viewBox="0 0 ${width} ${bottom + 20}" role="img" aria-label="${title}, ${days[0]} to ${days.at(-1)}: ${total}">
      <line x1="0" x2="${width}" y1="${TOP}" y2="${TOP}" />
      <line x1="0" x2="${width}" y1="${bottom}" y2="${bottom}" />
      <text x="0" y="${TOP - 5}">${number(most)}</text>
      <text x="0" y="${bottom + 15}">${days[0]}</text>
      <text class="end" x="${width}" y="${bottom + 15}">${days.at(-1)}</text>
      ${bars}
    </svg>
    <ul>
      ${shown.map(({ name }, which) => html`<li class="hue-${which}"><bdi>${name}</bdi></li>`)}
    </ul>
  </figure>`;
}
