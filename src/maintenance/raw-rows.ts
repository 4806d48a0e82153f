import type { Sql } from '../database/dialects/dialect.js';
import { deleteParts } from '../database/dialects/event-parts.js';
import { IN_SESSION, inOwner, stateTable } from '../database/sql/columns.js';
import { bound, keyed, numberOf, optionalTextOf, textOf } from '../database/sql/values.js';
import type { SessionKey } from '../model/keys.js';
import type { Scope } from '../model/state.js';

/** @returns an event's row with the bytes of its content. */
export async function rawEvent(sql: Sql, key: SessionKey, seq: number) {
  const { events, eventParts } = sql.tables;
  const { sql: pieces } = sql.dialect;
  const all = (columns: string, from: string) =>
    sql.all(...bound(`select ${columns} as content from ${from}`, { ...keyed(key), seq }));
  const where = `where ${IN_SESSION} and seq = :seq`;
  const [row] = await all(`event_id, timestamp as at, ${pieces.hex('data')}`, `${events} ${where}`);
  if (!row) return undefined;
  const parts = await all(`part, ${pieces.hex('text')}`, `${eventParts} ${where} order by part`);
  return {
    seq,
    eventId: textOf(row['event_id']),
    timestamp: numberOf(row['at']),
    content: row['content'] === null ? null : bytesIn(row),
    parts: parts.map((each) => ({ part: numberOf(each['part']), content: bytesIn(each) })),
  };
}

export async function deleteEvent(sql: Sql, key: SessionKey, seq: number): Promise<void> {
  await sql.run(
    ...bound(`delete from ${sql.tables.events} where ${IN_SESSION} and seq = :seq`, { ...keyed(key), seq }),
  );
  deleteParts(sql, key, seq);
}

/** @returns the bytes of a recorded change. */
export async function rawChange(sql: Sql, key: SessionKey, id: number): Promise<Buffer> {
  const from = `${sql.tables.changes} where ${IN_SESSION} and change_id = :id`;
  const [row] = await sql.all(
    ...bound(`select ${sql.dialect.sql.hex('data')} as content from ${from}`, { ...keyed(key), id }),
  );
  return Buffer.from(optionalTextOf(row?.['content'] ?? null) ?? '', 'hex');
}

/** Locks a state value. @returns its bytes; undefined if it is gone, or somebody else is writing it. */
export async function rawValue(sql: Sql, session: SessionKey, scope: Scope, key: string): Promise<Buffer | undefined> {
  const { sql: pieces } = sql.dialect;
  const select = `select ${pieces.hex('value')} as content from ${valueRow(sql, scope)}${pieces.skipLocked ?? ''}`;
  const [row] = await sql.all(...bound(select, { ...keyed(session), key }));
  return row && bytesIn(row);
}

export async function deleteValue(sql: Sql, session: SessionKey, scope: Scope, key: string): Promise<void> {
  await sql.run(...bound(`delete from ${valueRow(sql, scope)}`, { ...keyed(session), key }));
}

const valueRow = ({ tables }: Sql, scope: Scope) =>
  `${stateTable(tables, scope)} where ${inOwner(scope)} and state_key = :key`;

const bytesIn = (row: Readonly<Record<string, unknown>>) => Buffer.from(textOf(row['content']), 'hex');
