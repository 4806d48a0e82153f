import type { Sql } from '../database/dialects/dialect.js';
import { deleteParts } from '../database/dialects/event-parts.js';
import { SESSION_WHERE, ownerWhere, stateTable } from '../database/sql/columns.js';
import { ownerValues, sessionValues, numberOf, optionalTextOf, textOf } from '../database/sql/values.js';
import type { SessionKey } from '../model/keys.js';
import type { Scope } from '../model/state.js';

/** @returns an event's row with the bytes of its content. */
export async function rawEvent(sql: Sql, key: SessionKey, seq: number) {
  const { events, eventParts } = sql.tables;
  const { sql: pieces } = sql.dialect;
  const values = [...sessionValues(key), seq];
  const [row] = await sql.all(
    `select event_id, timestamp as at, ${pieces.hex('data')} as content from ${events} where ${SESSION_WHERE} and seq = ?`,
    values,
  );
  if (!row) return undefined;
  const parts = await sql.all(
    `select part, ${pieces.hex('text')} as content from ${eventParts} where ${SESSION_WHERE} and seq = ? order by part`,
    values,
  );
  return {
    seq,
    eventId: textOf(row['event_id']),
    timestamp: numberOf(row['at']),
    content: row['content'] === null ? null : bytesIn(row),
    parts: parts.map((each) => ({ part: numberOf(each['part']), content: bytesIn(each) })),
  };
}

export async function deleteEvent(sql: Sql, key: SessionKey, seq: number): Promise<void> {
  await sql.run(`delete from ${sql.tables.events} where ${SESSION_WHERE} and seq = ?`, [...sessionValues(key), seq]);
  deleteParts(sql, key, seq);
}

/** @returns the bytes of a recorded change. */
export async function rawChange(sql: Sql, key: SessionKey, id: number): Promise<Buffer> {
  const [row] = await sql.all(
    `select ${sql.dialect.sql.hex('data')} as content from ${sql.tables.changes} where ${SESSION_WHERE} and change_id = ?`,
    [...sessionValues(key), id],
  );
  return Buffer.from(optionalTextOf(row?.['content'] ?? null) ?? '', 'hex');
}

/** Locks a state value. @returns its bytes; undefined if it is gone, or somebody else is writing it. */
export async function rawValue(sql: Sql, session: SessionKey, scope: Scope, key: string): Promise<Buffer | undefined> {
  const { sql: pieces } = sql.dialect;
  const [row] = await sql.all(
    `select ${pieces.hex('value')} as content from ${valueRow(sql, scope)}${pieces.skipLocked ?? ''}`,
    [...ownerValues(session, scope), key],
  );
  return row && bytesIn(row);
}

export async function deleteValue(sql: Sql, session: SessionKey, scope: Scope, key: string): Promise<void> {
  await sql.run(`delete from ${valueRow(sql, scope)}`, [...ownerValues(session, scope), key]);
}

const valueRow = ({ tables }: Sql, scope: Scope) =>
  `${stateTable(tables, scope)} where ${ownerWhere(scope)} and state_key = ?`;

const bytesIn = (row: Readonly<Record<string, unknown>>) => Buffer.from(textOf(row['content']), 'hex');
