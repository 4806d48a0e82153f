import { OWNED_ROWS, type Sql } from '../../../../src/internal.js';
import { keysetAfter } from '../../../../src/database/sql/keyset.js';
import { SESSION_COLUMNS, SESSION_KEY, isSameSession, sessionColumnsOf } from '../../../../src/database/sql/columns.js';
import {
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  numberOf,
  optionalTextOf,
  textOf,
} from '../../../../src/database/sql/values.js';
import type { SessionKey } from '../../../../src/index.js';
import type { ServerSetting } from './server-settings.js';

/** Comes before all keys, since none is empty. */
const FIRST: SessionKey = { appName: '', userId: '', sessionId: '' };

/** The result of checking a part of all sessions, in the order of their keys. */
export interface CheckedSessions {
  miscounted: SessionKey[];
  /** How many sessions were checked. */
  checked: number;
  /** The last checked session; undefined if there are no others after it. */
  last: SessionKey | undefined;
}

/** How many sessions are checked at once, fewer if they have more events than this: reading their keys takes time. */
const AT_ONCE = { sessions: 500, events: 20_000 };

interface CountedRow extends SessionKeyRow {
  events: number | string;
}

/** @returns a setting of the server, as text. */
export async function serverSetting(sql: Sql, { select }: ServerSetting): Promise<string> {
  const [row] = await sql.all<{ value: unknown }>(select);
  return String(row?.value);
}

/** @returns how many events and changes have no position yet, at most `limit`. */
export async function countPending(sql: Sql, limit: number): Promise<number> {
  const { events, changes } = sql.tables;
  const text = `select (select count(*) from (select 1 as one from ${events} where position is null limit ?) as e)
    + (select count(*) from (select 1 as one from ${changes} where number is null limit ?) as c) as total`;
  const [row] = await sql.all<{ total: number | string }>(text, [limit, limit]);
  return numberOf(row?.total);
}

/** How many memories a user has. The user is empty for those that all users of an app share. */
interface CountedMemories {
  appName: string;
  userId: string;
  memories: number;
}

/** @returns the owners of more than `least` memories, those with the most first. */
export async function largestMemories(sql: Sql, least: number, limit: number): Promise<CountedMemories[]> {
  const rows = await sql.all<{ app_name: string; user_id: string; total: number | string }>(
    `select app_name, user_id, count(*) as total from ${sql.tables.memories}
      group by app_name, user_id having count(*) > ? order by total desc, app_name, user_id limit ?`,
    [least, limit],
  );
  return rows.map((row) => ({
    appName: textOf(row.app_name),
    userId: textOf(row.user_id),
    memories: numberOf(row.total),
  }));
}

/** How much of a text names its codecs and keys, in characters. */
const HEAD = 500;

/** How many of the first and of the last rows of each table are looked at. */
export const SAMPLED = 1_000;

/**
 * Reads the beginnings of texts, but no contents.
 *
 * @returns the codecs and keys that texts name, each with whether the codec of this reader knows it.
 */
export async function storedEncodings(sql: Sql): Promise<Map<string, boolean>> {
  const found = new Map<string, boolean>();
  const places = OWNED_ROWS.flatMap(({ texts = [] }) => texts.map((each) => each.place(sql)));
  for (const { table, selected, order: columns } of places)
    for (const way of ['', ' desc']) {
      const order = columns.map((each) => `${each}${way}`).join(', ');
      const text = `select substr(${selected}, 1, ${HEAD}) as head from ${table} order by ${order} limit ?`;
      for (const { head } of await sql.all<{ head: unknown }>(text, [SAMPLED])) {
        const encoding = sql.texts.codec.encodingIn(optionalTextOf(head) ?? '');
        if (encoding) found.set(encoding.shown, encoding.isKnown);
      }
    }
  return found;
}

/** The condition that a session's row says another number of events than there are. */
function isMiscounted({ dialect, tables }: Sql): string {
  // Looks up each session in the index. With a join, MariaDB would compare each session with each group.
  const ofEvents = (what: string) =>
    `(select ${what} from ${tables.events} as e ${dialect.sql.fromIndex(tables.eventsById)} where ${isSameSession('e', 's')})`;
  return `(${ofEvents('count(*)')} <> s.last_seq - s.first_seq + 1
    or ${ofEvents('min(e.seq)')} <> s.first_seq or ${ofEvents('max(e.seq)')} <> s.last_seq)`;
}

/**
 * Reads the keys of all events, but no contents.
 *
 * @returns at most `limit` sessions whose row says another number of events than there are.
 */
export async function miscounted(sql: Sql, limit: number): Promise<SessionKey[]> {
  const text = `select ${sessionColumnsOf('s')} from ${sql.tables.sessions} as s where ${isMiscounted(sql)} limit ?`;
  return (await sql.all<SessionKeyRow>(text, [limit])).map(sessionKeyOf);
}

/**
 * Compares a limited number of sessions with their events, in two statements.
 *
 * @param after begins after this session; undefined for the first ones.
 */
export async function miscountedAfter(
  sql: Sql,
  after: SessionKey | undefined,
  atOnce = AT_ONCE,
): Promise<CheckedSessions> {
  const { sessions } = sql.tables;
  const { where, values } = keysetAfter(SESSION_KEY, sessionValues(after ?? FIRST));
  const page = (columns: string) =>
    `select ${SESSION_COLUMNS}, ${columns} from ${sessions} where ${where} order by ${SESSION_COLUMNS} limit ?`;
  const rows = await sql.all<CountedRow>(page('last_seq - first_seq + 1 as events'), [...values, atOnce.sessions + 1]);
  let events = 0;
  const few = rows.slice(0, atOnce.sessions).filter((row, i) => {
    const isMore = i > 0 && events >= atOnce.events;
    events += numberOf(row.events);
    return !isMore;
  });
  const found = await sql.all<SessionKeyRow>(
    `select ${SESSION_COLUMNS} from (${page('first_seq, last_seq')}) as s
      where ${isMiscounted(sql)} order by ${SESSION_COLUMNS}`,
    [...values, few.length],
  );
  const last = few.length < rows.length ? few.at(-1) : undefined;
  return { miscounted: found.map(sessionKeyOf), checked: few.length, last: last && sessionKeyOf(last) };
}
