import type { SessionKey } from '../model/keys.js';
import { chunksOf } from '../model/pages.js';
import type { Sql } from '../database/dialects/dialect.js';
import { SESSION_COLUMNS, SESSION_WHERE, isSameSession } from '../database/sql/columns.js';
import {
  keyed,
  numberOf,
  placeholders,
  sessionKeyOf,
  sessionValues,
  textOf,
  type SessionKeyRow,
} from '../database/sql/values.js';
import { among } from '../database/statements/sessions.js';
import { MOST_NAMED } from '../database/statements/forks.js';
import { storedSession } from '../database/statements/stored-session.js';

/**
 * @returns those of a session's events that it has as a fork. Not one that was appended again with other content: only this session
 *   has it.
 */
export async function copiedEvents(sql: Sql, session: SessionKey, ids: readonly string[]): Promise<string[]> {
  const { events, changes } = sql.tables;
  const key = sessionValues(session);
  const forkedSeq = (await storedSession(sql, session))?.forkedFrom?.at;
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
  for (const { where, values } of among(sql, sessions)) {
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
