import { ofState, type KnownSession } from '../../model/codec.js';
import { mapTexts, type StoredTexts } from '../../model/stored-texts.js';
import type { SessionKey } from '../../model/keys.js';
import { SCOPES, perScope, type Scope, type StateEntries, type StateEntry } from '../../model/state.js';
import type { Sql } from '../dialects/dialect.js';
import { MOST_ROWS, statementsFor } from '../dialects/session-rows.js';
import {
  STATE_KEYS,
  originOf,
  inOwner,
  keyed,
  named,
  originOfSession,
  ownerValues,
  ownerWhere,
  perTables,
  placeholders,
  sessionKeyOf,
  sessionValues,
  stateTable,
  type SessionKeyRow,
  optionalTextOf,
  textOf,
} from '../sql/tables.js';
import { stateValueOf, type StateRow, type StateValue } from './session-reader.js';

interface OwnedValue extends StateValue {
  owner: SessionKey;
}

/** @returns the state of one scope only. */
export async function stateOfScope(sql: Sql, session: SessionKey, scope: 'user' | 'app'): Promise<StateValue[]> {
  const rows = await sql.all<StateRow>(statements(sql).select[scope], ownerValues(session, scope));
  return mapTexts(rows, (row) => stateValueOf(sql.texts, { ...session, origin: '' }, row));
}

/**
 * The state of listed sessions, of their users and of their app, by `ownerKey`.
 *
 * @param all whether these are all sessions, so that they need not be named.
 */
export async function stateOfSessions(
  sql: Sql,
  { appName, userId }: { appName: string; userId: string | undefined },
  sessions: readonly { userId: string; id: string; origin: string }[],
  all: boolean,
): Promise<Map<string, StateValue[]>> {
  if (sessions.length === 0) return new Map();
  // Rows of other sessions are left out by `ownerKey`.
  const namesNone = all || sessions.length > MOST_ROWS;

  const owner = userId === undefined ? [appName] : [appName, userId];
  const users = namesNone || userId !== undefined ? [] : [...new Set(sessions.map((session) => session.userId))];
  const ids = namesNone ? [] : sessions.map((session) => session.id);
  const ofOwner = userId === undefined ? 'app_name = ?' : 'app_name = ? and user_id = ?';
  const ofUsers = ofOwner + (users.length > 0 ? ` and user_id in (${placeholders(users.length)})` : '');
  // Two users of a page may have sessions with the same id. `ownerKey` distinguishes them.
  const ofSessions = ofUsers + (ids.length > 0 ? ` and session_id in (${placeholders(ids.length)})` : '');
  const { value } = sql.tables.select;
  const rows = await sql.all<StateRow & { user_id: string; session_id: string }>(
    `select 'session' as kind, user_id, session_id, state_key, ${value} as value
       from ${sql.tables.sessionStates} where ${ofSessions}
     union all select 'user', user_id, '', state_key, ${value} from ${sql.tables.userStates} where ${ofUsers}
     union all select 'app', '', '', state_key, ${value} from ${sql.tables.appStates} where app_name = ?`,
    [...owner, ...users, ...ids, ...owner, ...users, appName],
  );
  const origins = new Map(sessions.map(({ userId, id, origin }) => [ownerKey(userId, id), origin]));
  const states = new Map<string, StateValue[]>();
  mapTexts(rows, (row) => {
    const [user, sessionId] = [textOf(row.user_id), textOf(row.session_id)];
    const key = ownerKey(user, sessionId);
    const origin = origins.get(key);
    // The row belongs to a session that is not listed.
    if (row.kind === 'session' && origin === undefined) return;
    const value = stateValueOf(sql.texts, { appName, userId: user, sessionId, origin: origin ?? '' }, row);
    const values = states.get(key);
    if (values) values.push(value);
    else states.set(key, [value]);
  });
  return states;
}

/**
 * The state of sessions, of their users and of their apps. With an empty session id only that of the user and the app, with an
 * empty user id only that of the app.
 *
 * @returns each value with its owner, named in the same way.
 */
export async function stateOfOwners(sql: Sql, owners: readonly SessionKey[]): Promise<OwnedValue[]> {
  if (owners.length === 0) return [];
  const { value } = sql.tables.select;
  const selects: string[] = [];
  const values: unknown[] = [];
  for (const scope of SCOPES) {
    const columns = STATE_KEYS[scope].length - 1;
    // The condition has only the names that the scope needs, since an app has the same state for all users.
    const distinct = new Map(
      owners
        .map((owner) => ownerValues(owner, scope))
        .filter((owner) => !owner.includes(''))
        .map((owner) => [JSON.stringify(owner), owner]),
    );
    if (distinct.size === 0) continue;
    const named = ['app_name', 'user_id', 'session_id'].map((column, i) => (i < columns ? column : `'' as ${column}`));
    const where = [...distinct].map(() => `(${ownerWhere(scope)})`).join(' or ');
    // Encoded texts are bound to the origin of their session.
    const origin = scope === 'session' ? originOf(sql.tables, 'state') : "''";
    selects.push(
      `select '${scope}' as kind, ${named.join(', ')}, state_key, ${value} as value, ${origin} as origin from ${stateTable(sql.tables, scope)} as state where ${where}`,
    );
    values.push(...[...distinct.values()].flat());
  }
  const rows = await sql.all<StateRow & SessionKeyRow & OriginRow>(selects.join(' union all '), values);
  return mapTexts(rows, (row) => {
    const owner = sessionKeyOf(row);
    return { ...stateValueOf(sql.texts, { ...owner, origin: originIn(row) }, row), owner };
  });
}

/** @returns the state of one scope in the order of keys, each value with the event that wrote it. */
export async function writtenState(sql: Sql, session: SessionKey, scope: Scope): Promise<StateEntry[]> {
  const select = statements(sql).selectWritten[scope](keyed(session));
  const rows = await sql.all<StateRow & OriginRow & { event_id: string | null }>(...select);
  return mapTexts(rows, (row) => {
    const { key, json } = stateValueOf(sql.texts, { ...session, origin: originIn(row) }, row);
    return { key, json, eventId: optionalTextOf(row.event_id) };
  });
}

/** Deletes the session's own state. */
export function clearState(sql: Sql, session: SessionKey): void {
  sql.later(statements(sql).clear, sessionValues(session));
}

export function removeState(sql: Sql, session: SessionKey, state: StateEntries): void {
  for (const scope of SCOPES) {
    const remove = statements(sql).delete[scope];
    const keys = state[scope].map(({ key }) => ({ key }));
    for (const each of statementsFor(sql.dialect, remove, keys, ownerValues(session, scope))) sql.later(...each);
  }
}

/** One text for the owner of state: a session, a user if the session id is empty, or the app if both are. Keys have no NUL. */
export function ownerKey(userId: string, sessionId: string): string {
  return `${userId}\0${sessionId}`;
}

export function encodedState(texts: StoredTexts, owner: KnownSession, state: StateEntries): StateEntries {
  if (texts.codec.isNone) return state;
  return perScope((scope) =>
    state[scope].map((entry) => ({
      ...entry,
      json: texts.encode(entry.json, () => ofState(owner, scope, entry.key)),
    })),
  );
}

export interface OriginRow {
  origin: string | null;
}

/** Empty if the session is gone, or if the row belongs to none. */
export const originIn = (row: OriginRow): string => optionalTextOf(row.origin) ?? '';

const statements = perTables(({ tables }: Sql) => {
  const value = `${tables.select.value} as value`;
  return {
    select: perScope(
      (scope) =>
        `select '${scope}' as kind, state_key, ${value} from ${stateTable(tables, scope)} where ${ownerWhere(scope)}`,
    ),
    selectWritten: perScope((scope) =>
      named(`select '${scope}' as kind, state_key, ${value}, event_id,
          ${scope === 'session' ? originOfSession(tables) : "''"} as origin
          from ${stateTable(tables, scope)} where ${inOwner(scope)} order by state_key`),
    ),
    clear: `delete from ${tables.sessionStates} where ${ownerWhere('session')}`,
    delete: perScope((scope) => ({
      start: `delete from ${stateTable(tables, scope)} where ${ownerWhere(scope)} and state_key in (`,
      row: named(':key'),
      end: ')',
    })),
  };
});
