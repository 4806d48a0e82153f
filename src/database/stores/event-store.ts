import type { SessionKey } from '../../model/keys.js';
import { appendCondition } from '../dialects/session-row.js';
import type { AppendBatch, Dialect, OneStatementAppend, StoredEvent } from '../dialects/dialect.js';
import type { Sql } from '../sql/sql.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  insertIntoEvents,
  placeholderRows,
  sessionValues,
  type Tables,
} from '../sql/tables.js';
import { numberOf, optionalTextOf } from '../sql/row-values.js';
import type { EventParts, UnderLock } from './event-parts.js';
import { packets } from './packets.js';
import type { EventContent } from './session-reader.js';
import type { SessionHead } from './session-store.js';
import type { StateStore } from './state-store.js';

/** The statements of a session's events. */
export class EventStore {
  readonly #dialect: Dialect;
  readonly #table: string;
  readonly #state: StateStore;
  readonly #parts: EventParts;
  readonly #text: ReturnType<typeof texts>;
  readonly #oneStatement: OneStatementAppend | undefined;

  constructor(dialect: Dialect, tables: Tables, state: StateStore, parts: EventParts) {
    this.#dialect = dialect;
    this.#table = tables.sessions;
    this.#state = state;
    this.#parts = parts;
    this.#text = texts(dialect, tables);
    this.#oneStatement = dialect.operations.appendInOneStatement?.(tables);
  }

  /** Whether `append` is one statement, which needs no transaction around it. */
  appendsInOneStatement(batch: AppendBatch): boolean {
    return this.#oneStatement?.takes(batch, false) ?? false;
  }

  /**
   * Appends under the session's lock. Fails with the database's unique violation when an event is stored already.
   *
   * @returns the number of the last event; undefined when the session is missing or not as the batch expects it.
   */
  async append(sql: Sql, batch: AppendBatch): Promise<number | undefined> {
    if (this.#oneStatement?.takes(batch, sql.isInTransaction)) return this.#oneStatement.write(sql, batch);

    const { session, events, lastUpdateTime, state } = batch;
    const lastSeq = await this.#dialect.operations.takeSeq(sql, {
      table: this.#table,
      count: events.length,
      lastUpdateTime,
      ...appendCondition(batch, this.#dialect.sql),
    });
    if (lastSeq === undefined) return undefined;

    await this.insert(sql, session, lastSeq - events.length + 1, events);
    await this.#state.set(sql, session, state);
    return lastSeq;
  }

  /** Gives a stored event another content; for the caller that holds the session's lock. */
  async replace(sql: Sql, session: SessionKey, seq: number, event: StoredEvent): Promise<void> {
    const inParts = this.#parts.areNeededFor(event.json);
    await sql.run(this.#text.update, [event.timestamp, inParts ? null : event.json, ...sessionValues(session), seq]);
    await this.#parts.delete(sql, session, seq);
    if (inParts) await this.#parts.insert(sql, session, seq, event.json);
  }

  /** Copies a session's events up to a number into a new one. */
  async copy(sql: Sql, from: SessionKey, to: SessionKey, upTo: number): Promise<void> {
    for (const text of this.#text.copy) await sql.run(text, [...sessionValues(to), ...sessionValues(from), upTo]);
  }

  /** Deletes the events after a number, for the caller that holds the session's lock. */
  async deleteAfter(sql: Sql, session: SessionKey, seq: number): Promise<void> {
    await sql.run(this.#text.deleteAfter, [...sessionValues(session), seq]);
  }

  /**
   * @returns the highest number among the session's events, those that were trimmed included, whatever its row says to be
   *   the last; 0 when there was none.
   */
  async highestSeq(sql: Sql, session: SessionKey, { firstSeq }: SessionHead): Promise<number> {
    const [row] = await sql.all<{ seq: number }>(this.#text.selectHighestNumber, sessionValues(session));
    return Math.max(row ? numberOf(row.seq) : 0, firstSeq - 1);
  }

  /**
   * @param options.isLocked whether the caller holds the session's lock.
   * @returns the number and content of a stored event.
   */
  async find(
    sql: Sql,
    session: SessionKey,
    eventId: string,
    options: UnderLock = {},
  ): Promise<EventContent | undefined> {
    const text = options.isLocked ? this.#text.selectOneUnderLock : this.#text.selectOne;
    const [row] = await eventRows(sql, text, [...sessionValues(session), eventId]);
    if (!row) return undefined;
    const json = row.data ?? (await this.#parts.read(sql, session, row.seq, options));
    return { seq: row.seq, json: json ?? undefined };
  }

  /** Whether all of these events are stored, as they are. */
  async hasAll(sql: Sql, session: SessionKey, events: readonly StoredEvent[], options?: UnderLock): Promise<boolean> {
    for (const { id, json } of events) {
      const stored = await this.find(sql, session, id, options);
      if (stored?.json !== json) return false;
    }
    return true;
  }

  /** Inserts events from a number on, for the caller that holds the session's lock. */
  async insert(sql: Sql, session: SessionKey, firstSeq: number, events: readonly StoredEvent[]): Promise<void> {
    const numbered = events.map((event, i) => ({ ...event, seq: firstSeq + i }));
    for (const packet of packets(
      this.#dialect,
      session,
      numbered.filter((event) => !this.#parts.areNeededFor(event.json)),
    )) {
      const rows = packet.map((event) => [...sessionValues(session), event.seq, event.id, event.timestamp, event.json]);
      await sql.run(`${this.#text.insert} ${placeholderRows(rows.length, rows[0]?.length ?? 0)}`, rows.flat());
    }
    for (const event of numbered.filter((event) => this.#parts.areNeededFor(event.json))) {
      const row = [...sessionValues(session), event.seq, event.id, event.timestamp, null];
      await sql.run(`${this.#text.insert} ${placeholderRows(1, row.length)}`, row);
      await this.#parts.insert(sql, session, event.seq, event.json);
    }
  }
}

interface EventRow {
  seq: number;
  /** Null where the event is in parts. */
  data: string | null;
}

async function eventRows(sql: Sql, text: string, values: readonly unknown[]): Promise<EventRow[]> {
  const rows = await sql.all<EventRow>(text, values);
  return rows.map((row) => ({ ...row, seq: numberOf(row.seq), data: optionalTextOf(row.data) }));
}

function texts({ sql }: Dialect, tables: Tables) {
  const { events, eventParts, select } = tables;
  const copy = (table: string, columns: string) =>
    `insert into ${table} (${SESSION_COLUMNS}, ${columns})
      select ?, ?, ?, ${columns} from ${table} where ${SESSION_WHERE} and seq <= ?`;
  const event = `seq, ${select.data} as data`;
  return {
    insert: `${insertIntoEvents(tables)} values`,
    selectHighestNumber: `select seq from ${events} where ${SESSION_WHERE} order by seq desc limit 1`,
    selectOne: `select ${event} from ${events} where ${SESSION_WHERE} and event_id = ?`,
    selectOneUnderLock: `select ${event} from ${events} where ${SESSION_WHERE} and event_id = ?${sql.underLock}`,
    copy: [copy(events, 'seq, event_id, timestamp, data'), copy(eventParts, 'seq, part, text')],
    deleteAfter: `${sql.deleteThrough(events, 'primary')} where ${SESSION_WHERE} and seq > ?`,
    update: `update ${events} set timestamp = ?, data = ? where ${SESSION_WHERE} and seq = ?`,
  };
}
