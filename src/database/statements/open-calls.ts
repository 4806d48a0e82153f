import type { WaitingCall } from '../../conversation/open-calls.js';
import { decode, isRecord } from '../../model/json.js';
import { CALL_NAME_LENGTH, type SessionKey } from '../../model/keys.js';
import { MAX_SEQ } from '../../model/seq-ranges.js';
import { mapTexts } from '../../model/codec.js';
import type { Sql } from '../dialects/dialect.js';
import { readParts, underLock, type UnderLock } from '../dialects/event-parts.js';
import { statementsFor } from '../dialects/session-rows.js';
import { keysetAfter } from '../sql/keyset.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  allOf,
  ifGiven,
  isSameSession,
  perTables,
  placeholderRows,
  sessionColumnsOf,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  numberOf,
  optionalTextOf,
  textOf,
} from '../sql/tables.js';
import { contentOf } from './session-reader.js';

/** Which calls to find; a call must meet all conditions. */
interface OpenCallFilter {
  appName: string;
  userId?: string | undefined;
  name?: string | undefined;
  /** Only calls that have been open for at least this long, in ms by the database's clock. */
  openFor?: number | undefined;
}

/** Where a page of calls ends. */
export type OpenCallCursor = Omit<SessionKey, 'appName'> & Pick<WaitingCall, 'seq' | 'number' | 'timestamp'>;

/** A call with its event, if that can be read. */
export interface FoundCall extends SessionKey, WaitingCall {
  eventId: string | undefined;
  json: string | undefined;
}

/** @returns calls in the order of their times, after a cursor. */
export async function findOpenCalls(
  sql: Sql,
  { appName, userId, name, openFor }: OpenCallFilter,
  { after, limit }: { after: OpenCallCursor | undefined; limit: number },
): Promise<FoundCall[]> {
  const order = ['timestamp', ...(userId === undefined ? ['user_id'] : []), 'session_id', 'seq', 'number'];
  const place = after && [
    after.timestamp,
    ...(userId === undefined ? [after.userId] : []),
    after.sessionId,
    after.seq,
    after.number,
  ];
  const keyset = place && keysetAfter(order, place);
  const { where, values } = allOf(
    [`app_name = ? and ${WAITS}`, appName],
    ifGiven('user_id = ?', userId),
    name === undefined ? undefined : ['name = ?', searchedName(name)],
    ifGiven(texts(sql).isOpenFor, openFor),
    keyset && [keyset.where, ...keyset.values],
  );
  const rows = await sql.all<FoundRow>(texts(sql).find(where, order.join(', ')), [...values, limit]);
  const stored: { key: SessionKey; row: FoundRow; text: string | undefined }[] = [];
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

/**
 * @param options.isLocked whether to read what is committed now, for the caller that holds the session's lock: otherwise InnoDB
 *   shows a host's transaction older rows. It is not always set, since it also locks the gap where another session's calls are
 *   inserted.
 * @param options.areWaiting whether to read only calls without an answer.
 * @returns the calls of a session in their order.
 */
export async function openCallsOf(
  sql: Sql,
  session: SessionKey,
  { areWaiting = false, ...options }: UnderLock & { areWaiting?: boolean } = {},
): Promise<WaitingCall[]> {
  const text = texts(sql).select(areWaiting) + underLock(sql, session, options);
  return (await sql.all<CallRow>(text, sessionValues(session))).map(callOf);
}

/** @returns the number of the first event with an open call; undefined if none is open. */
export async function firstOpenCall(sql: Sql, session: SessionKey): Promise<number | undefined> {
  const [row] = await sql.all<{ seq: number }>(texts(sql).selectFirst, sessionValues(session));
  return row && numberOf(row.seq);
}

/** Forgets calls of events before a number, for the caller that holds the session's lock. */
export async function forgetCallsBefore(sql: Sql, session: SessionKey, seq: number): Promise<void> {
  await sql.run(texts(sql).deleteBefore, [...sessionValues(session), seq]);
}

/** Replaces all calls of a session, for the caller that holds its lock. */
export async function setOpenCalls(sql: Sql, session: SessionKey, calls: readonly WaitingCall[]): Promise<void> {
  await replaceOpenCalls(sql, session, await openCallsOf(sql, session), calls);
}

/**
 * Like `setOpenCalls`.
 *
 * @param before the stored calls.
 * @returns false if a call to remove, or to answer, was changed by somebody else.
 */
export async function replaceOpenCalls(
  sql: Sql,
  session: SessionKey,
  before: readonly WaitingCall[],
  after: readonly WaitingCall[],
): Promise<boolean> {
  const known = new Set(before.map(placeOf));
  const kept = new Map(after.map((call) => [placeOf(call), call]));
  let areFound = true;
  for (const call of before) {
    const place = [...sessionValues(session), call.openUntil ?? MAX_SEQ, call.seq, call.number];
    const now = kept.get(placeOf(call));
    if (now && now.openUntil === call.openUntil) continue;
    const { affectedRows } = now
      ? await sql.run(texts(sql).answer, [now.openUntil ?? MAX_SEQ, ...place])
      : await sql.run(texts(sql).delete, place);
    areFound &&= affectedRows > 0;
  }
  const rows = after
    .filter((call) => !known.has(placeOf(call)))
    .map(({ openUntil = MAX_SEQ, seq, number, name, timestamp, ...data }) => [
      ...[...sessionValues(session), openUntil, seq, number],
      ...[searchedName(name), timestamp, JSON.stringify(data)],
    ]);
  for (const { text, values } of statementsFor(sql.dialect, texts(sql).insert, rows)) await sql.run(text, values);
  return areFound;
}

/** Used instead of the number of an answer, and larger than any: a call that waits is open at every event. */
const WAITS = `open_until = ${MAX_SEQ}`;

const placeOf = ({ seq, number }: WaitingCall) => `${seq} ${number}`;

/** A name as it can be stored in a column that is compared and sorted. */
const searchedName = (name: string) =>
  Array.from(Buffer.from(name).toString().replaceAll('\0', '')).slice(0, CALL_NAME_LENGTH).join('');

interface CallRow {
  open_until: number | string;
  seq: number | string;
  number: number | string;
  name: string;
  timestamp: number | string;
  call_json: string;
}

interface FoundRow extends CallRow, SessionKeyRow {
  origin: string;
  event_id: string | null;
  event_json: string | null;
}

function callOf(row: CallRow): WaitingCall {
  const data = decode(textOf(row.call_json))?.value;
  const { id, branch, about } = isRecord(data) ? data : {};
  const openUntil = numberOf(row.open_until);
  return {
    seq: numberOf(row.seq),
    number: numberOf(row.number),
    name: textOf(row.name),
    timestamp: numberOf(row.timestamp),
    id: typeof id === 'string' ? id : '',
    ...(typeof branch === 'string' && { branch }),
    ...(typeof about === 'string' && { about }),
    ...(openUntil !== MAX_SEQ && { openUntil }),
  };
}

const texts = perTables(({ dialect: { sql }, tables: { openCalls, sessions, events, select } }: Sql) => {
  const columns = `open_until, seq, number, name, timestamp, ${select.data} as call_json`;
  const place = `${SESSION_WHERE} and open_until = ? and seq = ? and number = ?`;
  return {
    select: (areWaiting: boolean) =>
      `select ${columns} from ${openCalls} where ${SESSION_WHERE}${areWaiting ? ` and ${WAITS}` : ''} order by seq, number`,
    selectFirst: `select seq from ${openCalls} where ${SESSION_WHERE} and ${WAITS} order by seq limit 1`,
    answer: `update ${openCalls} set open_until = ? where ${place}`,
    delete: `delete from ${openCalls} where ${place}`,
    deleteBefore: `delete from ${openCalls} where ${SESSION_WHERE} and seq < ?`,
    insert: {
      start: `insert into ${openCalls} (${SESSION_COLUMNS}, open_until, seq, number, name, timestamp, data) values `,
      row: placeholderRows(1, 9),
      end: '',
    },
    isOpenFor: `timestamp <= ${sql.now} - ?`,
    find: (where: string, order: string) => `
      select ${sessionColumnsOf('c')}, c.open_until, c.seq, c.number, c.name, c.timestamp, call_json, origin, event_id, ${select.data} as event_json
      from (select ${SESSION_COLUMNS}, ${columns} from ${openCalls} as o
        where ${where} and exists (select 1 from ${sessions} as s where ${isSameSession('s', 'o')} and s.status = 'active')
        order by ${order} limit ?) as c
      join ${sessions} as s on ${isSameSession('s', 'c')}
      left join ${events} as e on ${isSameSession('e', 's')} and e.seq = c.seq
      order by ${order
        .split(', ')
        .map((column) => `c.${column}`)
        .join(', ')}`,
  };
});
