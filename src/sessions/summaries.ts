import { once } from '../database/calls/once.js';
import { lockSession, setColumns } from '../database/statements/sessions.js';
import { SessionNotFoundError } from '../model/errors.js';
import { withoutUndefined } from '../model/json.js';
import { checkKeys, checkedSessionKey, isKey, type SessionKey } from '../model/keys.js';
import { pageOf } from './page-cursor.js';
import type { ServiceContext } from './service-context.js';
import { findSummaries, type FindSessionsRequest, type SummaryCursor } from './stored-summaries.js';

/** A session's title and labels. A property that is left out does not change. */
export interface SessionDescription {
  /** Up to 255 characters; null for none. */
  title?: string | null;
  /** Replaces all labels; null removes them. Names consist of up to 64 letters, digits, `_`, `-`, `.` and `/`. */
  labels?: Readonly<Record<string, string>> | null;
}

/** @returns with `next` the `after` of the next page, unless it is the last one. */
export async function findSessions(service: ServiceContext, request: FindSessionsRequest) {
  const { appName, userId, after, limit } = request;
  const key = userId === undefined ? { appName } : { appName, userId };
  checkKeys(key);
  const { rows, ...next } = await pageOf(CURSOR, { after, limit }, (page) =>
    service.read('findSessions', key, (sql) => findSummaries(sql, request, page)),
  );
  return { sessions: rows, ...next };
}

export async function describeSession(
  service: ServiceContext,
  session: SessionKey,
  { title, labels }: SessionDescription,
): Promise<void> {
  const key = checkedSessionKey(session);
  const changed = { ...withoutUndefined({ title, labels: labels ? JSON.stringify(labels) : labels }) };
  await service.write('describeSession', key, () =>
    once(service.database, async (sql) => {
      // The count of an update does not show whether the session exists: some drivers of hosts count only rows that changed.
      if (!(await lockSession(sql, key))) throw new SessionNotFoundError(key.sessionId);
      if (Object.keys(changed).length > 0) setColumns(sql, key, changed, { touches: true });
    }),
  );
}

const CURSOR = {
  operation: 'findSessions',
  valuesOf: ({ lastUpdateTime, sessionId, userId }: SummaryCursor) => [lastUpdateTime, sessionId, userId],
  placeOf([lastUpdateTime, sessionId, userId]: readonly unknown[]): SummaryCursor | undefined {
    const isPlace = typeof lastUpdateTime === 'number' && isKey('sessionId', sessionId) && isKey('userId', userId);
    return isPlace ? { lastUpdateTime, sessionId, userId } : undefined;
  },
};
