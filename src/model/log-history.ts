/**
 * Where a reader of the log is: the `cursor` of the last entry that it has seen, or what `head` gave. Keep all of it: of a position
 * alone, or of a position and its epoch, the log does not know in which history it was given out (contract O2). It finds out only while
 * it is shorter, or when an operator says so, and then names the beginning as the cursor to continue from.
 */
export interface LogCursor {
  position: number;
  /** It grows when an operator says that the log was restored. */
  epoch: number;
  /**
   * What the log compares with its own history, to find the last boundary that both share. A text of letters, digits and `-`,
   * `_`, `.`, `~`, a few hundred at most; it has no other meaning.
   */
  history?: string;
  /** Only in the complete log, which has changes between the events: how many of them come before it. */
  change?: number;
}

/** A cursor as the log gives it. */
export interface LogPosition extends LogCursor {
  history: string;
}

/** A cursor as the complete log gives it. */
export interface CompleteLogPosition extends LogPosition {
  change: number;
}

/** A boundary is a point of the log behind an event or a change. Both numbers of a later boundary are as high or higher. */
export interface LogBoundary {
  position: number;
  change: number;
}

/**
 * How far the log went when one writer of positions gave out its last ones. A writer goes by a random name, and gives itself
 * another one as soon as the database does not hold what it left there. So it has given out its boundaries in one history
 * alone, and a database that holds one of its boundaries holds all that came before (contract O2).
 */
export interface HistoryEnd extends LogBoundary {
  writer: string;
}

/** What a reader's cursor says of the log that it has read. */
export interface ReadHistory {
  /** Those of the newest writers. The last of them is how far the log went that the reader has seen. */
  ends: readonly HistoryEnd[];
  /**
   * Only in the complete log, ascending: boundaries at which the reader had everything in front and had seen nothing behind. Its
   * entries depend on what was written later: they name keys that another write has replaced, and lack what was deleted.
   * When some of that is lost, the reader begins again at the last of these boundaries that is left. It has nothing in front of
   * the first one.
   */
  rests: readonly LogBoundary[];
}

export const LOG_BEGINNING: LogBoundary = { position: 0, change: 0 };

export function isBefore(a: LogBoundary, b: LogBoundary): boolean {
  return a.position < b.position || a.change < b.change;
}

export function isSameBoundary(a: LogBoundary, b: LogBoundary): boolean {
  return a.position === b.position && a.change === b.change;
}

const earlier = (a: LogBoundary, b: LogBoundary): LogBoundary => (isBefore(a, b) ? a : b);

const later = (a: LogBoundary, b: LogBoundary): LogBoundary => (isBefore(a, b) ? b : a);

/** The last of some boundaries of one history. */
export function lastBoundary(ends: readonly LogBoundary[]): LogBoundary {
  return ends.reduce<LogBoundary>(later, LOG_BEGINNING);
}

/**
 * The last boundary of which it is sure that two histories share it and all that comes before it. It is the last one that they
 * share if the writer that gave it out is among the ends: what that writer gave out later, in the other history, it did not
 * give out under the same name.
 */
export function lastShared(read: readonly HistoryEnd[], stored: readonly HistoryEnd[]): LogBoundary {
  const storedEnds = new Map(stored.map((end) => [end.writer, end]));
  return read.reduce<LogBoundary>((last, end) => {
    const same = storedEnds.get(end.writer);
    return same ? later(last, earlier(end, same)) : last;
  }, LOG_BEGINNING);
}

/** What the ends were when the log went no further than to a boundary. */
export function endsAt(ends: readonly HistoryEnd[], { position, change }: LogBoundary): HistoryEnd[] {
  return ends.flatMap((end) => {
    const boundary = earlier(end, { position, change });
    return isSameBoundary(boundary, LOG_BEGINNING) ? [] : [{ ...boundary, writer: end.writer }];
  });
}

/** Rests that are all kept, from the newest one. */
const RECENT_RESTS = 8;

/** Further back each is at most so many times as far as the next one is, so that their number grows with the logarithm. */
const REST_DISTANCE = 4;

/** Adds a boundary behind the others, and leaves some of these out. */
export function withRest(rests: readonly LogBoundary[], boundary: LogBoundary): LogBoundary[] {
  const last = rests.at(-1);
  if (last && isSameBoundary(last, boundary)) return [...rests];
  const all = [...rests, boundary];
  const distance = (rest: LogBoundary) => boundary.position + boundary.change - rest.position - rest.change;
  const kept = all.slice(-RECENT_RESTS);
  let newer = kept[0] ?? boundary;
  for (const [i, rest] of [...all.slice(0, -RECENT_RESTS).entries()].reverse()) {
    const older = all[i - 1];
    // The first one is where the reader began.
    if (older && distance(older) <= REST_DISTANCE * distance(newer)) continue;
    kept.unshift(rest);
    newer = rest;
  }
  return kept;
}

/** The newest writer first, so that the same ends have the same text. */
export function inHistoryOrder(ends: readonly HistoryEnd[]): HistoryEnd[] {
  return [...ends].sort(
    (a, b) =>
      b.position - a.position || b.change - a.change || (a.writer < b.writer ? -1 : a.writer > b.writer ? 1 : 0),
  );
}

/** How long the name of a writer is, in characters of base64url. */
export const WRITER_LENGTH = 12;

const RADIX = 36;
const NUMBER = '[\\da-z]{1,11}';
const REST = `${NUMBER}\\.${NUMBER}`;
const END = `[\\w-]{${WRITER_LENGTH}}\\.${REST}`;
const HISTORY = new RegExp(`^(?:${END}(?:~${END})*)?(?:~~${REST}(?:~${REST})*)?$`);

/** Far more than any cursor of the log has, and few enough for one statement. */
const MAX_LENGTH = 4_000;

const boundaryText = ({ position, change }: LogBoundary) => `${position.toString(RADIX)}.${change.toString(RADIX)}`;

/** @returns a text of letters, digits and `-`, `_`, `.`, `~`. */
export function historyText(ends: readonly HistoryEnd[], rests: readonly LogBoundary[] = []): string {
  const text = ends.map((end) => `${end.writer}.${boundaryText(end)}`).join('~');
  return rests.length === 0 ? text : `${text}~~${rests.map(boundaryText).join('~')}`;
}

/** @returns undefined if the text is not one of `historyText`. */
export function historyOf(text: string): ReadHistory | undefined {
  if (text.length > MAX_LENGTH || !HISTORY.test(text)) return undefined;
  const [ends = '', rests = ''] = text.split('~~');
  const items = (list: string) => (list === '' ? [] : list.split('~')).map((item) => item.split('.'));
  const number = (digits = '') => parseInt(digits, RADIX);
  return {
    ends: items(ends).map(([writer = '', position, change]) => ({
      writer,
      position: number(position),
      change: number(change),
    })),
    rests: items(rests).map(([position, change]) => ({ position: number(position), change: number(change) })),
  };
}
