import { randomInt } from 'node:crypto';
import { ofChange, type KnownSession } from '../../model/codec.js';
import { mapTexts, Undecodable, type StoredTexts, type TextCodec } from '../../model/stored-texts.js';
import type { SessionKey } from '../../model/keys.js';
import { recordedState, type PastChange } from '../../model/past-state.js';
import { SCOPES, byScope, prefixed, stateJson, type StateEntries, type StateEntry } from '../../model/state.js';
import type { Sql } from '../dialects/dialect.js';
import type { Bound } from '../drivers/driver.js';
import { countChange } from '../dialects/session-rows.js';
import { IN_SESSION, SESSION_COLUMNS, originOfSession } from '../sql/columns.js';
import { keyed, named, perTables, numberOf, optionalTextOf, type Row } from '../sql/values.js';

/** Entries of the event log other than appended events. */
export type ChangeKind =
  | 'created'
  | 'state'
  | 'rewritten'
  | 'deleted'
  /** Readers get it as `deleted`, but the row and the last events are still there. */
  | 'ending'
  | 'soft-deleted'
  | 'restored'
  | 'trimmed'
  | 'rewound'
  /** Written or brought back by an import. */
  | 'imported';

/** A change to record, in the transaction that makes it. */
export interface NewChange {
  /** For state of the user the session id is empty; for state of the app, also the user id. */
  session: KnownSession;
  kind: ChangeKind;
  /** The number of the session's newest event. */
  seq: number;
  /** The number of the rewritten event. */
  eventSeq?: number;
  /** JSON; null by default. An import may give an encoded text, which stays as it is. For `created` and `state`, null makes a reader take the state from the tables. */
  data?: string | null;
}

/** State of more bytes of JSON than this is recorded in several changes; a larger single value has a change to itself. */
const MOST_RECORDED = 1_000_000;

// Appends record no change: the rows of the events are their entries in the event log (contract J1).

/** Records a change, and encodes its data. */
export async function recordChange(sql: Sql, change: NewChange): Promise<void> {
  const { session, kind, seq, eventSeq = null } = change;
  const key = keyed(session);
  const isNew = kind === 'created';
  let id = uncountedId(change);
  // Count in the row that the caller has locked: searching for the last change would lock the gap after it on InnoDB.
  if (id === undefined && !isNew) sql.later(...statements(sql)[TOUCHING.has(kind) ? 'touch' : 'count'](key));
  // Otherwise the insert reads the id: no statement is spent on it.
  if (id === undefined && (isEncoded(sql.texts, change) || sql.dialect.sql.insertsValuesOnly))
    id = await changeIdBy(sql, statements(sql).lastChange(key));
  const data = encodedData(sql.texts, session, { ...change, id });
  if (data !== null) await sql.dialect.limits?.refuseTooLarge(sql, 'An entry of the log', data);
  const values = { ...key, kind, seq, eventSeq, data };
  sql.later(...(id === undefined ? statements(sql).insertCounted(values) : statements(sql).insert({ ...values, id })));
}

/** What somebody does to a session that is in use, so that `prune` leaves it. A nightly trim is not among them. */
const TOUCHING: ReadonlySet<ChangeKind> = new Set(['state', 'rewritten', 'restored', 'rewound']);

/** Records changes in their order. */
export async function recordChanges(sql: Sql, changes: readonly NewChange[]): Promise<void> {
  for (const change of changes) await recordChange(sql, change);
}

/** @returns the changes of a session that is created with this state. */
export function creationChanges(texts: StoredTexts, session: KnownSession, entries: StateEntries): NewChange[] {
  return piecesOf(texts.codec, entries).map((piece, i) =>
    i === 0
      ? { session, kind: 'created', seq: 0, data: stateJson(piece.set) }
      : { session, kind: 'state', seq: 0, data: changeText(piece) },
  );
}

/**
 * @param removed keys with their prefixes.
 * @returns the changes for state that is set or removed outside events.
 */
export function stateChanges(
  texts: StoredTexts,
  change: Pick<NewChange, 'session' | 'seq'>,
  entries: StateEntries,
  removed: readonly string[] = [],
): NewChange[] {
  return piecesOf(texts.codec, entries, removed).map((piece) => ({
    ...change,
    kind: 'state',
    data: changeText(piece),
  }));
}

/** Records that a session is gone, and deletes its earlier records, except those of deletions. */
export async function recordDeletion(sql: Sql, session: SessionKey): Promise<void> {
  sql.later(...statements(sql).deleteOthers(keyed(session)));
  await recordChange(sql, { session: { ...session, origin: '' }, kind: 'deleted', seq: 0 });
}

/**
 * Records that the events before a number are gone, and deletes the earlier records.
 *
 * @param state the session's own state after the last trimmed event, with which its past begins (contract K4).
 */
export async function recordTrim(
  sql: Sql,
  { session, seq }: Pick<NewChange, 'session' | 'seq'>,
  firstSeq: number,
  state: readonly StateEntry[],
): Promise<void> {
  const key = keyed(session);
  sql.later(...statements(sql).deleteBefore({ ...key, firstSeq }));
  const created: NewChange = { session, kind: 'created', seq: 0, data: '{}' };
  const id = isEncoded(sql.texts, created) ? await changeIdBy(sql, statements(sql).created(key)) : undefined;
  sql.later(...statements(sql).setCreated({ ...key, data: encodedData(sql.texts, session, { ...created, id }) }));
  for (const { set } of piecesOf(sql.texts.codec, byScope(state)))
    await recordChange(sql, { session, kind: 'trimmed', seq, data: stateJson(set) });
}

/** @returns the recorded changes of a session's state, in their order. */
export async function recordedChanges(sql: Sql, session: SessionKey): Promise<RecordedChange[]> {
  const rows = await sql.all<HistoryRow>(...statements(sql).select(keyed(session)));
  return mapTexts(rows, ({ kind, data, ...row }) => {
    const seq = numberOf(row.seq);
    const known = { ...session, origin: optionalTextOf(row.origin) ?? '' };
    const text = optionalTextOf(data);
    const change = { id: numberOf(row.change_id), kind, seq };
    const json = text === null ? null : sql.texts.decode(text, () => ofChange(known, change));
    return json instanceof Undecodable ? { ...change, data: null, undecodable: json } : { ...change, data: json };
  });
}

/** @returns the changes that the past up to a number needs, for a new session. */
export function copiedChanges(changes: readonly RecordedChange[], session: KnownSession, upTo: number): NewChange[] {
  const base = changes.filter(({ kind }) => kind === 'trimmed').map((change) => ({ ...change, seq: 0 }));
  const later = changes.filter(({ kind, seq }) => kind === 'state' && seq <= upTo);
  return [...base, ...later].map(({ kind, seq, data }) => ({ session, kind, seq, data }));
}

/** Empties a recorded change; its entry stays in the log. */
export function emptyChange(sql: Sql, session: KnownSession, { id, kind, seq }: RecordedChange): void {
  const data = kind === 'state' ? changeText({ set: [], removed: [] }) : '{}';
  const text = encodedData(sql.texts, session, { id, kind, seq, data });
  sql.later(...statements(sql).setData({ ...keyed(session), id, data: text }));
}

/** Deletes the changes after an event, and those of later events, whose numbers will be used again. */
export function forgetChangesAfter(sql: Sql, session: SessionKey, seq: number): void {
  sql.later(...statements(sql).deleteAfter({ ...keyed(session), seq }));
}

/** @returns the id of a change that no session's row counts; undefined for other changes. */
function uncountedId({ session, kind }: Pick<NewChange, 'session' | 'kind'>): number | undefined {
  // The session's row is gone. A deletion must come before the changes of a later session with the same id.
  if (kind === 'deleted') return -++lastUncounted;
  return session.sessionId === '' ? ++lastUncounted : undefined;
}

/** Begins with a random number. It counts up, so that changes of one process in one millisecond stay in their order. */
let lastUncounted = randomInt(2 ** 47) * 16;

/** The kinds that hold contents: those from which past states are computed. */
const WITH_CONTENT: ReadonlySet<ChangeKind> = new Set(['created', 'state', 'trimmed']);

/** The condition for them. */
export const HAS_CONTENT = `kind in (${[...WITH_CONTENT].map((kind) => `'${kind}'`).join(', ')})`;

/** The state that one change sets and removes. */
interface StateChange {
  set: (readonly [name: string, json: string])[];
  removed: string[];
}

/** @returns pieces that are small enough for a codec and for a packet of the server; at least one. */
function piecesOf(codec: TextCodec, entries: StateEntries, removed: readonly string[] = []): StateChange[] {
  const most = Math.min(MOST_RECORDED, codec.isNone ? Infinity : codec.maxBytes);
  let piece: StateChange = { set: [], removed: [] };
  const pieces = [piece];
  let length = 0;
  const pieceFor = (...added: string[]): StateChange => {
    const more = added.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    if (length > 0 && length + more > most) {
      pieces.push((piece = { set: [], removed: [] }));
      length = 0;
    }
    length += more;
    return piece;
  };
  for (const scope of SCOPES)
    for (const { key, json } of entries[scope]) pieceFor(key, json).set.push([prefixed(scope, key), json]);
  for (const key of removed) pieceFor(key).removed.push(key);
  return pieces;
}

const changeText = ({ set, removed }: StateChange) => `{"set":${stateJson(set)},"removed":${JSON.stringify(removed)}}`;

function encodedData(
  texts: StoredTexts,
  session: KnownSession,
  { id, data = null, ...change }: Pick<NewChange, 'kind' | 'seq' | 'data'> & { id: number | undefined },
): string | null {
  const isPlain = data === null || id === undefined || !WITH_CONTENT.has(change.kind);
  return isPlain ? data : texts.encode(data, () => ofChange(session, { ...change, id }));
}

async function changeIdBy(sql: Sql, statement: Bound): Promise<number | undefined> {
  const [row] = await sql.all<{ change_id: number | string }>(...statement);
  return row && numberOf(row.change_id);
}

/** Whether the text of a change differs from its JSON. */
const isEncoded = ({ codec }: StoredTexts, { kind, data = null }: NewChange) =>
  !codec.isNone && data !== null && WITH_CONTENT.has(kind);

/** @returns the JSON; null if there is none, or if it cannot be decoded. */
export function decodedData(
  texts: StoredTexts,
  session: KnownSession,
  change: { id: number; kind: ChangeKind; seq: number },
  data: string | null,
): string | null {
  if (data === null || !WITH_CONTENT.has(change.kind)) return data;
  const json = texts.decode(data, () => ofChange(session, change));
  return typeof json === 'string' ? json : null;
}

/** A change from which past states are computed. */
export interface RecordedChange {
  id: number;
  kind: PastChange['kind'];
  seq: number;
  data: string | null;
  /** Why it cannot be decoded. */
  undecodable?: Undecodable;
}

/** @returns what a change did to the state; undefined if it cannot be read. */
export function pastChangeOf({ kind, seq, data }: Omit<RecordedChange, 'id'>): PastChange | undefined {
  const { set, removed } = recordedState({ kind, data });
  return set && removed && { kind, seq, set, removed };
}

type HistoryRow = { kind: PastChange['kind'] } & Row<'change_id' | 'seq' | 'data' | 'origin'>;

const statements = perTables(({ dialect: { sql }, tables }: Sql) => {
  const { changes, sessions, select } = tables;
  const lastChange = `(select last_change from ${sessions} where ${IN_SESSION})`;
  const inserted = (
    id: string,
  ) => `insert into ${changes} (${SESSION_COLUMNS}, change_id, kind, seq, event_seq, time, data)
    values (:app, :user, :session, ${id}, :kind, :seq, :eventSeq, ${sql.now}, :data)`;
  const counted = (touches: boolean) =>
    named(`update ${sessions} set ${countChange(sql, touches)} where ${IN_SESSION}`);
  const deleteOfSession = `${sql.deleteThrough(changes, 'primary')} where ${IN_SESSION}`;
  const update = `update ${changes} ${sql.fromIndex('primary')} set data = :data where ${IN_SESSION}`;
  return {
    insert: named(inserted(':id')),
    insertCounted: named(inserted(lastChange)),
    lastChange: named(`select last_change as change_id from ${sessions} where ${IN_SESSION}`),
    count: counted(false),
    touch: counted(true),
    select: named(`select change_id, kind, seq, ${select.data} as data, ${originOfSession(tables)} as origin
      from ${changes} where ${IN_SESSION} and ${HAS_CONTENT} order by change_id`),
    created: named(`select change_id from ${changes} where ${IN_SESSION} and kind = 'created'`),
    setCreated: named(`${update} and kind = 'created'`),
    setData: named(`update ${changes} set data = :data where ${IN_SESSION} and change_id = :id`),
    deleteOthers: named(`${deleteOfSession} and kind <> 'deleted'`),
    deleteBefore: named(
      `${deleteOfSession} and (seq < :firstSeq and kind not in ('created', 'deleted') or kind = 'trimmed' or event_seq < :firstSeq)`,
    ),
    deleteAfter: named(`${deleteOfSession} and (kind = 'state' and seq > :seq or event_seq > :seq)`),
  };
});
