import {
  ARTIFACT_COLUMNS,
  ARTIFACT_NAMES,
  insertIntoArtifacts,
  isFromNumber,
  isSameSession,
  SESSION_COLUMNS,
  SESSION_WHERE,
} from '../sql/columns.js';
import { bound, sessionValues, numberOf } from '../sql/values.js';
import type { SessionKey } from '../../model/keys.js';
import type { DialectOperations, DialectSql, SessionLock, Sql } from './dialect.js';

/** SQL that is the same on PostgreSQL and SQLite. */
export const returningSql = {
  underLock: '',

  onConflict: (table, keyColumns, { ownOnly } = {}) =>
    `on conflict (${keyColumns.join(', ')}) do update set value = excluded.value, event_id = excluded.event_id` +
    (ownOnly ? ` where ${table}.event_id = excluded.event_id` : ''),

  onSameKey: (key, columns) =>
    `on conflict (${key}) do update set ${columns.map((column) => `${column} = excluded.${column}`).join(', ')}`,

  fromIndex: () => '',

  deleteThrough: (table) => `delete from ${table}`,

  deleteSome: (table, key, where) =>
    `delete from ${table} where (${key}) in (select ${key} from ${table} where ${where} limit ?)`,

  setPlaces: (table, numberedBy, set, count) => {
    const row = `(?, ?, ?${', cast(? as bigint)'.repeat(set.length + 1)})`;
    return `with given (${[SESSION_COLUMNS, numberedBy, ...set].join(', ')}) as (values ${Array(count).fill(row).join(', ')})
     update ${table} as e set ${set.map((column) => `${column} = given.${column}`).join(', ')} from given
       where ${isSameSession('e', 'given')} and e.${numberedBy} = given.${numberedBy} and e.position is null
         and ${isFromNumber('e.', 'given.session_id', `given.${numberedBy}`, numberedBy)}`;
  },
} satisfies Partial<DialectSql>;

/** Operations by `insert … returning` and `update … returning`. */
export const returningOperations: Omit<DialectOperations, 'appends'> = {
  async lockSession<Row extends object>(
    sql: Sql,
    session: SessionKey,
    { columns }: SessionLock,
  ): Promise<Row | undefined> {
    const text = `update ${sql.tables.sessions} set last_seq = last_seq where ${SESSION_WHERE} returning ${columns}`;
    const [row] = await sql.all<Row>(text, sessionValues(session));
    return row;
  },

  async increment(sql, name, by) {
    const { counters } = sql.tables;
    const [row] = await sql.all<{ value: number | string }>(
      `insert into ${counters} (name, value) values (?, ?)
       on conflict (name) do update set value = ${counters}.value + excluded.value returning value`,
      [name, by],
    );
    return numberOf(row?.value);
  },

  async nextVersion(sql, artifact) {
    const { artifacts } = sql.tables;
    const [row] = await sql.all<{ last_version: number }>(
      ...bound(
        `${insertIntoArtifacts(artifacts)} values (${ARTIFACT_NAMES}, 0, ${sql.dialect.sql.now})
         on conflict (${ARTIFACT_COLUMNS}) do update
           set last_version = ${artifacts}.last_version + 1, update_time = excluded.update_time returning last_version`,
        artifact,
      ),
    );
    return numberOf(row?.last_version);
  },
};
