import { ofState, type KnownSession } from '../../model/codec.js';
import { chunksOf } from '../../model/pages.js';
import { mapTexts, type StoredTexts } from '../../model/stored-texts.js';
import type { SessionKey } from '../../model/keys.js';
import { SCOPES, perScope, type Scope, type StateEntries, type StateEntry } from '../../model/state.js';
import type { Sql } from '../dialects/dialect.js';
import { inOwner, originOfSession, stateTable } from '../sql/columns.js';
import {
  keyed,
  named,
  perTables,
  optionalTextOf,
  stateValueOf,
  withList,
  type Row,
  type StateRow,
  type StateValue,
} from '../sql/values.js';

/** @returns the state of one scope in the order of keys, each value with the event that wrote it. */
export async function writtenState(
  sql: Sql,
  session: SessionKey,
  scope: Scope,
): Promise<(StateValue & Pick<StateEntry, 'eventId'>)[]> {
  const select = statements(sql).select[scope](keyed(session));
  const rows = await sql.all<StateRow & OriginRow & { event_id: string | null }>(...select);
  return mapTexts(rows, (row) => ({
    ...stateValueOf(sql.texts, { ...session, origin: originIn(row) }, row),
    eventId: optionalTextOf(row.event_id),
  }));
}

/** Deletes the session's own state. */
export function clearState(sql: Sql, session: SessionKey): void {
  sql.later(...statements(sql).delete.session(keyed(session)));
}

/** How many keys of state one statement names. */
const MOST_KEYS = 1_000;

export function removeState(sql: Sql, session: SessionKey, state: StateEntries): void {
  for (const scope of SCOPES) {
    const keys = state[scope].map(({ key }) => key);
    for (const some of chunksOf(keys, MOST_KEYS)) {
      const [text, values] = statements(sql).delete[scope](keyed(session));
      sql.later(...withList([`${text} and state_key in`, values], some));
    }
  }
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

export type OriginRow = Row<'origin'>;

/** Empty if the session is gone, or if the row belongs to none. */
export const originIn = (row: OriginRow): string => optionalTextOf(row.origin) ?? '';

const statements = perTables(({ tables }: Sql) => {
  const value = `${tables.select.value} as value`;
  return {
    select: perScope((scope) =>
      named(`select '${scope}' as kind, state_key, ${value}, event_id,
          ${scope === 'session' ? originOfSession(tables) : "''"} as origin
          from ${stateTable(tables, scope)} where ${inOwner(scope)} order by state_key`),
    ),
    delete: perScope((scope) => named(`delete from ${stateTable(tables, scope)} where ${inOwner(scope)}`)),
  };
});
