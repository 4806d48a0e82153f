import { sessionIdentity, type SessionKey } from '../../model/keys.js';
import { MAX_SEQ } from '../../model/seq-ranges.js';
import { IN_SESSION, SESSION_COLUMNS } from '../sql/columns.js';
import { perTables, numberOf, keyed, named } from '../sql/values.js';
import type { Dialect, Sql } from './dialect.js';

/** For a read that may be in the transaction that has locked the session. */
export interface UnderLock {
  isLocked?: boolean;
}

/** @returns the end of a `select` of a session's rows, so that a host's transaction sees what is there now. */
export function underLock({ behind, dialect }: Sql, session: SessionKey, { isLocked = false }: UnderLock = {}): string {
  return isLocked || behind?.get(sessionIdentity(session)) ? dialect.sql.underLock : '';
}

/**
 * @param build gets the end of each select of the session's rows, since a lock around a select does not hold inside of it.
 * @returns a function that chooses the statement as `underLock` does, and the one for reads outside a host's transaction.
 */
export function perLock<Statement>({ sql }: Dialect, build: (end: string) => Statement) {
  const plain = build('');
  const locking = sql.underLock === '' ? plain : build(sql.underLock);
  const choose = (...read: Parameters<typeof underLock>): Statement => (underLock(...read) === '' ? plain : locking);
  return Object.assign(choose, { plain });
}

// If an event is too large for one packet, its content is in rows of `adk_event_parts`.

const statements = perTables(({ dialect, tables: { events, eventParts, select } }: Sql) => ({
  insert: named(
    `insert into ${eventParts} (${SESSION_COLUMNS}, seq, part, text) values (:app, :user, :session, :seq, :part, :text)`,
  ),
  selectNumbers: named(`select seq from ${eventParts} ${dialect.sql.fromIndex('primary')}
    where ${IN_SESSION} and seq >= :first and seq <= :last`),
  delete: named(`delete from ${eventParts} where ${IN_SESSION} and seq = :seq`),
  select: perLock(dialect, (end) =>
    named(`select part, coalesce(text, ${select.data}) as text from ${events}
      left join ${eventParts} using (${SESSION_COLUMNS}, seq) where ${IN_SESSION} and seq = :seq order by part${end}`),
  ),
}));

const maxLength = ({ dialect }: Sql) => dialect.limits?.maxTextLength ?? Infinity;

/** Whether an event's content is too large for its row. */
export function needsParts(sql: Sql, json: string): boolean {
  return json.length > maxLength(sql);
}

/** First deletes parts that may be left if somebody deleted an event with this number by a statement of their own. */
export function insertParts(sql: Sql, session: SessionKey, seq: number, json: string): void {
  deleteParts(sql, session, seq);
  for (let start = 0, part = 0; start < json.length; part++) {
    let end = Math.min(start + maxLength(sql), json.length);
    // Half of a surrogate pair would not survive on its own.
    if (/[\uD800-\uDBFF]/.test(json.charAt(end - 1)) && end < json.length) end--;
    sql.later(...statements(sql).insert({ ...keyed(session), seq, part, text: json.slice(start, end) }));
    start = end;
  }
}

export function deleteParts(sql: Sql, session: SessionKey, seq: number): void {
  if (sql.dialect.limits) sql.later(...statements(sql).delete({ ...keyed(session), seq }));
}

/**
 * Writes the parts of an event's new content, and deletes those of the old one.
 *
 * @returns the content of the event's row.
 */
export function replaceParts(sql: Sql, session: SessionKey, seq: number, json: string): string | null {
  if (!needsParts(sql, json)) {
    deleteParts(sql, session, seq);
    return json;
  }
  insertParts(sql, session, seq, json);
  return null;
}

/** For the caller that deletes all events of the session with these numbers. */
export async function deletePartsFrom(sql: Sql, session: SessionKey, first: number, last = MAX_SEQ): Promise<void> {
  if (!sql.dialect.limits) return;
  // Select the numbers first: by a range InnoDB would also lock the gap after it, where another session's parts are inserted.
  const rows = await sql.all<{ seq: number }>(...statements(sql).selectNumbers({ ...keyed(session), first, last }));
  for (const seq of new Set(rows.map((row) => numberOf(row.seq)))) deleteParts(sql, session, seq);
}

/**
 * Reads an event's row again, with its parts, since the event may have been replaced or deleted after the first read.
 *
 * @param options.isLocked whether the caller holds the session's lock.
 * @returns null if the row has lost its content or a part of it; undefined if the row is gone.
 */
export async function readParts(
  sql: Sql,
  session: SessionKey,
  seq: number,
  options?: UnderLock,
): Promise<string | null | undefined> {
  const select = statements(sql).select(sql, session, options);
  const rows = await sql.all<{ part: number | null; text: string | null }>(...select({ ...keyed(session), seq }));
  const [first] = rows;
  if (!first) return undefined;
  // The event was replaced by one without parts, or its parts are missing.
  if (first.part === null) return first.text;
  // A missing last part is noticed when the JSON is parsed.
  return rows.every(({ part }, i) => numberOf(part) === i) ? rows.map(({ text }) => text).join('') : null;
}
