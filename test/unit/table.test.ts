import { displayWidth, shownAgo, tableLines } from '../../packages/cli/src/table.js';

test.each([
  ['abc', 3],
  ['é', 1],
  ['e\u0301', 1],
  ['東京', 4],
  ['한국', 4],
  ['ｱｲｳ', 3],
  ['（ＡＢ）', 8],
  ['😀', 2],
  ['👩‍👩‍👧', 2],
  ['❤️', 2],
  ['a\u200bb', 2],
])('%j takes %i columns', (text, width) => {
  expect(displayWidth(text)).toBe(width);
});

test('columns are as wide as what a terminal shows, and numbers stand on the right', () => {
  const rows = [
    ['user', 'events', 'size', 'title'],
    ['東京', 5, { amount: '1.2 kB' }, 'x'],
    ['ada', 12_345, { amount: '900 bytes' }, 'Tea'],
  ];
  expect(tableLines(rows)).toEqual([
    'user  events       size  title',
    '東京       5     1.2 kB  x',
    'ada   12,345  900 bytes  Tea',
  ]);
});

test('a narrow terminal cuts the widest texts, and neither numbers nor short texts', () => {
  const rows = [
    ['user', 'title', 'events'],
    ['ada', 'A question about 東京タワー and much else', 5],
  ];
  for (const width of [40, 33, 26]) {
    const lines = tableLines(rows, { width });
    for (const line of lines) expect(displayWidth(line)).toBeLessThanOrEqual(width);
    expect(lines[1]).toMatch(/^ada {3}A ques.*… +5$/);
  }
  // Not narrower than can be read.
  expect(tableLines(rows, { width: 5 })[1]).toBe('ada   A quest…       5');
  expect(tableLines(rows)[1]).toContain('much else');
});

test('times, and names that other commands take, are never cut', () => {
  const id = 'b2a1c8f0-2d0e-4f6f-9a58-0e9a4f7d9f11';
  const rows = [
    ['session', 'since', 'title'],
    [{ id }, { time: 0 }, 'A question about much'],
  ];
  expect(tableLines(rows, { width: 30, isUtc: true })[1]).toBe(`${id}  1970-01-01 00:00:00  A quest…`);
});

test('times are how long ago, or in UTC', () => {
  const now = Date.UTC(2026, 10, 22, 12);
  const at = (ms: number | undefined) => shownAgo(ms, now);
  expect([0, 59_999, 60_000, 7_200_000, 3 * 86_400_000].map((ago) => at(now - ago))).toEqual([
    ...['0 s ago', '59 s ago', '1 min ago', '2 h ago', '3 d ago'],
  ]);
  expect([at(now + 25_000), at(undefined), at(now - 40 * 86_400_000)]).toEqual(['in 25 s', '–', '2026-10-13']);
  const rows = [['since'], [{ time: now - 60_000 }]];
  expect(tableLines(rows, { now })).toEqual(['since', '1 min ago']);
  expect(tableLines(rows, { now, isUtc: true })).toEqual(['since', '2026-11-22 11:59:00']);
});

test('what would be a command for the terminal is written out', () => {
  expect(tableLines([['a'], ['\u001b[2J']])[1]).toBe('\\u001b[2J');
});
