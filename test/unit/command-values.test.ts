import { timeAfter, timeOrTimeOfDay } from '../../packages/cli/src/values.js';

test('a time of the day is the first one after another time, in the zone of the machine or in UTC', () => {
  const noon = new Date(2026, 10, 22, 12).getTime();
  const after = (text: string, earlier = noon) => timeAfter(timeOrTimeOfDay(text), earlier, false);
  expect(after('14:05')).toBe(new Date(2026, 10, 22, 14, 5).getTime());
  expect(after('9:30:10')).toBe(new Date(2026, 10, 23, 9, 30, 10).getTime());
  expect(after('12:00')).toBe(new Date(2026, 10, 23, 12).getTime());
  expect(timeAfter(timeOrTimeOfDay('14:05'), Date.UTC(2026, 10, 22, 12), true)).toBe(Date.UTC(2026, 10, 22, 14, 5));
  expect(after('2026-11-22T10:00:00Z')).toBe(Date.UTC(2026, 10, 22, 10));
});

test('a time of the day in UTC is at most a day later, also if the clocks of the machine change meanwhile', () => {
  for (let day = 0; day < 366; day++) {
    const earlier = Date.UTC(2026, 0, 1 + day, 23, 30);
    expect(timeAfter(timeOrTimeOfDay('23:15'), earlier, true)).toBe(Date.UTC(2026, 0, 2 + day, 23, 15));
  }
});

test.each(['24:00', '1:5', '12:60', 'now', '14', '', '2026-13-01'])('%j is no time', (text) => {
  expect(() => timeOrTimeOfDay(text)).toThrow('such as 14:05 or 2026-11-22T14:05:00Z');
});
