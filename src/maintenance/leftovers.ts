import { randomUUID } from 'node:crypto';
import type { Sql } from '../database/dialects/dialect.js';
import { keysetAfter } from '../database/sql/keyset.js';
import { numberOf } from '../database/sql/row-values.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
} from '../database/sql/tables.js';
import { deleteChanges, recordDeletion, type ChangeKeyRow } from '../database/statements/changes.js';
import { insertSession } from '../database/statements/sessions.js';
import { DatabaseError } from '../model/errors.js';
import { FAILURES } from '../model/failures.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { DeletionRun } from './deletion-run.js';

/** How many sessions one query reads. */
const PAGE = 1_000;

/** How many sessions one transaction takes at most. */
const TOGETHER = 100;

// Rows of sessions can be deleted by other statements than ours. `adk_changes` has no foreign key to them, since a deletion is
// recorded when the session is gone.

/** Some sessions of a walk. */
interface LeftoverPage {
  /** Those that do not exist, of which something is recorded nonetheless. */
  leftovers: SessionKey[];
  /** Where the next page begins; undefined on the last one. */
  last: SessionKey | undefined;
}

/**
 * Removes from `adk_changes` what is left of sessions of an app, or of one user in it, whose rows somebody has deleted by statements of their own,
 * and records the deletion for readers of the complete log. Such changes hold state, and the log would have entries of sessions that
 * are not there.
 */
export async function removeLeftovers(run: DeletionRun, appName: string, userId: string | undefined): Promise<void> {
  const { read, batches } = run;
  if (batches.isDryRun) return;
  let after: SessionKey | undefined;
  do {
    const page = await read((sql) => leftoversOf(sql, { appName, userId }, after));
    let remaining = page.leftovers;
    while (remaining.length > 0) {
      if (!(await batches.mayBegin())) return;
      const group = remaining.slice(0, Math.min(TOGETHER, batches.size));
      const left = new Set((await remove(run, group)).map(sessionIdentity));
      remaining = remaining.filter((session) => !group.includes(session) || left.has(sessionIdentity(session)));
      batches.add();
    }
    after = page.last;
    // A signal ends the walk, also if nothing is left of any session.
  } while (after && (await batches.mayBegin()));
}

/** Reads the keys of all changes. @returns how many sessions have left something, at most `limit`. */
export async function countLeftovers(sql: Sql, limit: number): Promise<number> {
  const { changes, sessions } = sql.tables;
  const [row] = await sql.all(
    `select count(*) as total from (select distinct ${SESSION_COLUMNS} from ${changes} as c where kind <> 'deleted'
      and session_id <> '' and not exists (select 1 from ${sessions} as s where ${isSameSession('s', 'c')}) limit ?) as leftovers`,
    [limit],
  );
  return numberOf(row?.['total']);
}

/** Reads the next sessions of an app, or of one user in it, of which something is recorded. */
async function leftoversOf(
  sql: Sql,
  { appName, userId }: { appName: string; userId: string | undefined },
  after: SessionKey | undefined,
): Promise<LeftoverPage> {
  const { changes, sessions } = sql.tables;
  const ofUser = userId === undefined ? '' : ' and user_id = ?';
  const owner = userId === undefined ? [appName] : [appName, userId];
  const keyset = after && keysetAfter(['user_id', 'session_id'], [after.userId, after.sessionId]);
  const keys = `select distinct ${SESSION_COLUMNS} from ${changes}
    where app_name = ?${ofUser}${keyset ? ` and ${keyset.where}` : ''} order by user_id, session_id limit ?`;
  // The keys alone are read, page by page; the rows are read only of sessions that do not exist. With `exists` PostgreSQL
  // may read all of a table for a page. Of one app, `app_name` in the order would make MariaDB sort all of its changes.
  const isLeftover = `case when k.session_id <> '' and (select 1 from ${sessions} as s where ${isSameSession('s', 'k')}) is null
    and (select 1 from ${changes} as c where ${isSameSession('c', 'k')} and c.kind <> 'deleted' limit 1) is not null
    then 1 else 0 end as is_leftover`;
  const values = [...owner, ...(keyset?.values ?? []), PAGE];
  const isPlain = !sql.dialect.sql.pagesAlone;
  const text = isPlain
    ? `select ${SESSION_COLUMNS}, ${isLeftover} from (${keys}) as k order by user_id, session_id`
    : keys;
  const rows = await sql.all<SessionKeyRow & { is_leftover?: number | string }>(text, values);
  const last = rows.at(-1);
  const found = rows.filter((row) => !isPlain || numberOf(row.is_leftover) === 1).map(sessionKeyOf);
  return {
    leftovers: isPlain ? found : await withoutRow(sql, found),
    last: last && rows.length === PAGE ? sessionKeyOf(last) : undefined,
  };
}

/** @returns those of which more than their deletion is recorded, and that do not exist. */
async function withoutRow(sql: Sql, keys: readonly SessionKey[]): Promise<SessionKey[]> {
  const found: SessionKey[] = [];
  for (const key of keys) {
    if (key.sessionId === '') continue;
    const select = (table: string, more = '') =>
      sql.all(`select 1 from ${table} where ${SESSION_WHERE}${more} limit 1`, sessionValues(key));
    const isThere = (await select(sql.tables.sessions)).length > 0;
    if (!isThere && (await select(sql.tables.changes, ` and kind <> 'deleted'`)).length > 0) found.push(key);
  }
  return found;
}

/** One transaction. @returns the sessions that have more. */
async function remove({ write, batches }: DeletionRun, sessions: readonly SessionKey[]): Promise<SessionKey[]> {
  try {
    return await write(async (sql) => {
      const origin = randomUUID();
      const lock = { incarnation: origin, origin, firstSeq: 1, lastSeq: 0, lastUpdateTime: 0 };
      // The row is there for this transaction alone. It is the lock that whoever creates the session waits for: otherwise
      // the deletion could come after the creation in the log.
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
    // One of them has been created again. The next call finds the others.
    if (error instanceof DatabaseError && error.reason === FAILURES.duplicate.reason) return [];
    throw error;
  }
}

/**
 * Deletes what is recorded of sessions that do not exist, but for their deletions. The caller holds their locks.
 *
 * @returns those that have more: at most `limit` rows are deleted.
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
