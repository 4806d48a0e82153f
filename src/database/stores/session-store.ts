import type { EntityManager } from '@mikro-orm/core';
import type { SessionKey } from '../../model/keys.js';
import { gapsIn, rangesOf, type SeqRange } from '../../model/seq-ranges.js';
import { SCOPES, type Scope, type StateEntries } from '../../model/state.js';
import { appendCondition } from '../dialects/append-condition.js';
import type { AppendBatch, Dialect, OneStatementAppend, Sql, StoredEvent } from '../dialects/dialect.js';
import {
  EVENT_COLUMNS,
  SESSION_WHERE,
  STATE_KEYS,
  ownerValues,
  placeholderRows,
  placeholders,
  rowLength,
  sessionKeyOf,
  sessionValues,
  stateTable,
  tablesOf,
  type SessionKeyRow,
  type Tables,
} from '../tables.js';
import { EventParts } from './event-parts.js';
import { LeaseStore } from './lease-store.js';
import { LogStore } from './log-store.js';

/** A session's row. */
export interface SessionHead {
  /** Which of the sessions that ever had this id it is. */
  incarnation: string;
  lastSeq: number;
  lastUpdateTime: number;
}

/** A session with the state of all three scopes, as of one moment. */
export interface SessionSnapshot extends SessionHead {
  state: StateValue[];
}

export interface StateValue {
  scope: Scope;
  key: string;
  json: string;
}

/** Which of the events of a snapshot are meant. */
export interface EventRange {
  /** Only those with a higher number. */
  after: number;
  /** Only events later than this, in ms. */
  afterTimestamp?: number | undefined;
  /** Only the newest so many. */
  newest?: number | undefined;
}

/** A stored event. */
export interface EventContent {
  seq: number;
  /** Undefined where the row has lost its content. */
  json: string | undefined;
}

/** Events of a snapshot, and what of its numbers is damaged. */
export interface ReadEvents {
  /** In append order. */
  events: EventContent[];
  /** The numbers among those asked for that have no row. */
  missing: SeqRange[];
  /** The numbers of the rows that are above the session's last number. */
  uncounted: SeqRange[];
}

export interface ListedSession extends SessionHead {
  userId: string;
  id: string;
}

export interface SessionPage {
  appName: string;
  userId: string | undefined;
  descending: boolean;
  limit: number | undefined;
  offset: number;
}

/** The statements of the session service, on one database. The text of each is built once. */
export class SessionStore {
  static readonly #stores = new WeakMap<object, Map<string, SessionStore>>();

  readonly #dialect: Dialect;
  readonly #tables: Tables;
  readonly #text: ReturnType<typeof texts>;
  readonly #parts: EventParts;
  readonly leases: LeaseStore;
  readonly log: LogStore;
  readonly #oneStatement: OneStatementAppend | undefined;

  /** The statements for the tables that an `EntityManager` knows; built once for an ORM and schema. */
  static of(em: EntityManager, dialect: Dialect): SessionStore {
    const tables = tablesOf(em);
    const stores = SessionStore.#stores.get(em.getMetadata()) ?? new Map<string, SessionStore>();
    SessionStore.#stores.set(em.getMetadata(), stores);
    const store = stores.get(tables.sessions) ?? new SessionStore(dialect, tables);
    stores.set(tables.sessions, store);
    return store;
  }

  private constructor(dialect: Dialect, tables: Tables) {
    this.#dialect = dialect;
    this.#tables = tables;
    this.#text = texts(dialect, tables);
    this.leases = new LeaseStore(dialect, tables);
    this.#parts = new EventParts(dialect, tables);
    this.log = new LogStore(dialect, tables, this.#parts);
    this.#oneStatement = dialect.appendInOneStatement?.(tables);
  }

  /** Whether `append` is one statement, which needs no transaction around it. */
  appendsInOneStatement(batch: AppendBatch): boolean {
    return this.#oneStatement?.takes(batch, false) ?? false;
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

  /** Fails with the database's unique violation when the session exists. */
  async create(sql: Sql, session: SessionKey, head: SessionHead, state: StateEntries): Promise<void> {
    await sql.run(this.#text.insertSession, [
      ...sessionValues(session),
      head.incarnation,
      head.lastSeq,
      head.lastUpdateTime,
      head.lastUpdateTime,
    ]);
    await this.setState(sql, session, state);
  }

  async head(sql: Sql, session: SessionKey): Promise<SessionHead | undefined> {
    const [row] = await sql.all<HeadRow>(this.#text.selectHead, sessionValues(session));
    return row && headOf(row);
  }

  /** Of several sessions those that exist. */
  async heads(sql: Sql, sessions: readonly SessionKey[]): Promise<{ key: SessionKey; head: SessionHead }[]> {
    const where = sessions.map(() => `(${SESSION_WHERE})`).join(' or ');
    const rows = await sql.all<HeadRow & SessionKeyRow>(
      `${this.#text.selectHeads} ${where}`,
      sessions.flatMap(sessionValues),
    );
    return rows.map((row) => ({ key: sessionKeyOf(row), head: headOf(row) }));
  }

  /** Session and state in one statement, so that they fit together (contract D8). */
  async snapshot(sql: Sql, session: SessionKey): Promise<SessionSnapshot | undefined> {
    const rows = await sql.all<HeadRow & StateRow>(this.#text.selectSnapshot, [
      ...sessionValues(session),
      ...SCOPES.flatMap((scope) => ownerValues(session, scope)),
    ]);
    const head = rows.find((row) => row.kind === 'head');
    return head && { ...headOf(head), state: rows.filter((row) => row.kind !== 'head').map(stateValueOf) };
  }

  /** @returns undefined when the session is gone since the snapshot, or another under its id. */
  async events(
    sql: Sql,
    session: SessionKey,
    snapshot: SessionSnapshot,
    { after, afterTimestamp, newest }: EventRange,
  ): Promise<ReadEvents | undefined> {
    const { incarnation, lastSeq } = snapshot;
    const isFiltered = afterTimestamp !== undefined;
    const first = newest === undefined || isFiltered ? after : Math.max(after, lastSeq - newest);
    const key = sessionValues(session);
    const rows = isFiltered
      ? await this.#eventsSince(sql, session, snapshot, first, afterTimestamp, newest)
      : await sql.all<EventRow>(this.#text.selectEvents, [...key, first, lastSeq, ...key, ...key, incarnation]);
    if (rows.length === 0 && first >= lastSeq) return { events: [], missing: [], uncounted: [] };

    const counted = rows.filter(({ seq }) => seq <= lastSeq);
    const later = isFiltered ? counted.filter((row) => Number(row.is_later) === 1) : counted;
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

    // Rows show that the session was there; without any, and for what was read after them, it has to be looked for.
    const isThere = rows.length > 0 && asked.every(({ data }) => data !== null) && !(isFiltered && missing.length > 0);
    return isThere || (await this.head(sql, session))?.incarnation === incarnation
      ? { events, missing, uncounted }
      : undefined;
  }

  /** Rows with a filter by time, and besides the session's last one, which shows that none is missing behind the others. */
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
      const rows = await sql.all<EventRow>(this.#text.selectNewestEventsSince, [...values, newest + 1]);
      // Rows above the session's last number take the places of others.
      if (rows.every(({ seq }) => seq <= lastSeq)) return rows.reverse();
    }
    return sql.all<EventRow>(this.#text.selectEventsSince, values);
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
      asked.filter(({ seq, follows }) => seq > after + 1 && Number(follows) === 0).map(({ seq }) => seq),
    );
    if (!isLastThere) behindGaps.add(lastSeq + 1);
    if (behindGaps.size === 0) return [];
    const gaps = gapsIn(await this.#numbers(sql, session, after, lastSeq), after, lastSeq);
    return gaps.filter(({ to }) => behindGaps.has(to + 1));
  }

  /** @returns the highest number among the session's events, whatever its row says; 0 without events. */
  async highestSeq(sql: Sql, session: SessionKey): Promise<number> {
    const [row] = await sql.all<{ seq: number }>(this.#text.selectHighestNumber, sessionValues(session));
    return row?.seq ?? 0;
  }

  /** The numbers of the events that have a row, in order. */
  async #numbers(sql: Sql, session: SessionKey, after: number, upTo: number): Promise<number[]> {
    const rows = await sql.all<{ seq: number }>(this.#text.selectNumbers, [...sessionValues(session), after, upTo]);
    return rows.map(({ seq }) => seq);
  }

  /**
   * @param isLocked whether the caller holds the session's lock.
   * @returns the number and content of a stored event.
   */
  async event(sql: Sql, session: SessionKey, eventId: string, isLocked: boolean): Promise<EventContent | undefined> {
    const text = isLocked ? this.#text.selectEventUnderLock : this.#text.selectEvent;
    const [row] = await sql.all<EventRow>(text, [...sessionValues(session), eventId]);
    if (!row) return undefined;
    const json = row.data ?? (await this.#parts.read(sql, session, row.seq, isLocked));
    return { seq: row.seq, json: json ?? undefined };
  }

  /**
   * Appends under the session's lock. Fails with the database's unique violation when an event is stored already.
   *
   * @returns the number of the last event; undefined when the session is missing or not as the batch expects it.
   */
  async append(sql: Sql, batch: AppendBatch): Promise<number | undefined> {
    if (this.#oneStatement?.takes(batch, sql.isInTransaction)) return this.#oneStatement.write(sql, batch);

    const { session, events, lastUpdateTime, state } = batch;
    const lastSeq = await this.#dialect.takeSeq(sql, {
      table: this.#tables.sessions,
      count: events.length,
      lastUpdateTime,
      ...appendCondition(batch, this.#dialect),
    });
    if (lastSeq === undefined) return undefined;

    await this.#insertEvents(sql, session, lastSeq - events.length + 1, events);
    await this.setState(sql, session, state);
    return lastSeq;
  }

  /** Takes the session's lock without a number. @returns undefined when the session is missing. */
  async lock(sql: Sql, session: SessionKey): Promise<SessionHead | undefined> {
    await sql.run(this.#text.lockSession, sessionValues(session));
    const [row] = await sql.all<HeadRow>(this.#text.selectHeadUnderLock, sessionValues(session));
    return row && headOf(row);
  }

  /** Counts the events up to this number as the session's own; for the caller that holds the session's lock. */
  async setLastSeq(sql: Sql, session: SessionKey, lastSeq: number): Promise<void> {
    await sql.run(this.#text.updateLastSeq, [lastSeq, ...sessionValues(session)]);
  }

  /** Gives a stored event another content; for the caller that holds the session's lock. */
  async replaceEvent(sql: Sql, session: SessionKey, seq: number, event: StoredEvent): Promise<void> {
    const inParts = this.#isInParts(event);
    await sql.run(this.#text.updateEvent, [
      event.timestamp,
      inParts ? null : event.json,
      ...sessionValues(session),
      seq,
    ]);
    await sql.run(this.#text.deleteParts, [...sessionValues(session), seq]);
    if (inParts) await this.#insertParts(sql, session, seq, event.json);
  }

  async setLastUpdateTime(sql: Sql, session: SessionKey, time: number): Promise<void> {
    await sql.run(this.#text.updateTime, [time, ...sessionValues(session)]);
  }

  /** @param ownOnly overwrite only what the same event wrote. */
  async setState(sql: Sql, session: SessionKey, state: StateEntries, ownOnly = false): Promise<void> {
    for (const scope of SCOPES) {
      const upsert = ownOnly ? this.#text.upsertOwnState[scope] : this.#text.upsertState[scope];
      for (const packet of this.#packets(session, state[scope])) {
        const [first] = packet;
        if (first) await this.#dialect.refuseTooLarge?.(sql, first.json);
        const rows = packet.map((entry) => [...ownerValues(session, scope), entry.key, entry.json, entry.eventId]);
        await sql.run(
          `${upsert.insert} ${placeholderRows(rows.length, rows[0]?.length ?? 0)} ${upsert.onConflict}`,
          rows.flat(),
        );
      }
    }
  }

  async removeState(sql: Sql, session: SessionKey, state: StateEntries): Promise<void> {
    for (const scope of SCOPES) {
      const keys = state[scope].map(({ key }) => key);
      if (keys.length === 0) continue;
      await sql.run(`${this.#text.deleteState[scope]} (${placeholders(keys.length)})`, [
        ...ownerValues(session, scope),
        ...keys,
      ]);
    }
  }

  async state(sql: Sql, session: SessionKey, scope: Scope): Promise<StateValue[]> {
    return (await sql.all<StateRow>(this.#text.selectState[scope], ownerValues(session, scope))).map(stateValueOf);
  }

  /** Events and session state go by the foreign keys' cascade. */
  async delete(sql: Sql, session: SessionKey): Promise<void> {
    await sql.run(this.#text.deleteSession, sessionValues(session));
  }

  async count(sql: Sql, { appName, userId }: SessionPage): Promise<number> {
    const text = userId === undefined ? this.#text.countOfApp : this.#text.countOfUser;
    const [row] = await sql.all<{ total: number | string | bigint }>(
      text,
      userId === undefined ? [appName] : [appName, userId],
    );
    return Number(row?.total);
  }

  async list(sql: Sql, { appName, userId, descending, limit, offset }: SessionPage): Promise<ListedSession[]> {
    const owner = userId === undefined ? [appName] : [appName, userId];
    const text = this.#text.list[userId === undefined ? 'ofApp' : 'ofUser'][descending ? 'newestFirst' : 'oldestFirst'];
    // An offset needs a limit on MySQL and SQLite; no table is larger than this one.
    const most = limit ?? Number.MAX_SAFE_INTEGER - offset;
    const values = descending ? [...owner, ...owner, offset + most - 1] : owner;
    const rows = await sql.all<ListRow>(text, [...values, most, offset]);
    return rows.map((row) => ({ ...headOf(row), userId: row.user_id, id: row.session_id }));
  }

  /**
   * The state of listed sessions, of their users and of their app, by `ownerKey`.
   *
   * @param all whether these are all the sessions there are, which spares naming them.
   */
  async statesOf(
    sql: Sql,
    { appName, userId }: SessionPage,
    sessions: readonly ListedSession[],
    all: boolean,
  ): Promise<Map<string, StateValue[]>> {
    const states = new Map<string, StateValue[]>();
    if (sessions.length === 0) return states;

    const owner = userId === undefined ? [appName] : [appName, userId];
    const users = all || userId !== undefined ? [] : [...new Set(sessions.map((session) => session.userId))];
    const ids = all ? [] : sessions.map((session) => session.id);
    const ofOwner = userId === undefined ? 'app_name = ?' : 'app_name = ? and user_id = ?';
    const ofUsers = ofOwner + (users.length > 0 ? ` and user_id in (${placeholders(users.length)})` : '');
    // Also finds a session of the same id of another user on the page; it is told apart by its owner.
    const ofSessions = ofUsers + (ids.length > 0 ? ` and session_id in (${placeholders(ids.length)})` : '');
    const value = this.#dialect.jsonText('value');
    const rows = await sql.all<StateRow & { user_id: string; session_id: string }>(
      `select 'session' as kind, user_id, session_id, state_key, ${value} as value
         from ${this.#tables.sessionStates} where ${ofSessions}
       union all select 'user', user_id, '', state_key, ${value} from ${this.#tables.userStates} where ${ofUsers}
       union all select 'app', '', '', state_key, ${value} from ${this.#tables.appStates} where app_name = ?`,
      [...owner, ...users, ...ids, ...owner, ...users, appName],
    );
    for (const row of rows) {
      const key = ownerKey(row.user_id, row.session_id);
      const values = states.get(key);
      if (values) values.push(stateValueOf(row));
      else states.set(key, [stateValueOf(row)]);
    }
    return states;
  }

  async #insertEvents(sql: Sql, session: SessionKey, firstSeq: number, events: readonly StoredEvent[]): Promise<void> {
    const numbered = events.map((event, i) => ({ ...event, seq: firstSeq + i }));
    for (const packet of this.#packets(
      session,
      numbered.filter((event) => !this.#isInParts(event)),
    )) {
      const rows = packet.map((event) => [...sessionValues(session), event.seq, event.id, event.timestamp, event.json]);
      await sql.run(`${this.#text.insertEvents} ${placeholderRows(rows.length, rows[0]?.length ?? 0)}`, rows.flat());
    }
    for (const event of numbered.filter((event) => this.#isInParts(event))) {
      const row = [...sessionValues(session), event.seq, event.id, event.timestamp, null];
      await sql.run(`${this.#text.insertEvents} ${placeholderRows(1, row.length)}`, row);
      await this.#insertParts(sql, session, event.seq, event.json);
    }
  }

  #isInParts({ json }: StoredEvent): boolean {
    return this.#dialect.maxTextLength !== undefined && json.length > this.#dialect.maxTextLength;
  }

  async #insertParts(sql: Sql, session: SessionKey, seq: number, json: string): Promise<void> {
    const length = this.#dialect.maxTextLength ?? json.length;
    for (let start = 0, part = 0; start < json.length; part++) {
      let end = Math.min(start + length, json.length);
      // Half of a surrogate pair would not survive on its own.
      if (/[\uD800-\uDBFF]/.test(json.charAt(end - 1)) && end < json.length) end--;
      await sql.run(this.#text.insertPart, [...sessionValues(session), seq, part, json.slice(start, end)]);
      start = end;
    }
  }

  /** Rows in groups that the server takes in one statement. */
  *#packets<Row extends object>(session: SessionKey, rows: readonly Row[]): Generator<Row[]> {
    const max = this.#dialect.maxTextLength ?? Infinity;
    let packet: Row[] = [];
    let length = 0;
    for (const row of rows) {
      const more = rowLength(session, row);
      if (packet.length > 0 && length + more > max) {
        yield packet;
        packet = [];
        length = 0;
      }
      packet.push(row);
      length += more;
    }
    if (packet.length > 0) yield packet;
  }
}

/** Whose state it is: a session's, a user's where the session id is empty, the app's where both are. Keys hold no NUL. */
export function ownerKey(userId: string, sessionId: string): string {
  return `${userId}\0${sessionId}`;
}

interface HeadRow {
  incarnation: string;
  last_seq: number;
  /** A number, or a number as text. */
  updated: number | string;
}

interface ListRow extends HeadRow {
  user_id: string;
  session_id: string;
}

interface StateRow {
  kind: Scope | 'head';
  state_key: string;
  value: string;
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

function headOf(row: HeadRow): SessionHead {
  return { incarnation: row.incarnation, lastSeq: row.last_seq, lastUpdateTime: Number(row.updated) };
}

function stateValueOf(row: StateRow): StateValue {
  return { scope: row.kind as Scope, key: row.state_key, json: row.value };
}

function perScope<T>(of: (scope: Scope) => T): Record<Scope, T> {
  return { session: of('session'), user: of('user'), app: of('app') };
}

function texts(dialect: Dialect, tables: Tables) {
  const { sessions, events, eventParts } = tables;
  // Another name than the column's, or `order by` would take the text.
  const head = `incarnation, last_seq, ${dialect.doubleText?.('last_update_time') ?? 'last_update_time'} as updated`;
  const event = `seq, ${dialect.jsonText('data')} as data`;
  const value = `${dialect.jsonText('value')} as value`;
  const ownerWhere = (scope: Scope) =>
    STATE_KEYS[scope]
      .slice(0, -1)
      .map((column) => `${column} = ?`)
      .join(' and ');
  // With the rows above the session's last number, which no append has written.
  const eventsWhere = (asked: string) => `where ${SESSION_WHERE} and seq > ?
    and (${asked} or seq > (select last_seq from ${sessions} where ${SESSION_WHERE}))
    and exists (select 1 from ${sessions} where ${SESSION_WHERE} and incarnation = ?)`;
  const selectEventsSince = `select seq, timestamp > ? as is_later, case when timestamp > ? then ${dialect.jsonText('data')} end as data,
    exists (select 1 from ${events} as previous where previous.app_name = e.app_name and previous.user_id = e.user_id
      and previous.session_id = e.session_id and previous.seq = e.seq - 1) as follows
    from ${events} as e ${eventsWhere('seq <= ? and (timestamp > ? or seq = ?)')}`;
  const list = (ofUser: string) => {
    const where = `where app_name = ?${ofUser}`;
    const select = `select user_id, session_id, ${head} from ${sessions} ${where}`;
    // Equal times go by id upwards in both directions, as in ADK, which no index has: MySQL and MariaDB would sort all
    // sessions for a page of the newest. The time of the page's last one leaves them, and any other, few to sort.
    const last = `select last_update_time from ${sessions} ${where} order by last_update_time desc limit 1 offset ?`;
    return {
      oldestFirst: `${select} order by last_update_time, session_id, user_id limit ? offset ?`,
      newestFirst: `${select} and last_update_time >= coalesce((${last}), -1e308)
        order by last_update_time desc, session_id, user_id limit ? offset ?`,
    };
  };
  const count = `select count(*) as total from ${sessions} where app_name = ?`;
  const upsert = (ownOnly: boolean) =>
    perScope((scope) => ({
      insert: `insert into ${stateTable(tables, scope)} (${STATE_KEYS[scope].join(', ')}, value, event_id) values`,
      onConflict: dialect.onConflict(stateTable(tables, scope), STATE_KEYS[scope], ownOnly),
    }));

  return {
    insertSession: `insert into ${sessions}
      (app_name, user_id, session_id, incarnation, last_seq, create_time, last_update_time) values (?, ?, ?, ?, ?, ?, ?)`,
    selectHead: `select ${head} from ${sessions} where ${SESSION_WHERE}`,
    selectHeadUnderLock: `select ${head} from ${sessions} where ${SESSION_WHERE}${dialect.underLock}`,
    selectHeads: `select app_name, user_id, session_id, ${head} from ${sessions} where`,
    selectSnapshot:
      `select 'head' as kind, '' as state_key, '' as value, ${head} from ${sessions} where ${SESSION_WHERE}` +
      SCOPES.map(
        (scope) =>
          ` union all select '${scope}', state_key, ${value}, '', 0, 0 from ${stateTable(tables, scope)} where ${ownerWhere(scope)}`,
      ).join(''),
    lockSession: `update ${sessions} set last_seq = last_seq where ${SESSION_WHERE}`,
    updateLastSeq: `update ${sessions} set last_seq = ? where ${SESSION_WHERE}`,
    updateTime: `update ${sessions} set last_update_time = ? where ${SESSION_WHERE}`,
    deleteSession: `delete from ${sessions} where ${SESSION_WHERE}`,

    list: { ofApp: list(''), ofUser: list(' and user_id = ?') },
    countOfApp: count,
    countOfUser: `${count} and user_id = ?`,

    insertEvents: `insert into ${events} (${EVENT_COLUMNS}) values`,
    selectEvents: `select ${event} from ${events} ${eventsWhere('seq <= ?')} order by seq`,
    selectEventsSince: `${selectEventsSince} order by seq`,
    selectNewestEventsSince: `${selectEventsSince} order by seq desc limit ?`,
    selectHighestNumber: `select seq from ${events} where ${SESSION_WHERE} order by seq desc limit 1`,
    selectNumbers: `select seq from ${events} where ${SESSION_WHERE} and seq > ? and seq <= ? order by seq`,
    selectEvent: `select ${event} from ${events} where ${SESSION_WHERE} and event_id = ?`,
    selectEventUnderLock: `select ${event} from ${events} where ${SESSION_WHERE} and event_id = ?${dialect.underLock}`,
    updateEvent: `update ${events} set timestamp = ?, data = ? where ${SESSION_WHERE} and seq = ?`,

    insertPart: `insert into ${eventParts} (app_name, user_id, session_id, seq, part, text) values (?, ?, ?, ?, ?, ?)`,
    deleteParts: `delete from ${eventParts} where ${SESSION_WHERE} and seq = ?`,

    upsertState: upsert(false),
    upsertOwnState: upsert(true),
    selectState: perScope(
      (scope) =>
        `select '${scope}' as kind, state_key, ${value} from ${stateTable(tables, scope)} where ${ownerWhere(scope)}`,
    ),
    deleteState: perScope(
      (scope) => `delete from ${stateTable(tables, scope)} where ${ownerWhere(scope)} and state_key in`,
    ),
  };
}
