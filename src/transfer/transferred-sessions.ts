import type { Sql, StoredEvent } from '../database/dialects/dialect.js';
import {
  SESSION_WHERE,
  placeholders,
  sessionValues,
  booleanOf,
  numberOf,
  optionalTextOf,
  textOf,
} from '../database/sql/tables.js';
import {
  STORED_SESSION_COLUMNS,
  storedSessionOf,
  type StoredSession,
  type StoredSessionRow,
} from '../database/statements/stored-session.js';
import { setColumns } from '../database/statements/sessions.js';
import type { SessionKey } from '../model/keys.js';

/** A session's row, as exports have it. */
export interface TransferredSession extends StoredSession {
  title: string | null;
  /** JSON, or null if it has none. */
  labels: string | null;
}

/** What an import writes into a session's row. */
export type DescribedSession = Omit<TransferredSession, 'incarnation' | 'origin' | 'status' | 'forkedFrom'>;

const columnsOf = ({ tables }: Sql) => `${STORED_SESSION_COLUMNS}, title, ${tables.select.labels} as labels_json`;

/** @returns the next app by name that has sessions, state, artifacts or memories; undefined if there is none. */
export async function nextAppWithState(sql: Sql, after: string): Promise<string | undefined> {
  const { sessions, userStates, appStates, artifacts, memories } = sql.tables;
  const first = [sessions, userStates, appStates, artifacts, memories].map(
    (table) => `select min(app_name) as name from ${table} where app_name > ?`,
  );
  const text = `select min(name) as name from (${first.join(' union all ')}) as apps`;
  const values = first.map(() => after);
  const [row] = await sql.all(text, values);
  return row && (optionalTextOf(row['name']) ?? undefined);
}

/** @returns the next user of an app by id that has `user:` state; undefined if there is none. */
export async function nextUserWithState(sql: Sql, appName: string, after: string): Promise<string | undefined> {
  const [row] = await sql.all(
    `select user_id from ${sql.tables.userStates} where app_name = ? and user_id > ? order by user_id limit 1`,
    [appName, after],
  );
  return row && textOf(row['user_id']);
}

/** @returns a session's row, deleted or not. */
export async function transferredSession(sql: Sql, session: SessionKey): Promise<TransferredSession | undefined> {
  const text = `select ${columnsOf(sql)} from ${sql.tables.sessions} where ${SESSION_WHERE}`;
  const [row] = await sql.all<SessionRow>(text, sessionValues(session));
  return row && transferredSessionOf(row);
}

/** Like `transferredSession`, and locks the row. */
export async function lockTransferred(sql: Sql, session: SessionKey): Promise<TransferredSession | undefined> {
  const row = await sql.dialect.operations.lockSession<SessionRow>(sql, session, { columns: columnsOf(sql) });
  return row && transferredSessionOf(row);
}

/** @returns the session's events with these numbers, by number, without their contents. */
export async function eventHeads(
  sql: Sql,
  session: SessionKey,
  numbers: readonly number[],
): Promise<Map<number, Omit<StoredEvent, 'json'>>> {
  if (numbers.length === 0) return new Map();
  const rows = await sql.all(
    `select seq, event_id, timestamp, begins_turn from ${sql.tables.events}
      where ${SESSION_WHERE} and seq in (${placeholders(numbers.length)})`,
    [...sessionValues(session), ...numbers],
  );
  return new Map(
    rows.map((row) => [
      numberOf(row['seq']),
      { id: textOf(row['event_id']), timestamp: numberOf(row['timestamp']), beginsTurn: booleanOf(row['begins_turn']) },
    ]),
  );
}

/** Writes the exported values into a session's row, for the caller that holds its lock. */
export async function describeTransferred(sql: Sql, { key, ...session }: DescribedSession): Promise<void> {
  const { firstSeq, lastSeq, createTime, lastUpdateTime, deletedAt, title, labels } = session;
  await setColumns(sql, key, {
    ...{ first_seq: firstSeq, last_seq: lastSeq, create_time: createTime, last_update_time: lastUpdateTime },
    ...{ deleted_at: deletedAt ?? null, status: deletedAt === undefined ? 'active' : 'deleted', title, labels },
  });
}

interface SessionRow extends StoredSessionRow {
  title: string | null;
  labels_json: string | null;
}

function transferredSessionOf(row: SessionRow): TransferredSession {
  return { ...storedSessionOf(row), title: optionalTextOf(row.title), labels: optionalTextOf(row.labels_json) };
}
