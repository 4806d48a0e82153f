import type { Sql } from '../database/dialects/dialect.js';
import { IN_SESSION } from '../database/sql/columns.js';
import { bound, keyed, optionalTextOf } from '../database/sql/values.js';
import { PRUNED_FIRST } from '../database/statements/sessions.js';
import type { StoredSession } from '../database/statements/stored-session.js';
import type { SessionKey } from '../model/keys.js';

/** What people call a session. */
export type SessionNames = Pick<StoredSession, 'title' | 'labels'>;

/** What an import leaves in the last change that it records: what people had called the session then. */
export const importedAs = ({ title, labels }: SessionNames): string => JSON.stringify([title, labels]);

/**
 * @param options.isNamedAnew whether people may have given the session another title or other labels.
 * @returns whether nobody has written to the session since its import: the newest change of its row is that, and it has no later
 *   version of an artifact.
 */
export async function isAsImported(
  sql: Sql,
  session: StoredSession,
  { isNamedAnew }: { isNamedAnew: boolean },
): Promise<boolean> {
  const { artifactVersions, changes, select } = sql.tables;
  const newest = `select ${select.data} as data from ${changes} as imported where ${IN_SESSION} and seq = :lastSeq
    and kind in ('imported', 'soft-deleted') and change_id = :lastChange and not exists (
      select 1 from ${artifactVersions} where ${IN_SESSION} and create_time > imported.time)`;
  const { key, lastSeq, lastChange } = session;
  const [row] = await sql.all<{ data: string | null }>(...bound(newest, { ...keyed(key), lastSeq, lastChange }));
  const data = row && optionalTextOf(row.data);
  return typeof data === 'string' && (isNamedAnew || data === importedAs(session));
}

/**
 * Hides a session until the last batch of its import, for the caller that has inserted its row or holds its lock. Its events get a
 * position that no reader reads: otherwise the log would have them before their session is whole, or never.
 */
export async function hideImported(
  sql: Sql,
  session: SessionKey,
  bounds: { firstSeq: number; lastSeq: number },
): Promise<void> {
  const values = { ...keyed(session), ...bounds };
  // Of this batch alone: without its first number, InnoDB would read the events of all earlier batches.
  await sql.run(...bound(`${eventsWhere(sql)} position = 0 where ${IN_SESSION} and seq >= :firstSeq`, values));
  const hide = `update ${sql.tables.sessions}
    set status = 'importing', deleted_at = ${sql.dialect.sql.now}, last_seq = :lastSeq, ${PRUNED_FIRST} where ${IN_SESSION}`;
  await sql.run(...bound(hide, values));
}

/** Gives the events of a hidden session to the log. */
export async function showImported(sql: Sql, session: SessionKey): Promise<void> {
  const show = `${eventsWhere(sql)} position = null where ${IN_SESSION} and position = 0`;
  await sql.run(...bound(show, keyed(session)));
}

const eventsWhere = ({ dialect, tables }: Sql) => `update ${tables.events} ${dialect.sql.fromIndex('primary')} set`;
