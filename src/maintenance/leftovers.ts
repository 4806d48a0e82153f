import { randomUUID } from 'node:crypto';
import type { Sql } from '../database/dialects/dialect.js';
import { ownedAfter } from '../database/sql/keyset.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  numberOf,
} from '../database/sql/tables.js';
import { deleteChanges, recordDeletion, type ChangeKeyRow } from '../database/statements/changes.js';
import { countRows } from '../database/statements/count.js';
import { insertSession } from '../database/statements/sessions.js';
import { DatabaseError } from '../model/errors.js';
import { FAILURES } from '../model/failures.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import { pagesOf } from '../model/pages.js';
import type { DeletionRun } from './deletion-run.js';

/** How many sessions one query reads. */
const PAGE = 1_000;

/** How many sessions one transaction handles at most. */
const TOGETHER = 100;

// Others may delete rows of sessions by statements of their own. `adk_changes` has no foreign key to them, since it also records
// deletions.

interface WalkedSession {
  key: SessionKey;
  /** Whether it does not exist, but has recorded changes. */
  isLeftover: boolean;
}

/** The app, or the user, whose sessions are read. */
interface Owner {
  appName: string;
  userId: string | undefined;
}

/**
 * For sessions of an app, or of one user in it, whose rows somebody has deleted by statements of their own: deletes their changes,
 * which contain state, and records the deletion. Otherwise the complete log would have entries of sessions that do not exist.
 */
export async function removeLeftovers(run: DeletionRun, owner: Owner): Promise<void> {
  const { read, batches } = run;
  if (batches.isDryRun) return;
  const pages = pagesOf<WalkedSession>(PAGE, (last) => read((sql) => changedSessions(sql, owner, last?.key)));
  for await (const page of pages) {
    let remaining = page.filter(({ isLeftover }) => isLeftover).map(({ key }) => key);
    while (remaining.length > 0) {
      if (!(await batches.mayBegin())) return;
      const group = remaining.slice(0, Math.min(TOGETHER, batches.size));
      const left = new Set((await remove(run, group)).map(sessionIdentity));
      remaining = remaining.filter((session) => !group.includes(session) || left.has(sessionIdentity(session)));
      batches.add();
    }
    // Asks on each page, so that a signal ends the walk even if it finds nothing.
    if (page.length === PAGE && !(await batches.mayBegin())) return;
  }
}

/** Reads the keys of all changes. @returns how many deleted sessions still have some, at most `limit`. */
export function countLeftovers(sql: Sql, limit: number): Promise<number> {
  const { changes, sessions } = sql.tables;
  const found = `(select distinct ${SESSION_COLUMNS} from ${changes} as c where kind <> 'deleted'
    and session_id <> '' and not exists (select 1 from ${sessions} as s where ${isSameSession('s', 'c')}) limit ?)`;
  return countRows(sql, `${found} as leftovers`, [limit]);
}

/** Reads the next sessions of an app, or of one user in it, that have recorded changes. */
async function changedSessions(sql: Sql, owner: Owner, after: SessionKey | undefined): Promise<WalkedSession[]> {
  const { changes, sessions } = sql.tables;
  const { where, values } = ownedAfter(owner, ['user_id', 'session_id'], after && [after.userId, after.sessionId]);
  const keys = `select distinct ${SESSION_COLUMNS} from ${changes} where ${where} order by user_id, session_id limit ?`;
  if (sql.dialect.sql.pagesAlone) {
    const found = (await sql.all<SessionKeyRow>(keys, [...values, PAGE])).map(sessionKeyOf);
    const walked: WalkedSession[] = [];
    for (const key of found) walked.push({ key, isLeftover: await isWithoutRow(sql, key) });
    return walked;
  }
  // Reads only keys, page by page, and the rows only of sessions that do not exist. With `exists`, PostgreSQL may read a whole
  // table for a page. For one app, `app_name` in the order would make MariaDB sort all its changes.
  const isLeftover = `case when k.session_id <> '' and (select 1 from ${sessions} as s where ${isSameSession('s', 'k')}) is null
    and (select 1 from ${changes} as c where ${isSameSession('c', 'k')} and c.kind <> 'deleted' limit 1) is not null
    then 1 else 0 end as is_leftover`;
  const text = `select ${SESSION_COLUMNS}, ${isLeftover} from (${keys}) as k order by user_id, session_id`;
  const rows = await sql.all<SessionKeyRow & { is_leftover: number | string }>(text, [...values, PAGE]);
  return rows.map((row) => ({ key: sessionKeyOf(row), isLeftover: numberOf(row.is_leftover) === 1 }));
}

/** Whether a session does not exist, but has other changes than its deletion. */
async function isWithoutRow(sql: Sql, key: SessionKey): Promise<boolean> {
  if (key.sessionId === '') return false;
  const select = (table: string, more = '') =>
    sql.all(`select 1 from ${table} where ${SESSION_WHERE}${more} limit 1`, sessionValues(key));
  if ((await select(sql.tables.sessions)).length > 0) return false;
  return (await select(sql.tables.changes, ` and kind <> 'deleted'`)).length > 0;
}

/** Runs one transaction. @returns the sessions that have more changes. */
async function remove({ write, batches }: DeletionRun, sessions: readonly SessionKey[]): Promise<SessionKey[]> {
  try {
    return await write(async (sql) => {
      const origin = randomUUID();
      const lock = { incarnation: origin, origin, firstSeq: 1, lastSeq: 0, lastUpdateTime: 0 };
      // The row exists only in this transaction, as a lock for whoever creates the session: otherwise the log could have the
      // deletion after the creation.
      for (const session of sessions) await insertSession(sql, session, lock);
      const left = await forget(sql, sessions, batches.size);
      const unlock = `delete from ${sql.tables.sessions} where ${SESSION_WHERE} and incarnation = ?`;
      for (const session of sessions) {
        await sql.run(unlock, [...sessionValues(session), origin]);
        if (!left.includes(session)) await recordDeletion(sql, session);
      }
      return left;
    });
  } catch (error) {
    // One of the sessions has been created again. The next call finds the others.
    if (error instanceof DatabaseError && error.reason === FAILURES.duplicate.reason) return [];
    throw error;
  }
}

/**
 * Deletes at most `limit` changes of sessions that do not exist, except their deletions. The caller must hold their locks.
 *
 * @returns the sessions that have more changes.
 */
async function forget(sql: Sql, sessions: readonly SessionKey[], limit: number): Promise<SessionKey[]> {
  const { changes } = sql.tables;
  const where = `kind <> 'deleted' and (${sessions.map(() => `(${SESSION_WHERE})`).join(' or ')})`;
  const keys = sessions.flatMap(sessionValues);
  const rows = await sql.all<ChangeKeyRow>(
    `select change_id, ${SESSION_COLUMNS} from ${changes} where ${where} limit ?`,
    [...keys, limit + 1],
  );
  await deleteChanges(sql, rows.slice(0, limit));
  if (rows.length <= limit) return [];
  const full = await sql.all<SessionKeyRow>(`select distinct ${SESSION_COLUMNS} from ${changes} where ${where}`, keys);
  const left = new Set(full.map((row) => sessionIdentity(sessionKeyOf(row))));
  return sessions.filter((session) => left.has(sessionIdentity(session)));
}
