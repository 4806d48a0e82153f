import { aString, aWholeNumber, object, rule } from '../model/arguments.js';
import { LogWentBackError } from '../model/errors.js';
import {
  LOG_BEGINNING,
  endsAt,
  historyOf,
  historyText,
  isBefore,
  isSameBoundary,
  lastBoundary,
  lastShared,
  withRest,
  type CompleteLogPosition,
  type HistoryEnd,
  type LogBoundary,
  type LogCursor,
  type ReadHistory,
} from '../model/log-history.js';
import type { SessionLogCursor } from './entries.js';
import type { ReaderCall } from './reader-call.js';
import { endsOfWriters } from './writers.js';

/** The position of a reader, and the history that it belongs to. */
export interface ReaderCursor {
  position: number;
  /** Undefined if the cursor is not of the complete log. */
  change?: number | undefined;
  /** Undefined if the reader keeps only the position. */
  epoch?: number | undefined;
  read: ReadHistory;
}

const checkLogPosition = object<LogCursor>(
  {
    position: aWholeNumber,
    epoch: aWholeNumber,
    change: aWholeNumber,
    history: rule(
      'that of a cursor of the log',
      (value) => typeof value === 'string' && historyOf(value) !== undefined,
    ),
  },
  'position',
  'epoch',
);

const checkSessionLogPosition = object<SessionLogCursor>(
  { seq: aWholeNumber, incarnation: aString },
  'seq',
  'incarnation',
);

const NOTHING_READ: ReadHistory = { ends: [], rests: [] };

/** @throws InvalidArgumentError if it is not a cursor of the log. */
export function readerCursorOf(cursor: LogCursor | number): ReaderCursor {
  if (typeof cursor === 'object') {
    checkLogPosition(cursor, 'position');
    const { position, epoch, change, history = '' } = cursor;
    return { position, epoch, change, read: historyOf(history) ?? NOTHING_READ };
  }
  aWholeNumber(cursor, 'position');
  return { position: cursor, read: NOTHING_READ };
}

/** @throws InvalidArgumentError if it is not a cursor of a session's log. */
export function sessionPositionOf(cursor: SessionLogCursor | number): SessionLogCursor {
  if (typeof cursor === 'object') return checkSessionLogPosition(cursor, 'cursor');
  aWholeNumber(cursor, 'seq');
  return { seq: cursor, incarnation: '' };
}

/** The cursor of a reader that has read up to a head. */
export function cursorAt(head: CompleteLogPosition): ReaderCursor {
  const { position, change, epoch } = head;
  return { position, change, epoch, read: { ends: endsOf(head), rests: [] } };
}

export function endsOf({ history }: CompleteLogPosition): readonly HistoryEnd[] {
  return historyOf(history)?.ends ?? [];
}

/** The rests of a reader of the complete log that continues from its cursor. */
export function restsOf({ position, change = 0, read }: ReaderCursor): readonly LogBoundary[] {
  if (isSameBoundary({ position, change }, lastBoundary(read.ends))) return withRest(read.rests, { position, change });
  // Unknown if the cursor is not of the complete log, or only a position: assume that the reader must begin again.
  return read.rests.length > 0 ? read.rests : [LOG_BEGINNING];
}

/**
 * Compares a reader's history with the log's.
 *
 * @param options.isComplete whether it reads the complete log. There, entries before its cursor may have changed if later ones
 *   were lost (`ReadHistory`).
 * @returns an error with the cursor to continue from; undefined if the log is the one that the reader has read so far.
 */
export async function wentBack(
  call: ReaderCall,
  reader: ReaderCursor,
  head: CompleteLogPosition,
  { isComplete }: { isComplete: boolean },
): Promise<LogWentBackError | undefined> {
  const { position, change = 0, epoch = head.epoch, read } = reader;
  const seen = lastBoundary(read.ends);
  const isKnown = epoch === head.epoch && position <= head.position && change <= head.change;
  if (isKnown && historyText(read.ends) === head.history) return undefined;

  const newest = endsOf(head);
  const others = read.ends.map(({ writer }) => writer).filter((writer) => !newest.some((end) => end.writer === writer));
  const stored = others.length > 0 ? [...newest, ...(await call.run((sql) => endsOfWriters(sql, others)))] : newest;
  let shared = lastShared(read.ends, stored);
  const isShared = isComplete ? !isBefore(shared, seen) : shared.position >= Math.min(position, seen.position);
  if (isKnown && isShared) return undefined;

  shared = minimum(minimum(shared, head), { position, change: reader.change ?? head.change });
  const rests = isComplete ? restsOf(reader).filter((rest) => !isBefore(shared, rest)) : [];
  const from = isComplete ? (rests.at(-1) ?? shared) : shared;
  const history = historyText(endsAt(endsOf(head), from), rests);
  const cursor = { position: from.position, epoch: head.epoch, history };
  return new LogWentBackError(shared.position, isComplete ? { ...cursor, change: from.change } : cursor);
}

const minimum = (a: LogBoundary, b: LogBoundary): LogBoundary => ({
  position: Math.min(a.position, b.position),
  change: Math.min(a.change, b.change),
});
