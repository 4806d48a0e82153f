import type { SessionKey } from '../../model/keys.js';
import {
  SESSION_COLUMNS,
  sessionKeyOf,
  type SessionKeyRow,
  numberOf,
  optionalNumberOf,
  textOf,
} from '../sql/tables.js';
import type { SessionHead } from './sessions.js';

/**
 * Soft-deleted sessions are `deleted`. They are `ending` once a permanent deletion in several transactions has begun: then they
 * lack events, and cannot be restored. Creating the id again deletes the rest first.
 */
type SessionStatus = 'active' | 'deleted' | 'ending';

/** A session's row, soft-deleted or not. */
export interface StoredSession extends SessionHead {
  key: SessionKey;
  createTime: number;
  status: SessionStatus;
  /** By the database's clock, in ms; undefined while it is active. */
  deletedAt: number | undefined;
}

/**
 * A session whose import in batches has not ended is soft-deleted with this time, at which no other session can have been deleted.
 * It lacks events, state and calls.
 */
export const unfinishedAt = (createTime: number): number => createTime - 1;

export const isUnfinished = ({ deletedAt, createTime }: Pick<StoredSession, 'deletedAt' | 'createTime'>): boolean =>
  deletedAt === unfinishedAt(createTime);

/** The columns of `storedSessionOf`. */
export interface StoredSessionRow extends SessionKeyRow {
  incarnation: string;
  origin: string;
  status: SessionStatus;
  first_seq: number;
  last_seq: number;
  /** Doubles, as numbers or as text. */
  created: number | string;
  updated: number | string;
  deleted: number | string | null;
}

export const STORED_SESSION_COLUMNS = `${SESSION_COLUMNS}, incarnation, origin, status, first_seq, last_seq, create_time as created,
    last_update_time as updated, deleted_at as deleted`;

export function storedSessionOf(row: StoredSessionRow): StoredSession {
  return {
    key: sessionKeyOf(row),
    incarnation: textOf(row.incarnation),
    origin: textOf(row.origin),
    status: row.status,
    firstSeq: numberOf(row.first_seq),
    lastSeq: numberOf(row.last_seq),
    createTime: numberOf(row.created),
    lastUpdateTime: numberOf(row.updated),
    deletedAt: optionalNumberOf(row.deleted),
  };
}
