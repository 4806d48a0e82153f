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
  type LogCursor,
  type ReadHistory,
} from '../model/log-history.js';
import type { SessionLogCursor } from './entries.js';

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
