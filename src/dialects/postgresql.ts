import { driverCodeOf, driverMessageOf } from '../errors.js';
import { SCOPES, type Scope } from '../state.js';
import type { Dialect, SeqUpdate, Sql } from './dialect.js';
import { SESSION_WHERE, STATE_KEYS, ownerValues, sessionValues, stateTable, type Tables } from './tables.js';

/** Shut down, crashed, could not connect, `lock_timeout`: codes that MikroORM has no type for. */
const PASSING = new Set([
  '57P01',
  '57P02',
  '57P03',
  '08000',
  '08003',
  '08006',
  '55P03',
  'ECONNRESET',
  'EPIPE',
  'ECONNREFUSED',
]);

const onConflict: Dialect['onConflict'] = (table, keyColumns, ownOnly) =>
  `on conflict (${keyColumns.join(', ')}) do update set value = excluded.value, event_id = excluded.event_id` +
  (ownOnly ? ` where ${table}.event_id = excluded.event_id` : '');

export const postgresql: Dialect = {
  isPassing: (error) =>
    PASSING.has(driverCodeOf(error) ?? '') ||
    // node-postgres gives no code when the server goes away.
    driverMessageOf(error).includes('Connection terminated'),

  jsonText: (column) => `${column}::text`,

  onConflict,

  async takeSeq(sql: Sql, { table, count, lastUpdateTime, where, values }: SeqUpdate) {
    const rows = await sql.all<{ last_seq: number }>(
      `update ${table} set last_seq = last_seq + ?, last_update_time = ? where ${where} returning last_seq`,
      [count, lastUpdateTime, ...values],
    );
    return rows[0]?.last_seq;
  },

  appendInOneStatement(tables) {
    const texts = new Map<string, string>();
    return async (sql, batch) => {
      const scopes = SCOPES.filter((scope) => batch.state[scope].length > 0);
      const variant = `${scopes.join()} ${batch.expectedSeq === undefined}`;
      let text = texts.get(variant);
      if (!text) texts.set(variant, (text = appendText(tables, scopes, batch.expectedSeq !== undefined)));

      const sessionKey = sessionValues(batch.session);
      const rows = await sql.all<{ last_seq: number }>(text, [
        batch.events.length,
        batch.lastUpdateTime,
        ...sessionKey,
        batch.incarnation,
        ...(batch.expectedSeq === undefined ? [] : [batch.expectedSeq]),
        ...sessionKey,
        batch.events.length,
        textArray(batch.events.map((event) => event.id)),
        textArray(batch.events.map((event) => String(event.timestamp))),
        textArray(batch.events.map((event) => event.json)),
        ...scopes.flatMap((scope) => [
          ...ownerValues(batch.session, scope),
          textArray(batch.state[scope].map((entry) => entry.key)),
          textArray(batch.state[scope].map((entry) => entry.json)),
          textArray(batch.state[scope].map((entry) => entry.eventId)),
        ]),
      ]);
      return rows[0]?.last_seq;
    };
  },
};

/** Every part reads from `taken`, so nothing is written when the session is not there or not as expected. */
function appendText(tables: Tables, scopes: readonly Scope[], checksSeq: boolean): string {
  const parts = [
    `taken as (
      update ${tables.sessions} set last_seq = last_seq + ?, last_update_time = ?
      where ${SESSION_WHERE} and incarnation = ?${checksSeq ? ' and last_seq = ?' : ''}
      returning last_seq
    )`,
    `events as (
      insert into ${tables.events} (app_name, user_id, session_id, seq, event_id, timestamp, data)
      select ?, ?, ?, last_seq - ? + number, id, at, data::json
      from taken, unnest(?::text[], ?::float8[], ?::text[]) with ordinality as appended (id, at, data, number)
    )`,
    ...scopes.map((scope) => {
      const table = stateTable(tables, scope);
      const keys = STATE_KEYS[scope];
      return `${scope}_state as (
      insert into ${table} (${keys.join(', ')}, value, event_id)
      select ${'?, '.repeat(keys.length - 1)}key, value::json, event_id
      from taken, unnest(?::text[], ?::text[], ?::text[]) as written (key, value, event_id)
      ${onConflict(table, keys, false)}
    )`;
    }),
  ];
  return `with ${parts.join(', ')} select last_seq from taken`;
}

/** An array literal, so that one text serves any number of rows. Every element is quoted: `NULL` is a state key too. */
function textArray(values: readonly (string | null)[]): string {
  const quoted = values.map((value) => (value === null ? 'null' : `"${value.replace(/["\\]/g, '\\$&')}"`));
  return `{${quoted.join(',')}}`;
}
