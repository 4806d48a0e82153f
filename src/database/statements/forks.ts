import type { ForkedFrom, SessionKey } from '../../model/keys.js';
import { chunksOf } from '../../model/pages.js';
import type { Sql } from '../dialects/dialect.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  keyed,
  numberOf,
  optionalNumberOf,
  placeholders,
  sessionKeyOf,
  sessionValues,
  textOf,
  type SessionKeyRow,
} from '../sql/tables.js';
import { among } from './sessions.js';
import { forkedFromOf, type ForkRow } from './stored-session.js';

// A fork has the events of another session, under their ids. What must happen once for an event, such as counting it, happens for the
// session that was created first among those that have it now. So it happens for a fork as soon as the others have lost the event,
// by whatever statement.

/** How many events one statement names. */
const MOST_NAMED = 500;
const MOST_SESSIONS = 100;

/** What the row of a new fork says of its source, of which the caller holds the lock. */
export async function forkRow(
  sql: Sql,
  source: SessionKey,
  at: number,
): Promise<{ createTime: number; forkedFrom: ForkedFrom }> {
  const [row] = await sql.all<FoundFork>(selectFork(sql), sessionValues(source));
  const from = row && forkedFromOf(row);
  const root = from && (from.root ?? from.sessionId);
  // Later than its source, whatever the clock says.
  const createTime = Math.max(Date.now(), row ? numberOf(row.created) + 1 : 0);
  return { createTime, forkedFrom: { sessionId: source.sessionId, at, ...(root !== undefined && { root }) } };
}

/** @returns those of a fork's events that another session has, too, for which they count. */
export async function countedElsewhere(sql: Sql, fork: SessionKey, ids: readonly string[]): Promise<Set<string>> {
  const found = new Set<string>();
  const [row] = await sql.all<FoundFork>(selectFork(sql), sessionValues(fork));
  const from = row && forkedFromOf(row);
  if (!from) return found;
  const { sessions, events } = sql.tables;
  const { appName, userId, sessionId } = fork;
  const { sessionId: source, root = source } = from;
  const created = numberOf(row.created);
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

/**
 * @returns those of a session's events that it has as a fork. Not one that was appended again with other content: only this session
 *   has it.
 */
export async function copiedEvents(sql: Sql, session: SessionKey, ids: readonly string[]): Promise<string[]> {
  const { events, changes } = sql.tables;
  const key = sessionValues(session);
  const [row] = await sql.all<FoundFork>(selectFork(sql), key);
  const forkedSeq = row && optionalNumberOf(row.forked_seq);
  const copied: string[] = [];
  for (const some of forkedSeq ? chunksOf(ids, MOST_NAMED) : []) {
    const rows = await sql.all(
      `select event_id from ${events} where ${SESSION_WHERE} and seq <= ? and event_id in (${placeholders(some.length)})
        and seq not in (select event_seq from ${changes} where ${SESSION_WHERE} and event_seq is not null)`,
      [...key, forkedSeq, ...some, ...key],
    );
    copied.push(...rows.map((found) => textOf(found['event_id'])));
  }
  return copied;
}

/** @returns those of the sessions that are forks and have a copied event. */
export async function forksAmong(sql: Sql, sessions: readonly SessionKey[]): Promise<SessionKey[]> {
  const forks: SessionKey[] = [];
  for (const some of chunksOf(sessions, MOST_SESSIONS)) {
    const { where, values } = among(sql, some);
    const text = `select ${SESSION_COLUMNS} from ${sql.tables.sessions} where forked_seq > 0 and (${where})`;
    forks.push(...(await sql.all<SessionKeyRow>(text, values)).map(sessionKeyOf));
  }
  return forks;
}

/** An event that a fork has copied. */
interface CopiedEvent {
  session: SessionKey;
  seq: number;
  id: string;
}

/** @returns for each of the ids of a session's events the fork that has it and was created first, if any has it. */
export async function heirsOf(sql: Sql, session: SessionKey, ids: readonly string[]): Promise<CopiedEvent[]> {
  const { sessions, events } = sql.tables;
  const { app, user, session: id } = keyed(session);
  const heirs = new Map<string, CopiedEvent>();
  for (const some of chunksOf(ids, MOST_NAMED)) {
    const rows = await sql.all<SessionKeyRow & { event_id: unknown; seq: number }>(
      `select s.app_name as app_name, s.user_id as user_id, s.session_id as session_id, e.event_id as event_id, e.seq as seq
        from ${sessions} as s join ${events} as e on ${isSameSession('e', 's')}
        where s.app_name = ? and s.user_id = ? and s.session_id <> ? and s.status = 'active' and s.forked_seq > 0
          and e.app_name = ? and e.user_id = ? and e.seq <= s.forked_seq and e.event_id in (${placeholders(some.length)})
        order by s.create_time, s.session_id`,
      [app, user, id, app, user, ...some],
    );
    for (const row of rows) {
      const copied = { session: sessionKeyOf(row), seq: numberOf(row.seq), id: textOf(row.event_id) };
      if (!heirs.has(copied.id)) heirs.set(copied.id, copied);
    }
  }
  return [...heirs.values()];
}

type FoundFork = ForkRow & { created: number | string };

const selectFork = ({ tables }: Sql) =>
  `select create_time as created, forked_from, forked_seq, forked_root from ${tables.sessions} where ${SESSION_WHERE}`;
