import type { Sql } from '../database/dialects/dialect.js';
import { SESSION_COLUMNS, isSameSession, sessionColumnsOf } from '../database/sql/columns.js';
import { perTables, sessionKeyOf, type SessionKeyRow, numberOf } from '../database/sql/values.js';
import { sessionIdentity } from '../model/keys.js';
import { inLogOrder } from '../model/log-order.js';
import { MAX_SEQ } from '../model/seq-ranges.js';
import { CHANGE } from './log-head.js';

/** An event or a change without a place in the log. */
type PendingEntry = { event: PendingRow; change?: undefined } | { event?: undefined; change: PendingRow };

/** Some of the committed entries without a place in the log. */
interface PendingPage {
  /** In the order in which they get their places. */
  entries: PendingEntry[];
  /** Whether there may be more. */
  isCut: boolean;
  /** The last number that was assigned to a change. */
  lastChange: number;
}

/** An event or a change without a position, or the counter of changes. */
export interface PendingRow extends SessionKeyRow {
  /** `own`: a change of a session that has events without a position. */
  kind: 'event' | 'change' | 'own' | 'counter';
  /** The id of a change, which is never 0, or the value of the counter; 0 if a session with events has no changes. */
  id: number;
  seq: number;
  timestamp: number;
  /** Of an event: the history of its session that it belongs to. */
  incarnation: string;
  /** The lowest `seq` of the session's later changes that were not read; `MAX_SEQ` if there are none. */
  later: number;
}

interface PendingRows {
  /** By number. */
  events: PendingRow[];
  /** In the order in which they were made. */
  changes: PendingRow[];
  /** By session: the first changes of those that have events. */
  own: ReadonlyMap<string, PendingRow[]>;
  lastChange: number;
}

/**
 * Reads the next entries to get a place in the log. They are the first ones of their sessions, so what is left for the next
 * transaction comes after them (contract J2).
 *
 * @param limit at most this many events, and as many changes.
 */
export async function pendingEntries(sql: Sql, limit: number): Promise<PendingPage> {
  let rows = await readRows(sql, statements(sql).select, [limit, limit]);
  const areChangesCut = rows.changes.length === limit;
  // An event must not get its position before an earlier change of its session that did not fit in.
  if (areChangesCut) rows = await readRows(sql, statements(sql).selectWithOwn, [limit, limit, limit, limit]);
  const { own, lastChange } = rows;
  // Leaves events whose session's changes were not read for the next time: if several events have the same number, the two parts
  // of the statement may select different ones.
  const events = areChangesCut ? rows.events.filter((event) => own.has(sessionIdOf(event))) : rows.events;
  const ofEvents = [...own.values()].flat();
  const others = rows.changes.filter((change) => !own.has(sessionIdOf(change)));
  const changes = [...ofEvents, ...others.slice(0, Math.max(0, limit - ofEvents.length))];
  const areEventsCut = rows.events.length === limit;
  // All pending events with lower numbers than this were read.
  const complete = areEventsCut ? (rows.events.at(-1)?.seq ?? 0) : Infinity;
  return { entries: inOrderOfTime(events, changes, complete), isCut: areEventsCut || areChangesCut, lastChange };
}

async function readRows(sql: Sql, text: string, limits: readonly number[]): Promise<PendingRows> {
  const [ofEvents, ofChanges, ...rest] = limits;
  const read = await sql.all<PendingRow>(text, [ofEvents, ofChanges, CHANGE, ...rest]);
  const rows = read.map((row) => ({
    ...row,
    id: numberOf(row.id),
    seq: numberOf(row.seq),
    timestamp: numberOf(row.timestamp),
    later: numberOf(row.later),
  }));
  const own = new Map<string, PendingRow[]>();
  for (const row of rows.filter(({ kind }) => kind === 'own')) {
    const id = sessionIdOf(row);
    const changes = own.get(id) ?? [];
    own.set(id, changes);
    if (row.id !== 0) changes.push(row);
  }
  for (const changes of own.values()) changes.sort((a, b) => a.id - b.id);
  return {
    events: rows.filter(({ kind }) => kind === 'event').sort((a, b) => a.seq - b.seq),
    changes: rows.filter(({ kind }) => kind === 'change').sort((a, b) => a.id - b.id),
    own,
    lastChange: rows.find(({ kind }) => kind === 'counter')?.id ?? 0,
  };
}

const sessionIdOf = (row: PendingRow) => sessionIdentity(sessionKeyOf(row));

/**
 * Orders entries by time across sessions, and inside a session as they happened, whatever the clocks of the processes said.
 *
 * @param events the first ones of each session, by number.
 * @param changes the first ones of each session, in the order in which they were made.
 * @param complete all events with lower numbers are among `events`.
 * @returns the entries that come before all that were not read.
 */
function inOrderOfTime(
  events: readonly PendingRow[],
  changes: readonly PendingRow[],
  complete: number,
): PendingEntry[] {
  const sessions = new Map<string, { events: PendingRow[]; changes: PendingRow[] }>();
  const of = (row: PendingRow) => {
    const id = sessionIdOf(row);
    const session = sessions.get(id) ?? { events: [], changes: [] };
    sessions.set(id, session);
    return session;
  };
  for (const event of events) of(event).events.push(event);
  for (const change of changes) of(change).changes.push(change);

  const timed: { entry: PendingEntry; time: number }[] = [];
  for (const session of sessions.values()) {
    let time = -Infinity;
    const later = session.changes.at(-1)?.later ?? MAX_SEQ;
    // A rewind lowers the session's number. Events up to the lowest number at a change or later come before the change.
    const follows = new Map<PendingRow, number>();
    let lowest = later;
    for (const change of session.changes.toReversed()) {
      lowest = Math.min(lowest, change.seq);
      follows.set(change, lowest);
    }
    const events = session.events.filter(({ seq }) => seq <= later);
    for (const entry of inLogOrder(events, session.changes)) {
      if (entry.change && (follows.get(entry.change) ?? 0) >= complete) break;
      time = Math.max(time, (entry.event ?? entry.change).timestamp);
      timed.push({ entry, time });
    }
  }
  return timed.sort((a, b) => a.time - b.time).map(({ entry }) => entry);
}

const statements = perTables(({ tables: { sessions, events, changes, counters } }: Sql) => {
  const incarnation = `(select s.incarnation from ${sessions} as s where ${isSameSession('s', 'e')})`;
  const firstEvents = (columns: string) =>
    `select ${columns} from ${events} as e where position is null order by position, seq limit ?`;
  // Ordered by number, so that a limited part has no gap inside a session. One statement, so that events and changes are of one
  // moment: otherwise an event could get its position before a change that precedes it.
  const select = `select * from (${firstEvents(`'event' as kind, 0 as id, ${SESSION_COLUMNS}, seq, timestamp,
      ${incarnation} as incarnation, ${MAX_SEQ} as later`)})
      as pending_events
    union all select * from (
      select 'change' as kind, change_id as id, ${SESSION_COLUMNS}, seq, time as timestamp, '' as incarnation, ${MAX_SEQ} as later from ${changes}
      where number is null order by number, change_id limit ?) as pending_changes
    union all select 'counter', value, '', '', '', 0, 0, '', 0 from ${counters} where name = ?`;
  const ofSession = `partition by ${sessionColumnsOf('s')} order by change_id`;
  return {
    select,
    // Also the changes of the sessions that have these events: the first one of each session, then the second one of each …
    // With `number is null`, a server without statistics would read all changes without a number once for each session.
    selectWithOwn: `${select}
      union all select * from (
        select 'own' as kind, coalesce(change_id, 0) as id, ${SESSION_COLUMNS}, coalesce(seq, 0) as seq,
          coalesce(time, 0) as timestamp, '' as incarnation, coalesce(later, ${MAX_SEQ}) as later from (
          select ${sessionColumnsOf('s')}, change_id, c.seq, time,
            row_number() over (${ofSession}) as nth,
            min(c.seq) over (${ofSession} rows between 1 following and unbounded following) as later
          from (select distinct ${SESSION_COLUMNS} from (${firstEvents(SESSION_COLUMNS)}) as first_events) as s
          left join ${changes} as c on ${isSameSession('c', 's')} and coalesce(c.number, 0) = 0) as numbered
        order by nth, change_id limit ?) as own_changes`,
  };
});
