import { StaleSessionError } from '../../model/errors.js';
import type { SessionKey } from '../../model/keys.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { numberOf, textOf } from '../sql/row-values.js';
import type { ChangeStore } from './change-store.js';
import {
  STORED_SESSION_COLUMNS,
  storedSessionOf,
  type StoredSession,
  type StoredSessionRow,
} from './stored-session.js';

/** A session's row. */
export interface SessionHead {
  /** The random name of one history of a session: another one after a rewind, and when the id is used again after a deletion. */
  incarnation: string;
  /** The first of the session's incarnations, which a rewind leaves as it is. What is encoded is bound to it. */
  origin: string;
  /** The number of the oldest event that is kept; above `lastSeq` when all were trimmed (contract K2). */
  firstSeq: number;
  lastSeq: number;
  lastUpdateTime: number;
}

/** What `softDelete` needs of a session's row. */
type SoftDeletedSession = Pick<SessionHead, 'incarnation' | 'origin' | 'lastSeq'>;

export interface ListedSession extends SessionHead {
  userId: string;
  id: string;
}

interface SessionPage {
  appName: string;
  userId: string | undefined;
  descending: boolean;
  limit: number | undefined;
  offset: number;
}

/** The statements of sessions' rows. */
export class SessionStore {
  readonly #changes: ChangeStore;
  readonly #dialect: Dialect;
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables, changes: ChangeStore) {
    this.#changes = changes;
    this.#dialect = dialect;
    this.#text = texts(dialect, tables);
  }

  /** Fails with the database's unique violation when the session exists. The caller records the creation. */
  async create(sql: Sql, session: SessionKey, head: SessionHead): Promise<void> {
    await sql.run(this.#text.insert, [
      ...sessionValues(session),
      head.incarnation,
      head.origin,
      // Above what is left of an earlier session of the id whose row somebody has deleted by a statement of their own.
      Date.now() * 1_000,
      head.firstSeq,
      head.lastSeq,
      head.lastUpdateTime,
      head.lastUpdateTime,
    ]);
  }

  async head(sql: Sql, session: SessionKey): Promise<SessionHead | undefined> {
    const [row] = await sql.all<HeadRow>(this.#text.selectHead, sessionValues(session));
    return row && headOf(row);
  }

  /** @returns the rows of those sessions that exist. */
  async heads(sql: Sql, sessions: readonly SessionKey[]): Promise<{ key: SessionKey; head: SessionHead }[]> {
    const where = sessions.map(() => `(${SESSION_WHERE})`).join(' or ');
    const rows = await sql.all<HeadRow & SessionKeyRow>(
      `${this.#text.selectHeads} ${where})`,
      sessions.flatMap(sessionValues),
    );
    return rows.map((row) => ({ key: sessionKeyOf(row), head: headOf(row) }));
  }

  /** Takes the session's lock without a number. @returns undefined when the session is missing. */
  async lock(sql: Sql, session: SessionKey): Promise<SessionHead | undefined> {
    const row = await this.#dialect.operations.lockSession<HeadRow>(sql, {
      ...this.#text.lock,
      values: sessionValues(session),
    });
    return row && headOf(row);
  }

  /**
   * Takes the lock as `lock` does, for a caller that writes from what it then reads. On InnoDB a host's transaction may read
   * rows as they were before the lock; on the others it cannot lock what has changed since.
   *
   * @throws StaleSessionError when the session has changed since the transaction began to read.
   */
  async lockAsRead(sql: Sql, session: SessionKey): Promise<SessionHead | undefined> {
    const head = await this.lock(sql, session);
    if (!head || !sql.isJoined || this.#dialect.sql.underLock === '') return head;
    const newest = async (end: string) => {
      const [row] = await sql.all<{ last_change: unknown }>(this.#text.lastChange + end, sessionValues(session));
      return String(row?.last_change);
    };
    const read = await this.head(sql, session);
    const isSame = read?.incarnation === head.incarnation && read.lastSeq === head.lastSeq;
    if (
      !isSame ||
      read.firstSeq !== head.firstSeq ||
      (await newest('')) !== (await newest(this.#dialect.sql.underLock))
    )
      throw new StaleSessionError(session.sessionId);
    return head;
  }

  /** Takes a session back to an event. It becomes another one for the handles that were read before (contract E2). */
  async rewind(sql: Sql, session: SessionKey, to: Omit<SessionHead, 'firstSeq' | 'origin'>): Promise<void> {
    await sql.run(this.#text.rewind, [to.lastSeq, to.incarnation, to.lastUpdateTime, ...sessionValues(session)]);
  }

  /** Sets `last_seq`. The caller holds the session's lock. */
  async setLastSeq(sql: Sql, session: SessionKey, lastSeq: number): Promise<void> {
    await sql.run(this.#text.updateLastSeq, [lastSeq, ...sessionValues(session)]);
  }

  async setLastUpdateTime(sql: Sql, session: SessionKey, time: number): Promise<void> {
    await sql.run(this.#text.updateTime, [time, ...sessionValues(session)]);
  }

  /** The foreign keys' cascade deletes events, their parts and session state; artifacts have none to the session. */
  async delete(sql: Sql, session: SessionKey, incarnation: string): Promise<void> {
    await this.#deleteBy(sql, this.#text.delete, session, incarnation);
  }

  async #deleteBy(sql: Sql, text: string, session: SessionKey, ...incarnation: string[]): Promise<void> {
    const { affectedRows } = await sql.run(text, [...sessionValues(session), ...incarnation]);
    if (affectedRows === 0) return;
    await sql.run(this.#text.deleteArtifacts, sessionValues(session));
    await this.#changes.recordDeletion(sql, session);
  }

  /**
   * Soft-deletes a session, and ends its lease.
   * append compares it anyway, so that appends need not check whether their session is deleted (contract K3).
   */
  async softDelete(sql: Sql, session: SessionKey, { incarnation, origin, lastSeq }: SoftDeletedSession): Promise<void> {
    const { affectedRows } = await sql.run(this.#text.softDelete, [...sessionValues(session), incarnation]);
    if (affectedRows > 0)
      await this.#changes.record(sql, {
        session: { ...session, origin },
        kind: 'soft-deleted',
        seq: lastSeq,
      });
  }

  /**
   * Begins a deletion that takes several transactions, for the caller that holds the session's lock: the session is
   * soft-deleted, and cannot be restored.
   */
  async beginDeletion(sql: Sql, session: StoredSession): Promise<void> {
    const { key, origin, lastSeq: seq } = session;
    await sql.run(this.#text.beginDeletion, sessionValues(key));
    await this.#changes.record(sql, { session: { ...key, origin }, kind: 'ending', seq });
  }

  /**
   * Undoes a soft deletion, where there is one.
   *
   * @returns undefined when there is no session, or its deletion has begun.
   */
  async restore(sql: Sql, session: SessionKey): Promise<SessionHead | undefined> {
    const row = await this.#dialect.operations.lockSession<StoredSessionRow>(sql, {
      ...this.#text.lockStored,
      values: sessionValues(session),
    });
    const stored = row && storedSessionOf(row);
    if (!stored || stored.status === 'ending') return undefined;
    if (stored.status === 'deleted') {
      await sql.run(this.#text.restore, sessionValues(session));
      const { origin, lastSeq: seq } = stored;
      await this.#changes.record(sql, { session: { ...session, origin }, kind: 'restored', seq });
    }
    return stored;
  }

  /** Deletes the rows of a soft-deleted session. */
  async deleteSoftDeleted(sql: Sql, session: SessionKey): Promise<void> {
    await this.#deleteBy(sql, this.#text.deleteSoftDeleted, session);
  }

  async count(sql: Sql, { appName, userId }: SessionPage): Promise<number> {
    const text = this.#text.count[userId === undefined ? 'ofApp' : 'ofUser'];
    const owner = userId === undefined ? [appName] : [appName, userId];
    const [row] = await sql.all<{ total: number | string | bigint }>(text, owner);
    return numberOf(row?.total);
  }

  async list(sql: Sql, { appName, userId, descending, limit, offset }: SessionPage): Promise<ListedSession[]> {
    const owner = userId === undefined ? [appName] : [appName, userId];
    const text = this.#text.list[userId === undefined ? 'ofApp' : 'ofUser'][descending ? 'newestFirst' : 'oldestFirst'];
    // MySQL and SQLite take an offset only with a limit. This one is larger than any table.
    const most = limit ?? Number.MAX_SAFE_INTEGER - offset;
    const values = descending ? [...owner, ...owner, offset + most - 1] : owner;
    const rows = await sql.all<ListRow>(text, [...values, most, offset]);
    return rows.map((row) => ({ ...headOf(row), userId: textOf(row.user_id), id: textOf(row.session_id) }));
  }
}

interface HeadRow {
  incarnation: string;
  origin: string;
  first_seq: number;
  last_seq: number;
  /** A double, as a number or as text. */
  updated: number | string;
}

interface ListRow extends HeadRow {
  user_id: string;
  session_id: string;
}

function headOf(row: HeadRow): SessionHead {
  return {
    incarnation: textOf(row.incarnation),
    origin: textOf(row.origin),
    firstSeq: numberOf(row.first_seq),
    lastSeq: numberOf(row.last_seq),
    lastUpdateTime: numberOf(row.updated),
  };
}

function texts({ sql }: Dialect, tables: Tables) {
  const { sessions, artifacts } = tables;
  // The alias is not the column's name, or `order by` would sort by the text.
  const head = `incarnation, origin, first_seq, last_seq, last_update_time as updated`;
  const there = `${SESSION_WHERE} and status = 'active'`;
  const list = (ofUser: string) => {
    const where = `where app_name = ?${ofUser} and status = 'active'`;
    const page = (rows: string, order: string) => `select user_id, session_id, ${head} from ${sessions} ${where}${rows}
      order by ${order} limit ? offset ?`;
    // Equal times go by id upwards in both directions, as in ADK, which no index has: MySQL and MariaDB would sort all
    // sessions for a page of the newest. The time of the page's last one leaves them, and any other, few to sort.
    const last = `select last_update_time from ${sessions} ${where} order by last_update_time desc limit 1 offset ?`;
    return {
      oldestFirst: page('', 'last_update_time, session_id, user_id'),
      newestFirst: page(
        ` and last_update_time >= coalesce((${last}), -1e308)`,
        'last_update_time desc, session_id, user_id',
      ),
    };
  };
  const count = (ofUser: string) =>
    `select count(*) as total from ${sessions} where app_name = ?${ofUser} and status = 'active'`;

  return {
    insert: `insert into ${sessions}
      (${SESSION_COLUMNS}, incarnation, origin, last_change, first_seq, last_seq, create_time, last_update_time)
      values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    selectHead: `select ${head} from ${sessions} where ${there}`,
    selectHeads: `select ${SESSION_COLUMNS}, ${head} from ${sessions} where status = 'active' and (`,
    lock: { table: sessions, columns: head, where: there },
    lockStored: { table: sessions, columns: STORED_SESSION_COLUMNS, where: SESSION_WHERE },
    // Whatever changes a session and is no append is counted.
    lastChange: `select last_change from ${sessions} where ${SESSION_WHERE}`,
    rewind: `update ${sessions} set last_seq = ?, incarnation = ?, last_update_time = ? where ${SESSION_WHERE}`,
    updateLastSeq: `update ${sessions} set last_seq = ? where ${SESSION_WHERE}`,
    updateTime: `update ${sessions} set last_update_time = ? where ${SESSION_WHERE}`,
    deleteArtifacts: `${sql.deleteThrough(artifacts, 'primary')} where ${SESSION_WHERE}`,
    delete: `delete from ${sessions} where ${SESSION_WHERE} and incarnation = ?`,
    softDelete: `update ${sessions} set deleted_at = ${sql.now}, status = 'deleted', lease_holder = null, lease_expires = null where ${there} and incarnation = ?`,
    // The time of the last update has each `prune` find it first, and finish what was begun.
    beginDeletion: `update ${sessions} set deleted_at = coalesce(deleted_at, ${sql.now}), status = 'ending',
      last_update_time = 0, lease_holder = null, lease_expires = null where ${SESSION_WHERE}`,
    restore: `update ${sessions} set deleted_at = null, status = 'active' where ${SESSION_WHERE}`,
    deleteSoftDeleted: `delete from ${sessions} where ${SESSION_WHERE} and status <> 'active'`,
    list: { ofApp: list(''), ofUser: list(' and user_id = ?') },
    count: { ofApp: count(''), ofUser: count(' and user_id = ?') },
  };
}
