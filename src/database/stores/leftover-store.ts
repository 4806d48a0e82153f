import { sessionIdentity, type SessionKey } from '../../model/keys.js';
import { keysetAfter } from '../sql/keyset.js';
import type { Sql } from '../dialects/dialect.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { deleteChanges, type ChangeKeyRow } from './change-store.js';

/** Some sessions of a walk. */
interface LeftoverPage {
  /** Those that do not exist, of which something is recorded nonetheless. */
  leftovers: SessionKey[];
  /** Where the next page begins; undefined on the last one. */
  last: SessionKey | undefined;
}

/**
 * The statements of what is left in `adk_changes` of sessions whose rows were deleted by other statements than ours. The
 * table has no foreign key to sessions, since a deletion is recorded when the session is gone.
 */
export class LeftoverStore {
  readonly #text: ReturnType<typeof texts>;

  constructor(tables: Tables) {
    this.#text = texts(tables);
  }

  /** @returns how many sessions have left something; so many at most. Reads the keys of all changes. */
  async count(sql: Sql, limit: number): Promise<number> {
    const [row] = await sql.all<{ total: number | string }>(this.#text.count, [limit]);
    return Number(row?.total);
  }

  /** Reads the next sessions of an app, or of one user in it, of which something is recorded; so many of them. */
  async page(
    sql: Sql,
    { appName, userId }: { appName: string; userId: string | undefined },
    after: SessionKey | undefined,
    limit: number,
  ): Promise<LeftoverPage> {
    const ofUser = userId === undefined ? '' : ' and user_id = ?';
    const keyset = after && keysetAfter(['user_id', 'session_id'], [after.userId, after.sessionId]);
    const text = this.#text.page(`app_name = ?${ofUser}${keyset ? ` and ${keyset.where}` : ''}`);
    const owner = userId === undefined ? [appName] : [appName, userId];
    const rows = await sql.all<SessionKeyRow & { is_leftover: number | string | boolean }>(text, [
      ...owner,
      ...(keyset?.values ?? []),
      limit,
    ]);
    const last = rows.at(-1);
    return {
      leftovers: rows.filter((row) => Number(row.is_leftover) === 1).map(sessionKeyOf),
      last: last && rows.length === limit ? sessionKeyOf(last) : undefined,
    };
  }

  /** Deletes the row that was created as the lock of a session that does not exist. */
  async unlock(sql: Sql, session: SessionKey, incarnation: string): Promise<void> {
    await sql.run(this.#text.unlock, [...sessionValues(session), incarnation]);
  }

  /**
   * Deletes what is recorded of sessions that do not exist, but for their deletions. The caller holds their locks.
   *
   * @returns those of which there is more: so many rows at most are deleted.
   */
  async forget(sql: Sql, sessions: readonly SessionKey[], limit: number): Promise<SessionKey[]> {
    const where = sessions.map(() => `(${SESSION_WHERE})`).join(' or ');
    const rows = await sql.all<ChangeKeyRow>(`${this.#text.select} and (${where}) limit ?`, [
      ...sessions.flatMap(sessionValues),
      limit + 1,
    ]);
    await deleteChanges(sql, rows.slice(0, limit));
    if (rows.length <= limit) return [];
    const full = await sql.all<SessionKeyRow>(
      `${this.#text.selectKeys} and (${where})`,
      sessions.flatMap(sessionValues),
    );
    const left = new Set(full.map((row) => sessionIdentity(sessionKeyOf(row))));
    return sessions.filter((session) => left.has(sessionIdentity(session)));
  }
}

function texts({ changes, sessions }: Tables) {
  return {
    count: `select count(*) as total from (select distinct ${SESSION_COLUMNS}
      from ${changes} as c where kind <> 'deleted' and session_id <> '' and not exists (select 1 from ${sessions} as s where ${isSameSession('s', 'c')}) limit ?) as leftovers`,
    // The keys alone are read, page by page; the rows are read only of sessions that do not exist. With `exists` PostgreSQL
    // may read all of a table for a page. Of one app, `app_name` in the order would make MariaDB sort all of its changes.
    page: (where: string) => `select ${SESSION_COLUMNS},
      case when k.session_id <> '' and (select 1 from ${sessions} as s where ${isSameSession('s', 'k')}) is null
        and (select 1 from ${changes} as c where ${isSameSession('c', 'k')} and c.kind <> 'deleted' limit 1) is not null
        then 1 else 0 end as is_leftover
      from (select distinct ${SESSION_COLUMNS} from ${changes} where ${where} order by user_id, session_id limit ?) as k
      order by user_id, session_id`,
    select: `select change_id, ${SESSION_COLUMNS} from ${changes} where kind <> 'deleted'`,
    selectKeys: `select distinct ${SESSION_COLUMNS} from ${changes} where kind <> 'deleted'`,
    unlock: `delete from ${sessions} where ${SESSION_WHERE} and incarnation = ?`,
  };
}
