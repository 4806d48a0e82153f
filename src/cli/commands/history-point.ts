import { InvalidArgumentError } from '../../model/errors.js';
import { given } from '../../model/objects.js';
import { quoted } from '../../operations/words.js';
import { NO_SUCH_INVOCATION, type HistoryPoint } from '../../sessions/history.js';
import { UsageError } from '../usage-error.js';

/** The options of `fork` and `rewind` that name a point of a session's history. */
export interface PointFlags {
  at?: number;
  before?: string;
}

/** @throws UsageError if both are given, or no event is of the invocation. */
export async function atPoint<T>({ at, before }: PointFlags, work: (point: HistoryPoint) => Promise<T>): Promise<T> {
  if (at !== undefined && before !== undefined) throw new UsageError('Give either --at or --before.');
  try {
    return await work(given({ at, beforeInvocationId: before }));
  } catch (error) {
    const isMissing = error instanceof InvalidArgumentError && error.message === NO_SUCH_INVOCATION;
    if (before === undefined || !isMissing) throw error;
    throw new UsageError(`--before ${quoted(before)}: no such invocation.`);
  }
}
