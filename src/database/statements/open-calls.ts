import { mapTexts } from '../../model/stored-texts.js';
import { createHash } from 'node:crypto';
import { Calls, type LongRunningCall } from '../../conversation/calls.js';
import { decode, isRecord } from '../../model/json.js';
import { CALL_NAME_LENGTH, keyOfIdentity, type SessionKey } from '../../model/keys.js';
import { chunksOf } from '../../model/pages.js';
import { MAX_SEQ } from '../../model/seq-ranges.js';
import type { Sql } from '../dialects/dialect.js';
import { perLock, readParts, underLock } from '../dialects/event-parts.js';
import { rowsText, statementsFor } from '../dialects/session-rows.js';
import { ownedAfter } from '../sql/keyset.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  IN_SESSION,
  sessionColumnsOf,
  originOfSession,
} from '../sql/columns.js';
import {
  type Condition,
  allOf,
  ifGiven,
  perTables,
  keyed,
  named,
  sessionKeyOf,
  sessionValues,
  type Row,
  type SessionKeyRow,
  numberOf,
  optionalTextOf,
  textOf,
  contentOf,
  placeholders,
  type EventContent,
} from '../sql/values.js';
import { eventOf } from './events.js';
import { setColumns } from './sessions.js';
import type { OriginRow } from './state.js';

/** Which calls to find; a call must meet all conditions. */
interface OpenCallFilter {
  appName: string;
  userId?: string | undefined;
  sessionId?: string | undefined;
  name?: string | undefined;
  /** Only calls that have been open for at least this long, in ms by the database's clock. */
  openFor?: number | undefined;
  /** Calls that wait for a person, or answered ones that the agent has not continued with. */
  waitsFor: 'person' | 'agent';
}

/** Where a page of calls ends. */
export type OpenCallCursor = Omit<SessionKey, 'appName'> & Pick<LongRunningCall, 'seq' | 'number' | 'timestamp'>;

/** A call with its event, if that can be read. */
export interface StoredCall extends SessionKey, LongRunningCall {
  eventId: string | undefined;
  json: string | undefined;
}

/** @returns calls in the order of their times, after a cursor. */
export async function findOpenCalls(
  sql: Sql,
  { appName, userId, sessionId, name, openFor, waitsFor }: OpenCallFilter,
  { after, limit }: { after: OpenCallCursor | undefined; limit: number },
): Promise<StoredCall[]> {
  const place = after && [after.timestamp, after.userId, after.sessionId, after.seq, after.number];
  const columns = ['timestamp', 'user_id', 'session_id', 'seq', 'number'];
  const { order, ...owned } = ownedAfter({ appName, userId }, columns, place);
  const conditions: readonly (Condition | undefined)[] = [
    [`waits_for = ${WAITS_FOR[waitsFor]} and ${owned.where}`, ...owned.values],
    ifGiven('session_id = ?', sessionId),
    name === undefined ? undefined : ['name = ?', searchedName(name)],
    ifGiven(statements(sql).isOpenFor, openFor),
  ];
  const rows: OpenCallRow[] = [];
  const behind = [...(sql.behind ?? [])]
    .filter(([, isBehind]) => isBehind)
    .map(([identity]) => keyOfIdentity(identity));
  // A host's transaction reads the sessions that it has locked as they are now, as `getSession` does.
  const current = behind.map((key) => ({ only: [[SESSION_WHERE, ...sessionValues(key)]], end: underLock(sql, key) }));
  const others = behind.map((key) => [`not (${SESSION_WHERE})`, ...sessionValues(key)]);
  for (const { only, end } of [{ only: others, end: '' }, ...current]) {
    const { where, values } = allOf(...conditions, ...only.map(([text = '', ...values]) => [text, ...values] as const));
    rows.push(...(await sql.all<OpenCallRow>(statements(sql).find(where, order.join(', '), end), [...values, limit])));
  }
  if (behind.length > 0) rows.sort(byPlace).splice(limit);
  const stored: { key: SessionKey; row: OpenCallRow; text: string | undefined }[] = [];
  for (const row of rows) {
    const key = sessionKeyOf(row);
    const text = optionalTextOf(row.event_json) ?? (await readParts(sql, key, numberOf(row.seq))) ?? undefined;
    stored.push({ key, row, text });
  }
  return mapTexts(stored, ({ key, row, text }) => {
    const eventId = optionalTextOf(row.event_id) ?? undefined;
    const session = { ...key, origin: textOf(row.origin) };
    const { json } = eventId === undefined ? {} : contentOf(sql.texts, session, eventId, text);
    return { ...key, ...callOf(row), eventId, json };
  });
}

/** @returns the calls of a session in their order. */
export async function openCallsOf(sql: Sql, session: SessionKey): Promise<LongRunningCall[]> {
  const text = statements(sql).select + underLock(sql, session);
  return (await sql.all<CallRow>(text, sessionValues(session))).map(callOf);
}

/** @returns the number of the first event with a call that waits for a person or for the agent; undefined if none waits. */
export async function firstOpenCall(sql: Sql, session: SessionKey): Promise<number | undefined> {
  const [row] = await sql.all<{ seq: number }>(statements(sql).selectFirst, sessionValues(session));
  return row && numberOf(row.seq);
}

/**
 * Reads in one statement what an append to a locked session needs.
 *
 * @param ids of its events.
 * @returns those of its events that are stored, the calls in their order, and the highest number of an event or 0.
 */
export async function readForAppend(sql: Sql, session: SessionKey, ids: readonly string[]) {
  const { start, end } = statements(sql).forAppend(sql, session);
  const [text, values] = start(keyed(session));
  const read: Promise<ReadRow[]>[] = [];
  for (const chunk of chunksOf(ids, MOST_IDS))
    read.push(sql.all<ReadRow>(`${text}${placeholders(chunk.length)}${end}`, [...values, ...chunk]));
  const [first = [], ...others] = await Promise.all(read);
  const events = [...first, ...others.flat()].filter(({ kind }) => kind === 'event');
  const found: EventContent[] = [];
  for (const row of events) found.push(await eventOf(sql, session, { ...row, event_id: row.name, data: row.text }));
  const calls = first.filter(({ kind }) => kind === 'call').map((row) => callOf({ ...row, call_json: row.text ?? '' }));
  const newest = first.find(({ kind }) => kind === 'newest')?.seq;
  return { found, before: calls.sort((a, b) => a.seq - b.seq || a.number - b.number), newest: numberOf(newest) };
}

/**
 * Makes the rows of a session those of its calls, for the caller that holds its lock.
 *
 * @param options.before the stored rows, if they are known.
 * @param options.columns of the session's row, to set with those that depend on its calls.
 * @returns whether calls are pending.
 */
export async function setOpenCalls(
  sql: Sql,
  session: SessionKey,
  calls: Calls,
  { before, columns = {} }: { before?: readonly LongRunningCall[]; columns?: Readonly<Record<string, number>> } = {},
): Promise<boolean> {
  const key = keyed(session);
  const rows = new Map(calls.rows.map((call) => [placeOf(call), valuesOf(call)]));
  const stored = before ?? (await openCallsOf(sql, session));
  for (const call of stored) {
    const was = valuesOf(call);
    const now = rows.get(placeOf(call));
    if (!now) sql.later(...statements(sql).delete({ ...key, ...was }));
    else if (JSON.stringify(now) !== JSON.stringify(was))
      sql.later(...statements(sql).update({ ...key, ...now, before: was.openUntil }));
    rows.delete(placeOf(call));
  }
  const added = [...rows.values()].map((values) => ({ ...key, ...values }));
  for (const insert of statementsFor(sql.dialect, statements(sql).insert, added)) sql.later(...insert);
  const { areUnsettled } = calls;
  const isChanged = areUnsettled !== new Calls(stored).areUnsettled;
  const changed = { ...columns, ...(isChanged && { has_pending_calls: Number(areUnsettled) }) };
  if (Object.keys(changed).length > 0) setColumns(sql, session, changed);
  return areUnsettled;
}

/** The order of `findOpenCalls`, in which texts are compared by their bytes. */
function byPlace(a: OpenCallRow, b: OpenCallRow): number {
  const texts = (row: OpenCallRow) => Buffer.from(`${textOf(row.user_id)}\0${textOf(row.session_id)}`);
  return (
    numberOf(a.timestamp) - numberOf(b.timestamp) ||
    Buffer.compare(texts(a), texts(b)) ||
    numberOf(a.seq) - numberOf(b.seq) ||
    numberOf(a.number) - numberOf(b.number)
  );
}

/** The columns of a call after those that name its session, before `data`. */
const COLUMNS = ['open_until', 'seq', 'number', 'answered_from', 'waits_for', 'name', 'timestamp'] as const;

/** The values of `waits_for`. */
const WAITS_FOR = { nobody: 0, person: 1, agent: 2 } as const;

const placeOf = ({ seq, number }: LongRunningCall) => `${seq} ${number}`;

/** The columns of a call's row after the session's. */
function valuesOf(call: LongRunningCall) {
  // A call that waits is open at every event: its number is larger than any.
  const { openUntil = MAX_SEQ, answeredFrom = MAX_SEQ, awaitsRun, seq, number, name: given, timestamp, ...rest } = call;
  const waitsFor = WAITS_FOR[openUntil === MAX_SEQ ? 'person' : awaitsRun ? 'agent' : 'nobody'];
  const name = searchedName(given);
  const data = JSON.stringify(given === name ? rest : { ...rest, name: given });
  return { openUntil, seq, number, answeredFrom, waitsFor, name, timestamp, data };
}

/** A name as it can be stored in a column that is compared and sorted; other names become other texts. */
function searchedName(name: string): string {
  const plain = Array.from(Buffer.from(name).toString().replaceAll('\0', ''));
  const text = plain.join('');
  if (text === name && plain.length <= CALL_NAME_LENGTH) return name;
  const hash = createHash('sha256').update(JSON.stringify(name)).digest('base64url');
  return plain.slice(0, CALL_NAME_LENGTH - hash.length - 1).join('') + ` ${hash}`;
}

type CallColumn = (typeof COLUMNS)[number];

type CallRow = Row<CallColumn | 'call_json'>;

/** A row of a call, of an event with its id as `name`, or the highest number of an event. */
type ReadRow = OriginRow & Row<CallColumn | 'text'> & { kind: 'call' | 'event' | 'newest' };

/** How many ids of events one statement names. */
const MOST_IDS = 1_000;

type OpenCallRow = CallRow & SessionKeyRow & OriginRow & Row<'event_id' | 'event_json'>;

function callOf(row: CallRow): LongRunningCall {
  const data = decode(textOf(row.call_json))?.value;
  const openUntil = numberOf(row.open_until);
  const answeredFrom = numberOf(row.answered_from);
  return {
    ...{ id: '', name: textOf(row.name) },
    ...(isRecord(data) && data),
    ...{ seq: numberOf(row.seq), number: numberOf(row.number), timestamp: numberOf(row.timestamp) },
    ...(openUntil !== MAX_SEQ && { openUntil }),
    ...(answeredFrom !== MAX_SEQ && { answeredFrom }),
    ...(numberOf(row.waits_for) === WAITS_FOR.agent && { awaitsRun: true }),
  };
}

const statements = perTables(({ dialect, tables }: Sql) => {
  const { sql } = dialect;
  const { openCalls, sessions, events, select } = tables;
  const own = COLUMNS.join(', ');
  const columns = `${own}, ${select.data} as call_json`;
  const place = `${IN_SESSION} and seq = :seq and number = :number and open_until =` as const;
  return {
    select: `select ${columns} from ${openCalls} where ${SESSION_WHERE} order by seq, number`,
    // In a union each select needs its own lock, and a type for each of its columns: calls have them all.
    forAppend: perLock(dialect, (end) => {
      const locked = (text: string) => (end === '' ? text : `(${text}${end})`);
      const newest = `select seq from ${events} where ${IN_SESSION} order by seq desc limit 1${end}`;
      const calls = `select 'call' as kind, ${own}, ${select.data} as text, '' as origin
        from ${openCalls} where ${IN_SESSION}`;
      const found = `select 'event', 0, seq, 0, 0, 0, event_id, 0, ${select.data}, ${originOfSession(tables, end)}
        from ${events} where ${IN_SESSION} and event_id in (`;
      const all = `${locked(calls)} union all select 'newest', 0, coalesce((${newest}), 0), 0, 0, 0, '', 0, null, ''`;
      return { start: named(`${all} union all ${end && '('}${found}`), end: `)${end}${end && ')'}` };
    }),
    selectFirst: `select seq from ${openCalls} where ${SESSION_WHERE} and waits_for > 0 order by seq limit 1`,
    update: named(`update ${openCalls} set open_until = :openUntil, answered_from = :answeredFrom,
      waits_for = :waitsFor, name = :name, timestamp = :timestamp, data = :data where ${place} :before`),
    delete: named(`delete from ${openCalls} where ${place} :openUntil`),
    insert: rowsText(
      `insert into ${openCalls} (${SESSION_COLUMNS}, ${own}, data) values `,
      '(:app, :user, :session, :openUntil, :seq, :number, :answeredFrom, :waitsFor, :name, :timestamp, :data)',
    ),
    isOpenFor: `timestamp <= ${sql.now} - ?`,
    find: (where: string, order: string, end: string) => `
      select ${sessionColumnsOf('c')}, ${COLUMNS.map((column) => `c.${column}`).join(', ')}, call_json, origin, event_id, ${select.data} as event_json
      from (select ${SESSION_COLUMNS}, ${columns} from ${openCalls} as o
        where ${where} and exists (select 1 from ${sessions} as s where ${isSameSession('s', 'o')} and s.status = 'active'${end})
        order by ${order} limit ?${end}) as c
      join ${sessions} as s on ${isSameSession('s', 'c')}
      left join ${events} as e on ${isSameSession('e', 's')} and e.seq = c.seq
      order by ${order
        .split(', ')
        .map((column) => `c.${column}`)
        .join(', ')}${end}`,
  };
});
