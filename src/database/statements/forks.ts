import type { ForkedFrom, SessionKey } from '../../model/keys.js';
import { withoutUndefined } from '../../model/json.js';
import { chunksOf } from '../../model/pages.js';
import type { Sql } from '../dialects/dialect.js';
import { isSameSession } from '../sql/columns.js';
import { keyed, named, perTables, textOf, withList } from '../sql/values.js';
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
    ...withoutUndefined({ root: from && (from.root ?? from.sessionId) }),
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
  const { sessionId: source, root = source } = from;
  const values = { ...keyed(fork), source, root, created };
  // Those that are left are looked for in all sessions of the user, so not before they are needed.
  for (const find of statements(sql))
    for (const some of chunksOf(
      ids.filter((id) => !found.has(id)),
      MOST_NAMED,
    )) {
      const rows = await sql.all(...withList(find(values), some));
      for (const each of rows) found.add(textOf(each['event_id']));
    }
  return found;
}

const statements = perTables(({ tables: { sessions, events } }: Sql) =>
  ['s.session_id in (:source, :root)', 'coalesce(s.forked_root, s.forked_from) = :root'].map((where) =>
    named(`select e.event_id as event_id from ${sessions} as s join ${events} as e on ${isSameSession('e', 's')}
      where s.app_name = :app and s.user_id = :user and ${where} and s.status = 'active'
        and (s.create_time < :created or (s.create_time = :created and s.session_id < :session))
        and e.app_name = :app and e.user_id = :user and e.event_id in`),
  ),
);
