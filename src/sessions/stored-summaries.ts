import type { Sql } from '../database/dialects/dialect.js';
import { ownedAfter } from '../database/sql/keyset.js';
import { allOf, ifGiven, type Condition } from '../database/sql/values.js';
import { selectSessions, type StoredSession } from '../database/statements/stored-session.js';
import { labelsIn } from '../model/description.js';
import { withoutUndefined } from '../model/json.js';
import type { ForkedFrom, SessionKey } from '../model/keys.js';

/** Which sessions to find: those that meet all given conditions. */
export interface FindSessionsRequest {
  appName: string;
  userId?: string;
  /** Only sessions whose title contains this, compared character by character. */
  title?: string;
  /** Only sessions with these labels and values. */
  labels?: Readonly<Record<string, string>>;
  /** `active` sessions (default), or those deleted with `deletion: 'soft'`. */
  status?: 'active' | 'deleted';
  /** Only sessions whose `lastUpdateTime` is later than this, in ms since 1970. */
  updatedAfter?: number;
  /** Only sessions whose `lastUpdateTime` is earlier than this, in ms since 1970. */
  updatedBefore?: number;
  /** The `next` of the previous page, with the same other conditions. */
  after?: string;
  /** How many sessions a page has at most; 50 by default. */
  limit?: number;
  /** By last update: newest first (`desc`, default) or oldest first (`asc`). */
  order?: 'asc' | 'desc';
}

/** The place at which a page ends and the next one begins. */
export interface SummaryCursor {
  lastUpdateTime: number;
  sessionId: string;
  userId: string;
}

/** A session without its events and state. */
export interface SessionSummary extends SessionKey {
  title?: string;
  labels: Record<string, string>;
  /** The number of its stored events. */
  eventCount: number;
  /** In ms since 1970, like the others. */
  createTime: number;
  lastUpdateTime: number;
  deletedAt?: number;
  /** Only of a fork. */
  forkedFrom?: ForkedFrom;
}

/** What `findSessions` does not offer: hosts search by keys and titles of their own. */
interface SummaryFilter extends FindSessionsRequest {
  /** Only sessions that have each word of this in their id, title, user or app, in upper or lower case. */
  named?: string;
}

/** How many sessions of an app are searched in the order of the index, before all are read and sorted. */
const WALKED = 1_000;

/**
 * @param request whose cursor and limit are those of `page`.
 * @returns the sessions after a cursor, by the time of their last update, then by id and user.
 */
export async function findSummaries(
  sql: Sql,
  { appName, userId, title, named, labels = {}, status = 'active', updatedAfter, updatedBefore, ...how }: SummaryFilter,
  { after, limit }: { after: SummaryCursor | undefined; limit: number },
): Promise<SessionSummary[]> {
  const isDescending = how.order !== 'asc';
  const last = after && [after.lastUpdateTime, after.sessionId, after.userId];
  const columns = ['last_update_time', 'session_id', 'user_id'];
  const { order, ...owned } = ownedAfter({ appName, userId }, columns, last, isDescending ? '<' : '>');
  const bounds: (Condition | undefined)[] = [
    [owned.where, ...owned.values],
    ['status = ?', status],
    ifGiven('last_update_time > ?', updatedAfter),
    ifGiven('last_update_time < ?', updatedBefore),
  ];
  const { sessions } = sql.tables;
  const dialect = sql.dialect.sql;
  // Nothing else than the label gives its text in the JSON: quotes in values are escaped, and names have none.
  const texts = Object.entries(labels).map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  const searched = [
    ifGiven(dialect.contains('title', '?'), title),
    ...wordsOf(named).map((word) => isNamed(dialect, word)),
    ...texts.map((text): Condition => [dialect.contains('labels', '?'), text]),
  ];
  const direction = isDescending ? ' desc' : '';
  const ordered = `order by ${order.map((column) => column + direction).join(', ')} limit ?`;
  const select = async (from: string, ofFrom: readonly unknown[], { where, values }: ReturnType<typeof allOf>) => {
    const found = await selectSessions(sql, `from ${from} where ${where} ${ordered}`, [...ofFrom, ...values, limit]);
    return found.map(summaryOf);
  };
  const all = allOf(...bounds, ...searched);
  const isOfApp = userId === undefined && updatedAfter === undefined && updatedBefore === undefined;
  if (dialect.inOrderOfKey && isOfApp && searched.some(Boolean)) {
    // If many sessions match, the page is soon full in the order of the index.
    const { where, values } = allOf(...bounds);
    const first = `(select * from ${sessions} where ${where} ${ordered}) as first`;
    const found = await select(first, [...values, WALKED], allOf(...searched));
    if (found.length === limit) return found;
    return select(dialect.inOrderOfKey(sessions), [], all);
  }
  return select(sessions, [], all);
}

/** How many words are searched for: each makes the statement longer. */
const MOST_WORDS = 12;

const wordsOf = (text = '') => text.split(/\s+/).filter(Boolean).slice(0, MOST_WORDS);

/** As it is, too: databases differ in which letters have a lower case. */
function isNamed(dialect: Sql['dialect']['sql'], text: string): Condition {
  const columns = ['session_id', 'user_id', 'title', 'app_name'];
  const conditions = columns.flatMap((column) => [
    dialect.contains(column, '?'),
    dialect.contains(`lower(${column})`, '?'),
  ]);
  return [`(${conditions.join(' or ')})`, ...columns.flatMap(() => [text, text.toLowerCase()])];
}

function summaryOf(session: StoredSession): SessionSummary {
  const { key, title, labels, firstSeq, lastSeq, createTime, lastUpdateTime, deletedAt, forkedFrom } = session;
  return {
    ...key,
    ...(title !== null && { title }),
    labels: labelsIn(labels),
    eventCount: lastSeq - firstSeq + 1,
    ...{ createTime, lastUpdateTime },
    ...withoutUndefined({ deletedAt, forkedFrom }),
  };
}
