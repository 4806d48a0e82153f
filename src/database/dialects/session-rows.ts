import type { SessionKey } from '../../model/keys.js';
import { SCOPES, perScope, type Scope, type StateEntries, type StateEntry } from '../../model/state.js';
import type { BoundStatement } from '../drivers/driver.js';
import {
  SESSION_WHERE,
  STATE_KEYS,
  eventRow,
  insertIntoEvents,
  insertIntoState,
  perTables,
  placeholderRows,
  sessionValues,
  stateTable,
  type Tables,
  numberOf,
} from '../sql/tables.js';
import type { AppendBatch, Dialect, DialectAppends, DialectSql, SessionLock, Sql, StoredEvent } from './dialect.js';
import { insertParts, needsParts } from './event-parts.js';

// The row of a session, and the rows of its events and state: what the dialects share that write them by several statements.

/**
 * The start of an `update` that locks a session's row and adds to its `last_seq`; a condition follows. Its values are the number
 * to add and the time.
 *
 * @param sum the new `last_seq`; on MySQL an expression that also returns it to the client.
 */
export function addToLastSeq({ sessions }: Tables, sum = 'last_seq + ?'): string {
  return `update ${sessions} set last_seq = ${sum}, last_update_time = ? where `;
}

/** For `lockSession` on servers; on InnoDB it reads the newest version of the row. */
export async function lockBySelect<Row extends object>(
  sql: Sql,
  session: SessionKey,
  { columns, where = SESSION_WHERE, skipsLocked }: SessionLock,
): Promise<Row | undefined> {
  const text = `select ${columns} from ${sql.tables.sessions} where ${where} for update${skipsLocked ? ' skip locked' : ''}`;
  const [row] = await sql.all<Row>(text, sessionValues(session));
  return row;
}

/** Sets what counts a change in a session's row. @param touches whether the change keeps `prune` from an idle session. */
export const countChange = ({ now }: DialectSql, touches: boolean): string =>
  `last_change = last_change + 1${touches ? `, touched_at = ${now}` : ''}`;

/** A condition; its value is the token. */
export const LEASE_IS_CURRENT = 'lease_token = ? and lease_holder is not null';

export function leaseIsFree({ now }: DialectSql): string {
  return `(lease_expires is null or lease_expires <= ${now})`;
}

/** The condition for an append to a session: its incarnation, numbers and lease are as the batch says. */
export function appendCondition(
  { session, incarnation, expectedSeq, expectedChange, lease, isLocked }: AppendBatch,
  sql: DialectSql,
): { where: string; values: unknown[] } {
  let where = `${SESSION_WHERE} and incarnation = ? and status = 'active'`;
  if (!isLocked) where += ' and not has_pending_calls';
  const values: unknown[] = [session.appName, session.userId, session.sessionId, incarnation];
  if (expectedSeq !== undefined) {
    where += ' and last_seq = ?';
    values.push(expectedSeq);
  }
  if (expectedChange !== undefined) {
    where += ' and last_change = ?';
    values.push(expectedChange);
  }
  if (lease === 'unleased') {
    where += ` and ${leaseIsFree(sql)}`;
  } else if (lease) {
    where += ` and ${LEASE_IS_CURRENT}`;
    values.push(lease.token);
  }
  return { where, values };
}

/** SQLite binds 32,766 values in a statement, a server 65,535. A row has at most nine. */
export const MOST_ROWS = 3_500;

/** The bound values of one row. */
export type RowValues = readonly unknown[];

/** The text of a statement that takes any number of rows. */
interface RowsText {
  start: string;
  /** The placeholders of one row. */
  row: string;
  end: string;
}

/** The statements for rows: as few as the database allows. */
export function statementsFor({ limits }: Dialect, { start, row, end }: RowsText, rows: readonly RowValues[]) {
  const statements: BoundStatement[] = [];
  let text = '';
  let values: unknown[] = [];
  let length = 0;
  for (const each of rows) {
    const more = limits ? textLength(each) : 0;
    const isFull = values.length === MOST_ROWS * each.length || (limits && length + more > limits.maxTextLength);
    if (text && isFull) {
      statements.push({ text: text + end, values });
      text = '';
      values = [];
      length = 0;
    }
    text += text ? `, ${row}` : start + row;
    values.push(...each);
    length += more;
  }
  if (text) statements.push({ text: text + end, values });
  return statements;
}

/** The length of the texts in a row, in code units. */
export function textLength(row: RowValues): number {
  return row.reduce<number>((sum, value) => (typeof value === 'string' ? sum + value.length : sum), 0);
}

/** An event, with null for content that is stored in parts. */
type EventContent = Omit<StoredEvent, 'json'> & { json: string | null };

/** The values of `eventRow` for events with consecutive numbers. */
export function eventRows(
  { appName, userId, sessionId }: SessionKey,
  firstSeq: number,
  events: readonly EventContent[],
): RowValues[] {
  const rows: RowValues[] = [];
  let seq = firstSeq;
  for (const { id, timestamp, json, superseded = null, beginsTurn } of events)
    rows.push([appName, userId, sessionId, seq++, id, timestamp, json, superseded, Number(beginsTurn)]);
  return rows;
}

/** The values of rows of state. */
export function stateRows(
  { appName, userId, sessionId }: SessionKey,
  scope: Scope,
  entries: readonly StateEntry[],
): RowValues[] {
  const owner = [appName, userId, sessionId].slice(0, STATE_KEYS[scope].length - 1);
  const rows: RowValues[] = [];
  for (const { key, json, eventId } of entries) rows.push([...owner, key, json, eventId]);
  return rows;
}

/** The texts of statements that insert events and set state. */
function insertsInto({ dialect, tables }: Pick<Sql, 'dialect' | 'tables'>) {
  const state = (ownOnly: boolean) =>
    perScope((scope): RowsText => {
      const keys = STATE_KEYS[scope];
      return {
        start: `${insertIntoState(tables, scope)} values `,
        row: placeholderRows(1, keys.length + 2),
        end: ` ${dialect.sql.onConflict(stateTable(tables, scope), keys, { ownOnly })}`,
      };
    });
  return {
    events: { start: `${insertIntoEvents(tables)} values `, row: eventRow(), end: '' },
    state: state(false),
    ownState: state(true),
  };
}

export const insertTexts = perTables(insertsInto);

/** Inserts events with consecutive numbers, for the caller that holds the session's lock. */
export async function insertEvents(
  sql: Sql,
  session: SessionKey,
  firstSeq: number,
  events: readonly StoredEvent[],
): Promise<void> {
  const whole = events.map((event) => (needsParts(sql, event.json) ? { ...event, json: null } : event));
  const rows = eventRows(session, firstSeq, whole);
  for (const { text, values } of statementsFor(sql.dialect, insertTexts(sql).events, rows)) await sql.run(text, values);
  for (const [i, { json }] of events.entries())
    if (needsParts(sql, json)) await insertParts(sql, session, firstSeq + i, json);
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
  const inserts = ownOnly ? insertTexts(sql).ownState : insertTexts(sql).state;
  for (const scope of SCOPES) {
    for (const { json } of state[scope]) await dialect.limits?.refuseTooLarge(sql, json);
    const rows = stateRows(session, scope, state[scope]);
    for (const { text, values } of statementsFor(dialect, inserts[scope], rows)) await sql.run(text, values);
  }
}

/** The new `last_seq`. MySQL and MariaDB have no `update … returning`; with this the statement returns the number all the same. */
export const NEXT_SEQ = 'last_insert_id(last_seq + ?)';

/** Appends by several statements in a transaction, on MySQL and MariaDB. */
export function appendsByInsertId(dialect: Dialect, tables: Tables): DialectAppends {
  const take = addToLastSeq(tables, NEXT_SEQ);
  const append = async (sql: Sql, batch: AppendBatch) => {
    const { session, events, lastUpdateTime, state } = batch;
    const { where, values } = appendCondition(batch, dialect.sql);
    const { affectedRows, insertId } = await sql.run(take + where, [events.length, lastUpdateTime, ...values]);
    if (affectedRows === 0) return undefined;
    await insertEvents(sql, session, insertId - events.length + 1, events);
    await setState(sql, session, state);
    return insertId;
  };
  return { most: 1, write: (sql, batches) => Promise.all(batches.map((batch) => append(sql, batch))) };
}

/**
 * The same by `update … returning`, for a database without limits.
 *
 * @param most the most batches that share a transaction.
 */
export function appendsByReturning(dialect: Dialect, tables: Tables, most: number): DialectAppends {
  const take = addToLastSeq(tables);
  const inserts = insertsInto({ dialect, tables });
  return {
    most,
    async write(sql, batches) {
      const lastSeqs: (number | undefined)[] = [];
      for (const batch of batches) {
        const { session, events, lastUpdateTime, state } = batch;
        const { where, values } = appendCondition(batch, dialect.sql);
        const [row] = await sql.all<{ last_seq: number }>(`${take}${where} returning last_seq`, [
          ...[events.length, lastUpdateTime],
          ...values,
        ]);
        const lastSeq = row && numberOf(row.last_seq);
        lastSeqs.push(lastSeq);
        if (lastSeq === undefined) continue;
        const statements = statementsFor(
          dialect,
          inserts.events,
          eventRows(session, lastSeq - events.length + 1, events),
        );
        for (const scope of SCOPES)
          statements.push(...statementsFor(dialect, inserts.state[scope], stateRows(session, scope, state[scope])));
        for (const { text, values } of statements) await sql.run(text, values);
      }
      return lastSeqs;
    },
  };
}
