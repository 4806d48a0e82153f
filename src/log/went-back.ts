import { LogWentBackError } from '../model/errors.js';
import {
  endsAt,
  historyText,
  isBefore,
  lastBoundary,
  lastShared,
  type CompleteLogPosition,
  type LogBoundary,
} from '../model/log-history.js';
import { endsOf, restsOf, type ReaderCursor } from './cursors.js';
import { endOfEpoch } from './log-head.js';
import type { ReaderCall } from './reader-call.js';
import { endsOfWriters } from './writers.js';

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

  const end = epoch < head.epoch ? await call.run((sql) => endOfEpoch(sql, epoch)) : undefined;
  // A reader without a history knows only its epoch, so it continues from the end of that epoch.
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
