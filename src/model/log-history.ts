/**
 * The place of a reader in the log: the `cursor` of the last entry that it has seen, or the result of `head`. Keep the whole object.
 * A bare position, or a position with its epoch, does not name its history (contract O2). A reader with such a cursor learns that
 * the log went back only if the log is shorter, or if an operator has begun an epoch; then it must begin at 0.
 */
export interface LogCursor {
  position: number;
  /** Grows each time an operator records that the log went back. */
  epoch: number;
  /**
   * The log compares this with its own history, to find the last boundary that both share. A text of at most a few hundred letters,
   * digits and `-`, `_`, `.`, `~`.
   */
  history?: string;
  /** Only in the complete log: the number of changes before it. */
  change?: number;
}

/** A cursor that the log has returned. */
export interface LogPosition extends LogCursor {
  history: string;
}

/** A cursor that the complete log has returned. */
export interface CompleteLogPosition extends LogPosition {
  change: number;
}

/** A point of the log after an event or a change. Neither number of a later boundary is lower. */
export interface LogBoundary {
  position: number;
  change: number;
}

/**
 * The boundary up to which a writer assigned positions. A writer has a random name, and takes a new one as soon as the database does
 * not have its last boundary. So all its boundaries belong to one history, and a database that has one of them has everything
 * before it (contract O2).
 */
export interface HistoryEnd extends LogBoundary {
  writer: string;
}

/** The history that a reader has read, from its cursor. */
export interface ReadHistory {
  /** The ends of the newest writers. The last one is how far the log went when the reader read it. */
  ends: readonly HistoryEnd[];
  /**
   * Only in the complete log, ascending: boundaries at which the reader had read everything before, and nothing after. Entries depend
   * on what was written after them: they name keys that were replaced later, and lack what was deleted later. If the database loses
   * such later writes, the reader must read again from the last of these boundaries that still exists. The first one is where the
   * reader began.
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

/** @returns the last of some boundaries of one history. */
export function lastBoundary(ends: readonly LogBoundary[]): LogBoundary {
  return ends.reduce<LogBoundary>(later, LOG_BEGINNING);
}

/**
 * @returns the last boundary that two histories certainly share, with everything before it. It is the very last one that they share
 *   if its writer is among the ends: a writer does not use its name in two histories.
 */
export function lastShared(read: readonly HistoryEnd[], stored: readonly HistoryEnd[]): LogBoundary {
  const storedEnds = new Map(stored.map((end) => [end.writer, end]));
  return read.reduce<LogBoundary>((last, end) => {
    const same = storedEnds.get(end.writer);
    return same ? later(last, earlier(end, same)) : last;
  }, LOG_BEGINNING);
}

/** @returns the ends as they were when the log ended at a boundary. */
export function endsAt(ends: readonly HistoryEnd[], { position, change }: LogBoundary): HistoryEnd[] {
  return ends.flatMap((end) => {
    const boundary = earlier(end, { position, change });
    return isSameBoundary(boundary, LOG_BEGINNING) ? [] : [{ ...boundary, writer: end.writer }];
  });
}

/** How many of the newest rests are all kept. */
const RECENT_RESTS = 8;

/** Older ones are kept at distances that grow by this factor, so that their number grows only with the logarithm. */
const REST_DISTANCE = 4;

/** Adds a boundary at the end, and removes some of the others. */
export function withRest(rests: readonly LogBoundary[], boundary: LogBoundary): LogBoundary[] {
  const last = rests.at(-1);
  if (last && isSameBoundary(last, boundary)) return [...rests];
  const all = [...rests, boundary];
  const distance = (rest: LogBoundary) => boundary.position + boundary.change - rest.position - rest.change;
  const kept = all.slice(-RECENT_RESTS);
  let newer = kept[0] ?? boundary;
  for (const [i, rest] of [...all.slice(0, -RECENT_RESTS).entries()].reverse()) {
    const older = all[i - 1];
    // Keeps the first one, where the reader began.
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

/** Much longer than any cursor of the log, and short enough for one statement. */
const MAX_LENGTH = 4_000;

const boundaryText = ({ position, change }: LogBoundary) => `${position.toString(RADIX)}.${change.toString(RADIX)}`;

/** @returns a text of letters, digits and `-`, `_`, `.`, `~`. */
export function historyText(ends: readonly HistoryEnd[], rests: readonly LogBoundary[] = []): string {
  const text = ends.map((end) => `${end.writer}.${boundaryText(end)}`).join('~');
  return rests.length === 0 ? text : `${text}~~${rests.map(boundaryText).join('~')}`;
}

/** @returns undefined if the text is not from `historyText`. */
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
