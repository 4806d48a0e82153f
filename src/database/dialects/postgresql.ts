import { raw } from '@mikro-orm/core';
import { createHash } from 'node:crypto';
import { driverCodeOf } from '../../model/errors.js';
import type { Failure } from '../../model/failures.js';
import { SCOPES, type Scope } from '../../model/state.js';
import {
  EVENT_COLUMNS,
  STATE_KEYS,
  ownerValues,
  placeholders,
  sessionValues,
  stateTable,
  type Tables,
} from '../tables.js';
import { appendCondition } from './append-condition.js';
import type { Dialect, Sql } from './dialect.js';
import { returning } from './returning.js';
import { settingsCheck, type Setting } from './settings.js';

const FAILURES_BY_CODE: Readonly<Record<string, Failure>> = {
  '08000': 'lostConnection',
  '08003': 'lostConnection',
  '08006': 'lostConnection',
  // The server ends the connection: shut down, crashed, a transaction that was idle or went on for too long.
  '57P01': 'lostConnection',
  '57P02': 'lostConnection',
  '57P05': 'lostConnection',
  '25P03': 'lostConnection',
  '25P04': 'lostConnection',
  // It starts, shuts down or recovers.
  '57P03': 'unreachable',
  '08001': 'unreachable',
  '08004': 'unreachable',
  '53300': 'tooManyConnections',
  '28000': 'authentication',
  '28P01': 'authentication',
  '3D000': 'unknownDatabase',
  '42501': 'notAllowed',
  // A replica, or a read-only transaction.
  '25006': 'readOnly',
  '53100': 'diskFull',
  '40001': 'deadlock',
  '40P01': 'deadlock',
  '55P03': 'lockTimeout',
  '57014': 'statementTimeout',
  '58030': 'inputOutput',
  XX001: 'damagedFile',
  XX002: 'damagedFile',
  // Whether the statement completed is not known.
  '40003': 'unknown',
};

const SETTINGS: readonly Setting[] = [
  {
    name: 'client_encoding',
    because: 'text would come back changed unless it were UTF8',
    mend: "Run: set client_encoding = 'UTF8'",
    isWrong: "current_setting('client_encoding') <> 'UTF8'",
  },
  {
    name: 'server_encoding',
    because: 'there is text that the database cannot store unless it is UTF8',
    mend: "Use another database: create database … encoding 'UTF8' template template0",
    isWrong: "current_setting('server_encoding') <> 'UTF8'",
  },
  {
    name: 'session_replication_role',
    because: 'a deleted session would leave its events behind',
    mend: 'Run: set session_replication_role = origin',
    isWrong: "current_setting('session_replication_role') = 'replica'",
  },
  {
    name: 'extra_float_digits',
    because: 'times would come back rounded',
    mend: 'Run: set extra_float_digits = 1',
    isWrong: "current_setting('extra_float_digits')::int < 1",
  },
];

const WRONG_SETTING = `case ${SETTINGS.map(({ name, isWrong }) => `when ${isWrong} then 'setting ${name}'`).join(' ')} end`;

export const postgresql: Dialect = {
  ...returning,

  // A text that is not a number fails when it is cast to one, and the error shows it.
  settings: settingsCheck(`case when (${WRONG_SETTING})::int is null then ? end`, '22P02', (message) => {
    const [, found] = /setting (\w+)\W*$/.exec(message) ?? [];
    return SETTINGS.find(({ name }) => name === found);
  }),

  failureOf: (error) => FAILURES_BY_CODE[driverCodeOf(error) ?? ''],

  // A SQLSTATE; the codes of Node.js have no digits.
  isAnswer: (error) => /^(?=.*\d)[\dA-Z]{5}$/.test(driverCodeOf(error) ?? ''),

  defaultPoolMax: 10,

  // Not now(), which stands still in a transaction.
  now: '(extract(epoch from clock_timestamp()) * 1000)::float8',

  push: {
    channel: ({ events }) => `adk_${hashOf(events)}`,
    notify: "select pg_notify(?, '')",
  },

  jsonText: (column) => `${column}::text`,

  /**
   * ASCII alone: with a `client_encoding` such as SJIS, whose characters may end in a backslash, the last byte of one of
   * UTF-8 would take the backslash or the quote behind it into its character.
   */
  literal: (value) => (typeof value === 'string' && /[^\0-\x7f]/.test(value) ? raw(asciiLiteral(value)) : value),

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
    return await sql.allOfSecond<Row>([prepare, execute], values);
  } catch (error) {
    // It came to another connection than before.
    if (driverCodeOf(error) !== PREPARED_ALREADY) throw error;
    return sql.all(text, values);
  }
}

function asciiLiteral(text: string): string {
  const escaped = text
    .replace(/['\\]/g, '$&$&')
    // In runs of limited length: on one of some megabytes the regular expression runs out of stack.
    .replace(/[^\0-\x7f]{1,4096}/g, (run) =>
      Buffer.from(run, 'utf16le').swap16().toString('hex').replace(/.{4}/g, '\\u$&'),
    );
  return `E'${escaped}'`;
}

/** An array literal, so that one text serves any number of rows. Every element is quoted: `NULL` is a state key too. */
function textArray(values: readonly (string | null)[]): string {
  const quoted = values.map((value) => (value === null ? 'null' : `"${value.replace(/["\\]/g, '\\$&')}"`));
  return `{${quoted.join(',')}}`;
}
