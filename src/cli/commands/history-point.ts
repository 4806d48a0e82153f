import { given } from '../../model/objects.js';
import type { HistoryPoint } from '../../sessions/history.js';

/** The options of `fork` and `rewind` that name a point of a session's history. */
export interface PointFlags {
  at?: number;
  before?: string;
}

export const pointOf = ({ at, before }: PointFlags): HistoryPoint => given({ at, beforeInvocationId: before });
