import type { SessionKey } from '../../model/keys.js';
import { SCOPES, perScope, type StateEntries } from '../../model/state.js';
import {
  STATE_KEYS,
  eventRow,
  insertIntoEvents,
  insertIntoState,
  ownerValues,
  perTables,
  placeholderRows,
  rowLength,
  sessionValues,
  stateTable,
  type Tables,
} from '../sql/tables.js';
import type { AppendBatch, Dialect, DialectAppends, Sql, StoredEvent } from './dialect.js';
import { insertParts, needsParts } from './event-parts.js';
import { addToLastSeq, appendCondition } from './session-row.js';

/** SQLite binds 32,766 values in a statement, a server 65,535. A row has at most nine. */
export const MOST_ROWS = 3_500;

/** Yields rows to insert for a session in groups that fit into one statement. */
export function* packets<Row extends object>(
  { limits }: Dialect,
  session: SessionKey,
  rows: readonly Row[],
): Generator<readonly Row[]> {
  const most = limits?.maxTextLength;
  if (most === undefined && rows.length <= MOST_ROWS) {
    if (rows.length > 0) yield rows;
    return;
  }
  let packet: Row[] = [];
  let length = 0;
  for (const row of rows) {
    const more = most === undefined ? 0 : rowLength(session, row);
    if (packet.length === MOST_ROWS || (packet.length > 0 && length + more > (most ?? Infinity))) {
      yield packet;
      packet = [];
      length = 0;
    }
    packet.push(row);
    length += more;
  }
  if (packet.length > 0) yield packet;
}

/** An event's row, with null for content that is stored in parts. */
type EventRow = Omit<StoredEvent, 'json'> & { seq: number; json: string | null };

// Rows of a session, written by statements that work on all databases.

/** Inserts events with consecutive numbers, for the caller that holds the session's lock. */
export async function insertEvents(
  sql: Sql,
  session: SessionKey,
  firstSeq: number,
  events: readonly StoredEvent[],
): Promise<void> {
  const whole: EventRow[] = [];
  const inParts: (StoredEvent & { seq: number })[] = [];
  for (const [i, event] of events.entries()) {
    const numbered = { ...event, seq: firstSeq + i };
    (needsParts(sql, event.json) ? inParts : whole).push(numbered);
  }
  for (const packet of packets(sql.dialect, session, whole)) await insertRows(sql, session, packet);
  for (const event of inParts) {
    await insertRows(sql, session, [{ ...event, json: null }]);
    await insertParts(sql, session, event.seq, event.json);
  }
}

async function insertRows(sql: Sql, session: SessionKey, rows: readonly EventRow[]): Promise<void> {
  const places = Array(rows.length).fill(eventRow()).join(', ');
  const values: unknown[] = [];
  for (const { seq, id, timestamp, json, superseded = null, beginsTurn } of rows)
    values.push(...sessionValues(session), seq, id, timestamp, json, superseded, Number(beginsTurn));
  await sql.run(`${texts(sql).insertEvents} ${places}`, values);
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
  const upserts = ownOnly ? texts(sql).upsertOwn : texts(sql).upsert;
  for (const scope of SCOPES) {
    for (const packet of packets(sql.dialect, session, state[scope])) {
      const [first] = packet;
      if (first) await sql.dialect.limits?.refuseTooLarge(sql, first.json);
      const values: unknown[] = [];
      for (const { key, json, eventId } of packet) values.push(...ownerValues(session, scope), key, json, eventId);
      const { insert, onConflict } = upserts[scope];
      const rows = placeholderRows(packet.length, STATE_KEYS[scope].length + 2);
      await sql.run(`${insert} ${rows} ${onConflict}`, values);
    }
  }
}

const texts = perTables(({ dialect, tables }: Sql) => {
  const upserts = (ownOnly: boolean) =>
    perScope((scope) => ({
      insert: `${insertIntoState(tables, scope)} values`,
      onConflict: dialect.sql.onConflict(stateTable(tables, scope), STATE_KEYS[scope], { ownOnly }),
    }));
  return {
    insertEvents: `${insertIntoEvents(tables)} values`,
    upsert: upserts(false),
    upsertOwn: upserts(true),
  };
});

/** The new `last_seq`. MySQL and MariaDB have no `update … returning`; with this the statement returns the number all the same. */
export const NEXT_SEQ = 'last_insert_id(last_seq + ?)';

/** Takes the lock and the numbers of a session for a batch. @returns its new `last_seq`; undefined like `DialectAppends.write`. */
type Take = (sql: Sql, batch: AppendBatch) => Promise<number | undefined>;

export function takeByInsertId(dialect: Dialect, tables: Tables): Take {
  return async (sql, batch) => {
    const { where, values } = appendCondition(batch, dialect.sql);
    const take = addToLastSeq(tables.sessions, where, NEXT_SEQ);
    const { affectedRows, insertId } = await sql.run(take, [batch.events.length, batch.lastUpdateTime, ...values]);
    return affectedRows === 0 ? undefined : insertId;
  };
}

/** Inserts the events of a batch, and sets its state. @param lastSeq the new one. */
export async function insertBatch(sql: Sql, { session, events, state }: AppendBatch, lastSeq: number): Promise<void> {
  await insertEvents(sql, session, lastSeq - events.length + 1, events);
  await setState(sql, session, state);
}

/** Appends by several statements in a transaction. */
export const appendsByRows = (take: Take): DialectAppends =>
  appendsOneByOne(async (sql, batch) => {
    const lastSeq = await take(sql, batch);
    if (lastSeq !== undefined) await insertBatch(sql, batch, lastSeq);
    return lastSeq;
  });

/** Appends each batch by itself. @param append returns the session's new `last_seq`, like `DialectAppends.write`. */
export function appendsOneByOne(append: (sql: Sql, batch: AppendBatch) => Promise<number | undefined>): DialectAppends {
  return {
    most: 1,
    shares: () => false,
    isStatement: () => false,
    async write(sql, batches) {
      const lastSeqs: (number | undefined)[] = [];
      for (const batch of batches) lastSeqs.push(await append(sql, batch));
      return lastSeqs;
    },
  };
}
