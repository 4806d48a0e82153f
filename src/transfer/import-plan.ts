import { isWhole, type StoredSession } from '../database/statements/stored-session.js';
import { AlreadyExistsError } from '../model/errors.js';
import type { SessionRecord } from '../model/records.js';

/** What an import does with sessions that are here. */
export interface ImportRules {
  onExisting: 'skip' | 'replace' | 'error';
  /** Whether to replace sessions to which somebody has written here since their import. */
  force: boolean;
  /** Whether the records come from another store, so that an unchanged session has the same numbers and times. */
  isForeign: boolean;
}

/** What the import needs to know of a session that is here. */
export type ExistingSession = Pick<
  StoredSession,
  'status' | 'createTime' | 'lastUpdateTime' | 'firstSeq' | 'lastSeq' | 'isLeased'
> & {
  /** Whether its newest change is its import. */
  isAsImported: boolean;
};

/** Writes the session; first deletes what is here; or leaves what is here. */
export type ImportPlan = 'write' | 'replace' | 'keep';

/** @throws AlreadyExistsError if the session is here, and that is an error. */
export function planOf(
  record: SessionRecord,
  existing: ExistingSession | undefined,
  { onExisting, force, isForeign }: ImportRules,
): ImportPlan {
  if (!existing) return 'write';
  // Nobody sees it: an import was interrupted, or a deletion has begun.
  if (!isWhole(existing)) return 'replace';
  if (onExisting === 'error') throw new AlreadyExistsError(record.sessionId);
  if (onExisting === 'skip') return 'keep';
  if (!force && (existing.isLeased || !existing.isAsImported)) return 'keep';
  return isForeign && isUnchanged(record, existing) ? 'keep' : 'replace';
}

const isUnchanged = (record: SessionRecord, existing: ExistingSession) =>
  record.createTime === existing.createTime &&
  record.lastUpdateTime === existing.lastUpdateTime &&
  record.firstSeq === existing.firstSeq &&
  record.lastSeq === existing.lastSeq;
