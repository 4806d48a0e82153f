import type { SessionKey } from '../../model/keys.js';
import type { Dialect, StoredEvent } from '../dialects/dialect.js';
import type { Sql } from '../sql/sql.js';
import { booleanOf, numberOf, optionalTextOf, textOf } from '../sql/row-values.js';
import { SESSION_WHERE, placeholders, sessionValues, type Tables } from '../sql/tables.js';
import {
  STORED_SESSION_COLUMNS,
  storedSessionOf,
  type StoredSession,
  type StoredSessionRow,
} from './stored-session.js';

/** A session's row, as it is exported. */
export interface TransferredSession extends StoredSession {
  title: string | null;
  /** JSON, or null where it has none. */
  labels: string | null;
}

/** What an import makes of a session's row. */
export type DescribedSession = Omit<TransferredSession, 'incarnation' | 'origin' | 'status'>;

/** The statements of export and import. */
export class TransferStore {
  readonly #dialect: Dialect;
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables) {
    this.#dialect = dialect;
    this.#text = texts(tables);
  }

  /** @returns the next app by name that has sessions or state; undefined when there is none. */
  async nextApp(sql: Sql, after: string): Promise<string | undefined> {
    const [row] = await sql.all<{ name: string | null }>(this.#text.selectNextApp, [after, after, after]);
    return row && (optionalTextOf(row.name) ?? undefined);
  }

  /** @returns the next user of an app by id that has `user:` state; undefined when there is none. */
  async nextUser(sql: Sql, appName: string, after: string): Promise<string | undefined> {
    const [row] = await sql.all<{ user_id: string }>(this.#text.selectNextUser, [appName, after]);
    return row && textOf(row.user_id);
  }

  /** @returns a session's row, deleted or not. */
  async session(sql: Sql, session: SessionKey): Promise<TransferredSession | undefined> {
    const [row] = await sql.all<SessionRow>(this.#text.selectSession, sessionValues(session));
    return row && transferredSessionOf(row);
  }

  /** As `session`, and locks the row. */
  async lock(sql: Sql, session: SessionKey): Promise<TransferredSession | undefined> {
    const row = await this.#dialect.operations.lockSession<SessionRow>(sql, {
      ...this.#text.lock,
      values: sessionValues(session),
    });
    return row && transferredSessionOf(row);
  }

  /** @returns the ids of the session's events with these numbers, by number. */
  async eventIds(sql: Sql, session: SessionKey, numbers: readonly number[]): Promise<Map<number, string>> {
    if (numbers.length === 0) return new Map();
    const rows = await sql.all<{ seq: number; event_id: string }>(
      `${this.#text.selectEventIds} (${placeholders(numbers.length)})`,
      [...sessionValues(session), ...numbers],
    );
    return new Map(rows.map((row) => [numberOf(row.seq), textOf(row.event_id)]));
  }

  /** @returns the session's events with these numbers, by number, without their contents. */
  async eventHeads(
    sql: Sql,
    session: SessionKey,
    numbers: readonly number[],
  ): Promise<Map<number, Omit<StoredEvent, 'json'>>> {
    if (numbers.length === 0) return new Map();
    const rows = await sql.all<EventHeadRow>(`${this.#text.selectEventHeads} (${placeholders(numbers.length)})`, [
      ...sessionValues(session),
      ...numbers,
    ]);
    return new Map(
      rows.map((row) => [
        numberOf(row.seq),
        { id: textOf(row.event_id), timestamp: numberOf(row.timestamp), beginsTurn: booleanOf(row.begins_turn) },
      ]),
    );
  }

  /** Makes a session's row what was exported; for the caller that holds its lock. */
  async describe(sql: Sql, { key, ...session }: DescribedSession): Promise<void> {
    await sql.run(this.#text.update, [
      session.firstSeq,
      session.lastSeq,
      session.createTime,
      session.lastUpdateTime,
      session.deletedAt ?? null,
      session.deletedAt === undefined ? 'active' : 'deleted',
      session.title,
      session.labels,
      ...sessionValues(key),
    ]);
  }
}

interface EventHeadRow {
  seq: number;
  event_id: string;
  timestamp: number | string;
  begins_turn: boolean | number;
}

interface SessionRow extends StoredSessionRow {
  title: string | null;
  labels_json: string | null;
}

function transferredSessionOf(row: SessionRow): TransferredSession {
  return { ...storedSessionOf(row), title: optionalTextOf(row.title), labels: optionalTextOf(row.labels_json) };
}

function texts(tables: Tables) {
  const { sessions, events, userStates, appStates, select } = tables;
  const columns = `${STORED_SESSION_COLUMNS}, title, ${select.labels} as labels_json`;
  const firstApp = (table: string) => `select min(app_name) as name from ${table} where app_name > ?`;
  return {
    selectNextApp: `select min(name) as name from (${[sessions, userStates, appStates].map(firstApp).join(' union all ')}) as apps`,
    selectNextUser: `select user_id from ${userStates} where app_name = ? and user_id > ? order by user_id limit 1`,
    selectSession: `select ${columns} from ${sessions} where ${SESSION_WHERE}`,
    lock: { table: sessions, columns, where: SESSION_WHERE },
    selectEventIds: `select seq, event_id from ${events} where ${SESSION_WHERE} and seq in`,
    selectEventHeads: `select seq, event_id, timestamp, begins_turn from ${events} where ${SESSION_WHERE} and seq in`,
    update: `update ${sessions} set first_seq = ?, last_seq = ?, create_time = ?, last_update_time = ?, deleted_at = ?,
      status = ?, title = ?, labels = ? where ${SESSION_WHERE}`,
  };
}
