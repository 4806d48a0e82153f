import { createHash } from 'node:crypto';
import { driverCodeOf, driverMessageOf } from '../errors.js';
import { SCOPES, type Scope } from '../state.js';
import type { Dialect, Sql } from './dialect.js';
import { returning } from './returning.js';
import {
  EVENT_COLUMNS,
  STATE_KEYS,
  appendCondition,
  ownerValues,
  placeholders,
  sessionValues,
  stateTable,
  type Tables,
} from './tables.js';

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

export const postgresql: Dialect = {
  ...returning,

  isPassing: (error) =>
    PASSING.has(driverCodeOf(error) ?? '') ||
    // node-postgres gives no code when the server goes away.
    driverMessageOf(error).includes('Connection terminated'),

  // Not now(), which stands still in a transaction.
  now: '(extract(epoch from clock_timestamp()) * 1000)::float8',

  // No right to write; a replica, or a read-only transaction.
  isReadOnly: (error) => ['42501', '25006'].includes(driverCodeOf(error) ?? ''),

  push: {
    channel: ({ events }) => `adk_${hashOf(events)}`,
    notify: "select pg_notify(?, '')",
  },

  jsonText: (column) => `${column}::text`,

  appendInOneStatement(tables) {
    const statements = new Map<string, Statement>();
    return {
      takes: () => true,
      async write(sql, batch) {
        const scopes = SCOPES.filter((scope) => batch.state[scope].length > 0);
        const condition = appendCondition(batch, postgresql);
        const variant = `${scopes.join()} ${condition.where}`;
        let statement = statements.get(variant);
        if (!statement)
          statements.set(variant, (statement = named('append', appendText(tables, scopes, condition.where))));

        const rows = await runPrepared<{ last_seq: number }>(sql, statement, [
          batch.events.length,
          batch.lastUpdateTime,
          ...condition.values,
          ...sessionValues(batch.session),
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
      },
    };
  },
};

/** Every part reads from `taken`, so nothing is written when the session is not there or not as expected. */
function appendText(tables: Tables, scopes: readonly Scope[], where: string): string {
  const parts = [
    `taken as (
      update ${tables.sessions} set last_seq = last_seq + ?, last_update_time = ?
      where ${where}
      returning last_seq
    )`,
    `events as (
      insert into ${tables.events} (${EVENT_COLUMNS})
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
      ${returning.onConflict(table, keys, false)}
    )`;
    }),
  ];
  return `with ${parts.join(', ')} select last_seq from taken`;
}

/** A statement, and the name under which connections keep its plan. */
interface Statement {
  name: string;
  text: string;
}

/** By a hash of the text: behind a pooler two versions of this package may share a connection. */
function named(what: string, text: string): Statement {
  return { name: `adk_${what}_${hashOf(text)}`, text };
}

/** Short enough for a name, of which PostgreSQL takes 63 bytes. */
function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

const NOT_PREPARED = '26000';
const PREPARED_ALREADY = '42P05';

/**
 * Runs a statement whose plan the connection keeps: parsing and planning an append takes the server longer than
 * running it. MikroORM's public way to a statement has no names, so SQL's own `execute` has to do; which connection
 * of the pool it comes to is not known, and one that has not met the statement yet says so.
 */
async function runPrepared<Row extends object>(
  sql: Sql,
  { name, text }: Statement,
  values: readonly unknown[],
): Promise<Row[]> {
  // There an error would end the transaction.
  if (sql.isInTransaction) return sql.all(text, values);

  const execute = `execute ${name} (${placeholders(values.length)})`;
  try {
    return await sql.all(execute, values);
  } catch (error) {
    if (driverCodeOf(error) !== NOT_PREPARED) throw error;
  }
  let number = 0;
  const prepare = `prepare ${name} as ${text.replace(/\?/g, () => `$${++number}`)}`;
  try {
    // In one message, and so on one connection.
    const [, rows = []] = await sql.allOfEach<Row>(`${prepare}; ${execute}`, values);
    return rows;
  } catch (error) {
    // It came to another connection than before.
    if (driverCodeOf(error) !== PREPARED_ALREADY) throw error;
    return sql.all(text, values);
  }
}

/** An array literal, so that one text serves any number of rows. Every element is quoted: `NULL` is a state key too. */
function textArray(values: readonly (string | null)[]): string {
  const quoted = values.map((value) => (value === null ? 'null' : `"${value.replace(/["\\]/g, '\\$&')}"`));
  return `{${quoted.join(',')}}`;
}
