import { number, printable, shownTime } from '../../studio/src/operations/words.js';

/**
 * A cell of a table: a text, a number, a time in ms, the text of an amount, or a name that other commands take. Numbers and amounts are
 * aligned to the right; only texts are cut.
 */
export type Cell = string | number | { time: number | undefined } | { amount: string } | { id: string };

interface TableOptions {
  /** The columns of the terminal; undefined if nothing is to be cut. */
  width?: number | undefined;
  /** Whether times are shown in UTC, and not as how long ago they were. */
  isUtc?: boolean;
  /** Ms since 1970. */
  now?: number;
}

const GRAPHEMES = new Intl.Segmenter();
const ASCII = /^[\x20-\x7e]*$/;
const WIDE = /[\u1100-\u115f\u3000-\u303e\uff01-\uff60\uffe0-\uffe6\ufe0f]|\p{Emoji_Presentation}/u;
const WIDE_SCRIPT = /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}/u;
/** Half as wide as the other letters of their scripts. */
const HALFWIDTH = /[\uff61-\uffdc]/u;
const UNSEEN = /^[\p{Mark}\p{Default_Ignorable_Code_Point}]+$/u;

/** How many columns of a terminal a character takes as it is seen, such as 2 for one of Chinese or an emoji. */
function widthOfOne(grapheme: string): number {
  if (UNSEEN.test(grapheme)) return 0;
  return WIDE.test(grapheme) || (WIDE_SCRIPT.test(grapheme) && !HALFWIDTH.test(grapheme)) ? 2 : 1;
}

/** How many columns of a terminal a text takes. */
export function displayWidth(text: string): number {
  if (ASCII.test(text)) return text.length;
  let width = 0;
  for (const { segment } of GRAPHEMES.segment(text)) width += widthOfOne(segment);
  return width;
}

/** @returns the beginning of a text that takes at most this many columns, with a mark if it was cut. */
function cutTo(text: string, most: number): string {
  if (displayWidth(text) <= most) return text;
  let [kept, width] = ['', 1];
  for (const { segment } of GRAPHEMES.segment(text)) {
    width += widthOfOne(segment);
    if (width > most) break;
    kept += segment;
  }
  return `${kept}…`;
}

const GAP = '  ';
/** Columns of text are not cut to fewer columns of the terminal. */
const NARROWEST = 8;

/** The lines of a table, the first of which is its heading. Text columns are cut if the terminal is too narrow, the widest first. */
export function tableLines(
  [heading = [], ...rows]: readonly (readonly Cell[])[],
  { width, isUtc = false, now = Date.now() }: TableOptions = {},
): string[] {
  const shown = (cell: Cell = '') => {
    if (typeof cell === 'number') return number(cell);
    if (typeof cell === 'string') return printable(cell);
    if ('amount' in cell) return printable(cell.amount);
    if ('id' in cell) return printable(cell.id);
    return isUtc ? shownTime(cell.time) : shownAgo(cell.time, now);
  };
  const isRight = heading.map((_, i) => rows.length > 0 && rows.every((row) => isAmount(row[i])));
  const texts = [heading, ...rows].map((row) => heading.map((_, i) => shown(row[i])));
  const widths = heading.map((_, i) => Math.max(...texts.map((row) => displayWidth(row[i] ?? ''))));
  const isWhole = heading.map((_, i) => rows.every((row) => typeof (row[i] ?? '') !== 'string'));
  narrow(widths, isWhole, width ?? Infinity);
  return texts.map((row) => {
    const cells = row.map((text, i) => {
      const cut = cutTo(text, widths[i] ?? 0);
      const space = ' '.repeat(Math.max(0, (widths[i] ?? 0) - displayWidth(cut)));
      return isRight[i] ? space + cut : cut + space;
    });
    return cells.join(GAP).trimEnd();
  });
}

const isAmount = (cell: Cell = '') => typeof cell === 'number' || (typeof cell === 'object' && 'amount' in cell);

/** Takes columns from the widest texts until the table fits. */
function narrow(widths: number[], isWhole: readonly boolean[], most: number): void {
  const total = () => widths.reduce((sum, width) => sum + width + GAP.length, -GAP.length);
  while (total() > most) {
    let widest = -1;
    for (const [i, width] of widths.entries())
      if (!isWhole[i] && width > NARROWEST && width >= (widths[widest] ?? 0)) widest = i;
    if (widest < 0) return;
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
}

const STEPS = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
] as const;

/** How long ago a time was, or in how long it will be; more than 30 days away, the day in UTC. */
export function shownAgo(ms: number | undefined, now: number): string {
  if (ms === undefined) return '–';
  const distance = Math.abs(now - ms);
  if (!(distance <= 30 * 86_400_000)) return shownTime(ms).slice(0, 10);
  const [unit, name] = STEPS.find(([each]) => distance >= each) ?? [1_000, 's'];
  const text = `${Math.floor(distance / unit)} ${name}`;
  return ms > now ? `in ${text}` : `${text} ago`;
}
