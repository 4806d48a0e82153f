import { SCOPES } from '../../model/state.js';
import {
  SESSION_COLUMNS,
  STATE_KEYS,
  insertIntoEvents,
  insertIntoState,
  isSameSession,
  ownerNames,
  sessionColumnsOf,
  stateTable,
} from '../sql/columns.js';
import type { Tables } from '../sql/tables.js';
import { numberOf, named, type Named } from '../sql/values.js';
import type { AppendBatch, DialectAppends, DialectSql, Sql } from './dialect.js';
import { returningSql } from './returning.js';
import { TAKES_APPENDS, addToLastSeq, appendStatement, leaseIsCurrent, leaseIsFree } from './session-rows.js';

/** The most appends that share a statement: none of them is acknowledged before all are written. */
export const MOST = 32;

/** Means any number. Not null: the host may have set `array_nulls = off`. */
const ANY = -1;

/** Means null, for the same reason. */
const NOT_SUPERSEDED = '';

/** Writes appends by a `with`, each part of which writes to one table. */
export function postgresqlAppends(tables: Tables, dialectSql: DialectSql): DialectAppends {
  const append = appendStatement(
    dialectSql,
    (condition, batch) => appendText(tables, dialectSql, batch, condition),
    ({ events, state }) => [events, ...SCOPES.map((scope) => state[scope])].map(countOf).join(' '),
  );
  const together = togetherText(tables, dialectSql);
  return {
    most: MOST,

    shares: waitsForSessionOnly,

    isStatement: () => true,

    skipsLocked: true,

    async write(sql, batches) {
      const [batch, ...others] = batches;
      if (!batch || others.length > 0) return writeTogether(sql, together, batches);
      const appended: Element[][] = [];
      for (const { id, timestamp, json, superseded = NOT_SUPERSEDED, beginsTurn } of batch.events)
        appended.push([id, timestamp, json, superseded, beginsTurn]);
      const [ids, times, contents, superseded, begin] = bindable(5, appended);
      const values: Record<string, unknown> = { ids, times, contents, superseded, begin };
      for (const scope of writtenScopes(batch.state)) {
        const written: Element[][] = [];
        for (const { key, json, eventId } of batch.state[scope]) written.push([key, json, eventId]);
        [values[`${scope}Keys`], values[`${scope}Values`], values[`${scope}Events`]] = bindable(3, written);
      }
      const [row] = await sql.all<{ last_seq: number }>(...append(batch, values));
      return [row && numberOf(row.last_seq)];
    },
  };
}

/** If somebody has locked a row of the user or the app, the other sessions of a shared write would wait for it, too. */
export const waitsForSessionOnly = ({ state }: AppendBatch): boolean =>
  state.user.length === 0 && state.app.length === 0;

async function writeTogether(
  sql: Sql,
  together: Named,
  batches: readonly AppendBatch[],
): Promise<readonly (number | undefined)[]> {
  const events = batches.flatMap(({ events }, i) =>
    events.map(({ id, timestamp, json, superseded = NOT_SUPERSEDED, beginsTurn }, j) => [
      ...[i, j + 1, id, timestamp],
      ...[json, superseded, beginsTurn],
    ]),
  );
  const state = batches.flatMap(({ state }, i) =>
    state.session.map(({ key, json, eventId }) => [i, key, json, eventId]),
  );
  const written = { ...arrays(EVENTS, events), ...arrays(STATE, state) };
  return lastSeqsOf(batches, await sql.all(...together({ ...sessionArrays(batches), ...written })));
}

/** The columns of the arrays that `takeSeveral` and `togetherText` take, with their types. */
const SESSIONS = {
  ...{ app: 'text', user: 'text', session: 'text', incarnation: 'text', expectedSeq: 'int', token: 'bigint' },
  ...{ unleased: 'boolean', expectedChange: 'bigint', count: 'int', time: 'float8', number: 'int' },
};
const EVENTS = { eventOf: 'int', nth: 'int', id: 'text', at: 'float8', data: 'text', lost: 'text', begins: 'boolean' };
const STATE = { stateOf: 'int', key: 'text', value: 'text', eventId: 'text' };

const unnested = (types: Readonly<Record<string, string>>) =>
  `unnest(${Object.entries(types)
    .map(([name, type]) => `:${name}::${type}[]`)
    .join(', ')})`;

function arrays(
  types: Readonly<Record<string, string>>,
  rows: readonly (readonly Element[])[],
): Record<string, unknown> {
  const names = Object.keys(types);
  const literals = columns(names.length, rows);
  return Object.fromEntries(names.map((name, i) => [name, literals[i]]));
}

/** The values of `takeSeveral`. */
export function sessionArrays(batches: readonly AppendBatch[]): Record<string, unknown> {
  const rows = batches.map(
    ({ session, incarnation, expectedSeq, expectedChange, lease, events, lastUpdateTime }, i) => [
      ...[session.appName, session.userId, session.sessionId, incarnation, expectedSeq ?? ANY],
      ...[lease === 'unleased' ? ANY : (lease?.token ?? ANY), lease === 'unleased'],
      ...[expectedChange ?? ANY, events.length, lastUpdateTime, i],
    ],
  );
  return arrays(SESSIONS, rows);
}

/** @param rows with the `number` of a batch and the `last_seq` of its session. */
export function lastSeqsOf(batches: readonly AppendBatch[], rows: readonly object[]): (number | undefined)[] {
  const taken = rows as { number: number; last_seq: number }[];
  const lastSeqs = new Map(taken.map((row) => [numberOf(row.number), numberOf(row.last_seq)]));
  return batches.map((_, i) => lastSeqs.get(i));
}

const writtenScopes = (state: AppendBatch['state']) => SCOPES.filter((scope) => state[scope].length > 0);

/** The text of an append depends on whether a table gets no row, one or several. */
const countOf = ({ length }: readonly unknown[]) => Math.min(length, 2);

/** The values of rows as `rowsIn` selects them: those of one row as they are, since an array's elements are quoted and parsed. */
const bindable = (width: number, rows: readonly (readonly Element[])[]): readonly Element[] =>
  (rows.length === 1 && rows[0]) || columns(width, rows);

/** Selects rows with their numbers from `bindable` values. */
function rowsIn(rows: readonly unknown[], types: Readonly<Record<string, string>>): string {
  const each = Object.entries(types).map(([name, type]) => `:${name}::${type}`);
  return rows.length === 1
    ? `(values (${each.join(', ')}, 1))`
    : `unnest(${each.map((value) => `${value}[]`).join(', ')}) with ordinality`;
}

/** Each part selects from `taken`. If the session is missing or not as expected, that has no row, and nothing is written. */
function appendText(tables: Tables, { now }: DialectSql, { events, state }: AppendBatch, where: string): string {
  const parts = [
    `taken as (
      ${addToLastSeq(tables)}${where} returning last_seq, ${now} as append_time
    )`,
    `events as (
      ${insertIntoEvents(tables)}
      select ${ownerNames('session')}, last_seq - :count + number, id, at, data::json, nullif(lost, ''), begins, append_time
      from taken, ${rowsIn(events, { ids: 'text', times: 'float8', contents: 'text', superseded: 'text', begin: 'boolean' })}
        as appended (id, at, data, lost, begins, number)
    )`,
    ...writtenScopes(state).map(
      (scope) => `${scope}_state as (
      ${insertIntoState(tables, scope)}
      select ${ownerNames(scope)}, key, value::json, event_id
      from taken, ${rowsIn(state[scope], { [`${scope}Keys`]: 'text', [`${scope}Values`]: 'text', [`${scope}Events`]: 'text' })}
        as written (key, value, event_id, number)
      ${returningSql.onConflict(stateTable(tables, scope), STATE_KEYS[scope])}
    )`,
    ),
  ];
  return `with ${parts.join(', ')} select last_seq from taken`;
}

/** The statement that appends batches of several sessions. */
function togetherText(tables: Tables, sql: DialectSql): Named {
  const { sessionStates } = tables;
  const { locked, take } = takeSeveral(tables, sql);
  return named(`${locked}, taken as (
      ${take}, ${sql.now} as append_time
    ), events as (
      ${insertIntoEvents(tables)}
      select ${SESSION_COLUMNS}, before + nth, id, at, data::json, nullif(lost, ''), begins, append_time
      from taken join ${unnested(EVENTS)}
        as appended (number, nth, id, at, data, lost, begins) using (number)
    ), session_state as (
      ${insertIntoState(tables, 'session')}
      select ${SESSION_COLUMNS}, key, value::json, event_id
      from taken join ${unnested(STATE)} as written (number, key, value, event_id) using (number)
      ${returningSql.onConflict(sessionStates, STATE_KEYS.session)}
    ) select number, last_seq from taken`);
}

/**
 * An `update` that takes the numbers of several sessions, and the `with` before it. Each session's row is looked up by itself and
 * updated by its place (`ctid`): in a join the server may read all sessions, and with a cached plan it still does so when there
 * are many. A row that has changed since the statement began has another place, and is not found.
 */
export function takeSeveral({ sessions }: Tables, sql: DialectSql): { locked: string; take: string } {
  const locked = `with given as (
      select * from ${unnested(SESSIONS)}
        as given (${SESSION_COLUMNS}, expected_incarnation, expected_seq, token, is_unleased, expected_change, events, time, number)
    ), locked as (
      select given.number, given.events, given.time, session.place from given cross join lateral (
        select s.ctid as place from ${sessions} as s
        where ${isSameSession('s', 'given')} and incarnation = expected_incarnation and ${TAKES_APPENDS}
          and (expected_seq = ${ANY} or last_seq = expected_seq)
          and (expected_change = ${ANY} or last_change = expected_change)
          and (token = ${ANY} or ${leaseIsCurrent('token')})
          and (not is_unleased or ${leaseIsFree(sql)})
        for no key update skip locked
      ) as session
    )`;
  const take = `update ${sessions} as s set last_seq = last_seq + events, last_update_time = time
      from locked where s.ctid = place
      returning ${sessionColumnsOf('s')}, number, last_seq - events as before, last_seq`;
  return { locked, take };
}

type Element = string | number | boolean | null;

/**
 * @returns an array literal for each column of the rows, so that one statement fits any number of rows. Elements are quoted, since
 *   a state key can be `NULL`.
 */
export function columns(width: number, rows: readonly (readonly Element[])[]): string[] {
  const arrays: string[] = [];
  for (let i = 0; i < width; i++) {
    let elements = '';
    for (const row of rows) {
      const element = row[i] ?? null;
      if (elements) elements += ',';
      elements += typeof element === 'string' ? quoted(element) : String(element);
    }
    arrays.push(`{${elements}}`);
  }
  return arrays;
}

/** What JSON escapes, and an array does not. */
const ESCAPED = /[^ -\ud7ff\ue000-\uffff]/;

/** As JSON, which is the same for most texts, and takes half the time. */
function quoted(text: string): string {
  return ESCAPED.test(text) ? `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"` : JSON.stringify(text);
}
