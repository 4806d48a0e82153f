import type { SessionKey } from '../../model/keys.js';
import type { Dialect } from '../dialects/dialect.js';
import { keysetAfter } from '../sql/keyset.js';
import { booleanOf, optionalTextOf } from '../sql/row-values.js';
import type { Sql } from '../sql/sql.js';
import { SESSION_WHERE, sessionValues, type Tables } from '../sql/tables.js';
import {
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

/** A table in which apps are looked for. */
export type AppTable = 'sessions' | 'userStates' | 'artifacts' | 'changes';

/** The statements that walk from app to app and from session to session, soft-deleted ones included. */
export class WalkStore {
  readonly #dialect: Dialect;
  readonly #tables: Tables;
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables) {
    this.#dialect = dialect;
    this.#tables = tables;
    this.#text = texts(dialect, tables);
  }

  /**
   * Walks from app to app by the primary key, one search of the index each. An index by user alone, or by time alone, would
   * be one more for each append to write.
   *
   * @returns the next app by name that has sessions, state of users, artifacts, or changes; undefined when there is none.
   */
  async nextApp(sql: Sql, after: string, table: AppTable): Promise<string | undefined> {
    const [row] = await sql.all<{ name: string | null }>(this.#text.selectNextApp[table], [after]);
    return row && (optionalTextOf(row.name) ?? undefined);
  }

  /** @returns the next sessions of a walk. */
  async page(sql: Sql, walk: Walk, after: KeptSession | undefined, limit: number): Promise<KeptSession[]> {
    const { columns, where, values } = wayOf(walk);
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

  /** @returns a session's row; undefined when there is none. */
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
}

/** The columns that walks are ordered by. */
type Column = 'user_id' | 'session_id' | 'last_update_time';

function wayOf({ appName, userId, by, upTo = 1e308 }: Walk): { columns: Column[]; where: string; values: unknown[] } {
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

interface KeptRow extends StoredSessionRow {
  leased: number | boolean;
}

const keptSessionOf = (row: KeptRow): KeptSession => ({ ...storedSessionOf(row), isLeased: booleanOf(row.leased) });

function texts({ sql }: Dialect, { sessions, userStates, artifacts, changes }: Tables) {
  const columns = `${STORED_SESSION_COLUMNS}, (lease_expires is not null and lease_expires > ${sql.now}) as leased`;
  const nextApp = (table: string) => `select min(app_name) as name from ${table} where app_name > ?`;
  return {
    columns,
    select: `select ${columns} from ${sessions}`,
    selectNextApp: {
      sessions: nextApp(sessions),
      userStates: nextApp(userStates),
      artifacts: nextApp(artifacts),
      changes: nextApp(changes),
    } satisfies Record<AppTable, string>,
  };
}
