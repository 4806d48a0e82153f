import type { Sql } from '../dialects/dialect.js';
import { ownedAfter } from '../sql/keyset.js';
import type { Table } from '../sql/tables.js';
import { allOf, optionalTextOf } from '../sql/values.js';
import { selectSessions, type StoredSession } from './stored-session.js';

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
export async function nextApp(sql: Sql, after: string, ...tables: readonly Table[]): Promise<string | undefined> {
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
  { by, upTo = 1e308, ...owner }: Walk,
  after: StoredSession | undefined,
  limit: number,
): Promise<StoredSession[]> {
  const isByKey = by === 'key' || owner.userId !== undefined;
  const columns = isByKey ? KEY : BY_UPDATE;
  const page = ownedAfter(owner, columns, after && columns.map((column) => COLUMNS[column](after)));
  const { where, values } = allOf([page.where, ...page.values], isByKey ? undefined : ['last_update_time <= ?', upTo]);
  const text = `from ${sql.tables.sessions} where ${where} order by ${page.order.join(', ')} limit ?`;
  return selectSessions(sql, text, [...values, limit]);
}

/** The columns that walks are ordered by, and their values. */
const COLUMNS = {
  user_id: ({ key }: StoredSession) => key.userId,
  session_id: ({ key }: StoredSession) => key.sessionId,
  last_update_time: ({ lastUpdateTime }: StoredSession) => lastUpdateTime,
};

const KEY = ['user_id', 'session_id'] as const;
const BY_UPDATE = ['last_update_time', 'session_id', 'user_id'] as const;
