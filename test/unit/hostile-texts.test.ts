import { createEvent } from '@google/adk';
import { findInEvents } from '../../packages/studio/src/found.js';
import { markdown } from '../../packages/studio/src/markdown.js';
import type { EventLog } from '../../src/index.js';
import { wordsOf } from '../../src/memory/words.js';

/** The length of the shorter text, in characters, and how many times as long the longer one is. */
const LENGTH = 8_000;
const TIMES = 16;

/** How many times as long the longer text may take. In proportion it would be 16; garbage collection adds to that. The square is 256. */
const MOST = TIMES * 5;

/** Short texts that make a long one when repeated. */
const REPEATED: readonly string[] = [
  ...[
    '[',
    '![',
    '[a](',
    '[a](<b',
    '[a](b "',
    '[a][b]',
    '[a]: b\n',
    '[a]:\n',
    '](x)',
    '<',
    '<a ',
    '<!--',
    '<?',
    '<http:',
  ],
  ...['*', '*a_ ', '**a*_', 'a**b', '_a', 'a~~b ', '`a``b', '```\n', '&', '&a', '&#0;', '\\', '"a', '> ', '> a\nb\n'],
  ...[
    '- ',
    '* ',
    '1. ',
    '- [ ] a\n',
    '|',
    '|a',
    '|a|b|\n|-|-|\n',
    '#',
    '# a\n',
    'a\n=',
    '-',
    '    a\n',
    '\n',
    ' ',
    '\t',
  ],
  ...[
    'http://',
    'http://a.b ',
    'a@',
    'mailto:a@',
    'a.',
    '//',
    ':',
    '\0',
    '\r',
    '\u202e',
    '\u0301\u0316',
    '😀',
    'a-',
    'é-',
  ],
  ...['\u200c', 'é\u200c', '\u{1D242}', 'の', 'İ'],
];

/** Ordinary text: whatever is faster may take as long. */
const ORDINARY = 'Some **bold** words, a [link](https://a.example) and `code`.\n\n- one\n- two\n\n';

const repeated = (text: string, length: number) => text.repeat(Math.ceil(length / text.length));

/** The time that the processor needs for work, the shorter of two. */
async function timeOf(work: () => unknown): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < 2; i++) {
    const before = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(before);
    times.push(user + system);
  }
  return Math.min(...times);
}

/** Expects that a longer text takes longer in proportion, not with the square of its length. */
async function expectLinear(work: (text: string) => unknown): Promise<void> {
  const ordinary = await timeOf(() => work(repeated(ORDINARY, LENGTH)));
  const slow: string[] = [];
  for (const text of REPEATED) {
    const [short, long] = [repeated(text, LENGTH), repeated(text, LENGTH * TIMES)];
    const ratioOf = async () => (await timeOf(() => work(long))) / Math.max(ordinary, await timeOf(() => work(short)));
    let ratio = Infinity;
    // Again, if a compilation or a collection of garbage came in between.
    for (let i = 0; i < 4 && ratio > MOST; i++) ratio = Math.min(ratio, await ratioOf());
    if (ratio > MOST) slow.push(`${JSON.stringify(text)}: ${ratio.toFixed(1)}`);
  }
  expect(slow).toEqual([]);
}

describe('no text of a user takes more time than in proportion to its length', () => {
  test('as Markdown of the studio', async () => {
    const rendered = await markdown();
    await expectLinear((text) => rendered(text));
  });

  test('in the words of a memory or a question', () => expectLinear(wordsOf));

  test('in a search of the studio, as an event and as what is searched', async () => {
    const find = async (said: string, query: string) => {
      const event = createEvent({ content: { parts: [{ text: said }] } });
      const entry = { appName: 'a', userId: 'u', sessionId: 's', seq: 1, event };
      const log = {
        head: () => Promise.resolve({ position: 1 }),
        async *since() {
          yield entry;
        },
      };
      const read = () => Promise.reject(new Error('No event is old.'));
      const { found } = await findInEvents(log as unknown as EventLog, { appName: 'a' }, query, read);
      return found.size;
    };
    expect(await find('x y', 'y x')).toBe(1);
    await expectLinear((text) => find(text, `${text.slice(0, text.length / 2)}! ${text.slice(0, 20)}`));
  });
});
