import { isWhole, type StoredSession } from '../database/statements/stored-session.js';
import { AlreadyExistsError } from '../model/errors.js';
import type { SessionRecord } from '../model/records.js';
import type { ImportRules } from '../owned/record-writer.js';

/** What both a record and a session say. */
const NUMBERS = ['createTime', 'lastUpdateTime', 'firstSeq', 'lastSeq'] as const;

/** What the import needs to know of a session that is here. */
export type ExistingSession = Pick<StoredSession, 'status' | 'isLeased' | (typeof NUMBERS)[number]>;

/** Writes the session; first deletes what is here; or leaves what is here. */
export type ImportPlan = 'write' | 'replace' | 'keep';

/**
 * @param isAsImported finds out whether the newest change of the session is its import.
 * @throws AlreadyExistsError if the session is here, and that is an error.
 */
export async function planOf(
  record: SessionRecord,
  existing: ExistingSession | undefined,
  { onExisting, force, isOfOtherStore }: ImportRules,
  isAsImported: () => Promise<boolean>,
): Promise<ImportPlan> {
  if (!existing) return 'write';
  // Nobody sees it: an import was interrupted, or a deletion has begun.
  if (!isWhole(existing)) return 'replace';
  if (onExisting === 'error')
    throw new AlreadyExistsError(record.sessionId, 'It was not imported: leave or replace such sessions instead.');
  if (onExisting === 'skip') return 'keep';
  if (!force && (existing.isLeased || !(await isAsImported()))) return 'keep';
  const isUnchanged = NUMBERS.every((name) => record[name] === existing[name]);
  return isOfOtherStore && isUnchanged ? 'keep' : 'replace';
}
