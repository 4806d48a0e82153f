import type { ForkedFrom, SessionKey } from '../../model/keys.js';
import { given } from '../../model/json.js';
import { chunksOf } from '../../model/pages.js';
import type { Sql } from '../dialects/dialect.js';
import { isSameSession } from '../sql/columns.js';
import { placeholders, textOf } from '../sql/values.js';
import { storedSession, type StoredSession } from './stored-session.js';

// A fork has the events of another session, under their ids. What must happen once for an event, such as counting it, happens for the
// session that was created first among those that have it now. So it happens for a fork as soon as the others have lost the event,
// by whatever statement.

/** How many events one statement names. */
export const MOST_NAMED = 500;

/** @param source under its lock. @returns what the row of a new fork says of it. */
export function forkRow({ key, createTime, forkedFrom: from }: StoredSession, at: number) {
  const forkedFrom: ForkedFrom = {
    sessionId: key.sessionId,
    at,
    ...given({ root: from && (from.root ?? from.sessionId) }),
  };
  // Later than its source, whatever the clock says.
  return { createTime: Math.max(Date.now(), createTime + 1), forkedFrom };
}

/** @returns those of a fork's events that another session has, too, for which they count. */
export async function countedElsewhere(sql: Sql, fork: SessionKey, ids: readonly string[]): Promise<Set<string>> {
  const found = new Set<string>();
  if (ids.length === 0) return found;
  const { forkedFrom: from, createTime: created = 0 } = (await storedSession(sql, fork)) ?? {};
  if (!from) return found;
  const { sessions, events } = sql.tables;
  const { appName, userId, sessionId } = fork;
  const { sessionId: source, root = source } = from;
  // Those that are left are looked for in all sessions of the user, so not before they are needed.
  for (const [where, ...values] of [
    ['s.session_id in (?, ?)', source, root],
    ['coalesce(s.forked_root, s.forked_from) = ?', root],
  ] as const)
    for (const some of chunksOf(
      ids.filter((id) => !found.has(id)),
      MOST_NAMED,
    )) {
      const rows = await sql.all(
        `select e.event_id as event_id from ${sessions} as s join ${events} as e on ${isSameSession('e', 's')}
          where s.app_name = ? and s.user_id = ? and ${where} and s.status = 'active'
            and (s.create_time < ? or (s.create_time = ? and s.session_id < ?))
            and e.app_name = ? and e.user_id = ? and e.event_id in (${placeholders(some.length)})`,
        [appName, userId, ...values, created, created, sessionId, appName, userId, ...some],
      );
      for (const each of rows) found.add(textOf(each['event_id']));
    }
  return found;
}
