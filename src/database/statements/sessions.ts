import { StaleSessionError } from '../../model/errors.js';
import { sessionIdentity, type ForkedFrom, type SessionKey } from '../../model/keys.js';
import { chunksOf } from '../../model/pages.js';
import type { Sql } from '../dialects/dialect.js';
import { underLock, type UnderLock } from '../dialects/event-parts.js';
import { NO_LEASE, touch } from '../dialects/session-rows.js';
import { IN_SESSION, SESSION_COLUMNS, SESSION_WHERE } from '../sql/columns.js';
import { keyed, named, numberOf, perTables, sessionValues, textOf } from '../sql/values.js';
import { recordChange, recordDeletion } from './changes.js';
import {
  FORK_COLUMNS,
  isWhole,
  lockStoredSession,
  selectSessions,
  storedSession,
  type SessionHead,
  type StoredSession,
} from './stored-session.js';

/** Fails with the database's unique violation if the session exists. The caller records the creation. */
export async function insertSession(
  sql: Sql,
  session: SessionKey,
  { forkedFrom, ...head }: SessionHead & { forkedFrom?: ForkedFrom | undefined },
): Promise<void> {
  const seen = sql.behind && (await sessionVersion(sql, session));
  const { sessionId = null, at = null, root = null } = forkedFrom ?? {};
  const fork = { forkedFrom: sessionId, forkedSeq: at, forkedRoot: root };
  // Above any change that is left of an earlier session with the id, if somebody deleted its row by a statement of their own.
  const lastChange = Date.now() * 1_000;
  sql.later(...statements(sql).insert({ ...keyed(session), ...head, ...fork, lastChange }));
  // Somebody has deleted an earlier session, whose rows the transaction still sees.
  if (seen) sql.behind?.set(sessionIdentity(session), true);
}

/** @returns a session's row, unless it is deleted. */
export async function sessionHead(sql: Sql, session: SessionKey): Promise<StoredSession | undefined> {
  return ifActive(await storedSession(sql, session));
}

const ifActive = (session: StoredSession | undefined) => (session?.status === 'active' ? session : undefined);

/** How many sessions one statement names: SQLite refuses expressions deeper than 1,000. */
const MOST_SESSIONS = 200;

/** @returns conditions that a row belongs to one of several sessions, each for a statement. */
export function* among(
  { dialect }: Sql,
  sessions: readonly SessionKey[],
): Generator<{ where: string; values: readonly unknown[] }> {
  for (const some of chunksOf(sessions, MOST_SESSIONS)) {
    const keys = some.map(sessionValues);
    const any = () => ({ where: keys.map(() => `(${SESSION_WHERE})`).join(' or '), values: keys.flat() });
    yield dialect.sql.amongSessions?.(keys) ?? any();
  }
}

/** @returns the rows of the sessions that exist. */
export async function sessionHeads(sql: Sql, sessions: readonly SessionKey[]): Promise<StoredSession[]> {
  const heads: StoredSession[] = [];
  for (const { where, values } of among(sql, sessions)) {
    const text = `from ${sql.tables.sessions} where status = 'active' and (${where})`;
    heads.push(...(await selectSessions(sql, text, values)));
  }
  return heads;
}

/** Takes the session's lock without assigning a number. @returns undefined if the session is missing. */
export async function lockSession(sql: Sql, session: SessionKey): Promise<StoredSession | undefined> {
  // Without it, the lock is the first of the statements that are sent with it.
  if (sql.behind) await noteIfBehind(sql, session);
  return ifActive(await lockStoredSession(sql, session));
}

/** Takes the session's lock for a caller that has not locked it before: see `Sql.behind`. */
export async function noteIfBehind(sql: Sql, session: SessionKey): Promise<void> {
  const { behind } = sql;
  const id = sessionIdentity(session);
  if (!behind || behind.has(id)) return;
  // The lock comes first: it does not begin to read, so after a wait for it nothing is old yet.
  const locked = await sessionVersion(sql, session, { isLocked: true });
  behind.set(id, (await sessionVersion(sql, session)) !== locked);
}

/**
 * Like `lockSession`, for a caller that then reads the session and writes what it derives from that. On other databases than InnoDB
 * a host's transaction cannot lock a row that has changed since its snapshot.
 *
 * @throws StaleSessionError if the session has changed since the transaction began to read.
 */
export async function lockSessionAsRead(sql: Sql, session: SessionKey): Promise<StoredSession | undefined> {
  const head = await lockSession(sql, session);
  if (head && underLock(sql, session)) throw new StaleSessionError(session.sessionId);
  return head;
}

/** @returns a text that changes whenever the session's events, its own state or its past changes. */
async function sessionVersion(sql: Sql, session: SessionKey, options?: UnderLock): Promise<string> {
  const text = `select incarnation, first_seq, last_seq, last_change from ${sql.tables.sessions} where ${SESSION_WHERE}`;
  const [row] = await sql.all(text + underLock(sql, session, options), sessionValues(session));
  return row
    ? [textOf(row['incarnation']), ...[row['first_seq'], row['last_seq'], row['last_change']].map(numberOf)].join(' ')
    : '';
}

/** Takes a session back to an event. For handles that were read before, it is then another session (contract E2). */
export function setRewound(
  sql: Sql,
  session: SessionKey,
  to: Pick<SessionHead, 'lastSeq' | 'incarnation'> & { lastUpdateTime: number | undefined },
): void {
  const { lastUpdateTime = null } = to;
  sql.later(...statements(sql).rewind({ ...keyed(session), ...to, lastUpdateTime }));
}

/** Sets the numbers of a session's first and last event, for the caller that holds its lock. */
export function setBounds(sql: Sql, session: SessionKey, firstSeq: number, lastSeq: number): void {
  sql.later(...statements(sql).setBounds({ ...keyed(session), firstSeq, lastSeq }));
}

/**
 * Sets columns of a session's row. The caller holds the session's lock.
 *
 * @param touches whether the change keeps `prune` from an idle session.
 */
export function setColumns(
  sql: Sql,
  session: SessionKey,
  columns: Readonly<Record<string, unknown>>,
  { touches = false } = {},
): void {
  const set = Object.keys(columns).map((column) => `${column} = ?`);
  if (touches) set.push(touch(sql.dialect.sql));
  const text = `update ${sql.tables.sessions} set ${set.join(', ')} where ${SESSION_WHERE}`;
  sql.later(text, [...Object.values(columns), ...sessionValues(session)]);
}

/**
 * For the caller that holds the session's lock. The cascade of the foreign keys deletes events, their parts and session state.
 *
 * @param options.keepsArtifacts whether the session will be there again.
 */
export async function deleteSessionRow(sql: Sql, session: SessionKey, { keepsArtifacts = false } = {}): Promise<void> {
  const key = sessionValues(session);
  sql.later(`delete from ${sql.tables.sessions} where ${SESSION_WHERE}`, key);
  await deleteBeside(sql, session, keepsArtifacts);
}

/** Deletes the rows of a session that nobody sees. */
export async function deleteSoftDeleted(sql: Sql, session: SessionKey): Promise<void> {
  const text = `delete from ${sql.tables.sessions} where ${SESSION_WHERE} and status <> 'active'`;
  if ((await sql.run(text, sessionValues(session))).affectedRows > 0) await deleteBeside(sql, session, false);
}

/** Artifacts have no foreign key to the session. */
async function deleteBeside(sql: Sql, session: SessionKey, keepsArtifacts: boolean): Promise<void> {
  const artifacts = sql.dialect.sql.deleteThrough(sql.tables.artifacts, 'primary');
  if (!keepsArtifacts) sql.later(`${artifacts} where ${SESSION_WHERE}`, sessionValues(session));
  await recordDeletion(sql, session);
}

/**
 * Soft-deletes a session, and ends its lease. Appends need no extra check for it: they compare the status together with the
 * incarnation (contract K3).
 */
export async function softDeleteRow(sql: Sql, session: StoredSession): Promise<void> {
  const { key, incarnation, origin, lastSeq: seq } = session;
  const { affectedRows } = await sql.run(...statements(sql).softDelete({ ...keyed(key), incarnation }));
  if (affectedRows > 0) await recordChange(sql, { session: { ...key, origin }, kind: 'soft-deleted', seq });
}

/** Sets a time of the last update with which each `prune` finds the session first, and finishes the deletion. */
export const PRUNED_FIRST = 'last_update_time = 0';

/**
 * Begins a deletion that takes several transactions, for the caller that holds the session's lock. The session is soft-deleted, and
 * cannot be restored.
 */
export async function beginDeletion(sql: Sql, session: StoredSession): Promise<void> {
  const { key, origin, lastSeq: seq, deletedAt } = session;
  const time = deletedAt === undefined ? sql.dialect.sql.now : 'deleted_at';
  sql.later(
    `update ${sql.tables.sessions} set deleted_at = ${time}, status = 'ending', ${PRUNED_FIRST}, ${NO_LEASE}
      where ${SESSION_WHERE}`,
    sessionValues(key),
  );
  await recordChange(sql, { session: { ...key, origin }, kind: 'ending', seq });
}

/**
 * Undoes a soft deletion, if there is one.
 *
 * @returns the row as it was; undefined if there is no session, if its permanent deletion has begun, or if its import has not ended.
 */
export async function restoreRow(sql: Sql, session: SessionKey): Promise<StoredSession | undefined> {
  await noteIfBehind(sql, session);
  const stored = await lockStoredSession(sql, session);
  if (!stored || !isWhole(stored)) return undefined;
  if (stored.status === 'deleted') {
    const text = `update ${sql.tables.sessions} set deleted_at = null, status = 'active' where ${SESSION_WHERE}`;
    sql.later(text, sessionValues(session));
    const { origin, lastSeq: seq } = stored;
    await recordChange(sql, { session: { ...session, origin }, kind: 'restored', seq });
  }
  return stored;
}

const statements = perTables(({ dialect: { sql }, tables: { sessions } }: Sql) => {
  /** The last copied event of a fork that loses some. */
  const lowerForkedSeq = 'forked_seq = case when forked_seq > :lastSeq then :lastSeq else forked_seq end';
  return {
    insert: named(
      `insert into ${sessions} (${SESSION_COLUMNS}, incarnation, origin, last_change, first_seq, last_seq,
          create_time, last_update_time, ${FORK_COLUMNS})
        values (:app, :user, :session, :incarnation, :origin, :lastChange, :firstSeq, :lastSeq,
          :lastUpdateTime, :lastUpdateTime, :forkedFrom, :forkedSeq, :forkedRoot)`,
    ),
    // A session without events has its time of creation (contract C5). The times of trimmed events are not stored.
    rewind: named(
      `update ${sessions} set last_seq = :lastSeq, incarnation = :incarnation, ${lowerForkedSeq}, last_update_time =
          coalesce(:lastUpdateTime, case when first_seq = 1 then create_time else last_update_time end) where ${IN_SESSION}`,
    ),
    setBounds: named(
      `update ${sessions} set first_seq = :firstSeq, last_seq = :lastSeq, ${lowerForkedSeq} where ${IN_SESSION}`,
    ),
    softDelete: named(
      `update ${sessions} set deleted_at = ${sql.now}, status = 'deleted', ${NO_LEASE}
        where ${IN_SESSION} and status = 'active' and incarnation = :incarnation`,
    ),
  };
});
