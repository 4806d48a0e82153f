import type { SessionKey } from '../../model/keys.js';
import { gapsIn, notBefore, rangesOf, type SeqRange } from '../../model/seq-ranges.js';
import { appendCondition } from '../dialects/session-row.js';
import type { AppendBatch, Dialect, OneStatementAppend, Sql, StoredEvent } from '../dialects/dialect.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  insertIntoEvents,
  isSameEvent,
  placeholderRows,
  sessionStillExists,
  sessionValues,
  type Tables,
} from '../tables.js';
import { booleanOf, numberOf, optionalTextOf } from '../row-values.js';
import type { EventParts } from './event-parts.js';
import { packets } from './packets.js';
import type { SessionHead, SessionSnapshot, SessionStore } from './session-store.js';
import type { StateStore } from './state-store.js';

/** Selects events of a snapshot. */
export interface EventRange {
  /** Only those with a higher number. */
  after: number;
  /** Only events later than this, in ms. */
  afterTimestamp?: number | undefined;
  /** Only this many of the newest. */
  newest?: number | undefined;
}

/** A stored event. */
export interface EventContent {
  seq: number;
  /** Undefined where the row has lost its content. */
  json: string | undefined;
}

/** Events of a snapshot, and the numbers that are damaged. */
export interface ReadEvents {
  /** In append order. */
  events: EventContent[];
  /** The numbers among those asked for that have no row. */
  missing: SeqRange[];
  /** The numbers of the rows that are above the session's last number. */
  uncounted: SeqRange[];
}

/** The statements of a session's events. */
export class EventStore {
  readonly #dialect: Dialect;
  readonly #table: string;
  readonly #sessions: SessionStore;
  readonly #state: StateStore;
  readonly #parts: EventParts;
  readonly #text: ReturnType<typeof texts>;
  readonly #oneStatement: OneStatementAppend | undefined;

  constructor(dialect: Dialect, tables: Tables, sessions: SessionStore, state: StateStore, parts: EventParts) {
    this.#dialect = dialect;
    this.#table = tables.sessions;
    this.#sessions = sessions;
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

  /** @returns undefined when the session is gone since the snapshot, or another under its id. */
  async read(
    sql: Sql,
    session: SessionKey,
    snapshot: SessionSnapshot,
    { after, afterTimestamp, newest }: EventRange,
  ): Promise<ReadEvents | undefined> {
    const { incarnation, firstSeq, lastSeq } = snapshot;
    const isFiltered = afterTimestamp !== undefined;
    const beforeKept = Math.max(after, firstSeq - 1);
    const first = newest === undefined || isFiltered ? beforeKept : Math.max(beforeKept, lastSeq - newest);
    const key = sessionValues(session);
    const rows = isFiltered
      ? await this.#eventsSince(sql, session, snapshot, first, afterTimestamp, newest)
      : await eventRows(sql, this.#text.select, [...key, first, lastSeq, ...key, ...key, incarnation]);
    if (rows.length === 0 && first >= lastSeq) return { events: [], missing: [], uncounted: [] };

    const counted = rows.filter(({ seq }) => seq <= lastSeq);
    const later = isFiltered ? counted.filter((row) => booleanOf(row.is_later)) : counted;
    const asked = isFiltered && newest !== undefined ? later.slice(-newest) : later;
    const events: EventContent[] = [];
    for (const { seq, data } of asked) {
      const json = data ?? (await this.#parts.read(sql, session, seq));
      if (json !== undefined) events.push({ seq, json: json ?? undefined });
    }
    const numbers = events.map(({ seq }) => seq);
    const isLastThere = counted.at(-1)?.seq === lastSeq;
    const missing = isFiltered
      ? await this.#missingSince(
          sql,
          session,
          snapshot,
          first,
          asked.slice(asked.length === newest ? 1 : 0),
          isLastThere,
        )
      : gapsIn(numbers, first, lastSeq);
    const uncounted = rangesOf(rows.slice(counted.length).map(({ seq }) => seq));

    // A row that was read shows that the session existed then. Without rows, and after further reads, look again; also
    // where rows are missing, which may have been trimmed since the snapshot (contract K2).
    const isThere = rows.length > 0 && asked.every(({ data }) => data !== null) && missing.length === 0;
    if (isThere) return { events, missing, uncounted };
    const head = await this.#sessions.head(sql, session);
    if (head?.incarnation !== incarnation) return undefined;
    return {
      events: events.filter(({ seq }) => seq >= head.firstSeq),
      missing: notBefore(missing, head.firstSeq),
      uncounted,
    };
  }

  /** Rows later than a time, and the session's last row: if it is missing, events after the others are. */
  async #eventsSince(
    sql: Sql,
    session: SessionKey,
    { incarnation, lastSeq }: SessionSnapshot,
    after: number,
    time: number,
    newest: number | undefined,
  ): Promise<EventRow[]> {
    const key = sessionValues(session);
    const values = [time, time, ...key, after, lastSeq, time, lastSeq, ...key, ...key, incarnation];
    if (newest !== undefined) {
      const rows = await eventRows(sql, this.#text.selectNewestSince, [...values, newest + 1]);
      // Rows above last_seq have used up the limit.
      if (rows.every(({ seq }) => seq <= lastSeq)) return rows.reverse();
    }
    return eventRows(sql, this.#text.selectSince, values);
  }

  /**
   * The missing numbers of a filter by time. A missing event has no time; it counts as one of the time of the event
   * after it, and as one that is asked for where none comes after it.
   */
  async #missingSince(
    sql: Sql,
    session: SessionKey,
    { lastSeq }: SessionSnapshot,
    after: number,
    asked: readonly EventRow[],
    isLastThere: boolean,
  ): Promise<SeqRange[]> {
    const behindGaps = new Set(
      asked.filter(({ seq, follows }) => seq > after + 1 && !booleanOf(follows)).map(({ seq }) => seq),
    );
    if (!isLastThere) behindGaps.add(lastSeq + 1);
    if (behindGaps.size === 0) return [];
    const gaps = gapsIn(await this.#numbers(sql, session, after, lastSeq), after, lastSeq);
    return gaps.filter(({ to }) => behindGaps.has(to + 1));
  }

  /**
   * @returns the highest number among the session's events, those that were trimmed included, whatever its row says to be
   *   the last; 0 when there was none.
   */
  async highestSeq(sql: Sql, session: SessionKey, { firstSeq }: SessionHead): Promise<number> {
    const [row] = await sql.all<{ seq: number }>(this.#text.selectHighestNumber, sessionValues(session));
    return Math.max(row ? numberOf(row.seq) : 0, firstSeq - 1);
  }

  /** The numbers of the events that have a row, in order. */
  async #numbers(sql: Sql, session: SessionKey, after: number, upTo: number): Promise<number[]> {
    const rows = await sql.all<{ seq: number }>(this.#text.selectNumbers, [...sessionValues(session), after, upTo]);
    return rows.map(({ seq }) => numberOf(seq));
  }

  /**
   * @param isLocked whether the caller holds the session's lock.
   * @returns the number and content of a stored event.
   */
  async find(sql: Sql, session: SessionKey, eventId: string, isLocked: boolean): Promise<EventContent | undefined> {
    const text = isLocked ? this.#text.selectOneUnderLock : this.#text.selectOne;
    const [row] = await eventRows(sql, text, [...sessionValues(session), eventId]);
    if (!row) return undefined;
    const json = row.data ?? (await this.#parts.read(sql, session, row.seq, isLocked));
    return { seq: row.seq, json: json ?? undefined };
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
  /** Selected with a filter by time: whether the event is later. */
  is_later?: boolean | number;
  /** Selected with a filter by time: whether the number before has a row. */
  follows?: boolean | number;
}

async function eventRows(sql: Sql, text: string, values: readonly unknown[]): Promise<EventRow[]> {
  const rows = await sql.all<EventRow>(text, values);
  return rows.map((row) => ({ ...row, seq: numberOf(row.seq), data: optionalTextOf(row.data) }));
}

function texts({ sql }: Dialect, tables: Tables) {
  const { sessions, events, eventParts, select } = tables;
  const copy = (table: string, columns: string) =>
    `insert into ${table} (${SESSION_COLUMNS}, ${columns})
      select ?, ?, ?, ${columns} from ${table} where ${SESSION_WHERE} and seq <= ?`;
  const event = `seq, ${select.data} as data`;
  // Also the rows above last_seq, which are damage to report.
  const eventsWhere = (asked: string) => `where ${SESSION_WHERE} and seq > ?
    and (${asked} or seq > (select last_seq from ${sessions} where ${SESSION_WHERE}))
    and ${sessionStillExists(tables)}`;
  const since = `select seq, timestamp > ? as is_later, case when timestamp > ? then ${select.data} end as data,
    exists (select 1 from ${events} as previous where ${isSameEvent('previous', 'e', 'e.seq - 1')}) as follows
    from ${events} as e ${eventsWhere('seq <= ? and (timestamp > ? or seq = ?)')}`;
  return {
    insert: `${insertIntoEvents(tables)} values`,
    select: `select ${event} from ${events} ${eventsWhere('seq <= ?')} order by seq`,
    selectSince: `${since} order by seq`,
    selectNewestSince: `${since} order by seq desc limit ?`,
    selectHighestNumber: `select seq from ${events} where ${SESSION_WHERE} order by seq desc limit 1`,
    selectNumbers: `select seq from ${events} where ${SESSION_WHERE} and seq > ? and seq <= ? order by seq`,
    selectOne: `select ${event} from ${events} where ${SESSION_WHERE} and event_id = ?`,
    selectOneUnderLock: `select ${event} from ${events} where ${SESSION_WHERE} and event_id = ?${sql.underLock}`,
    copy: [copy(events, 'seq, event_id, timestamp, data'), copy(eventParts, 'seq, part, text')],
    deleteAfter: `${sql.deleteThrough(events, 'primary')} where ${SESSION_WHERE} and seq > ?`,
    update: `update ${events} set timestamp = ?, data = ? where ${SESSION_WHERE} and seq = ?`,
  };
}
