import { sessionIdentity, type SessionKey } from '../model/keys.js';
import { mapTexts } from '../model/stored-texts.js';
import type { Sql } from '../database/dialects/dialect.js';
import { MOST_ROWS } from '../database/dialects/session-rows.js';
import { placeholders, textOf, stateValueOf, type StateRow, type StateValue } from '../database/sql/values.js';

/**
 * The state of listed sessions, of their users and of their app, by `sessionIdentity`; what an owner of state lacks is empty.
 *
 * @param all whether these are all sessions, so that they need not be named.
 */
export async function stateOfSessions(
  sql: Sql,
  { appName, userId }: { appName: string; userId: string | undefined },
  sessions: readonly { key: SessionKey; origin: string }[],
  all: boolean,
): Promise<Map<string, StateValue[]>> {
  if (sessions.length === 0) return new Map();
  // Rows of other sessions are left out below.
  const namesNone = all || sessions.length > MOST_ROWS;

  const owner = userId === undefined ? [appName] : [appName, userId];
  const users = namesNone || userId !== undefined ? [] : [...new Set(sessions.map(({ key }) => key.userId))];
  const ids = namesNone ? [] : sessions.map(({ key }) => key.sessionId);
  const ofOwner = userId === undefined ? 'app_name = ?' : 'app_name = ? and user_id = ?';
  const ofUsers = ofOwner + (users.length > 0 ? ` and user_id in (${placeholders(users.length)})` : '');
  // Two users of a page may have sessions with the same id, which may not both be listed.
  const ofSessions = ofUsers + (ids.length > 0 ? ` and session_id in (${placeholders(ids.length)})` : '');
  const { value } = sql.tables.select;
  const rows = await sql.all<StateRow & { user_id: string; session_id: string }>(
    `select 'session' as kind, user_id, session_id, state_key, ${value} as value
       from ${sql.tables.sessionStates} where ${ofSessions}
     union all select 'user', user_id, '', state_key, ${value} from ${sql.tables.userStates} where ${ofUsers}
     union all select 'app', '', '', state_key, ${value} from ${sql.tables.appStates} where app_name = ?`,
    [...owner, ...users, ...ids, ...owner, ...users, appName],
  );
  const origins = new Map(sessions.map(({ key, origin }) => [sessionIdentity(key), origin]));
  const states = new Map<string, StateValue[]>();
  mapTexts(rows, (row) => {
    const owner = { appName, userId: textOf(row.user_id), sessionId: textOf(row.session_id) };
    const id = sessionIdentity(owner);
    const origin = origins.get(id);
    // The row belongs to a session that is not listed.
    if (row.kind === 'session' && origin === undefined) return;
    const values = states.get(id) ?? [];
    states.set(id, values);
    values.push(stateValueOf(sql.texts, { ...owner, origin: origin ?? '' }, row));
  });
  return states;
}
