import type { SessionKey } from '../model/keys.js';
import { chunksOf } from '../model/pages.js';
import type { Sql } from '../database/dialects/dialect.js';
import { IN_SESSION, SESSION_COLUMNS, isSameSession } from '../database/sql/columns.js';
import {
  keyed,
  named,
  numberOf,
  perTables,
  sessionKeyOf,
  textOf,
  withList,
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
  const forkedSeq = (await storedSession(sql, session))?.forkedFrom?.at;
  const copied: string[] = [];
  for (const some of forkedSeq ? chunksOf(ids, MOST_NAMED) : []) {
    const rows = await sql.all(...withList(statements(sql).copied({ ...keyed(session), forkedSeq }), some));
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
  const heirs = new Map<string, CopiedEvent>();
  for (const some of chunksOf(ids, MOST_NAMED)) {
    const rows = await sql.all<SessionKeyRow & { event_id: unknown; seq: number }>(
      ...withList(statements(sql).heirs(keyed(session)), some, ' order by s.create_time, s.session_id'),
    );
    for (const row of rows) {
      const copied = { session: sessionKeyOf(row), seq: numberOf(row.seq), id: textOf(row.event_id) };
      if (!heirs.has(copied.id)) heirs.set(copied.id, copied);
    }
  }
  return [...heirs.values()];
}

const statements = perTables(({ tables: { sessions, events, changes } }: Sql) => ({
  copied: named(`select event_id from ${events} where ${IN_SESSION} and seq <= :forkedSeq
    and seq not in (select event_seq from ${changes} where ${IN_SESSION} and event_seq is not null) and event_id in`),
  heirs: named(`select s.app_name as app_name, s.user_id as user_id, s.session_id as session_id,
      e.event_id as event_id, e.seq as seq
    from ${sessions} as s join ${events} as e on ${isSameSession('e', 's')}
    where s.app_name = :app and s.user_id = :user and s.session_id <> :session and s.status = 'active'
      and s.forked_seq > 0 and e.app_name = :app and e.user_id = :user and e.seq <= s.forked_seq and e.event_id in`),
}));
