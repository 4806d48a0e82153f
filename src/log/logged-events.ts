import { afterPrefix } from '../database/sql/keyset.js';
import { ofEvent } from '../model/codec.js';
import { mapTexts, type Undecodable } from '../model/stored-texts.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import { SESSION_TREE_SEPARATOR } from '../model/session-key.js';
import { gapsIn, type SeqRange } from '../model/seq-ranges.js';
import type { Sql } from '../database/dialects/dialect.js';
import { perLock, readParts } from '../database/dialects/event-parts.js';
import { countedElsewhere } from '../database/statements/forks.js';
import {
  IN_SESSION,
  SESSION_COLUMNS,
  isSameSession,
  originOf,
  inSession,
  originOfSession,
} from '../database/sql/columns.js';
import {
  allOf,
  ifGiven,
  perTables,
  sessionKeyOf,
  numberOf,
  optionalNumberOf,
  optionalTextOf,
  textOf,
  keyed,
  named,
} from '../database/sql/values.js';

/** An event as the log reads it. */
export interface LoggedEvent {
  session: SessionKey;
  seq: number;
  /** Null until the event has one. */
  position: number | null;
  id: string;
  /** When the database stored it, in ms; null if unknown. */
  appendTime: number | null;
  /** Null if the row has lost its content; undefined if the event was deleted during the read, or its session is soft-deleted. */
  json: string | null | undefined;
  /** Whether a fork has copied it from another session that still has it. */
  isCopy: boolean;
  /** Why it cannot be decoded. */
  undecodable?: Undecodable | undefined;
}

/** Events of one session, by their numbers. */
interface SessionLogRange extends LogRange {
  /** The session must still have this incarnation. */
  incarnation: string;
  /** Only events later than this, in ms. */
  afterTimestamp?: number | undefined;
}

/** Events after one position, up to and including another; or changes by their numbers. */
export interface LogRange {
  after: number;
  upTo: number;
  limit: number;
}

/** The conditions of a filter that compare columns. */
export interface LogColumns {
  appName?: string | undefined;
  userId?: string | undefined;
  sessionId?: string | undefined;
  sessionTree?: string | undefined;
  afterTimestamp?: number | undefined;
}

/** @returns further conditions for a statement, and their values. */
export function conditions({ appName, userId, sessionId, sessionTree: tree, afterTimestamp }: LogColumns) {
  const { where, values } = allOf(
    ifGiven('app_name = ?', appName),
    ifGiven('user_id = ?', userId),
    ifGiven('session_id = ?', sessionId),
    // A range, not `like`, in which `%` and `_` are wildcards, and which ignores case on SQLite.
    tree === undefined
      ? undefined
      : [
          '(session_id = ? or (session_id >= ? and session_id < ?))',
          ...[tree, `${tree}${SESSION_TREE_SEPARATOR}`, `${tree}${AFTER_SEPARATOR}`],
        ],
    ifGiven('timestamp > ?', afterTimestamp),
  );
  return { where: where && ` and ${where}`, values };
}

const AFTER_SEPARATOR = afterPrefix(SESSION_TREE_SEPARATOR);

/**
 * Events of all sessions in the order of their positions.
 *
 * @param options.isComplete whether those of soft-deleted sessions have their contents: in the complete log a change says that a
 *   session was deleted.
 */
export function loggedEvents(
  sql: Sql,
  { after, upTo, limit }: LogRange,
  columns: LogColumns,
  { isComplete = false } = {},
): Promise<LoggedEvent[]> {
  const { where, values } = conditions(columns);
  const { selectEvents, selectAllEvents } = statements(sql);
  const select = isComplete ? selectAllEvents : selectEvents;
  return readEvents(sql, `${select}${where} order by position limit ?`, [after, upTo, ...values, limit]);
}

/** @returns one event; undefined if it is gone. */
export async function loggedEvent(sql: Sql, session: SessionKey, seq: number): Promise<LoggedEvent | undefined> {
  const [event] = await readEvents(sql, ...statements(sql).selectEvent({ ...keyed(session), seq }));
  return event;
}

/** Some events of one session in append order; none if the session is gone, or if another one has its id. */
export interface NumberedPage {
  events: LoggedEvent[];
  /** The numbers that have no event. */
  gaps: SeqRange[];
  /** The number to continue after. */
  upTo: number;
}

export async function eventsByNumber(sql: Sql, session: SessionKey, range: SessionLogRange): Promise<NumberedPage> {
  const { all, later } = statements(sql).selectSessionEvents(sql, session);
  const { after, afterTimestamp, limit } = range;
  const values = { ...keyed(session), ...range };
  const select = afterTimestamp === undefined ? all(values) : later({ ...values, afterTimestamp });
  const events = await readEvents(sql, ...select);
  const upTo = events.length < limit ? range.upTo : (events.at(-1)?.seq ?? range.upTo);
  const numbers = events.map(({ seq }) => seq);
  // A missing event has no time, so a filter by time leaves it out.
  return { events, upTo, gaps: afterTimestamp === undefined ? gapsIn(numbers, after, upTo) : [] };
}

/** Which of a session's events a page has, if there are more: the first of them, or the last. */
interface PageRange {
  after: number;
  upTo: number;
  limit: number;
  fromFirst: boolean;
}

/** Reads a page of a session's events with the session's numbers, as of one moment. @returns undefined if there is no such session. */
export async function eventsWithHead(sql: Sql, session: SessionKey, { fromFirst, ...range }: PageRange) {
  const { first, last } = statements(sql).selectPage(sql, session);
  const rows = await sql.all(...(fromFirst ? first : last)({ ...keyed(session), ...range }));
  const [head] = rows;
  if (!head) return undefined;
  const events = await loggedOf(
    sql,
    rows.filter(({ seq }) => seq !== null),
  );
  return {
    incarnation: textOf(head['incarnation']),
    firstSeq: numberOf(head['first_seq']),
    lastSeq: numberOf(head['last_seq']),
    events: events.sort((a, b) => a.seq - b.seq),
  };
}

type EventRow = Readonly<Record<string, unknown>>;

async function readEvents(sql: Sql, select: string, values: readonly unknown[]): Promise<LoggedEvent[]> {
  return loggedOf(sql, await sql.all(select, values));
}

async function loggedOf(sql: Sql, found: readonly EventRow[]): Promise<LoggedEvent[]> {
  const rows: { row: EventRow; session: SessionKey; text: string | null | undefined }[] = [];
  for (const row of found) {
    const session = sessionKeyOf(row);
    const isSoftDeleted = row['origin'] === SOFT_DELETED;
    const inParts = () => readParts(sql, session, numberOf(row['seq']));
    rows.push({ row, session, text: isSoftDeleted ? undefined : (optionalTextOf(row['data']) ?? (await inParts())) });
  }
  const copied = rows.filter(({ row }) => numberOf(row['seq']) <= (optionalNumberOf(row['forked_seq']) ?? 0));
  const elsewhere = new Map<string, ReadonlySet<string>>();
  for (const [identity, session] of new Map(copied.map(({ session }) => [sessionIdentity(session), session]))) {
    const ids = copied.filter((each) => sessionIdentity(each.session) === identity);
    elsewhere.set(
      identity,
      await countedElsewhere(
        sql,
        session,
        ids.map(({ row }) => textOf(row['event_id'])),
      ),
    );
  }
  return mapTexts(rows, ({ row, session, text }) => {
    const id = textOf(row['event_id']);
    const seq = numberOf(row['seq']);
    const isCopy = elsewhere.get(sessionIdentity(session))?.has(id) === true;
    const position = optionalNumberOf(row['position']) ?? null;
    const event = { session, seq, position, id, appendTime: optionalNumberOf(row['append_time']) ?? null, isCopy };
    if (typeof text !== 'string') return { ...event, json: text };
    const json = sql.texts.decode(text, () => ofEvent({ ...session, origin: optionalTextOf(row['origin']) ?? '' }, id));
    return typeof json === 'string' ? { ...event, json } : { ...event, json: null, undecodable: json };
  });
}

/** Replaces the origin of a soft-deleted session. */
const SOFT_DELETED = 'soft-deleted, longer than any origin can be';

const statements = perTables(({ dialect, tables }: Sql) => {
  const { sessions, events, select } = tables;
  const logged = (
    origin: string,
    forkedSeq: string,
  ) => `select position, ${SESSION_COLUMNS}, seq, event_id, append_time, ${select.data} as data,
    ${origin} as origin, ${forkedSeq} as forked_seq from ${events} as e`;
  const ofSession = (forkedSeq: string, end = '') =>
    `${logged(originOfSession(tables, end), forkedSeq)} where ${IN_SESSION}`;
  const forkedSeq = `(select s.forked_seq from ${sessions} as s where ${isSameSession('s', 'e')})`;
  // Select the status instead of filtering by it: as a condition it makes servers read the whole log, or all sessions, for one
  // batch.
  const ofActive = `(select case when s.status = 'active' then s.origin else '${SOFT_DELETED}' end from ${sessions} as s
    where ${isSameSession('s', 'e')})`;
  return {
    selectEvents: `${logged(ofActive, forkedSeq)} where position > ? and position <= ?`,
    selectAllEvents: `${logged(originOf(tables, 'e'), forkedSeq)} where position > ? and position <= ?`,
    selectEvent: named(`${ofSession(`(select forked_seq from ${sessions} where ${IN_SESSION})`)} and seq = :seq`),
    selectSessionEvents: perLock(dialect, (end) => {
      const isThere = `exists (select 1 from ${sessions} where ${IN_SESSION} and incarnation = :incarnation${end})`;
      // Nobody asks which events of one session are copies.
      const inRange = `${ofSession('null', end)} and seq > :after and seq <= :upTo and ${isThere}`;
      const ordered = `order by seq limit :limit${end}`;
      return {
        all: named(`${inRange} ${ordered}`),
        later: named(`${inRange} and timestamp > :afterTimestamp ${ordered}`),
      };
    }),
    // SQLite uses one lower and one upper limit for the index.
    selectPage: perLock(dialect, (end) => {
      const number = (column: string) => `(select ${column} from ${sessions} where ${IN_SESSION}${end})`;
      const [first, last] = [`${number('first_seq')} - 1`, number('last_seq')];
      const inRange = `seq > case when :after > ${first} then :after else ${first} end
        and seq <= case when :upTo < ${last} then :upTo else ${last} end`;
      const page = (order: string) =>
        named(`select incarnation, first_seq, last_seq, page.* from ${sessions} as s left join (
          ${ofSession('null', end)} and ${inRange} order by seq${order} limit :limit${end}) as page on 1 = 1
          where ${inSession('s')} and s.status = 'active'${end}`);
      return { first: page(''), last: page(' desc') };
    }),
  };
});
