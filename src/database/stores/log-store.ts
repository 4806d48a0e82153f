import { sessionIdentity, type SessionKey } from '../../model/keys.js';
import { SESSION_TREE_SEPARATOR } from '../../model/session-tree.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import { SESSION_WHERE, sessionKeyOf, sessionValues, type SessionKeyRow, type Tables } from '../tables.js';
import type { EventParts } from './event-parts.js';

/** An event as the log reads it. */
export interface LoggedEvent {
  session: SessionKey;
  seq: number;
  /** Null until the event has one. */
  position: number | null;
  /** Null where the row has lost its content, undefined where the event was deleted while it was read. */
  json: string | null | undefined;
}

/** The conditions of a filter that are columns. */
export interface LogColumns {
  appName?: string | undefined;
  userId?: string | undefined;
  sessionId?: string | undefined;
  sessionTree?: string | undefined;
  afterTimestamp?: number | undefined;
}

/** Events after one position, up to and including another. */
export interface LogRange {
  after: number;
  upTo: number;
  limit: number;
}

/** The same with the numbers of one session. */
export interface SessionLogRange extends LogRange {
  /** The session must still be this one. */
  incarnation: string;
  /** Only events later than this, in ms. */
  afterTimestamp?: number | undefined;
}

/** How far a log goes. */
export interface LogHead {
  position: number;
  /** Whether there are committed events without a position. */
  isPending: boolean;
}

/** How many events get their positions in one transaction. */
const POSITIONED_AT_ONCE = 500;

const POSITION = 'position';

/** The statements of the event log. */
export class LogStore {
  readonly #dialect: Dialect;
  readonly #tables: Tables;
  readonly #parts: EventParts;
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables, parts: EventParts) {
    this.#dialect = dialect;
    this.#tables = tables;
    this.#parts = parts;
    this.#text = texts(dialect, tables);
  }

  /** What notifications of commits are called; undefined where the database has none. */
  get channel(): string | undefined {
    return this.#dialect.push?.channel(this.#tables);
  }

  /** Tells the listeners of other connections of a commit, where the database can. */
  async notify(sql: Sql): Promise<void> {
    const { push } = this.#dialect;
    if (push) await sql.all(push.notify, [push.channel(this.#tables)]);
  }

  /** Changes when anything was written; undefined where the database has no cheaper sign than `head`. */
  async changeMark(sql: Sql): Promise<string | undefined> {
    if (this.#dialect.changeMark === undefined) return undefined;
    const [row] = await sql.all<{ mark: string }>(this.#dialect.changeMark);
    return row?.mark;
  }

  async head(sql: Sql): Promise<LogHead> {
    const [row] = await sql.all<{ head: number | string; pending: number | boolean }>(this.#text.selectHead, [
      POSITION,
    ]);
    return { position: Number(row?.head), isPending: Boolean(row?.pending) };
  }

  /**
   * Gives positions to events that are committed and have none, in a transaction of its own. Writers don't wait for
   * it: it locks rows that are written already, and the counter, which only readers of the log use.
   *
   * @returns the last position, and whether there may be more to do.
   */
  async assignPositions(sql: Sql): Promise<LogHead> {
    // First the lock, then the look: what another reader has positioned meanwhile is seen, and not positioned again.
    const last = await this.#dialect.increment(sql, this.#tables.counters, POSITION, 0);
    const rows = await sql.all<KeyRow & { timestamp: number }>(this.#text.selectPending, [POSITIONED_AT_ONCE]);
    if (rows.length === 0) return { position: last, isPending: false };

    const placed = inTime(rows).map((row, i) => [row.app_name, row.user_id, row.session_id, row.seq, last + 1 + i]);
    await sql.run(this.#dialect.setPositions(this.#tables.events, placed.length), placed.flat());
    const position = await this.#dialect.increment(sql, this.#tables.counters, POSITION, placed.length);
    return { position, isPending: rows.length === POSITIONED_AT_ONCE };
  }

  /** Events of all sessions, in the order of their positions. */
  async events(sql: Sql, { after, upTo, limit }: LogRange, columns: LogColumns): Promise<LoggedEvent[]> {
    const { where, values } = conditions(columns);
    return this.#loggedEvents(sql, `${this.#text.selectEvents}${where} order by position limit ?`, [
      after,
      upTo,
      ...values,
      limit,
    ]);
  }

  /** Events of one session, in append order; none when the session is gone, or another under its id. */
  async sessionEvents(
    sql: Sql,
    session: SessionKey,
    { incarnation, after, upTo, limit, afterTimestamp }: SessionLogRange,
  ): Promise<LoggedEvent[]> {
    const { where, values } = conditions({ afterTimestamp });
    return this.#loggedEvents(sql, `${this.#text.selectSessionEvents}${where} order by seq limit ?`, [
      ...sessionValues(session),
      after,
      upTo,
      ...sessionValues(session),
      incarnation,
      ...values,
      limit,
    ]);
  }

  async #loggedEvents(sql: Sql, text: string, values: readonly unknown[]): Promise<LoggedEvent[]> {
    const events: LoggedEvent[] = [];
    for (const row of await sql.all<EventRow>(text, values)) {
      const session = sessionKeyOf(row);
      events.push({
        session,
        seq: row.seq,
        position: row.position === null ? null : Number(row.position),
        json: row.data ?? (await this.#parts.read(sql, session, row.seq)),
      });
    }
    return events;
  }
}

interface KeyRow extends SessionKeyRow {
  seq: number;
}

interface EventRow extends KeyRow {
  position: number | string | null;
  data: string | null;
}

/** By time across sessions, and by number inside one, whatever the clocks of its writers. */
function inTime<Row extends KeyRow & { timestamp: number }>(rows: readonly Row[]): Row[] {
  const latest = new Map<string, number>();
  return rows
    .map((row) => {
      const session = sessionIdentity(sessionKeyOf(row));
      const time = Math.max(row.timestamp, latest.get(session) ?? row.timestamp);
      latest.set(session, time);
      return { row, time };
    })
    .sort((a, b) => a.time - b.time)
    .map(({ row }) => row);
}

function conditions({ appName, userId, sessionId, sessionTree, afterTimestamp }: LogColumns): {
  where: string;
  values: unknown[];
} {
  const all: [boolean, string, unknown[]][] = [
    [appName !== undefined, 'app_name = ?', [appName]],
    [userId !== undefined, 'user_id = ?', [userId]],
    [sessionId !== undefined, 'session_id = ?', [sessionId]],
    // A range instead of `like`, which has characters of its own, and on SQLite does not tell `A` from `a`.
    [
      sessionTree !== undefined,
      '(session_id = ? or (session_id >= ? and session_id < ?))',
      [sessionTree, `${sessionTree}${SESSION_TREE_SEPARATOR}`, `${sessionTree}${AFTER_SEPARATOR}`],
    ],
    [afterTimestamp !== undefined, 'timestamp > ?', [afterTimestamp]],
  ];
  const given = all.filter(([isGiven]) => isGiven);
  return {
    where: given.map(([, text]) => ` and ${text}`).join(''),
    values: given.flatMap(([, , values]) => values),
  };
}

/** The next after all that begins with the separator. */
const AFTER_SEPARATOR = SESSION_TREE_SEPARATOR.replace(/.$/, (last) => String.fromCharCode(last.charCodeAt(0) + 1));

function texts(dialect: Dialect, { sessions, events, counters }: Tables) {
  const select = `select position, app_name, user_id, session_id, seq, ${dialect.jsonText('data')} as data from ${events}`;
  return {
    selectHead: `select coalesce((select value from ${counters} where name = ?), 0) as head,
      exists (select 1 from ${events} where position is null) as pending`,
    // By number across sessions: of each session the first ones come first, so that a part of them leaves no gap.
    selectPending: `select app_name, user_id, session_id, seq, timestamp from ${events}
      where position is null order by position, seq limit ?`,
    selectEvents: `${select} where position > ? and position <= ?`,
    selectSessionEvents: `${select} where ${SESSION_WHERE} and seq > ? and seq <= ?
      and exists (select 1 from ${sessions} where ${SESSION_WHERE} and incarnation = ?)`,
  };
}
