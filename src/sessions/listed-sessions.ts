import type { Sql } from '../database/dialects/dialect.js';
import { allOf, ifGiven } from '../database/sql/values.js';
import { countRows } from '../database/statements/count.js';
import { selectSessions, type StoredSession } from '../database/statements/stored-session.js';

interface SessionPage {
  appName: string;
  userId: string | undefined;
  descending: boolean;
  limit: number | undefined;
  offset: number;
}

export function countSessions(sql: Sql, { appName, userId }: SessionPage): Promise<number> {
  const { where, values } = ofOwner(appName, userId);
  return countRows(sql, `${sql.tables.sessions} where ${where}`, values);
}

export async function listedSessions(
  sql: Sql,
  { appName, userId, descending, limit, offset }: SessionPage,
): Promise<StoredSession[]> {
  const { where, values: owner } = ofOwner(appName, userId);
  const from = `from ${sql.tables.sessions} where ${where}`;
  // Sessions with equal times are ordered by ascending id in both directions, as in ADK. No index has this order: MySQL and MariaDB
  // would sort all sessions for a page of the newest. With the time of the page's last session as a limit, every database sorts
  // only a few.
  const last = `select last_update_time ${from} order by last_update_time desc limit 1 offset ?`;
  const [rows, order] = descending
    ? [` and last_update_time >= coalesce((${last}), -1e308)`, 'last_update_time desc']
    : ['', 'last_update_time'];
  // MySQL and SQLite accept an offset only with a limit. This one is larger than any table.
  const most = limit ?? Number.MAX_SAFE_INTEGER - offset;
  const values = descending ? [...owner, ...owner, offset + most - 1] : owner;
  const text = `${from}${rows} order by ${order}, session_id, user_id limit ? offset ?`;
  return selectSessions(sql, text, [...values, most, offset]);
}

const ofOwner = (appName: string, userId: string | undefined) =>
  allOf(['app_name = ?', appName], ifGiven('user_id = ?', userId), [`status = 'active'`]);
