import type { Dialect, SeqUpdate, Sql } from './dialect.js';

/** What PostgreSQL and SQLite write alike: statements that return rows, and `on conflict`. */
export const returning = {
  underLock: '',

  onConflict: (table, keyColumns, ownOnly) =>
    `on conflict (${keyColumns.join(', ')}) do update set value = excluded.value, event_id = excluded.event_id` +
    (ownOnly ? ` where ${table}.event_id = excluded.event_id` : ''),

  async takeSeq(sql: Sql, { table, count, lastUpdateTime, where, values }: SeqUpdate) {
    const rows = await sql.all<{ last_seq: number }>(
      `update ${table} set last_seq = last_seq + ?, last_update_time = ? where ${where} returning last_seq`,
      [count, lastUpdateTime, ...values],
    );
    return rows[0]?.last_seq;
  },

  setPositions: (events, count) =>
    `with given (app_name, user_id, session_id, seq, position) as (values ${Array(count).fill('(?, ?, ?, ?, ?)').join(', ')})
     update ${events} as e set position = given.position from given where e.app_name = given.app_name
       and e.user_id = given.user_id and e.session_id = given.session_id and e.seq = given.seq`,

  async increment(sql, counters, name, by) {
    const [row] = await sql.all<{ value: number | string }>(
      `insert into ${counters} (name, value) values (?, ?)
       on conflict (name) do update set value = ${counters}.value + excluded.value returning value`,
      [name, by],
    );
    return Number(row?.value);
  },
} satisfies Partial<Dialect>;
