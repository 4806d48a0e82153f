import type { ForkedFrom, SessionKey } from '../../model/keys.js';
import type { Sql } from '../dialects/dialect.js';
import { underLock } from '../dialects/event-parts.js';
import { leaseIsFree } from '../dialects/session-rows.js';
import { SESSION_COLUMNS, SESSION_WHERE } from '../sql/columns.js';
import {
  booleanOf,
  perTables,
  sessionKeyOf,
  sessionValues,
  type Row,
  type SessionKeyRow,
  numberOf,
  optionalNumberOf,
  optionalTextOf,
  textOf,
} from '../sql/values.js';

export interface SessionHead {
  /** The random name of one history of a session. It changes with a rewind, and if the id is used again after a deletion. */
  incarnation: string;
  /** The session's first incarnation, which a rewind does not change. Encoded texts are bound to it. */
  origin: string;
  /** The number of the oldest event that is kept; above `lastSeq` if all were trimmed (contract K2). */
  firstSeq: number;
  lastSeq: number;
  lastUpdateTime: number;
}

export interface ReadHead extends SessionHead {
  /** The id of its newest recorded change. */
  lastChange: number;
  /** Whether an event of any kind may change its open calls, so that an append locks it first. */
  hasPendingCalls: boolean;
}

/**
 * Soft-deleted sessions are `deleted`. They are `ending` once a permanent deletion in several transactions has begun: then they
 * lack events, and cannot be restored. `importing` until the last batch of an import: they lack events, state and calls, and have
 * no entries in the log. Creating the id deletes all of these first.
 */
type SessionStatus = 'active' | 'deleted' | 'ending' | 'importing';

const WHOLE: readonly SessionStatus[] = ['active', 'deleted'];

/** Whether all of a session is stored. */
export const isWhole = ({ status }: Pick<StoredSession, 'status'>): boolean => WHOLE.includes(status);

/** The condition that all of a session is stored. */
export const IS_WHOLE = `status in ('${WHOLE.join("', '")}')`;

/** A session's row, soft-deleted or not. */
export interface StoredSession extends ReadHead {
  key: SessionKey;
  createTime: number;
  status: SessionStatus;
  /** By the database's clock, in ms; undefined while it is active. While it is imported, when its last batch was written. */
  deletedAt: number | undefined;
  /** Undefined unless it is a fork. */
  forkedFrom: ForkedFrom | undefined;
  title: string | null;
  /** JSON, or null if it has none. */
  labels: string | null;
  /** Whether somebody holds its lease, by the database's clock. */
  isLeased: boolean;
  /** When somebody last changed it other than by an event, by the database's clock, in ms. */
  touchedAt: number | undefined;
}

/** The columns of `storedSessionOf`. */
type StoredSessionRow = SessionKeyRow &
  ForkRow & { status: SessionStatus } & Row<
    | ('incarnation' | 'origin' | 'first_seq' | 'last_seq' | 'last_change' | 'has_pending_calls')
    | ('created' | 'updated' | 'deleted' | 'touched' | 'title' | 'labels_json' | 'leased')
  >;

export const FORK_COLUMNS = 'forked_from, forked_seq, forked_root';

/** The columns of `forkedFromOf`. */
type ForkRow = Row<'forked_from' | 'forked_seq' | 'forked_root'>;

function forkedFromOf(row: ForkRow): ForkedFrom | undefined {
  const sessionId = optionalTextOf(row.forked_from);
  if (sessionId === null) return undefined;
  const root = optionalTextOf(row.forked_root);
  return { sessionId, at: optionalNumberOf(row.forked_seq) ?? 0, ...(root !== null && { root }) };
}

const storedSessionColumns = perTables(
  ({
    tables,
    dialect,
  }: Sql) => `${SESSION_COLUMNS}, incarnation, origin, status, first_seq, last_seq, last_change, has_pending_calls, create_time as created,
    last_update_time as updated, deleted_at as deleted, touched_at as touched, ${FORK_COLUMNS}, title,
    ${tables.select.labels} as labels_json, not ${leaseIsFree(dialect.sql)} as leased`,
);

function storedSessionOf(row: StoredSessionRow): StoredSession {
  return {
    key: sessionKeyOf(row),
    incarnation: textOf(row.incarnation),
    origin: textOf(row.origin),
    status: row.status,
    firstSeq: numberOf(row.first_seq),
    lastSeq: numberOf(row.last_seq),
    lastChange: numberOf(row.last_change),
    hasPendingCalls: booleanOf(row.has_pending_calls),
    createTime: numberOf(row.created),
    lastUpdateTime: numberOf(row.updated),
    deletedAt: optionalNumberOf(row.deleted),
    forkedFrom: forkedFromOf(row),
    title: optionalTextOf(row.title),
    labels: optionalTextOf(row.labels_json),
    isLeased: booleanOf(row.leased),
    touchedAt: optionalNumberOf(row.touched),
  };
}

/** Reads rows of sessions. @param rest of the statement, after the columns. */
export async function selectSessions(sql: Sql, rest: string, values: readonly unknown[]): Promise<StoredSession[]> {
  const rows = await sql.all<StoredSessionRow>(`select ${storedSessionColumns(sql)} ${rest}`, values);
  return rows.map(storedSessionOf);
}

/** @returns a session's row, deleted or not; undefined if there is none. */
export async function storedSession(sql: Sql, key: SessionKey): Promise<StoredSession | undefined> {
  const from = `from ${sql.tables.sessions} where ${SESSION_WHERE}${underLock(sql, key)}`;
  const [session] = await selectSessions(sql, from, sessionValues(key));
  return session;
}

/**
 * Takes a session's lock, only by its primary key: by a range InnoDB would also lock the gaps between rows, where others write.
 *
 * @param options.skipsLocked whether not to wait if somebody else has the lock.
 * @returns undefined if there is no such session, or if it is skipped.
 */
export async function lockStoredSession(
  sql: Sql,
  key: SessionKey,
  { skipsLocked = false } = {},
): Promise<StoredSession | undefined> {
  const lock = { columns: storedSessionColumns(sql), skipsLocked };
  const row = await sql.dialect.operations.lockSession<StoredSessionRow>(sql, key, lock);
  return row && storedSessionOf(row);
}
