import { once } from '../database/calls/once.js';
import { describeStored, findSummaries, type StoredSummary, type SummaryCursor } from './stored-summaries.js';
import { checkLabels, checkTitle, labelsIn } from '../model/description.js';
import { SessionNotFoundError } from '../model/errors.js';
import { checkKeys, checkedSessionKey, isKey, type ForkedFrom, type SessionKey } from '../model/keys.js';
import { cursorText, parseCursor } from './page-cursor.js';
import type { SessionCalls } from './session-calls.js';

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

export interface FindSessionsResponse {
  sessions: SessionSummary[];
  /** The `after` of the next page; absent on the last one. */
  next?: string;
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

/** A session's title and labels. A property that is left out does not change. */
export interface SessionDescription {
  /** Up to 255 characters; null for none. */
  title?: string | null;
  /** Replaces all labels; null removes them. Names consist of up to 64 letters, digits, `_`, `-`, `.` and `/`. */
  labels?: Readonly<Record<string, string>> | null;
}

const DEFAULT_LIMIT = 50;

export async function findSessions(calls: SessionCalls, request: FindSessionsRequest): Promise<FindSessionsResponse> {
  const { appName, userId, title, labels = {}, status, updatedAfter, updatedBefore, after, order } = request;
  const { limit = DEFAULT_LIMIT } = request;
  const key = userId === undefined ? { appName } : { appName, userId };
  checkKeys(key);
  if (title !== undefined) checkTitle(title);
  checkLabels(labels);
  const filter = {
    ...key,
    isSoftDeleted: status === 'deleted',
    title,
    labels: Object.entries(labels).map(([name, value]) => labelText(name, value)),
    updatedAfter,
    updatedBefore,
  };
  const page = {
    after: after === undefined ? undefined : parseCursor(CURSOR, after),
    isDescending: order !== 'asc',
    limit: limit + 1,
  };
  const found = await calls.read('findSessions', key, (sql) => findSummaries(sql, filter, page));
  const sessions = found.slice(0, limit).map(summaryOf);
  const last = sessions.at(-1);
  return { sessions, ...(found.length > limit && last && { next: cursorText(CURSOR, last) }) };
}

export async function describeSession(
  calls: SessionCalls,
  session: SessionKey,
  { title, labels }: SessionDescription,
): Promise<void> {
  const key = checkedSessionKey(session);
  if (title) checkTitle(title);
  if (labels) checkLabels(labels);
  const texts = { title, labels: labels ? JSON.stringify(labels) : labels };
  const operation = 'describeSession';
  await calls.write(operation, key, () =>
    once(calls.database, async (sql) => {
      if (!(await describeStored(sql, key, texts))) throw new SessionNotFoundError(key.sessionId);
    }),
  );
}

/**
 * The text that the JSON of labels contains if this label is among them. Nothing else gives this text: quotes in values are
 * escaped, and names have none.
 */
function labelText(name: string, value: string): string {
  return `${JSON.stringify(name)}:${JSON.stringify(value)}`;
}

function summaryOf({ key, title, labels, deletedAt, forkedFrom, ...numbers }: StoredSummary): SessionSummary {
  return {
    ...key,
    ...(title !== null && { title }),
    labels: labelsIn(labels),
    ...numbers,
    ...(deletedAt !== undefined && { deletedAt }),
    ...(forkedFrom && { forkedFrom }),
  };
}

const CURSOR = {
  operation: 'findSessions',
  valuesOf: ({ lastUpdateTime, sessionId, userId }: SummaryCursor) => [lastUpdateTime, sessionId, userId],
  placeOf([lastUpdateTime, sessionId, userId]: readonly unknown[]): SummaryCursor | undefined {
    const isPlace = typeof lastUpdateTime === 'number' && isKey('sessionId', sessionId) && isKey('userId', userId);
    return isPlace ? { lastUpdateTime, sessionId, userId } : undefined;
  },
};
