import fc from 'fast-check';
import { gapsIn, rangesOf, type SeqRange } from '../../src/model/seq-ranges.js';
import { expectOfRandom } from '../support/random.js';

const numbersIn = (ranges: readonly SeqRange[]) =>
  ranges.flatMap(({ from, to }) => Array.from({ length: to - from + 1 }, (_, i) => from + i));

/** Numbers of events, each once, in ascending order. */
const seqs = fc.uniqueArray(fc.integer({ min: 1, max: 40 })).map((all) => all.sort((a, b) => a - b));

/** Ranges are as few as can be, none is empty, and they ascend. */
function expectOrderly(ranges: readonly SeqRange[]): void {
  for (const [i, { from, to }] of ranges.entries()) {
    expect(from).toBeLessThanOrEqual(to);
    const before = ranges[i - 1];
    if (before) expect(from).toBeGreaterThan(before.to + 1);
  }
}

describe('rangesOf', () => {
  test('I1 names every random number that it was given, and no other', () =>
    expectOfRandom('ranges of numbers', seqs, (given) => {
      expect(numbersIn(rangesOf(given))).toEqual(given);
      expectOrderly(rangesOf(given));
    }));

  test('I1 numbers without a gap between them are one range, also in the billions', () => {
    expect(rangesOf([])).toEqual([]);
    expect(rangesOf([7])).toEqual([{ from: 7, to: 7 }]);
    expect(rangesOf(new Set([1, 2, 4, 5, 6, 9_000_000_000, 9_000_000_001]))).toEqual([
      { from: 1, to: 2 },
      { from: 4, to: 6 },
      { from: 9_000_000_000, to: 9_000_000_001 },
    ]);
  });
});

describe('gapsIn', () => {
  test('I1 the gaps and random numbers together are all there should be', () =>
    expectOfRandom(
      'gaps of numbers',
      fc.tuple(seqs, fc.nat(10), fc.nat(10)),
      ([all, after, more]) => {
        const given = all.filter((seq) => seq > after);
        const upTo = Math.max(after, ...given) + more;
        const gaps = gapsIn(given, after, upTo);
        const expected = numbersIn([{ from: after + 1, to: upTo }]);
        expect([...given, ...numbersIn(gaps)].sort((a, b) => a - b)).toEqual(expected);
        expectOrderly(gaps);
      },
      { runs: 500 },
    ));

  test.each([
    ['none where all are there', [4, 5, 6], 3, 6, []],
    ['none where none should be', [], 3, 3, []],
    ['all of them where none is there', [], 3, 6, [{ from: 4, to: 6 }]],
    ['the first', [5], 3, 5, [{ from: 4, to: 4 }]],
    ['the last', [4], 3, 5, [{ from: 5, to: 5 }]],
  ] as const)('I1 %s', (_what, given, after, upTo, gaps) => {
    expect(gapsIn(given, after, upTo)).toEqual(gaps);
  });

  test('I1 a last number that is damaged and in the billions costs no more than another', () => {
    const damaged = 9_007_199_254_740_991;
    expect(gapsIn([1, 2, 5], 0, damaged)).toEqual([
      { from: 3, to: 4 },
      { from: 6, to: damaged },
    ]);
    expect(gapsIn([1, damaged], 0, damaged)).toEqual([{ from: 2, to: damaged - 1 }]);
  });

  test('I1 the numbers are read once, one by one', () => {
    const read: number[] = [];
    function* rows() {
      for (const seq of [2, 4]) {
        read.push(seq);
        yield seq;
      }
    }
    expect(gapsIn(rows(), 0, 4)).toEqual([
      { from: 1, to: 1 },
      { from: 3, to: 3 },
    ]);
    expect(read).toEqual([2, 4]);
  });
});
