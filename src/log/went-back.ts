import type { Sql } from '../database/sql/sql.js';
import type { Stores } from '../database/stores/stores.js';
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
  type ReadHistory,
} from '../model/log-history.js';

/** Where a reader is, and in which history. */
export interface ReaderCursor {
  position: number;
  /** Undefined where the reader has read events alone. */
  change?: number | undefined;
  /** Undefined where the reader keeps positions alone. */
  epoch?: number | undefined;
  read: ReadHistory;
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

/**
 * Compares a reader's history with the log's.
 *
 * @param isComplete whether it reads the complete log: there entries in front of its cursor may be others, when something is
 *   lost that came later (`ReadHistory`).
 * @param run runs statements.
 * @returns the error with the cursor to continue from; undefined where the log is the one that the reader has read so far.
 */
export async function wentBack(
  reader: ReaderCursor,
  head: CompleteLogPosition,
  isComplete: boolean,
  { log, logHistory }: Stores,
  run: <T>(work: (sql: Sql) => Promise<T>) => Promise<T>,
): Promise<LogWentBackError | undefined> {
  const { position, change = 0, epoch = head.epoch, read } = reader;
  const seen = lastBoundary(read.ends);
  const isKnown = epoch === head.epoch && position <= head.position && change <= head.change;
  if (isKnown && historyText(read.ends) === head.history) return undefined;

  const newest = endsOf(head);
  const others = read.ends.map(({ writer }) => writer).filter((writer) => !newest.some((end) => end.writer === writer));
  const stored = others.length > 0 ? [...newest, ...(await run((sql) => logHistory.ends(sql, others)))] : newest;
  let shared = lastShared(read.ends, stored);
  const isShared = isComplete ? !isBefore(shared, seen) : shared.position >= Math.min(position, seen.position);
  if (isKnown && isShared) return undefined;

  const end = epoch < head.epoch ? await run((sql) => log.endOfEpoch(sql, epoch)) : undefined;
  // Without a history the epoch, which an operator begins, is all there is to go by.
  if (read.ends.length === 0 && end && !isComplete) shared = head;
  for (const limit of [head, end, { position, change: reader.change ?? head.change }]) {
    if (limit) shared = minimum(shared, limit);
  }
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
