import type { SessionKey } from '../../model/keys.js';
import { SCOPES, perScope, type Scope } from '../../model/state.js';
import type { Dialect, DialectSql } from '../dialects/dialect.js';
import type { Sql } from '../sql/sql.js';
import type { ServerSetting } from '../dialects/server-settings.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  ownerValues,
  ownerWhere,
  placeholders,
  sessionKeyOf,
  sessionValues,
  stateTable,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { booleanOf, numberOf, optionalTextOf, textOf } from '../sql/row-values.js';
import {
  DELETION_NOT_BEGUN,
  STORED_SESSION_COLUMNS,
  storedSessionOf,
  type StoredSession,
  type StoredSessionRow,
} from './stored-session.js';

/** A session's row, as maintenance sees it. */
export interface KeptSession extends StoredSession {
  /** Whether somebody holds its lease, by the database's clock. */
  isLeased: boolean;
}

/** A way through the sessions of an app, in the order of an index. */
export interface Walk {
  appName: string;
  userId?: string | undefined;
  /** The order; with `userId` it is `key`. */
  by: 'key' | 'update';
  /** With `update` only sessions that were updated then or before, in ms. */
  upTo?: number;
}

/** An event's row whose content is taken out, as it is. */
export interface RawEvent {
  seq: number;
  eventId: string;
  timestamp: number;
  /** Null where the row has none. */
  content: Buffer | null;
  /** What the row has in `adk_event_parts`. */
  parts: { part: number; content: Buffer }[];
}

/** A state value that is taken out, as it is. */
export interface RawValue {
  scope: Scope;
  key: string;
  content: Buffer;
}

/** How many sessions have a number of events. */
export interface SessionCount {
  appName: string;
  events: number;
  sessions: number;
  oldestUpdate: number;
  newestUpdate: number;
}

/** Which rows a count takes in. */
export interface Owner {
  appName?: string | undefined;
  userId?: string | undefined;
}

/** A number for each app. */
export type ByApp = ReadonlyMap<string, number>;

/** The statements of maintenance. */
export class MaintenanceStore {
  readonly #dialect: Dialect;
  readonly #tables: Tables;
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables) {
    this.#dialect = dialect;
    this.#tables = tables;
    this.#text = texts(dialect.sql, tables);
  }

  /** @returns the database's clock, in ms. */
  async now(sql: Sql): Promise<number> {
    const [row] = await sql.all<{ now: number | string }>(this.#text.selectNow);
    return numberOf(row?.now);
  }

  /** @returns a setting of the server, as text. */
  async serverSetting(sql: Sql, { select }: ServerSetting): Promise<string> {
    const [row] = await sql.all<{ value: unknown }>(select);
    return String(row?.value);
  }

  /** @returns how many events and changes have no position yet; so many at most. */
  async countPending(sql: Sql, limit: number): Promise<number> {
    const [row] = await sql.all<{ total: number | string }>(this.#text.countPending, [limit, limit, '']);
    return numberOf(row?.total);
  }

  /**
   * Reads the keys of all events, and no contents.
   *
   * @returns sessions whose row counts other events than there are; so many at most.
   */
  async miscounted(sql: Sql, limit: number): Promise<SessionKey[]> {
    return (await sql.all<SessionKeyRow>(this.#text.selectMiscounted, ['', limit])).map(sessionKeyOf);
  }

  /**
   * Walks from app to app by the primary key, one search of the index each. An index by user alone, or by time alone, would
   * be one more for each append to write.
   *
   * @returns the next app by name that has sessions, state of users, or changes; undefined when there is none.
   */
  async nextApp(sql: Sql, after: string, table: 'sessions' | 'userStates' | 'changes'): Promise<string | undefined> {
    const [row] = await sql.all<{ name: string | null }>(this.#text.selectNextApp[table], [after]);
    return row && (optionalTextOf(row.name) ?? undefined);
  }

  /** @returns the next sessions of a walk, deleted ones included. */
  async page(sql: Sql, walk: Walk, after: KeptSession | undefined, limit: number): Promise<KeptSession[]> {
    const { columns, where, values } = this.#way(walk);
    const keyset =
      after &&
      keysetAfter(
        columns,
        columns.map((column) => columnOf(after, column)),
      );
    const rows = await sql.all<KeptRow>(
      `${this.#text.select} where ${where}${keyset ? ` and ${keyset.where}` : ''} order by ${columns.join(', ')} limit ?`,
      [...values, ...(keyset?.values ?? []), limit],
    );
    return rows.map(keptSessionOf);
  }

  #way({ appName, userId, by, upTo = 1e308 }: Walk): { columns: Column[]; where: string; values: unknown[] } {
    if (userId !== undefined) {
      return { columns: ['session_id'], where: 'app_name = ? and user_id = ?', values: [appName, userId] };
    }
    switch (by) {
      case 'key':
        return { columns: ['user_id', 'session_id'], where: 'app_name = ?', values: [appName] };
      case 'update':
        return {
          columns: ['last_update_time', 'session_id', 'user_id'],
          where: 'app_name = ? and last_update_time <= ?',
          values: [appName, upTo],
        };
    }
  }

  /** @returns a session's row, deleted or not; undefined when there is none. */
  async find(sql: Sql, key: SessionKey): Promise<KeptSession | undefined> {
    const [row] = await sql.all<KeptRow>(`${this.#text.select} where ${SESSION_WHERE}`, sessionValues(key));
    return row && keptSessionOf(row);
  }

  /**
   * Takes a session's lock. By its primary key alone: InnoDB would lock what is between the rows of a range, where others
   * write.
   *
   * @returns undefined when there is no such session, or when somebody else has the lock.
   */
  async lock(sql: Sql, key: SessionKey): Promise<KeptSession | undefined> {
    const row = await this.#dialect.operations.lockSession<KeptRow>(sql, {
      table: this.#tables.sessions,
      columns: this.#text.columns,
      where: SESSION_WHERE,
      values: sessionValues(key),
      skipsLocked: true,
    });
    return row && keptSessionOf(row);
  }

  /** @returns the number of the first event, from `firstSeq` on and before a number, that is later than a time. */
  async firstLater(
    sql: Sql,
    { key, firstSeq }: KeptSession,
    before: number,
    time: number,
  ): Promise<number | undefined> {
    const values = [...sessionValues(key), firstSeq, before, time];
    const [row] = await sql.all<{ seq: number }>(this.#text.selectFirstLater, values);
    return row && numberOf(row.seq);
  }

  /** @returns the numbers of the first events before a number, so many of them at most. */
  async numbersBefore(sql: Sql, key: SessionKey, seq: number, limit: number): Promise<number[]> {
    const rows = await sql.all<{ seq: number }>(this.#text.selectBefore, [...sessionValues(key), seq, limit]);
    return rows.map((row) => numberOf(row.seq));
  }

  /** Drops events, and has the session begin with a number, for the caller that holds the session's lock. */
  async trim(sql: Sql, key: SessionKey, firstSeq: number, numbers: readonly number[]): Promise<void> {
    await sql.run(this.#text.setFirstSeq, [firstSeq, ...sessionValues(key)]);
    // The numbers are listed: at the end of a range InnoDB would lock the gap where another session's events come.
    if (numbers.length > 0) {
      await sql.run(`${this.#text.deleteEvents} and seq in (${placeholders(numbers.length)})`, [
        ...sessionValues(key),
        ...numbers,
      ]);
    }
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
    await sql.run(`${this.#text.deleteEvents} and seq = ?`, [...sessionValues(key), seq]);
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

  /** @returns the keys of a user's state in an app, so many of them. */
  async userStateKeys(sql: Sql, appName: string, userId: string, limit: number): Promise<string[]> {
    const rows = await sql.all<{ state_key: string }>(this.#text.selectUserKeys, [appName, userId, limit]);
    return rows.map((row) => textOf(row.state_key));
  }

  /** @returns how many keys of a user's state in an app there are. */
  async countUserState(sql: Sql, appName: string, userId: string): Promise<number> {
    const [row] = await sql.all<{ total: number | string }>(this.#text.countUserKeys, [appName, userId]);
    return numberOf(row?.total);
  }

  async deleteUserState(sql: Sql, appName: string, userId: string, keys: readonly string[]): Promise<void> {
    await sql.run(`${this.#text.deleteUserState} (${placeholders(keys.length)})`, [appName, userId, ...keys]);
  }

  /** @returns how many sessions have how many events, deleted sessions included. */
  async sessionCounts(sql: Sql, owner: Owner): Promise<SessionCount[]> {
    const { where, values } = ofOwner(owner);
    const rows = await sql.all<CountRow>(
      `${this.#text.selectCounts}${where} group by app_name, last_seq - first_seq + 1`,
      values,
    );
    return rows.map((row) => ({
      appName: textOf(row.app_name),
      events: numberOf(row.events),
      sessions: numberOf(row.sessions),
      oldestUpdate: numberOf(row.oldest),
      newestUpdate: numberOf(row.newest),
    }));
  }

  /** @returns how many users have sessions, in each app. */
  async userCounts(sql: Sql, owner: Owner): Promise<ByApp> {
    return this.#byApp(sql, 'count(distinct user_id)', this.#tables.sessions, owner);
  }

  /** @returns how many sessions are soft-deleted, in each app. */
  async deletedCounts(sql: Sql, owner: Owner): Promise<ByApp> {
    return this.#byApp(sql, 'count(*)', this.#tables.sessions, owner, 'deleted_at is not null');
  }

  /** @returns the bytes of the events' contents, in each app; the server adds them up. */
  async eventBytes(sql: Sql, owner: Owner): Promise<ByApp[]> {
    return [
      await this.#bytes(sql, 'data', this.#tables.events, owner),
      await this.#bytes(sql, 'text', this.#tables.eventParts, owner),
    ];
  }

  /** @returns the bytes of the state of sessions, users and apps, in each app; for one user without the app's. */
  async stateBytes(sql: Sql, owner: Owner): Promise<ByApp[]> {
    const scopes = SCOPES.filter((scope) => scope !== 'app' || owner.userId === undefined);
    const bytes: ByApp[] = [];
    for (const scope of scopes) bytes.push(await this.#bytes(sql, 'value', stateTable(this.#tables, scope), owner));
    return bytes;
  }

  #bytes(sql: Sql, column: string, table: string, owner: Owner): Promise<ByApp> {
    return this.#byApp(sql, `coalesce(sum(${this.#dialect.sql.byteLength(column)}), 0)`, table, owner);
  }

  async #byApp(sql: Sql, what: string, table: string, owner: Owner, condition?: string): Promise<ByApp> {
    const { where, values } = ofOwner(owner, condition);
    const rows = await sql.all<{ app_name: string; total: number | string }>(
      `select app_name, ${what} as total from ${table}${where} group by app_name`,
      values,
    );
    return new Map(rows.map((row) => [textOf(row.app_name), numberOf(row.total)]));
  }
}

function ofOwner({ appName, userId }: Owner, condition?: string): { where: string; values: string[] } {
  const conditions = [
    ...(condition === undefined ? [] : [condition]),
    ...(appName === undefined ? [] : ['app_name = ?']),
    ...(userId === undefined ? [] : ['user_id = ?']),
  ];
  return {
    where: conditions.length > 0 ? ` where ${conditions.join(' and ')}` : '',
    values: [appName, userId].filter((value) => value !== undefined),
  };
}

/** The columns that walks are ordered by. */
type Column = 'user_id' | 'session_id' | 'last_update_time';

function columnOf(session: KeptSession, column: Column): unknown {
  switch (column) {
    case 'user_id':
      return session.key.userId;
    case 'session_id':
      return session.key.sessionId;
    case 'last_update_time':
      return session.lastUpdateTime;
  }
}

/**
 * Finds the rows that come after one in an order. Not as `(a, b) > (?, ?)`, for which MySQL and MariaDB use no index.
 *
 * @param columns the order, upwards or, with `<`, downwards.
 */
export function keysetAfter(
  columns: readonly string[],
  values: readonly unknown[],
  than: '>' | '<' = '>',
): { where: string; values: unknown[] } {
  const [column = '', ...rest] = columns;
  const [value, ...restValues] = values;
  if (rest.length === 0) return { where: `${column} ${than} ?`, values: [value] };
  const inner = keysetAfter(rest, restValues, than);
  return {
    where: `${column} ${than}= ? and (${column} ${than} ? or ${inner.where})`,
    values: [value, value, ...inner.values],
  };
}

interface KeptRow extends StoredSessionRow {
  leased: number | boolean;
}

const keptSessionOf = (row: KeptRow): KeptSession => ({ ...storedSessionOf(row), isLeased: booleanOf(row.leased) });

interface RawRow {
  event_id: string;
  at: number | string;
  content: string | null;
}

interface CountRow {
  app_name: string;
  events: number | string;
  sessions: number | string;
  oldest: number | string;
  newest: number | string;
}

function texts(sql: DialectSql, tables: Tables) {
  const { sessions, events, eventParts, userStates, changes } = tables;
  const columns = `${STORED_SESSION_COLUMNS}, (lease_expires is not null and lease_expires > ${sql.now}) as leased`;
  // A deletion that has begun has overwritten it.
  const updated = `case when ${DELETION_NOT_BEGUN} then last_update_time else create_time end`;
  const nextApp = (table: string) => `select min(app_name) as name from ${table} where app_name > ?`;
  const valueOf = (scope: Scope) => `${stateTable(tables, scope)} where ${ownerWhere(scope)} and state_key = ?`;
  const userState = `from ${userStates} where app_name = ? and user_id = ?`;
  return {
    selectNow: `select ${sql.now} as now`,
    // Each with a text among its values, which the settings of the connection are checked with: a limit cannot be.
    countPending: `select (select count(*) from (select 1 as one from ${events} where position is null limit ?) as e)
      + (select count(*) from (select 1 as one from ${changes} where number is null limit ?) as c) as total
      from (select ? as text) as checked where checked.text is not null`,
    selectMiscounted: `select s.app_name, s.user_id, s.session_id
      from (select ? as text) as checked join ${sessions} as s on checked.text is not null
      left join (select ${SESSION_COLUMNS}, count(*) as events, min(seq) as first_event, max(seq) as last_event from ${events}
        group by ${SESSION_COLUMNS}) as e
      on e.app_name = s.app_name and e.user_id = s.user_id and e.session_id = s.session_id
      where coalesce(e.events, 0) <> s.last_seq - s.first_seq + 1
        or e.first_event <> s.first_seq or e.last_event <> s.last_seq limit ?`,
    selectNextApp: { sessions: nextApp(sessions), userStates: nextApp(userStates), changes: nextApp(changes) },
    columns,
    select: `select ${columns} from ${sessions}`,
    selectFirstLater: `select seq from ${events} where ${SESSION_WHERE}
      and seq >= ? and seq < ? and timestamp > ? order by seq limit 1`,
    selectBefore: `select seq from ${events} where ${SESSION_WHERE} and seq < ? order by seq limit ?`,
    setFirstSeq: `update ${sessions} set first_seq = ? where ${SESSION_WHERE}`,
    setBooks: `update ${sessions} set first_seq = ?, last_seq = ? where ${SESSION_WHERE}`,
    deleteEvents: `delete from ${events} where ${SESSION_WHERE}`,
    selectTimes: `select seq, timestamp as at from ${events} where ${SESSION_WHERE} order by seq`,
    selectRaw: `select event_id, timestamp as at, ${sql.hex('data')} as content
      from ${events} where ${SESSION_WHERE} and seq = ?`,
    selectRawParts: `select part, ${sql.hex('text')} as content from ${eventParts}
      where ${SESSION_WHERE} and seq = ? order by part`,
    selectRawValue: perScope(
      (scope) => `select ${sql.hex('value')} as content from ${valueOf(scope)}${sql.skipLocked ?? ''}`,
    ),
    deleteValue: perScope((scope) => `delete from ${valueOf(scope)}`),
    selectUserKeys: `select state_key ${userState} order by state_key limit ?`,
    countUserKeys: `select count(*) as total ${userState}`,
    deleteUserState: `delete ${userState} and state_key in`,
    selectCounts: `select app_name, last_seq - first_seq + 1 as events, count(*) as sessions,
      min(${updated}) as oldest, max(${updated}) as newest from ${sessions}`,
  };
}
