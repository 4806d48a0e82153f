import { mapTexts } from '../../model/stored-texts.js';
import { createHash } from 'node:crypto';
import { Calls, type LongRunningCall } from '../../conversation/calls.js';
import { decode, isRecord } from '../../model/json.js';
import { CALL_NAME_LENGTH, keyOfIdentity, type SessionKey } from '../../model/keys.js';
import { MAX_SEQ } from '../../model/seq-ranges.js';
import type { Sql } from '../dialects/dialect.js';
import { readParts, underLock } from '../dialects/event-parts.js';
import { statementsFor } from '../dialects/session-rows.js';
import { keysetAfter } from '../sql/keyset.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  type Condition,
  allOf,
  ifGiven,
  isSameSession,
  perTables,
  IN_SESSION,
  keyed,
  named,
  sessionColumnsOf,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  numberOf,
  optionalTextOf,
  textOf,
} from '../sql/tables.js';
import { contentOf } from './session-reader.js';
import { setColumns } from './sessions.js';

/** Which calls to find; a call must meet all conditions. */
interface OpenCallFilter {
  appName: string;
  userId?: string | undefined;
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
  { appName, userId, name, openFor, waitsFor }: OpenCallFilter,
  { after, limit }: { after: OpenCallCursor | undefined; limit: number },
): Promise<StoredCall[]> {
  const order = ['timestamp', ...(userId === undefined ? ['user_id'] : []), 'session_id', 'seq', 'number'];
  const place = after && [
    after.timestamp,
    ...(userId === undefined ? [after.userId] : []),
    after.sessionId,
    after.seq,
    after.number,
  ];
  const keyset = place && keysetAfter(order, place);
  const conditions: readonly (Condition | undefined)[] = [
    [`app_name = ? and waits_for = ${WAITS_FOR[waitsFor]}`, appName],
    ifGiven('user_id = ?', userId),
    name === undefined ? undefined : ['name = ?', searchedName(name)],
    ifGiven(statements(sql).isOpenFor, openFor),
    keyset && [keyset.where, ...keyset.values],
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

/** Makes the rows of a session those of its calls, for the caller that holds its lock. @param before the stored rows. */
export async function setOpenCalls(
  sql: Sql,
  session: SessionKey,
  calls: Calls,
  before?: readonly LongRunningCall[],
): Promise<void> {
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
  if (calls.areUnsettled !== new Calls(stored).areUnsettled)
    setColumns(sql, session, { has_pending_calls: Number(calls.areUnsettled) });
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

interface CallRow {
  open_until: number | string;
  seq: number | string;
  number: number | string;
  answered_from: number | string;
  waits_for: number | string;
  name: string;
  timestamp: number | string;
  call_json: string;
}

interface OpenCallRow extends CallRow, SessionKeyRow {
  origin: string;
  event_id: string | null;
  event_json: string | null;
}

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

const statements = perTables(({ dialect: { sql }, tables: { openCalls, sessions, events, select } }: Sql) => {
  const columns = `open_until, seq, number, answered_from, waits_for, name, timestamp, ${select.data} as call_json`;
  const place = `${IN_SESSION} and seq = :seq and number = :number and open_until =` as const;
  return {
    select: `select ${columns} from ${openCalls} where ${SESSION_WHERE} order by seq, number`,
    selectFirst: `select seq from ${openCalls} where ${SESSION_WHERE} and waits_for > 0 order by seq limit 1`,
    update: named(`update ${openCalls} set open_until = :openUntil, answered_from = :answeredFrom,
      waits_for = :waitsFor, name = :name, timestamp = :timestamp, data = :data where ${place} :before`),
    delete: named(`delete from ${openCalls} where ${place} :openUntil`),
    insert: {
      start: `insert into ${openCalls} (${SESSION_COLUMNS}, open_until, seq, number, answered_from, waits_for, name, timestamp, data) values `,
      row: named(
        '(:app, :user, :session, :openUntil, :seq, :number, :answeredFrom, :waitsFor, :name, :timestamp, :data)',
      ),
      end: '',
    },
    isOpenFor: `timestamp <= ${sql.now} - ?`,
    find: (where: string, order: string, end: string) => `
      select ${sessionColumnsOf('c')}, c.open_until, c.seq, c.number, c.answered_from, c.waits_for, c.name, c.timestamp, call_json, origin, event_id, ${select.data} as event_json
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
