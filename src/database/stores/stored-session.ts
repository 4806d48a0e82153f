import type { SessionKey } from '../../model/keys.js';
import { SESSION_COLUMNS, sessionKeyOf, type SessionKeyRow } from '../sql/tables.js';
import { numberOf, optionalNumberOf, textOf } from '../sql/row-values.js';
import type { SessionHead } from './session-store.js';

/** A session's row, soft-deleted or not. */
export interface StoredSession extends SessionHead {
  key: SessionKey;
  createTime: number;
  /** By the database's clock, in ms; undefined while it is not soft-deleted. */
  deletedAt: number | undefined;
}

/** The columns of `storedSessionOf`. */
export interface StoredSessionRow extends SessionKeyRow {
  incarnation: string;
  first_seq: number;
  last_seq: number;
  /** Doubles, as numbers or as text. */
  created: number | string;
  updated: number | string;
  deleted: number | string | null;
}

/**
 * The first character of the incarnation of a session whose deletion has begun and takes several transactions. It is
 * soft-deleted as well, so that nobody reads it or writes to it; and `restore` does not turn this back, since the session lacks
 * events. What creates its id again deletes the rest first.
 */
const DELETION_BEGUN = '!';

/** A condition that leaves out sessions whose deletion has begun. */
export const DELETION_NOT_BEGUN = `incarnation not like '${DELETION_BEGUN}%'`;

/** The incarnation of a session from the beginning of its deletion on. */
export function incarnationAtDeletion(incarnation: string): string {
  return DELETION_BEGUN + incarnation.slice(1);
}

export function hasDeletionBegun({ incarnation }: Pick<SessionHead, 'incarnation'>): boolean {
  return incarnation.startsWith(DELETION_BEGUN);
}

/** Whether two rows are of one session that nobody has created again or rewound in between, soft-deleted or not. */
export function isSameIncarnation(one: SessionHead, other: SessionHead): boolean {
  const bare = ({ incarnation }: SessionHead) => incarnation.slice(1).replaceAll('.', '-');
  return bare(one) === bare(other);
}

export const STORED_SESSION_COLUMNS = `${SESSION_COLUMNS}, incarnation, first_seq, last_seq, create_time as created,
    last_update_time as updated, deleted_at as deleted`;

export function storedSessionOf(row: StoredSessionRow): StoredSession {
  return {
    key: sessionKeyOf(row),
    incarnation: textOf(row.incarnation),
    firstSeq: numberOf(row.first_seq),
    lastSeq: numberOf(row.last_seq),
    createTime: numberOf(row.created),
    lastUpdateTime: numberOf(row.updated),
    deletedAt: optionalNumberOf(row.deleted),
  };
}
