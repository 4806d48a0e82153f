import { types } from 'node:util';
import type { SessionKey } from '../../model/keys.js';
import { SCOPES, perScope, type Scope, type StateEntries, type StateEntry } from '../../model/state.js';
import { LastUsed } from '../../model/last-used.js';
import { KEPT_STATEMENTS, type Bound } from '../drivers/driver.js';
import {
  IN_SESSION,
  SESSION_WHERE,
  STATE_KEYS,
  insertIntoEvents,
  insertIntoState,
  ownerNames,
  stateTable,
} from '../sql/columns.js';
import type { Tables } from '../sql/tables.js';
import { perTables, sessionValues, numberOf, keyed, named, type Named, type NamesIn } from '../sql/values.js';
import type { AppendBatch, Dialect, DialectAppends, DialectSql, SessionLock, Sql, StoredEvent } from './dialect.js';
import { insertParts, needsParts } from './event-parts.js';

// The row of a session, and the rows of its events and state: what the dialects share that write them by several statements.

/**
 * The start of an `update` that locks a session's row and adds to its `last_seq`; a condition follows.
 *
 * @param sum the new `last_seq`; on MySQL an expression that also returns it to the client.
 */
export function addToLastSeq({ sessions }: Tables, sum = 'last_seq + :count'): string {
  return `update ${sessions} set last_seq = ${sum}, last_update_time = :time where `;
}

/** For `lockSession` on servers; on InnoDB it reads the newest version of the row. */
export async function lockBySelect<Row extends object>(
  sql: Sql,
  session: SessionKey,
  { columns, skipsLocked }: SessionLock,
  strength = 'for update',
): Promise<Row | undefined> {
  const text = `select ${columns} from ${sql.tables.sessions} where ${SESSION_WHERE} ${strength}${skipsLocked ? ' skip locked' : ''}`;
  const [row] = await sql.all<Row>(text, sessionValues(session));
  return row;
}

/** Sets what keeps `prune` from an idle session. */
export const touch = ({ now }: DialectSql): string => `touched_at = ${now}`;

/** Sets what counts a change in a session's row. */
export const countChange = (sql: DialectSql, touches: boolean): string =>
  `last_change = last_change + 1${touches ? `, ${touch(sql)}` : ''}`;

/** A condition on the lease with a token. */
export const leaseIsCurrent = <const Token extends string>(token: Token) =>
  `lease_token = ${token} and lease_holder is not null` as const;

export const LEASE_IS_CURRENT = leaseIsCurrent(':token');

/** Ends a lease. */
export const NO_LEASE = 'lease_holder = null, lease_expires = null';

export function leaseIsFree({ now }: DialectSql): string {
  return `(lease_expires is null or lease_expires <= ${now})`;
}

/** A condition on a session's row, if an append may write without its lock. */
export const TAKES_APPENDS = `status = 'active' and not has_pending_calls`;

/**
 * The condition for an append to a session: its incarnation, numbers and lease are as the batch says. A new
 * condition also belongs in `takeSeveral`, for several batches on PostgreSQL, and in `LockedAppend`, which finds out under the lock
 * which condition did not hold.
 */
function appendCondition({ expectedSeq, expectedChange, lease }: AppendBatch, sql: DialectSql): string {
  let where = `${IN_SESSION} and incarnation = :incarnation and ${TAKES_APPENDS}`;
  if (expectedSeq !== undefined) where += ' and last_seq = :expectedSeq';
  if (expectedChange !== undefined) where += ' and last_change = :expectedChange';
  if (lease) where += ` and ${lease === 'unleased' ? leaseIsFree(sql) : LEASE_IS_CURRENT}`;
  return where;
}

/** The values of `addToLastSeq` and of the condition for an append. */
function appendValues(batch: AppendBatch) {
  const { session: key, incarnation, expectedSeq, expectedChange, lease, events, lastUpdateTime: time } = batch;
  const { appName: app, userId: user, sessionId } = key;
  const token = lease && lease !== 'unleased' ? lease.token : undefined;
  const count = events.length;
  return { app, user, session: sessionId, incarnation, expectedSeq, expectedChange, token, count, time };
}

/**
 * Makes a statement that appends batches, which is compiled once for all that have the same conditions.
 *
 * @param text makes it with the condition for the session's row.
 * @param variantOf names what else the text depends on.
 * @returns a function that binds it to a batch, and to further values.
 */
export function appendStatement(
  sql: DialectSql,
  text: (condition: string, batch: AppendBatch) => string,
  variantOf: (batch: AppendBatch) => string = () => '',
): (batch: AppendBatch, values?: Readonly<Record<string, unknown>>) => Bound {
  const made = new LastUsed<Named>(KEPT_STATEMENTS);
  return (batch, values) => {
    const { expectedSeq, expectedChange, lease } = batch;
    const rule = lease && (lease === 'unleased' || 'leased');
    const variant = `${expectedSeq === undefined} ${expectedChange === undefined} ${rule}${variantOf(batch)}`;
    const bind = made.get(variant, () => named(text(appendCondition(batch, sql), batch)));
    return bind(Object.assign(appendValues(batch), values));
  };
}

/** SQLite binds 32,766 values in a statement, a server 65,535. A row has at most ten. */
export const MOST_ROWS = 3_200;

/** The values of one row, by the names in its text. */
export type RowValues = Readonly<Record<string, unknown>>;

/** A statement that takes any number of rows. */
interface RowsText<Names extends string> {
  start: string;
  /** One row, compiled. */
  row: Named<Names>;
  end: string;
  /** The whole statement for a single row, which most appends use: its text is always the same, and drivers keep it prepared. */
  alone: Named<Names>;
}

export function rowsText<const Row extends string>(
  start: string,
  row: Row,
  end = '',
): RowsText<NamesIn<Row> | NamesIn<`${string}${Row}${string}`>> {
  return { start, row: named(row), end, alone: named(`${start}${row}${end}`) };
}

/** The statements for rows: as few as the database allows. */
export function statementsFor<Names extends string>(
  { limits }: Dialect,
  { start, row, end, alone }: RowsText<Names>,
  rows: readonly (RowValues & Readonly<Record<Names, unknown>>)[],
): Bound[] {
  const [only] = rows;
  if (!only) return [];
  if (rows.length === 1) return [alone(only)];
  const statements: Bound[] = [];
  let text = '';
  let values: unknown[] = [];
  let count = 0;
  let length = 0;
  const close = () => {
    if (text) statements.push([text + end, values]);
  };
  for (const each of rows) {
    const more = limits ? textLength(each) : 0;
    if (count === MOST_ROWS || (limits && length + more > limits.maxTextLength)) {
      close();
      [text, count, length] = ['', 0, 0];
    }
    const [rowText, rowValues] = row(each);
    if (!text) [text, values] = [start + rowText, []];
    else text += `, ${rowText}`;
    values.push(...rowValues);
    count++;
    length += more;
  }
  close();
  return statements;
}

/** The length of texts and bytes among values, in code units and bytes. */
export function textLength(values: object): number {
  let length = 0;
  for (const value of (Array.isArray(values) ? values : Object.values(values)) as unknown[])
    if (typeof value === 'string' || types.isUint8Array(value)) length += value.length;
  return length;
}

/** An event, with null for content that is stored in parts. */
type EventColumns = Omit<StoredEvent, 'json'> & { json: string | null };

/**
 * A row of `insertIntoEvents`. `begins` is 1 if the event begins a turn, since SQLite's drivers take no boolean.
 *
 * @param appendTime the database's clock, or the time of a copy.
 */
export const eventRow = (appendTime: string, seq = ':seq', of = '') =>
  `(:app, :user, :session, ${seq}, :id${of}, :timestamp${of}, :json${of}, :superseded${of}, :begins${of} = 1, ${appendTime})`;

/** A row of `insertIntoState`. */
export const stateRow = (scope: Scope, of = '') => `(${ownerNames(scope)}, :key${of}, :json${of}, :eventId${of})`;

/** The values of `eventRow` for events with consecutive numbers. */
export function eventRows(session: SessionKey, firstSeq: number, events: readonly EventColumns[]): RowValues[] {
  const { app, user, session: of } = keyed(session);
  return events.map(({ id, timestamp, json, superseded = null, beginsTurn, appendTime }, i) => {
    const [seq, begins] = [firstSeq + i, Number(beginsTurn)];
    return { app, user, session: of, seq, id, timestamp, json, superseded, begins, appendTime };
  });
}

/** The values of `stateRow`. */
export function stateRows(session: SessionKey, entries: readonly StateEntry[]): RowValues[] {
  const { app, user, session: of } = keyed(session);
  return entries.map(({ key, json, eventId }) => ({ app, user, session: of, key, json, eventId }));
}

/** The statements that insert events and set state. */
const insertStatements = perTables(({ dialect, tables }: Pick<Sql, 'dialect' | 'tables'>) => {
  const state = (ownOnly: boolean) =>
    perScope((scope) => {
      const end = dialect.sql.onConflict(stateTable(tables, scope), STATE_KEYS[scope], { ownOnly });
      return rowsText(`${insertIntoState(tables, scope)} values `, stateRow(scope), ` ${end}`);
    });
  const events = (appendTime: string) => rowsText(`${insertIntoEvents(tables)} values `, eventRow(appendTime));
  return { events: events(dialect.sql.now), copies: events(':appendTime'), state: state(false), ownState: state(true) };
});

/** Inserts events with consecutive numbers, for the caller that holds the session's lock. */
export function insertEvents(sql: Sql, session: SessionKey, firstSeq: number, events: readonly StoredEvent[]): void {
  const whole = events.map((event) => (needsParts(sql, event.json) ? { ...event, json: null } : event));
  const rows = eventRows(session, firstSeq, whole);
  const { events: appended, copies } = insertStatements(sql);
  const areCopies = events[0]?.appendTime !== undefined;
  for (const insert of statementsFor(sql.dialect, areCopies ? copies : appended, rows)) sql.later(...insert);
  for (const [i, { json }] of events.entries())
    if (needsParts(sql, json)) insertParts(sql, session, firstSeq + i, json);
}

/**
 * Sets state, with texts as they are stored.
 *
 * @param options.ownOnly overwrites only what the same event wrote.
 */
export async function setState(
  sql: Sql,
  session: SessionKey,
  state: StateEntries,
  { ownOnly = false } = {},
): Promise<void> {
  const { dialect } = sql;
  const inserts = ownOnly ? insertStatements(sql).ownState : insertStatements(sql).state;
  for (const scope of SCOPES) {
    for (const { json } of state[scope]) await dialect.limits?.refuseTooLarge(sql, 'A value of state', json);
    const rows = stateRows(session, state[scope]);
    for (const insert of statementsFor(dialect, inserts[scope], rows)) sql.later(...insert);
  }
}

/** The new `last_seq`. MySQL and MariaDB have no `update … returning`; with this the statement returns the number all the same. */
export const NEXT_SEQ = 'last_insert_id(last_seq + :count)';

/** Appends by several statements in a transaction, on MySQL and MariaDB. */
export function appendsByInsertId(dialect: Dialect, tables: Tables): DialectAppends {
  const take = appendStatement(dialect.sql, (condition) => addToLastSeq(tables, NEXT_SEQ) + condition);
  const append = async (sql: Sql, batch: AppendBatch) => {
    const { affectedRows, insertId } = await sql.run(...take(batch));
    if (affectedRows === 0) return undefined;
    insertEvents(sql, batch.session, insertId - batch.events.length + 1, batch.events);
    await setState(sql, batch.session, batch.state);
    return insertId;
  };
  return { most: 1, write: (sql, batches) => Promise.all(batches.map((batch) => append(sql, batch))) };
}

/** The statements that insert the events and the state of a batch, in a database without limits. */
export function insertsOf(
  { dialect, tables }: Pick<Sql, 'dialect' | 'tables'>,
  batches: readonly AppendBatch[],
  lastSeqs: readonly (number | undefined)[],
): Bound[] {
  const inserts = insertStatements({ dialect, tables });
  const events: RowValues[] = [];
  const state = perScope((): RowValues[] => []);
  for (const [i, batch] of batches.entries()) {
    const lastSeq = lastSeqs[i];
    if (lastSeq === undefined) continue;
    events.push(...eventRows(batch.session, lastSeq - batch.events.length + 1, batch.events));
    for (const scope of SCOPES) state[scope].push(...stateRows(batch.session, batch.state[scope]));
  }
  const statements = statementsFor(dialect, inserts.events, events);
  for (const scope of SCOPES) statements.push(...statementsFor(dialect, inserts.state[scope], state[scope]));
  return statements;
}

/**
 * Appends by `update … returning` and inserts in a transaction, for a database without limits. The inserts are those of one session each:
 * Citus passes these on, and SQLite keeps them prepared.
 *
 * @param take the statement that takes the numbers of a batch.
 */
export async function appendByReturning(
  sql: Sql,
  batches: readonly AppendBatch[],
  take: ReturnType<typeof appendStatement>,
): Promise<(number | undefined)[]> {
  const taking = batches.map((batch) => sql.all<{ last_seq: number }>(...take(batch)));
  const [only, ...others] = taking;
  const taken = only && others.length === 0 ? [await only] : await Promise.all(taking);
  const lastSeqs = taken.map(([row]) => row && numberOf(row.last_seq));
  for (const [i, batch] of batches.entries())
    for (const insert of insertsOf(sql, [batch], [lastSeqs[i]])) sql.later(...insert);
  return lastSeqs;
}

/** The statement that takes the numbers of a batch. @param end of its condition. */
export const takeByReturning = (tables: Tables, sql: DialectSql, end = '') =>
  appendStatement(sql, (condition) => `${addToLastSeq(tables)}${condition}${end} returning last_seq`);
