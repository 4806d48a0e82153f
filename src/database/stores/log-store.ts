import { ofEvent, type Undecodable } from '../../model/codec.js';
import type { StoredTexts, Undecoded } from '../../model/stored-texts.js';
import type { SessionKey } from '../../model/keys.js';
import { historyText, type CompleteLogPosition, type LogBoundary, type LogPosition } from '../../model/log-history.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  originOf,
  isSameSession,
  sessionKeyOf,
  sessionStillExists,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { numberOf, optionalNumberOf, optionalTextOf, textOf } from '../sql/row-values.js';
import type { EventParts } from '../dialects/event-parts.js';
import { conditions, type LogColumns, type LogRange } from './log-columns.js';
import { CHANGE, EPOCH, POSITION, endsIn, selectNewestWriters, type CounterRow } from './log-counters.js';

/** An event as the log reads it. */
export interface LoggedEvent {
  session: SessionKey;
  seq: number;
  /** Null until the event has one. */
  position: number | null;
  /** Null where the row has lost its content; undefined where the event was deleted while it was read, or its session is soft-deleted. */
  json: string | null | undefined;
  /** Why it cannot be decoded. */
  undecodable?: Undecodable | undefined;
}

/** The same as it is stored. */
export interface StoredLogEvent {
  session: SessionKey;
  seq: number;
  position: number | null;
  id: string;
  /** Of the session. */
  origin: string;
  /** As `json` of `LoggedEvent`. */
  text: string | null | undefined;
}

/** Events of one session, by their numbers. */
interface SessionLogRange extends LogRange {
  /** The session must still be this one. */
  incarnation: string;
  /** Only events later than this, in ms. */
  afterTimestamp?: number | undefined;
}

/** How far a log goes. */
export interface LogHead extends CompleteLogPosition {
  /** Whether there are committed events without a position. */
  isPending: boolean;
}

/** In the row that says whether something has no position. */
const PENDING = 'pending';

/** How far the log goes, and its events. */
export class LogStore {
  readonly #dialect: Dialect;
  readonly #tables: Tables;
  readonly #parts: EventParts;
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables, parts: EventParts) {
    this.#dialect = dialect;
    this.#tables = tables;
    this.#parts = parts;
    this.#text = texts(tables);
  }

  /** What notifications of commits are called; undefined where the database has none. */
  get channel(): string | undefined {
    return this.#dialect.push?.channel(this.#tables);
  }

  /** Notifies the listeners of other connections of a commit, where the database can. */
  async notify(sql: Sql): Promise<void> {
    const { push } = this.#dialect;
    if (push) await sql.all(push.notify, [push.channel(this.#tables)]);
  }

  get hasChangeCounter(): boolean {
    return this.#dialect.sql.changeCounter !== undefined;
  }

  /** Changes when anything was written; undefined where the database has no cheaper sign than `head`. */
  async changeCounter(sql: Sql): Promise<string | undefined> {
    const { changeCounter } = this.#dialect.sql;
    if (changeCounter === undefined) return undefined;
    const [row] = await sql.all<{ counter: string }>(changeCounter);
    return row && textOf(row.counter);
  }

  async head(sql: Sql): Promise<LogHead> {
    const rows = await sql.all<CounterRow>(this.#text.selectHead, [POSITION, EPOCH, CHANGE]);
    const counters = new Map(rows.map(({ name, value }) => [name, numberOf(value)]));
    return {
      position: counters.get(POSITION) ?? 0,
      epoch: counters.get(EPOCH) ?? 0,
      change: counters.get(CHANGE) ?? 0,
      history: historyText(endsIn(rows)),
      isPending: counters.get(PENDING) === 1,
    };
  }

  /** Begins an epoch at the last position there is. Positions that are given from now on belong to it. */
  async beginEpoch(sql: Sql): Promise<Pick<LogPosition, 'position' | 'epoch'>> {
    const { operations } = this.#dialect;
    const { counters } = this.#tables;
    // Locks the counter, so that nobody gives positions meanwhile.
    const position = await operations.increment(sql, counters, POSITION, 0);
    const epoch = await operations.increment(sql, counters, EPOCH, 1);
    const change = await operations.increment(sql, counters, CHANGE, 0);
    await operations.increment(sql, counters, `${EPOCH} ${epoch}`, position);
    await operations.increment(sql, counters, `${EPOCH} ${epoch} c`, change);
    return { position, epoch };
  }

  /** @returns the boundary where the first epoch after this one began; undefined without one. */
  async endOfEpoch(sql: Sql, epoch: number): Promise<LogBoundary | undefined> {
    const names = [`${EPOCH} ${epoch + 1}`, `${EPOCH} ${epoch + 1} c`];
    const rows = await sql.all<CounterRow>(this.#text.selectTwoCounters, names);
    const [position, change = 0] = names.map((name) => rows.find((row) => row.name === name)?.value);
    return position === undefined ? undefined : { position: numberOf(position), change: numberOf(change) };
  }

  /** Events of all sessions, in the order of their positions; those of soft-deleted sessions without their contents. */
  async events(sql: Sql, range: LogRange, columns: LogColumns): Promise<StoredLogEvent[]> {
    return this.#eventsOfAll(sql, this.#text.selectEvents, range, columns);
  }

  /** The same with the contents of soft-deleted sessions: in the complete log a change says that a session was deleted. */
  async eventsWithSoftDeleted(sql: Sql, range: LogRange, columns: LogColumns): Promise<StoredLogEvent[]> {
    return this.#eventsOfAll(sql, this.#text.selectAllEvents, range, columns);
  }

  #eventsOfAll(
    sql: Sql,
    select: string,
    { after, upTo, limit }: LogRange,
    columns: LogColumns,
  ): Promise<StoredLogEvent[]> {
    const { where, values } = conditions(columns);
    return this.#storedEvents(sql, `${select}${where} order by position limit ?`, [after, upTo, ...values, limit]);
  }

  /** @returns one event; undefined when it is gone. */
  async event(sql: Sql, session: SessionKey, seq: number): Promise<StoredLogEvent | undefined> {
    const [event] = await this.#storedEvents(sql, this.#text.selectEvent, [...sessionValues(session), seq]);
    return event;
  }

  /** Events of one session, in append order; none when the session is gone, or another under its id. */
  async sessionEvents(
    sql: Sql,
    session: SessionKey,
    { incarnation, after, upTo, limit, afterTimestamp }: SessionLogRange,
  ): Promise<StoredLogEvent[]> {
    const { where, values } = conditions({ afterTimestamp });
    return this.#storedEvents(sql, `${this.#text.selectSessionEvents}${where} order by seq limit ?`, [
      ...sessionValues(session),
      after,
      upTo,
      ...sessionValues(session),
      incarnation,
      ...values,
      limit,
    ]);
  }

  async #storedEvents(sql: Sql, select: string, values: readonly unknown[]): Promise<StoredLogEvent[]> {
    const events: StoredLogEvent[] = [];
    for (const row of await sql.all<EventRow>(select, values)) {
      const session = sessionKeyOf(row);
      const seq = numberOf(row.seq);
      const origin = optionalTextOf(row.origin) ?? '';
      const isSoftDeleted = row.origin === SOFT_DELETED;
      const text = isSoftDeleted
        ? undefined
        : (optionalTextOf(row.data) ?? (await this.#parts.read(sql, session, seq)));
      events.push({
        session,
        seq,
        position: optionalNumberOf(row.position) ?? null,
        id: textOf(row.event_id),
        origin,
        text,
      });
    }
    return events;
  }
}

export const loggedEventsOf =
  (stored: readonly StoredLogEvent[]): Undecoded<LoggedEvent[]> =>
  (texts) =>
    stored.map((event) => loggedEventOf(texts, event));

export function loggedEventOf(
  texts: StoredTexts,
  { session, seq, position, id, origin, text }: StoredLogEvent,
): LoggedEvent {
  const event = { session, seq, position };
  if (typeof text !== 'string') return { ...event, json: text };
  const json = texts.decode(text, () => ofEvent({ ...session, origin }, id));
  return typeof json === 'string' ? { ...event, json } : { ...event, json: null, undecodable: json };
}

/** In place of the origin of a session that is soft-deleted. */
const SOFT_DELETED = 'soft-deleted, longer than any origin can be';

interface EventRow extends SessionKeyRow {
  seq: number;
  position: number | string | null;
  data: string | null;
  event_id: string;
  /** What is encoded is bound to it. Null where the session is gone. */
  origin: string | null;
}

function texts(tables: Tables) {
  const { sessions, events, changes, counters, select } = tables;
  const counter = `select name, value from ${counters} where name = ?`;
  const logged = `select position, ${SESSION_COLUMNS}, seq, event_id, ${select.data} as data,
    ${originOf(tables, 'e')} as origin from ${events} as e`;
  // Ordered, so that it is read from the index: while much had no position PostgreSQL took statistics by which `exists` would
  // find it sooner in the table, and reads all of the table where nothing is pending.
  const firstOf = (table: string, column: string, next: string) =>
    `(select 1 from ${table} where ${column} is null order by ${column}, ${next} limit 1)`;
  return {
    selectTwoCounters: `select name, value from ${counters} where name in (?, ?)`,
    selectHead: `${counter} union all ${counter} union all ${counter}
      union all ${selectNewestWriters(tables)}
      union all select '${PENDING}', case when ${firstOf(events, 'position', 'seq')} is not null or
      ${firstOf(changes, 'number', 'change_id')} is not null then 1 else 0 end`,
    // Selected, not filtered: as a condition it makes servers read the whole log, or all sessions, for one batch.
    selectEvents: `select position, ${SESSION_COLUMNS}, seq, event_id, ${select.data} as data,
      (select case when s.status = 'active' then s.origin else '${SOFT_DELETED}' end from ${sessions} as s
        where ${isSameSession('s', 'e')}) as origin
      from ${events} as e where position > ? and position <= ?`,
    selectAllEvents: `${logged} where position > ? and position <= ?`,
    selectEvent: `${logged} where ${SESSION_WHERE} and seq = ?`,
    selectSessionEvents: `${logged} where ${SESSION_WHERE} and seq > ? and seq <= ?
      and ${sessionStillExists(tables)}`,
  };
}
