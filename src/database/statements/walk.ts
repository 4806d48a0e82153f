import type { Sql } from '../dialects/dialect.js';
import { keysetAfter } from '../sql/keyset.js';
import { optionalTextOf } from '../sql/tables.js';
import { storedSessionColumns, storedSessionOf, type StoredSession, type StoredSessionRow } from './stored-session.js';

/** A table in which to look for apps. */
type AppTable =
  'sessions' | 'userStates' | 'appStates' | 'artifacts' | 'memories' | 'forgottenMemories' | 'credentials' | 'changes';

/** A walk through the sessions of an app, in the order of an index. */
export interface Walk {
  appName: string;
  userId?: string | undefined;
  /** The order; with `userId` it is `key`. */
  by: 'key' | 'update';
  /** With `update`, only sessions that were updated at this time or earlier, in ms. */
  upTo?: number;
}

/**
 * Walks from app to app by the primary key, with one search of the index for each. An index by user only, or by time only, would be
 * one more that each append writes.
 *
 * @returns the next app by name in these tables; undefined if there is none.
 */
export async function nextApp(sql: Sql, after: string, ...tables: readonly AppTable[]): Promise<string | undefined> {
  const first = tables.map((table) => `select min(app_name) as name from ${sql.tables[table]} where app_name > ?`);
  const text =
    first.length === 1 ? first.join('') : `select min(name) as name from (${first.join(' union all ')}) as apps`;
  const [row] = await sql.all<{ name: string | null }>(
    text,
    first.map(() => after),
  );
  return row && (optionalTextOf(row.name) ?? undefined);
}

/** @returns the next sessions of a walk, including soft-deleted ones. */
export async function walkedSessions(
  sql: Sql,
  walk: Walk,
  after: StoredSession | undefined,
  limit: number,
): Promise<StoredSession[]> {
  const { columns, where, values } = orderOf(walk);
  const last = after && columns.map((column) => COLUMNS[column](after));
  const keyset = last && keysetAfter(columns, last);
  const rows = await sql.all<StoredSessionRow>(
    `select ${storedSessionColumns(sql)} from ${sql.tables.sessions}
      where ${where}${keyset ? ` and ${keyset.where}` : ''} order by ${columns.join(', ')} limit ?`,
    [...values, ...(keyset?.values ?? []), limit],
  );
  return rows.map(storedSessionOf);
}

/** The columns that walks are ordered by, and their values. */
const COLUMNS = {
  user_id: ({ key }: StoredSession) => key.userId,
  session_id: ({ key }: StoredSession) => key.sessionId,
  last_update_time: ({ lastUpdateTime }: StoredSession) => lastUpdateTime,
};

type Column = keyof typeof COLUMNS;

function orderOf({ appName, userId, by, upTo = 1e308 }: Walk): { columns: Column[]; where: string; values: unknown[] } {
  if (userId !== undefined)
    return { columns: ['session_id'], where: 'app_name = ? and user_id = ?', values: [appName, userId] };
  if (by === 'key') return { columns: ['user_id', 'session_id'], where: 'app_name = ?', values: [appName] };
  return {
    columns: ['last_update_time', 'session_id', 'user_id'],
    where: 'app_name = ? and last_update_time <= ?',
    values: [appName, upTo],
  };
}
