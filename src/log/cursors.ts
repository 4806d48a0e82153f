import { aString, aWholeNumber, object, rule } from '../model/arguments.js';
import {
  LOG_BEGINNING,
  historyOf,
  isSameBoundary,
  lastBoundary,
  withRest,
  type CompleteLogPosition,
  type HistoryEnd,
  type LogBoundary,
  type LogPosition,
  type ReadHistory,
} from '../model/log-history.js';
import type { SessionLogPosition } from './entries.js';

/**
 * Where a reader of the log is: the `cursor` of the last entry that it has seen, what `head` gave, or 0 for the beginning. Of
 * any other position alone, or a position and its epoch, the log does not know in which history it was given out: it finds out
 * only while it is shorter, or by an operator's word, and names the beginning as the cursor to continue from.
 */
export type LogCursor = number | (Omit<LogPosition, 'history'> & { history?: string });

/** Where a reader of one session's log is: an entry's `cursor`, or its `seq` alone. */
export type SessionLogCursor = number | SessionLogPosition;

/** Where a reader is, and in which history. */
export interface ReaderCursor {
  position: number;
  /** Undefined where the reader has read events alone. */
  change?: number | undefined;
  /** Undefined where the reader keeps positions alone. */
  epoch?: number | undefined;
  read: ReadHistory;
}

const checkLogPosition = object<LogPosition>(
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

const checkSessionLogPosition = object<SessionLogPosition>(
  { seq: aWholeNumber, incarnation: aString },
  'seq',
  'incarnation',
);

const NOTHING_READ: ReadHistory = { ends: [], rests: [] };

/** @throws InvalidArgumentError when it is no cursor of the log. */
export function readerCursorOf(cursor: LogCursor): ReaderCursor {
  if (typeof cursor === 'object') {
    checkLogPosition(cursor, 'position');
    const { position, epoch, change, history = '' } = cursor;
    return { position, epoch, change, read: historyOf(history) ?? NOTHING_READ };
  }
  aWholeNumber(cursor, 'position');
  return { position: cursor, read: NOTHING_READ };
}

/** @throws InvalidArgumentError when it is no cursor of a session's log. */
export function sessionPositionOf(cursor: SessionLogCursor): SessionLogPosition {
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
  // The rests of a reader that has read events alone, or keeps positions alone, are not known.
  return read.rests.length > 0 ? read.rests : [LOG_BEGINNING];
}
