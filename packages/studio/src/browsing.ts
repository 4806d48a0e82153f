import { ofChange, ofEvent, type TextPlace } from '../../../src/model/codec.js';
import { mapTexts } from '../../../src/model/stored-texts.js';
import type { ChangeKind, Sql } from '../../../src/internal.js';
import {
  IN_SESSION,
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  originOf,
  sessionColumnsOf,
} from '../../../src/database/sql/columns.js';
import {
  anyOf,
  keyed,
  named,
  perTables,
  placeholders,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  numberOf,
  optionalNumberOf,
  optionalTextOf,
  textOf,
} from '../../../src/database/sql/values.js';
import { sessionIdentity } from '../../../src/model/keys.js';
import type { LogEntry, SessionKey } from '../../../src/index.js';
import { MAX_SEQ } from '../../../src/model/seq-ranges.js';
import type { Scope } from '../../../src/model/state.js';

/** An app or a user, with the time of its last update. */
export interface NamedUpdate {
  name: string;
  /** Undefined if all its sessions are soft-deleted. */
  lastUpdateTime: number | undefined;
}

/** The size of a session; an estimate from its newest events if it has many. */
export interface Size {
  /** In UTF-8. */
  bytes: number;
  isEstimate: boolean;
}

/** A change of a session, or of the state of a user or an app, with its time. */
export interface TimedChange {
  kind: ChangeKind;
  /** The number of the session's newest event at that time. */
  seq: number;
  /** The number of the event that was rewritten. */
  eventSeq: number | null;
  /** By the database's clock, in ms. */
  time: number;
  /** JSON of what was set; null of other changes. */
  data: string | null;
}

/** An event that wrote to the state. */
export interface WritingEvent {
  session: SessionKey;
  id: string;
  seq: number;
  timestamp: number;
  /** Null if the event is too large to read for the name of its author. */
  json: string | null;
}

/** The app and the user whose rows a visitor may see; all if undefined. */
interface VisibleRows {
  appName?: string | undefined;
  userId?: string | undefined;
}

/** How many events of a session are measured, so that a page of long sessions is as fast as one of short sessions. */
const SAMPLED = 50;

/** How many sessions, the last updated first, are searched for the writer of shared state. */
const SEARCHED = 100;

/** The largest event that is read to name its author, in bytes. */
const MOST_READ = 65_536;

/** @returns at most `limit` apps that have sessions and whose name is greater than `after`, in the order of their names. */
export async function appsAfter(sql: Sql, after: string, limit: number): Promise<NamedUpdate[]> {
  return (await sql.all(...statements(sql).selectApps({ after, limit }))).map(namedUpdateOf);
}

/** @returns at most `limit` users of an app that have sessions and whose id is greater than `after`, in the order of their ids. */
export async function usersAfter(sql: Sql, appName: string, after: string, limit: number): Promise<NamedUpdate[]> {
  return (await sql.all(...statements(sql).selectUsers({ app: appName, after, limit }))).map(namedUpdateOf);
}

/** @returns the sizes of sessions, by `sessionIdentity`. */
export async function sampledSizes(
  sql: Sql,
  sessions: readonly (SessionKey & { eventCount: number })[],
): Promise<Map<string, Size>> {
  if (sessions.length === 0) return new Map();
  const { selectSize, selectPartSizes } = statements(sql);
  const rows = await sql.all(
    sessions.map((_, i) => selectSize(i)).join(' union all '),
    sessions.flatMap((key) => sessionValues(key)),
  );
  const sampled = new Map(rows.map((row) => [numberOf(row['ordinal']), row]));
  const [where, values] = inAny(sessions);
  const parts = selectPartSizes ? await sql.all<Row>(`${selectPartSizes} where ${where}`, values) : [];
  const inParts = new Map(parts.map((row) => [sessionIdentity(sessionKeyOf(row)), numberOf(row['bytes'])]));
  return new Map(
    sessions.map((session, i) => {
      const id = sessionIdentity(session);
      const row = sampled.get(i);
      const [events, bytes] = row ? [numberOf(row['events']), numberOf(row['bytes']) + (inParts.get(id) ?? 0)] : [0, 0];
      const isEstimate = session.eventCount > SAMPLED && events > 0;
      return [id, { bytes: isEstimate ? (bytes / events) * session.eventCount : bytes, isEstimate }];
    }),
  );
}

/** A condition for the rows of any of these sessions. */
const inAny = (sessions: readonly SessionKey[]) => anyOf(sessions.map((key) => [SESSION_WHERE, sessionValues(key)]));

/**
 * @param owner a session; or a user (the session id is empty), or an app (the user id is empty, too).
 * @returns the newest changes whose `seq` is in the range, at most `limit`, the oldest first.
 */
export async function changesOf(
  sql: Sql,
  owner: SessionKey,
  { from, upTo, limit }: { from: number; upTo: number; limit: number },
): Promise<TimedChange[]> {
  return timedChangesOf(
    sql,
    await sql.all<ChangeRow>(...statements(sql).selectChanges({ ...keyed(owner), from, upTo, limit })),
  );
}

/**
 * @returns when an event was imported, or copied by a fork, in ms by the database's clock: both keep the time of the earlier append.
 *   Undefined if neither was done, or nothing says when.
 */
export async function broughtAt(sql: Sql, event: SessionKey & Pick<LogEntry, 'seq' | 'copied'>) {
  const { selectBrought, selectCopied } = statements(sql);
  const select = event.copied === true ? selectCopied : selectBrought;
  const [row] = await sql.all(...select({ ...keyed(event), seq: event.seq }));
  return optionalNumberOf(row?.['brought']);
}

/** @returns the lowest of some positions whose event was stored at a time, in ms, or later; undefined if there is none. */
export async function firstStoredSince(
  sql: Sql,
  since: number,
  { after, upTo }: { after: number; upTo: number },
): Promise<number | undefined> {
  const [row] = await sql.all(...statements(sql).selectFirstSince({ after, upTo, since }));
  return optionalNumberOf(row?.['first_position']) ?? undefined;
}

/**
 * Like `changesOf`, but for the sessions that were updated last: they may have set the state of a user or an app.
 *
 * @param visible what the visitor may see.
 */
export async function changesElsewhere(
  sql: Sql,
  { appName, userId }: SessionKey,
  scope: Scope,
  visible: VisibleRows,
  limit: number,
): Promise<TimedChange[]> {
  const ofUser = scope === 'user' ? userId : visible.userId;
  const values = [appName, ...(ofUser === undefined ? [] : [ofUser]), limit];
  return timedChangesOf(
    sql,
    await sql.all<ChangeRow>(statements(sql).selectChangesElsewhere(ofUser !== undefined), values),
  );
}

/**
 * Finds events by their ids in the session, and for state of a user or an app also in the sessions that were updated last.
 *
 * @param visible what the visitor may see.
 */
export async function writersOf(
  sql: Sql,
  session: SessionKey,
  scope: Scope,
  eventIds: readonly string[],
  visible: VisibleRows,
): Promise<WritingEvent[]> {
  if (eventIds.length === 0) return [];
  const ids = placeholders(eventIds.length);
  const own = await sql.all<Row>(`${statements(sql).selectWriters} where ${SESSION_WHERE} and event_id in (${ids})`, [
    ...sessionValues(session),
    ...eventIds,
  ]);
  const missing =
    scope === 'session' ? [] : eventIds.filter((id) => !own.some((row) => textOf(row['event_id']) === id));
  const rows = missing.length === 0 ? own : [...own, ...(await elsewhere(sql, session, scope, missing, visible))];
  return mapTexts(rows, (row) => {
    const [known, id] = [knownIn(row), textOf(row['event_id'])];
    const json = decodedIn(sql, row, ofEvent(known, id));
    const session = sessionKeyOf(row);
    return { session, id, seq: numberOf(row['seq']), timestamp: numberOf(row['happened']), json };
  });
}

async function elsewhere(
  sql: Sql,
  { appName, userId }: SessionKey,
  scope: Scope,
  eventIds: readonly string[],
  visible: VisibleRows,
): Promise<Row[]> {
  const ofUser = scope === 'user' ? userId : visible.userId;
  return sql.all<Row>(
    `${statements(sql).selectElsewhere(ofUser !== undefined)} and e.event_id in (${placeholders(eventIds.length)})`,
    [appName, ...(ofUser === undefined ? [] : [ofUser]), ...eventIds],
  );
}

/** How many calls wait, and the number of the first event with one. */
export interface WaitingCalls {
  count: number;
  first: number;
}

/** The calls of a session that wait for a person, and those that are answered and wait for the agent. */
export type Waits = Partial<Record<'person' | 'agent', WaitingCalls>>;

/** @returns the calls of sessions that wait, by `sessionIdentity`. */
export async function countWaiting(sql: Sql, sessions: readonly SessionKey[]): Promise<Map<string, Waits>> {
  const found = new Map<string, Waits>();
  if (sessions.length === 0) return found;
  const { selectWaiting, groupWaiting } = statements(sql);
  const [where, values] = inAny(sessions);
  for (const row of await sql.all<Row>(`${selectWaiting} and ${where} ${groupWaiting}`, values)) {
    const id = sessionIdentity(sessionKeyOf(row));
    const calls = { count: numberOf(row['waits']), first: numberOf(row['first_seq']) };
    const waitsFor = numberOf(row['is_answered']) === 1 ? 'agent' : 'person';
    found.set(id, { ...found.get(id), [waitsFor]: calls });
  }
  return found;
}

/** A row with a session's key and other columns. */
type Row = SessionKeyRow & Readonly<Record<string, unknown>>;

const namedUpdateOf = ({ name, updated }: Readonly<Record<string, unknown>>): NamedUpdate => ({
  name: textOf(name),
  lastUpdateTime: optionalNumberOf(updated),
});

type ChangeRow = Row & { kind: ChangeKind };

/** @returns what the texts of a row are bound to. State of a user or an app has no origin. */
const knownIn = (row: Row) => ({ ...sessionKeyOf(row), origin: optionalTextOf(row['origin']) ?? '' });

/** @returns the JSON in a row; null if there is none, or if it cannot be decoded. */
function decodedIn({ texts }: Sql, row: Row, context: TextPlace): string | null {
  const stored = optionalTextOf(row['data']);
  const json = stored === null ? null : texts.decode(stored, () => context);
  return typeof json === 'string' ? json : null;
}

/** @param rows the newest first. */
const timedChangesOf = (sql: Sql, rows: readonly ChangeRow[]): TimedChange[] =>
  mapTexts(rows.toReversed(), (row) => {
    const change = {
      kind: row.kind,
      seq: numberOf(row['seq']),
      eventSeq: optionalNumberOf(row['event_seq']) ?? null,
    };
    const data = decodedIn(sql, row, ofChange(knownIn(row), { id: numberOf(row['change_id']), ...change }));
    return { ...change, time: numberOf(row['changed']), data };
  });

const statements = perTables(({ dialect: { sql, limits }, tables }: Sql) => {
  const { sessions, events, eventParts, changes, openCalls, select } = tables;
  const columns = sessionColumnsOf('s');
  // The column is unsigned on MariaDB, where a negative difference is an error.
  const newest = `case when s.last_seq > ${SAMPLED} then s.last_seq - ${SAMPLED} else 0 end`;
  const sizes = {
    // Without the order PostgreSQL chooses the other index, and reads all events of a long session.
    selectSize: (
      ordinal: number,
    ) => `select ${ordinal} as ordinal, count(*) as events, coalesce(sum(n.bytes), 0) as bytes
      from (select ${sql.byteLength('data')} as bytes from ${events} where ${SESSION_WHERE}
        order by seq desc limit ${SAMPLED}) as n`,
    selectPartSizes: limits
      ? `select ${columns}, (select coalesce(sum(${sql.byteLength('p.text')}), 0) from ${eventParts} as p
          where ${isSameSession('p', 's')} and p.seq > ${newest}) as bytes from ${sessions} as s`
      : undefined,
  };
  // An answered call is no longer open, but waits for the agent.
  const isAnswered = `case when open_until = ${MAX_SEQ} then 0 else 1 end`;
  // One statement jumps from name to name in the index: one statement for each name would be a round trip each.
  const names = (column: string, where: string) => {
    const after = `from ${sessions} where ${where}${column} >`;
    if (sql.pagesAlone)
      return `select ${column} as name, max(case when status = 'active' then last_update_time end) as updated
        ${after} :after group by ${column} order by ${column} limit :limit`;
    const found = sql.skipsToNextName
      ? `select distinct ${column} as name ${after} :after order by ${column} limit :limit`
      : `with recursive names (name, step) as (
          select min(${column}), 1 ${after} :after
          union all select (select min(${column}) ${after} names.name), step + 1
            from names where name is not null and step < :limit)
        select name from names where name is not null`;
    // Names all columns of the index: otherwise MySQL sorts all sessions of the app.
    const newest = [...(where === '' ? [] : ['app_name']), column, 'last_update_time'].map((each) => `${each} desc`);
    return `select name, (select last_update_time from ${sessions} where ${where}${column} = found.name and status = 'active'
        order by ${newest.join(', ')} limit 1) as updated
      from (${found}) as found order by name`;
  };
  const brought = (orElse = '') => `select max(time) as brought from ${changes}
    where ${IN_SESSION} and ((kind = 'imported' and seq >= :seq)${orElse})`;
  const newestSessions = (ofUser: boolean) => `(select ${SESSION_COLUMNS} from ${sessions}
      where app_name = ?${ofUser ? ' and user_id = ?' : ''} and status = 'active'
      order by last_update_time desc limit ${SEARCHED}) as s`;
  const change = `change_id, kind, seq, event_seq, time as changed,
    case when kind in ('created', 'state') then ${select.data} end as data, ${originOf(tables, 'c')} as origin`;
  const writer = `event_id, seq, timestamp as happened,
    case when ${sql.byteLength('data')} <= ${MOST_READ} then ${select.data} end as data,
    ${originOf(tables, 'e')} as origin`;
  return {
    selectApps: named(names('app_name', '')),
    selectUsers: named(names('user_id', 'app_name = :app and ')),
    ...sizes,
    selectWaiting: `select ${SESSION_COLUMNS}, ${isAnswered} as is_answered, count(*) as waits, min(seq) as first_seq
      from ${openCalls} where waits_for > 0`,
    groupWaiting: `group by ${SESSION_COLUMNS}, ${isAnswered}`,
    selectChanges: named(`select ${SESSION_COLUMNS}, ${change} from ${changes} as c
      where ${IN_SESSION} and seq >= :from and seq <= :upTo order by change_id desc limit :limit`),
    selectFirstSince: named(`select min(position) as first_position from ${events}
      where position > :after and position <= :upTo and coalesce(append_time, timestamp) >= :since`),
    selectBrought: named(brought()),
    selectCopied: named(brought(" or kind = 'created'")),
    selectChangesElsewhere: (ofUser: boolean) =>
      `select ${columns}, ${change} from ${newestSessions(ofUser)} join ${changes} as c on ${isSameSession('c', 's')}
        where kind in ('created', 'state') order by c.time desc, change_id desc limit ?`,
    selectWriters: `select ${SESSION_COLUMNS}, ${writer} from ${events} as e`,
    selectElsewhere: (ofUser: boolean) =>
      `select ${columns}, ${writer} from ${newestSessions(ofUser)}
        join ${events} as e on ${isSameSession('e', 's')} where 1 = 1`,
  };
});
