import type { SessionKey } from '../../model/keys.js';
import { perScope, type Scope } from '../../model/state.js';
import type { DialectSql, Sql } from '../dialects/dialect.js';
import { numberOf, optionalTextOf, textOf } from '../sql/row-values.js';
import { SESSION_WHERE, ownerValues, ownerWhere, sessionValues, stateTable, type Tables } from '../sql/tables.js';
import type { EventParts } from '../dialects/event-parts.js';

/** An event's row whose content is taken out, as it is. */
export interface RawEvent {
  seq: number;
  eventId: string;
  timestamp: number;
  /** Null where the row has none. */
  content: Buffer | null;
  /** The event's text in `adk_event_parts`. */
  parts: { part: number; content: Buffer }[];
}

/** A state value that is taken out, as it is. */
export interface RawValue {
  scope: Scope;
  key: string;
  content: Buffer;
}

/** The statements that read damaged rows byte for byte, and take them out. */
export class RepairStore {
  readonly #text: ReturnType<typeof texts>;
  readonly #parts: EventParts;

  constructor(sql: DialectSql, tables: Tables, parts: EventParts) {
    this.#parts = parts;
    this.#text = texts(sql, tables);
  }

  async setBooks(sql: Sql, key: SessionKey, firstSeq: number, lastSeq: number): Promise<void> {
    await sql.run(this.#text.setBooks, [firstSeq, lastSeq, ...sessionValues(key)]);
  }

  /** @returns the numbers of the session's rows of events, and their times, in order. */
  async eventTimes(sql: Sql, key: SessionKey): Promise<{ seq: number; timestamp: number }[]> {
    const rows = await sql.all<{ seq: number; at: number | string }>(this.#text.selectTimes, sessionValues(key));
    return rows.map(({ seq, at }) => ({ seq: numberOf(seq), timestamp: numberOf(at) }));
  }

  /** @returns an event's row with the bytes of its content. */
  async rawEvent(sql: Sql, key: SessionKey, seq: number): Promise<RawEvent | undefined> {
    const values = [...sessionValues(key), seq];
    const [row] = await sql.all<RawRow>(this.#text.selectRaw, values);
    if (!row) return undefined;
    const parts = await sql.all<{ part: number; content: string }>(this.#text.selectRawParts, values);
    return {
      seq,
      eventId: textOf(row.event_id),
      timestamp: numberOf(row.at),
      content: row.content === null ? null : Buffer.from(textOf(row.content), 'hex'),
      parts: parts.map(({ part, content }) => ({ part: numberOf(part), content: Buffer.from(textOf(content), 'hex') })),
    };
  }

  async deleteEvent(sql: Sql, key: SessionKey, seq: number): Promise<void> {
    await sql.run(this.#text.deleteEvent, [...sessionValues(key), seq]);
    await this.#parts.delete(sql, key, seq);
  }

  /** @returns the bytes of what was recorded of the session's state. */
  async rawChange(sql: Sql, key: SessionKey, id: number): Promise<Buffer> {
    const [row] = await sql.all<{ content: string | null }>(this.#text.selectRawChange, [...sessionValues(key), id]);
    return Buffer.from(optionalTextOf(row?.content ?? null) ?? '', 'hex');
  }

  /** Locks a state value. @returns its bytes; undefined when it is gone, or somebody else writes it. */
  async rawValue(sql: Sql, session: SessionKey, scope: Scope, key: string): Promise<RawValue | undefined> {
    const [row] = await sql.all<{ content: string }>(this.#text.selectRawValue[scope], [
      ...ownerValues(session, scope),
      key,
    ]);
    return row && { scope, key, content: Buffer.from(textOf(row.content), 'hex') };
  }

  async deleteValue(sql: Sql, session: SessionKey, scope: Scope, key: string): Promise<void> {
    await sql.run(this.#text.deleteValue[scope], [...ownerValues(session, scope), key]);
  }
}

interface RawRow {
  event_id: string;
  at: number | string;
  content: string | null;
}

function texts(sql: DialectSql, tables: Tables) {
  const { sessions, events, eventParts, changes } = tables;
  const valueOf = (scope: Scope) => `${stateTable(tables, scope)} where ${ownerWhere(scope)} and state_key = ?`;
  return {
    setBooks: `update ${sessions} set first_seq = ?, last_seq = ? where ${SESSION_WHERE}`,
    selectTimes: `select seq, timestamp as at from ${events} where ${SESSION_WHERE} order by seq`,
    selectRaw: `select event_id, timestamp as at, ${sql.hex('data')} as content
      from ${events} where ${SESSION_WHERE} and seq = ?`,
    selectRawParts: `select part, ${sql.hex('text')} as content from ${eventParts}
      where ${SESSION_WHERE} and seq = ? order by part`,
    selectRawChange: `select ${sql.hex('data')} as content from ${changes} where ${SESSION_WHERE} and change_id = ?`,
    deleteEvent: `delete from ${events} where ${SESSION_WHERE} and seq = ?`,
    selectRawValue: perScope(
      (scope) => `select ${sql.hex('value')} as content from ${valueOf(scope)}${sql.skipLocked ?? ''}`,
    ),
    deleteValue: perScope((scope) => `delete from ${valueOf(scope)}`),
  };
}
