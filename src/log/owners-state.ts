import { mapTexts } from '../model/stored-texts.js';
import type { SessionKey } from '../model/keys.js';
import { SCOPES } from '../model/state.js';
import type { Sql } from '../database/dialects/dialect.js';
import { STATE_KEYS, originOf, stateTable } from '../database/sql/columns.js';
import {
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  stateValueOf,
  type StateRow,
} from '../database/sql/values.js';
import { type OriginRow, originIn } from '../database/statements/state.js';
import { CurrentState } from './current-state.js';

/**
 * Reads the state of sessions, of their users and of their apps. With an empty session id only that of the user and the app, with
 * an empty user id only that of the app.
 */
export async function currentState(sql: Sql, owners: readonly SessionKey[]): Promise<CurrentState> {
  const state = new CurrentState();
  if (owners.length === 0) return state;
  const { value } = sql.tables.select;
  const selects: string[] = [];
  const values: unknown[] = [];
  for (const scope of SCOPES) {
    const columns = STATE_KEYS[scope].slice(0, -1);
    // The condition has only the names that the scope needs, since an app has the same state for all users.
    const distinct = new Map(
      owners
        .map((owner) => sessionValues(owner).slice(0, columns.length))
        .filter((owner) => !owner.includes(''))
        .map((owner) => [JSON.stringify(owner), owner]),
    );
    if (distinct.size === 0) continue;
    const named = ['app_name', 'user_id', 'session_id'].map((column, i) =>
      i < columns.length ? column : `'' as ${column}`,
    );
    const isOne = `(${columns.map((column) => `${column} = ?`).join(' and ')})`;
    const where = [...distinct].map(() => isOne).join(' or ');
    // Encoded texts are bound to the origin of their session.
    const origin = scope === 'session' ? originOf(sql.tables, 'state') : "''";
    selects.push(
      `select '${scope}' as kind, ${named.join(', ')}, state_key, ${value} as value, ${origin} as origin from ${stateTable(sql.tables, scope)} as state where ${where}`,
    );
    values.push(...[...distinct.values()].flat());
  }
  const rows = await sql.all<StateRow & SessionKeyRow & OriginRow>(selects.join(' union all '), values);
  mapTexts(rows, (row) => {
    const owner = sessionKeyOf(row);
    state.add(owner, stateValueOf(sql.texts, { ...owner, origin: originIn(row) }, row));
  });
  return state;
}
