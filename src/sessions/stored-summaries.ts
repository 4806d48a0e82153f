import type { Sql } from '../database/dialects/dialect.js';
import { keysetAfter } from '../database/sql/keyset.js';
import {
  SESSION_COLUMNS,
  allOf,
  ifGiven,
  sessionKeyOf,
  type Condition,
  type SessionKeyRow,
  numberOf,
  optionalNumberOf,
  optionalTextOf,
} from '../database/sql/tables.js';
import { lockSession, setColumns } from '../database/statements/sessions.js';
import { FORK_COLUMNS, forkedFromOf, type ForkRow } from '../database/statements/stored-session.js';
import type { ForkedFrom, SessionKey } from '../model/keys.js';
import { given } from '../model/json.js';

/** Which sessions to find: those that meet all conditions. */
interface SummaryFilter {
  appName: string;
  userId?: string | undefined;
  isSoftDeleted: boolean;
  /** The title contains this. */
  title?: string | undefined;
  /** The JSON of the labels contains these texts, made by `labelText`. */
  labels: readonly string[];
  updatedAfter?: number | undefined;
  updatedBefore?: number | undefined;
}

/** The place at which a page ends and the next one begins. */
export interface SummaryCursor {
  lastUpdateTime: number;
  sessionId: string;
  userId: string;
}

interface SummaryPage {
  after: SummaryCursor | undefined;
  isDescending: boolean;
  limit: number;
}

/** A session without events and state. */
export interface StoredSummary {
  key: SessionKey;
  title: string | null;
  /** JSON; null for none. */
  labels: string | null;
  eventCount: number;
  createTime: number;
  lastUpdateTime: number;
  deletedAt: number | undefined;
  forkedFrom: ForkedFrom | undefined;
}

/** How many sessions of an app are searched in the order of the index, before all are read and sorted. */
const WALKED = 1_000;

/** @returns the sessions after a cursor, by the time of their last update, then by id and user. */
export async function findSummaries(
  sql: Sql,
  filter: SummaryFilter,
  { after, isDescending, limit }: SummaryPage,
): Promise<StoredSummary[]> {
  const { appName, userId, title, labels, updatedAfter, updatedBefore } = filter;
  const columns = ['last_update_time', 'session_id', ...(userId === undefined ? ['user_id'] : [])];
  const values = after && [after.lastUpdateTime, after.sessionId, ...(userId === undefined ? [after.userId] : [])];
  const keyset = values && keysetAfter(columns, values, isDescending ? '<' : '>');
  const bounds: (Condition | undefined)[] = [
    ['app_name = ?', appName],
    ifGiven('user_id = ?', userId),
    // Not `<> 'active'`: sessions whose permanent deletion has begun cannot be restored.
    [filter.isSoftDeleted ? "status = 'deleted'" : "status = 'active'"],
    ifGiven('last_update_time > ?', updatedAfter),
    ifGiven('last_update_time < ?', updatedBefore),
    keyset && [keyset.where, ...keyset.values],
  ];
  const { sessions, select: selected } = sql.tables;
  const dialect = sql.dialect.sql;
  const shown = `${SESSION_COLUMNS}, title, ${selected.labels} as labels_json, last_seq - first_seq + 1 as events,
    create_time as created, last_update_time as updated, deleted_at as deleted, ${FORK_COLUMNS}`;
  const searched = [
    ifGiven(dialect.contains('title'), title),
    ...labels.map((label): Condition => [dialect.contains('labels'), label]),
  ];
  const direction = isDescending ? ' desc' : '';
  const order = `order by ${columns.map((column) => column + direction).join(', ')} limit ?`;
  const select = async (from: string, ofFrom: readonly unknown[], { where, values }: ReturnType<typeof allOf>) => {
    const text = `select ${shown} from ${from} where ${where} ${order}`;
    const rows = await sql.all<SummaryRow>(text, [...ofFrom, ...values, limit]);
    return rows.map(storedSummaryOf);
  };
  const all = allOf(...bounds, ...searched);
  const isOfApp = userId === undefined && updatedAfter === undefined && updatedBefore === undefined;
  if (dialect.inOrderOfKey && isOfApp && (title !== undefined || labels.length > 0)) {
    // If many sessions match, the page is soon full in the order of the index.
    const { where, values } = allOf(...bounds);
    const first = `(select * from ${sessions} where ${where} ${order}) as first`;
    const found = await select(first, [...values, WALKED], allOf(...searched));
    if (found.length === limit) return found;
    return select(dialect.inOrderOfKey(sessions), [], all);
  }
  return select(sessions, [], all);
}

/** An undefined text does not change. @returns whether there is such a session. */
export async function describeStored(
  sql: Sql,
  key: SessionKey,
  texts: { title: string | null | undefined; labels: string | null | undefined },
): Promise<boolean> {
  // The count of an update does not show whether the session exists: some drivers of hosts count only rows that changed.
  if (!(await lockSession(sql, key))) return false;
  const changed = given(texts);
  if (Object.keys(changed).length > 0) await setColumns(sql, key, { ...changed }, { touches: true });
  return true;
}

interface SummaryRow extends SessionKeyRow, ForkRow {
  title: string | null;
  labels_json: string | null;
  events: number | string;
  created: number | string;
  updated: number | string;
  deleted: number | string | null;
}

function storedSummaryOf(row: SummaryRow): StoredSummary {
  return {
    key: sessionKeyOf(row),
    title: optionalTextOf(row.title),
    labels: optionalTextOf(row.labels_json),
    eventCount: numberOf(row.events),
    createTime: numberOf(row.created),
    lastUpdateTime: numberOf(row.updated),
    deletedAt: optionalNumberOf(row.deleted),
    forkedFrom: forkedFromOf(row),
  };
}
