import { dayBars } from '../../packages/studio/src/chart.js';

const DAYS = Array.from({ length: 10 }, (_, i) => `2026-11-${10 + i}`);
const chart = (values: readonly number[]) => {
  const { text } = dayBars('Tokens a day', DAYS, [
    { name: 'shop', values: new Map(values.map((each, i) => [DAYS[i]!, each])) },
  ]);
  const heights = [...text.matchAll(/height="([\d.]+)"/g)].map(([, height]) => Number(height));
  return { heights, isCut: text.includes('class="cut"'), text };
};

test('a day that is many times as high as the others is cut, and says its number', () => {
  const { heights, isCut, text } = chart([10, 12, 9, 11, 10_000, 8, 10, 12, 11, 9]);
  expect(isCut).toBe(true);
  expect(text).toMatch(/>\s*10,000\s*<\/text>/);
  expect(Math.min(...heights)).toBeGreaterThan(60);
});

test('days that differ little are not cut', () => {
  const { heights, isCut } = chart([10, 20, 30, 40]);
  expect(isCut).toBe(false);
  expect(heights).toEqual([30, 60, 90, 120]);
});

test('the last of eight colors is for the sum of all others', () => {
  const series = Array.from({ length: 10 }, (_, i) => ({ name: `user ${i}`, values: new Map([[DAYS[0]!, 10 - i]]) }));
  const { text } = dayBars('Tokens a day', DAYS, series);
  expect(text).toContain('user 6 4, 3 others 6"');
  expect(text).not.toContain('user 7');
  expect(text.match(/<rect/g)).toHaveLength(8);
});
