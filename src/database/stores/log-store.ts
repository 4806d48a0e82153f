import { randomBytes } from 'node:crypto';
import { sessionIdentity, type SessionKey } from '../../model/keys.js';
import {
  WRITER_LENGTH,
  historyText,
  inHistoryOrder,
  isBefore,
  isSameBoundary,
  type CompleteLogPosition,
  type HistoryEnd,
  type LogBoundary,
  type LogPosition,
} from '../../model/log-history.js';
import { inLogOrder } from '../../model/log-order.js';
import { SESSION_TREE_SEPARATOR } from '../../model/session-tree.js';
import type { Dialect } from '../dialects/dialect.js';
import type { Sql } from '../sql/sql.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  placeholderRows,
  placeholders,
  sessionColumnsOf,
  sessionKeyOf,
  sessionStillExists,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { booleanOf, numberOf, optionalNumberOf, optionalTextOf, textOf } from '../sql/row-values.js';
import type { ChangeKind } from './change-store.js';
import type { EventParts } from './event-parts.js';

/** An event as the log reads it. */
export interface LoggedEvent {
  session: SessionKey;
  seq: number;
  /** Null until the event has one. */
  position: number | null;
  /** Null where the row has lost its content; undefined where the event was deleted while it was read, or its session is soft-deleted. */
  json: string | null | undefined;
}

/** A change as the log reads it. */
export interface LoggedChange {
  /** Ids are empty where the change is not of one session. */
  session: SessionKey;
  id: number;
  kind: ChangeKind;
  seq: number;
  eventSeq: number | null;
  /** The position of the event that it follows. */
  position: number;
  /** Its number among the changes. */
  number: number;
  data: string | null;
  /**
   * Of a creation, a deletion and a rewind: whether events of the session that were written after it come before it in the
   * log. Somebody who does not know of changes has given them their positions: a process of an earlier version.
   */
  isLate: boolean;
}

/** What a rewritten event had before one of its rewritings. */
export interface Rewriting {
  session: SessionKey;
  eventSeq: number;
  changeId: number;
  /** Null where the old content was not recorded. */
  before: string | null;
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
export interface LogHead extends CompleteLogPosition {
  /** Whether there are committed events without a position. */
  isPending: boolean;
}

/** Above any number of an event. */
const NONE = 2 ** 31 - 1;

const POSITION = 'position';
const EPOCH = 'epoch';
const CHANGE = 'change';

/** Of the newest writers of positions, the others have names that begin otherwise: so the newest ones are found at once. */
const WRITER = 'history ';
const FORMER_WRITER = 'former ';

/** How many writers are the newest ones. */
const NEWEST_WRITERS = 16;

/** The statements of the event log. */
export class LogStore {
  /** How many events get their positions in one transaction at most, and how many changes. Tests set a lower number. */
  static positionedAtOnce = 500;

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

  /** @returns how far the log went with the last positions of some writers; without those that the database does not know. */
  async historyEnds(sql: Sql, writers: readonly string[]): Promise<HistoryEnd[]> {
    const names = [WRITER, FORMER_WRITER].flatMap((kind) => writers.flatMap((writer) => namesOf(kind, writer)));
    return endsIn(await sql.all<CounterRow>(`${this.#text.selectCounters} (${placeholders(names.length)})`, names));
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
    const rows = await sql.all<CounterRow>(`${this.#text.selectCounters} (?, ?)`, names);
    const [position, change = 0] = names.map((name) => rows.find((row) => row.name === name)?.value);
    return position === undefined ? undefined : { position: numberOf(position), change: numberOf(change) };
  }

  /**
   * Gives positions to events that are committed and have none, in a transaction of its own. Writers don't wait for
   * it: it locks rows that are written already, and the counter, which only readers of the log use.
   *
   * @param writer what the writer left with its last positions, if it is sure of that.
   * @returns the new head, whether entries without a position may remain, and what this writer stored with the head.
   */
  async assignPositions(
    sql: Sql,
    writer?: HistoryEnd,
  ): Promise<Omit<LogHead, 'epoch'> & { writer: HistoryEnd | undefined }> {
    // The lock comes first, then the query: what another reader has positioned meanwhile is seen, and not positioned again.
    const { counters, events, changes } = this.#tables;
    const last = await this.#dialect.operations.increment(sql, counters, POSITION, 0);
    const { lastChange, ...pending } = await this.#pending(sql);
    let [position, number] = [last, lastChange];
    const ofEvents: unknown[][] = [];
    const ofChanges: { id: unknown; position: number; number: number }[] = [];
    for (const { event, change } of pending.entries) {
      if (event) ofEvents.push([event.app_name, event.user_id, event.session_id, event.seq, ++position]);
      else ofChanges.push({ id: change.id, position, number: ++number });
    }
    if (ofEvents.length > 0) await sql.run(this.#dialect.sql.setPositions(events, ofEvents.length), ofEvents.flat());
    if (ofChanges.length > 0) {
      // With `else`, which tells PostgreSQL the type.
      const each = 'when ? then ? '.repeat(ofChanges.length);
      await sql.run(
        `${this.#dialect.sql.updateThrough(changes, 'primary')} set position = case change_id ${each}else position end,
          number = case change_id ${each}else number end
          where change_id in (${placeholders(ofChanges.length)})`,
        [
          ...ofChanges.flatMap(({ id, position }) => [id, position]),
          ...ofChanges.flatMap(({ id, number }) => [id, number]),
          ...ofChanges.map(({ id }) => id),
        ],
      );
    }
    if (position > last) await this.#dialect.operations.increment(sql, counters, POSITION, position - last);
    if (number > lastChange) await this.#dialect.operations.increment(sql, counters, CHANGE, number - lastChange);
    const [before, boundary] = [
      { position: last, change: lastChange },
      { position, change: number },
    ];
    return { ...boundary, isPending: pending.isCut, ...(await this.#recordHistory(sql, writer, before, boundary)) };
  }

  /** Under the lock of the position's counter: notes who has brought the log from one boundary to another. */
  async #recordHistory(
    sql: Sql,
    writer: HistoryEnd | undefined,
    before: LogBoundary,
    boundary: LogBoundary,
  ): Promise<{ history: string; writer: HistoryEnd | undefined }> {
    const { counters } = this.#tables;
    const newest = endsIn(await sql.all<CounterRow>(this.#text.selectNewestWriters));
    if (isSameBoundary(before, boundary)) return { history: historyText(newest), writer };
    const isNewest = newest.some((end) => end.writer === writer?.writer);
    const [stored] = writer
      ? (isNewest ? newest : await this.historyEnds(sql, [writer.writer])).filter((end) => end.writer === writer.writer)
      : [];
    // Where the database does not hold what the writer left, it went back: the same name would give the same boundaries twice.
    const goesOn = writer && stored && isSameBoundary(stored, writer) && !isBefore(before, stored);
    const end = { ...boundary, writer: goesOn ? writer.writer : newWriter() };
    const ends = inHistoryOrder([end, ...newest.filter((other) => other.writer !== end.writer)]);
    const former = ends.slice(NEWEST_WRITERS);
    const moved = [
      ...former.flatMap((each) => namesOf(WRITER, each.writer)),
      ...(goesOn && !isNewest ? namesOf(FORMER_WRITER, writer.writer) : []),
    ];
    if (moved.length > 0) await sql.run(`delete from ${counters} where name in (${placeholders(moved.length)})`, moved);
    const rows = [...countersOf(WRITER, end), ...former.flatMap((each) => countersOf(FORMER_WRITER, each))];
    await sql.run(
      `insert into ${counters} (name, value) values ${placeholderRows(rows.length, 2)} ${this.#dialect.sql.onSameCounter}`,
      rows.flat(),
    );
    return { history: historyText(ends.slice(0, NEWEST_WRITERS)), writer: end };
  }

  /**
   * Some of what is committed and has no position, in the order in which it gets them, and the number of the last change. Of
   * each session these are its first entries: what is left for the next transaction comes after them (contract J2).
   */
  async #pending(sql: Sql): Promise<{ entries: PendingEntry[]; isCut: boolean; lastChange: number }> {
    const limit = LogStore.positionedAtOnce;
    const read = (text: string, limits: readonly number[]) => this.#pendingRows(sql, text, limits);
    let rows = await read(this.#text.selectPending, [limit, limit]);
    const areChangesCut = rows.changes.length === limit;
    // An event must not get its position before a change of its session that did not fit in.
    if (areChangesCut) rows = await read(this.#text.selectPendingAndOwn, [limit, limit, limit, limit]);
    const { own, lastChange } = rows;
    // Sessions whose changes were not read wait. The two parts of the statement may take other sessions from events with
    // equal numbers.
    const events = areChangesCut ? rows.events.filter((event) => own.has(sessionIdOf(event))) : rows.events;
    const ofEvents = [...own.values()].flat();
    const others = rows.changes.filter((change) => !own.has(sessionIdOf(change)));
    const changes = [...ofEvents, ...others.slice(0, Math.max(0, limit - ofEvents.length))];
    const areEventsCut = rows.events.length === limit;
    // All pending events with lower numbers than this are at hand.
    const complete = areEventsCut ? (rows.events.at(-1)?.seq ?? 0) : Infinity;
    return { entries: inTime(events, changes, complete), isCut: areEventsCut || areChangesCut, lastChange };
  }

  async #pendingRows(sql: Sql, text: string, limits: readonly number[]): Promise<PendingRows> {
    const [ofEvents, ofChanges, ...rest] = limits;
    const read = await sql.all<PendingRow>(text, [ofEvents, ofChanges, CHANGE, ...rest]);
    const rows = read.map((row) => ({
      ...row,
      id: numberOf(row.id),
      seq: numberOf(row.seq),
      timestamp: numberOf(row.timestamp),
      later: numberOf(row.later),
    }));
    const own = new Map<string, PendingRow[]>();
    for (const row of rows.filter(({ kind }) => kind === 'own')) {
      const id = sessionIdOf(row);
      const changes = own.get(id) ?? [];
      own.set(id, changes);
      if (row.id > 0) changes.push(row);
    }
    for (const changes of own.values()) changes.sort((a, b) => a.id - b.id);
    return {
      events: rows.filter(({ kind }) => kind === 'event').sort((a, b) => a.seq - b.seq),
      changes: rows.filter(({ kind }) => kind === 'change').sort((a, b) => a.id - b.id),
      own,
      lastChange: rows.find(({ kind }) => kind === 'counter')?.id ?? 0,
    };
  }

  /**
   * Events of all sessions, in the order of their positions.
   *
   * @param withoutSoftDeleted whether the contents of soft-deleted sessions are left out.
   */
  async events(
    sql: Sql,
    { after, upTo, limit }: LogRange,
    columns: LogColumns,
    withoutSoftDeleted: boolean,
  ): Promise<LoggedEvent[]> {
    const { where, values } = conditions(columns);
    const select = withoutSoftDeleted ? this.#text.selectEvents : this.#text.selectAllEvents;
    return this.#loggedEvents(sql, `${select}${where} order by position limit ?`, [after, upTo, ...values, limit]);
  }

  /** The changes after one number, up to and including another. */
  async changes(sql: Sql, { after, upTo, limit }: LogRange, columns: LogColumns): Promise<LoggedChange[]> {
    const { where, values } = conditions({ ...columns, afterTimestamp: undefined });
    const text = `${this.#text.selectChanges}${where} order by number limit ?`;
    const rows = await sql.all<ChangeRow>(text, [after, upTo, ...values, limit]);
    return rows.map((row) => ({
      session: sessionKeyOf(row),
      id: numberOf(row.change_id),
      kind: row.kind,
      seq: numberOf(row.seq),
      eventSeq: optionalNumberOf(row.event_seq) ?? null,
      position: numberOf(row.position),
      number: numberOf(row.number),
      data: optionalTextOf(row.data),
      isLate: (optionalNumberOf(row.next_position) ?? Infinity) <= numberOf(row.position),
    }));
  }

  /** @returns the number of a session's newest event up to a position; undefined when there is none. */
  async newestAt(sql: Sql, session: SessionKey, position: number): Promise<number | undefined> {
    const [row] = await sql.all<{ seq: number | null }>(this.#text.selectNewestAt, [
      ...sessionValues(session),
      position,
    ]);
    return row?.seq ?? undefined;
  }

  /** @returns the number of the last change in front of the event with a position. */
  async changeBefore(sql: Sql, position: number): Promise<number> {
    if (position === 0) return 0;
    const [row] = await sql.all<{ number: number | string }>(this.#text.selectChangeBefore, [position]);
    return row ? numberOf(row.number) : 0;
  }

  /** What the rewritten events of some sessions had before, in the order of the rewritings. */
  async rewritings(sql: Sql, sessions: readonly SessionKey[]): Promise<Rewriting[]> {
    if (sessions.length === 0) return [];
    const where = sessions.map(() => `(${SESSION_WHERE})`).join(' or ');
    const rows = await sql.all<ChangeRow>(
      `${this.#text.selectRewritings} and (${where}) order by change_id`,
      sessions.flatMap(sessionValues),
    );
    return rows.map((row) => ({
      session: sessionKeyOf(row),
      eventSeq: numberOf(row.event_seq),
      changeId: numberOf(row.change_id),
      before: optionalTextOf(row.data),
    }));
  }

  /** @returns one event; undefined when it is gone. */
  async event(sql: Sql, session: SessionKey, seq: number): Promise<LoggedEvent | undefined> {
    const [event] = await this.#loggedEvents(sql, this.#text.selectEvent, [...sessionValues(session), seq]);
    return event;
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
      const seq = numberOf(row.seq);
      // There is none in the log of one session.
      const isSoftDeleted = row.is_deleted !== undefined && row.is_deleted !== null && booleanOf(row.is_deleted);
      const json = isSoftDeleted
        ? undefined
        : (optionalTextOf(row.data) ?? (await this.#parts.read(sql, session, seq)));
      events.push({ session, seq, position: optionalNumberOf(row.position) ?? null, json });
    }
    return events;
  }
}

interface CounterRow {
  name: string;
  value: number | string;
}

/** In the row that says whether something has no position. */
const PENDING = 'pending';

const newWriter = () => randomBytes((WRITER_LENGTH * 3) / 4).toString('base64url');

/** The counters of a writer: of positions and of changes. */
const namesOf = (kind: string, writer: string) => [`${kind}${writer} p`, `${kind}${writer} c`];

function countersOf(kind: string, { writer, position, change }: HistoryEnd): [string, number][] {
  return namesOf(kind, writer).map((name, i) => [name, i === 0 ? position : change]);
}

function endsIn(rows: readonly CounterRow[]): HistoryEnd[] {
  const counters = new Map(rows.map(({ name, value }) => [name, numberOf(value)]));
  const ends = [WRITER, FORMER_WRITER].flatMap((kind) =>
    [...counters].flatMap(([name, position]) => {
      if (!name.startsWith(kind) || !name.endsWith(' p')) return [];
      const writer = name.slice(kind.length, -2);
      const [, changes = ''] = namesOf(kind, writer);
      return [{ writer, position, change: counters.get(changes) ?? 0 }];
    }),
  );
  return inHistoryOrder(ends);
}

interface KeyRow extends SessionKeyRow {
  seq: number;
}

interface EventRow extends KeyRow {
  position: number | string | null;
  data: string | null;
  /** Whether the session is soft-deleted; not selected in the log of one session, where it is not needed. */
  is_deleted?: number | string | null;
}

/** An event or a change without a position, or the counter of changes. */
interface PendingRow extends KeyRow {
  /** `own` is a change of a session that has events without a position. */
  kind: 'event' | 'change' | 'own' | 'counter';
  /** Of a change; the value of the counter; 0 where a session with events has no changes. */
  id: number;
  timestamp: number;
  /** The lowest `seq` of its session's later changes without a position; `NONE` where there are none, or they are at hand. */
  later: number;
}

interface PendingRows {
  /** By number. */
  events: PendingRow[];
  /** In the order in which they were made. */
  changes: PendingRow[];
  /** By session: the first changes of those that have events. */
  own: ReadonlyMap<string, PendingRow[]>;
  lastChange: number;
}

/** An event or a change. */
type PendingEntry = { event: PendingRow; change?: undefined } | { event?: undefined; change: PendingRow };

interface ChangeRow extends KeyRow {
  change_id: number | string;
  kind: ChangeKind;
  event_seq: number | null;
  position: number | string;
  number: number | string;
  data: string | null;
  /** Of the session's first event after the change's number; null without one, or where it does not matter. */
  next_position: number | string | null;
}

const sessionIdOf = (row: KeyRow) => sessionIdentity(sessionKeyOf(row));

/**
 * By time across sessions; inside one as it happened, whatever the clocks of its writers.
 *
 * @param events by number; of each session the first ones.
 * @param changes in the order in which they were made; of each session the first ones.
 * @param complete all events with lower numbers are among `events`.
 * @returns what comes before all that is not at hand.
 */
function inTime(events: readonly PendingRow[], changes: readonly PendingRow[], complete: number): PendingEntry[] {
  const sessions = new Map<string, { events: PendingRow[]; changes: PendingRow[] }>();
  const of = (row: KeyRow) => {
    const id = sessionIdOf(row);
    const session = sessions.get(id) ?? { events: [], changes: [] };
    sessions.set(id, session);
    return session;
  };
  for (const event of events) of(event).events.push(event);
  for (const change of changes) of(change).changes.push(change);

  const timed: { entry: PendingEntry; time: number }[] = [];
  for (const session of sessions.values()) {
    let time = -Infinity;
    const later = session.changes.at(-1)?.later ?? NONE;
    // The lowest number that the session had at a change or later: events up to there come before the change.
    const follows = new Map<PendingRow, number>();
    let lowest = later;
    for (const change of session.changes.toReversed()) {
      lowest = Math.min(lowest, change.seq);
      follows.set(change, lowest);
    }
    const events = session.events.filter(({ seq }) => seq <= later);
    for (const entry of inLogOrder(events, session.changes)) {
      if (entry.change && (follows.get(entry.change) ?? 0) >= complete) break;
      time = Math.max(time, (entry.event ?? entry.change).timestamp);
      timed.push({ entry, time });
    }
  }
  return timed.sort((a, b) => a.time - b.time).map(({ entry }) => entry);
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

/** The next after all that begins with a text. */
const afterPrefix = (text: string) => text.replace(/.$/, (last) => String.fromCharCode(last.charCodeAt(0) + 1));

const AFTER_SEPARATOR = afterPrefix(SESSION_TREE_SEPARATOR);

function texts(tables: Tables) {
  const { sessions, events, changes, counters, select } = tables;
  const firstEvents = (columns: string) =>
    `select ${columns} from ${events} where position is null order by position, seq limit ?`;
  // Entries are ordered by number across sessions: of each session the first ones come first, so that a part of them leaves no
  // gap.
  // It is one statement, so that both are as of one moment: an event must not get its position before a change that it follows.
  const pending = `select * from (${firstEvents(`'event' as kind, 0 as id, ${SESSION_COLUMNS}, seq, timestamp, ${NONE} as later`)})
      as pending_events
    union all select * from (
      select 'change' as kind, change_id as id, ${SESSION_COLUMNS}, seq, time as timestamp, ${NONE} as later from ${changes}
      where number is null order by number, change_id limit ?) as pending_changes
    union all select 'counter', value, '', '', '', 0, 0, 0 from ${counters} where name = ?`;
  const ofSession = `partition by ${sessionColumnsOf('s')} order by change_id`;
  const counter = `select name, value from ${counters} where name = ?`;
  // The counters are ordered, so that no database reads all of them for a few.
  const newestWriters = `select * from (select name, value from ${counters}
    where name >= '${WRITER}' and name < '${afterPrefix(WRITER)}' order by name limit ${4 * NEWEST_WRITERS}) as writers`;
  const logged = `select position, ${SESSION_COLUMNS}, seq, ${select.data} as data from ${events}`;
  const changed = `select change_id, ${SESSION_COLUMNS}, kind, seq, event_seq, position, number, ${select.data} as data`;
  return {
    selectCounters: `select name, value from ${counters} where name in`,
    selectNewestWriters: newestWriters,
    selectHead: `${counter} union all ${counter} union all ${counter}
      union all ${newestWriters}
      union all select '${PENDING}', case when exists (select 1 from ${events} where position is null) or
      exists (select 1 from ${changes} where number is null) then 1 else 0 end`,
    selectPending: pending,
    // Also the changes of the sessions that have these events: the first one of each session, then the second one of each …
    // `number is null` would let a server without statistics read all changes without a number for each of the sessions.
    selectPendingAndOwn: `${pending}
      union all select * from (
        select 'own' as kind, coalesce(change_id, 0) as id, ${SESSION_COLUMNS}, coalesce(seq, 0) as seq,
          coalesce(time, 0) as timestamp, coalesce(later, ${NONE}) as later from (
          select ${sessionColumnsOf('s')}, change_id, c.seq, time,
            row_number() over (${ofSession}) as nth,
            min(c.seq) over (${ofSession} rows between 1 following and unbounded following) as later
          from (select distinct ${SESSION_COLUMNS} from (${firstEvents(SESSION_COLUMNS)}) as first_events) as s
          left join ${changes} as c on ${isSameSession('c', 's')} and coalesce(c.number, 0) = 0) as numbered
        order by nth, change_id limit ?) as own_changes`,
    selectAllEvents: `${logged} where position > ? and position <= ?`,
    selectEvent: `${logged} where ${SESSION_WHERE} and seq = ?`,
    // The position of the next event is selected for the changes after which an event is not what it was before. Positions
    // of a session's events grow with their numbers, so the first one shows whether there is any.
    selectChanges: `${changed}, case when kind in ('created', 'deleted', 'rewound') then (
        select e.position from ${events} as e where ${isSameSession('e', 'c')} and e.seq > c.seq order by e.seq limit 1)
      end as next_position from ${changes} as c where number > ? and number <= ?`,
    selectNewestAt: `select max(seq) as seq from ${events} where ${SESSION_WHERE} and position <= ?`,
    // From the newest one down: a reader that asks reads those that are passed anyway.
    selectChangeBefore: `select number from ${changes} where position < ? and number > 0 order by number desc limit 1`,
    selectRewritings: `${changed} from ${changes} where event_seq is not null`,
    // Selected, not filtered: as a condition it makes servers read the whole log, or all sessions, for one batch.
    selectEvents: `select position, ${SESSION_COLUMNS}, seq, ${select.data} as data,
      (select case when s.deleted_at is null then 0 else 1 end from ${sessions} as s
        where ${isSameSession('s', 'e')}) as is_deleted
      from ${events} as e where position > ? and position <= ?`,
    selectSessionEvents: `${logged} where ${SESSION_WHERE} and seq > ? and seq <= ?
      and ${sessionStillExists(tables)}`,
  };
}
