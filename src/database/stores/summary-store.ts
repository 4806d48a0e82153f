import type { SessionKey } from '../../model/keys.js';
import type { Dialect } from '../dialects/dialect.js';
import { keysetAfter } from '../sql/keyset.js';
import { checking, type Sql } from '../sql/sql.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { numberOf, optionalNumberOf, optionalTextOf } from '../sql/row-values.js';
import { DELETION_NOT_BEGUN } from './stored-session.js';

/** Which sessions to find; all conditions given must hold. */
export interface SummaryFilter {
  appName: string;
  userId?: string | undefined;
  isSoftDeleted: boolean;
  /** The title has this in it. */
  title?: string | undefined;
  /** Pieces of JSON that the labels have in them, as `labelText` gives them. */
  labels: readonly string[];
  updatedAfter?: number | undefined;
  updatedBefore?: number | undefined;
}

/** Where a page of sessions ends, by which the next page begins. */
export interface SummaryCursor {
  lastUpdateTime: number;
  sessionId: string;
  userId: string;
}

/** A page of the sessions that are found. */
export interface SummaryPage {
  after: SummaryCursor | undefined;
  isDescending: boolean;
  limit: number;
}

/** A session without events and state. */
export interface StoredSummary {
  key: SessionKey;
  title: string | null;
  /** JSON, or null where it has none. */
  labels: string | null;
  eventCount: number;
  createTime: number;
  lastUpdateTime: number;
  deletedAt: number | undefined;
}

/** The statements of what people call sessions, and find them by. */
export class SummaryStore {
  readonly #dialect: Dialect;
  readonly #tables: Tables;

  constructor(dialect: Dialect, tables: Tables) {
    this.#dialect = dialect;
    this.#tables = tables;
  }

  /** @returns the sessions after a cursor, by the time of their last update, then by id and user. */
  async find(sql: Sql, filter: SummaryFilter, { after, isDescending, limit }: SummaryPage): Promise<StoredSummary[]> {
    const { appName, userId, title, labels, updatedAfter, updatedBefore } = filter;
    const columns = ['last_update_time', 'session_id', ...(userId === undefined ? ['user_id'] : [])];
    const values = after && [after.lastUpdateTime, after.sessionId, ...(userId === undefined ? [after.userId] : [])];
    const keyset = values && keysetAfter(columns, values, isDescending ? '<' : '>');
    const conditions: [string, readonly unknown[]][] = [
      ['app_name = ?', [checking(appName)]],
      ...given('user_id = ?', userId),
      // Soft-deleted sessions can be restored.
      [filter.isSoftDeleted ? `deleted_at is not null and ${DELETION_NOT_BEGUN}` : 'deleted_at is null', []],
      ...given('last_update_time > ?', updatedAfter),
      ...given('last_update_time < ?', updatedBefore),
      ...given(this.#dialect.sql.contains('title'), title),
      ...labels.map((label): [string, readonly unknown[]] => [this.#dialect.sql.contains('labels'), [label]]),
      ...(keyset ? [[keyset.where, keyset.values] as [string, readonly unknown[]]] : []),
    ];
    const direction = isDescending ? ' desc' : '';
    const rows = await sql.all<SummaryRow>(
      `select ${this.#columns} from ${this.#tables.sessions} where ${conditions.map(([text]) => text).join(' and ')}
        order by ${columns.map((column) => column + direction).join(', ')} limit ?`,
      [...conditions.flatMap(([, values]) => values), limit],
    );
    return rows.map(storedSummaryOf);
  }

  /** @returns whether there is such a session. A text that is undefined stays as it is. */
  async describe(
    sql: Sql,
    key: SessionKey,
    texts: { title: string | null | undefined; labels: string | null | undefined },
  ): Promise<boolean> {
    const { sessions: table } = this.#tables;
    const where = `${SESSION_WHERE} and deleted_at is null`;
    const lock = { table, columns: 'last_seq', where, values: sessionValues(key) };
    // The number of rows that an update finds does not do: a host may have the driver count only those that it changes.
    if (!(await this.#dialect.operations.lockSession(sql, lock))) return false;
    const changes = Object.entries(texts).filter(([, text]) => text !== undefined);
    const set = changes.map(([column]) => `${column} = ?`).join(', ');
    if (set)
      await sql.run(`update ${table} set ${set} where ${where}`, [
        ...changes.map(([, text]) => text),
        ...sessionValues(key),
      ]);
    return true;
  }

  get #columns(): string {
    return `${SESSION_COLUMNS}, title, ${this.#tables.select.labels} as labels_json, last_seq - first_seq + 1 as events,
      create_time as created, last_update_time as updated, deleted_at as deleted`;
  }
}

function given(text: string, value: unknown): [string, readonly unknown[]][] {
  return value === undefined ? [] : [[text, [value]]];
}

interface SummaryRow extends SessionKeyRow {
  title: string | null;
  labels_json: string | null;
  events: number | string;
  created: number | string;
  updated: number | string;
  deleted: number | string | null;
}

function storedSummaryOf(row: SummaryRow): StoredSummary {
  return {
    key: sessionKeyOf(row),
    title: optionalTextOf(row.title),
    labels: optionalTextOf(row.labels_json),
    eventCount: numberOf(row.events),
    createTime: numberOf(row.created),
    lastUpdateTime: numberOf(row.updated),
    deletedAt: optionalNumberOf(row.deleted),
  };
}
