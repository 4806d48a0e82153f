import { randomInt } from 'node:crypto';
import { decode } from '../../model/event-codec.js';
import { Undecodable, ofChange, type KnownSession } from '../../model/codec.js';
import type { SessionKey } from '../../model/keys.js';
import type { PastChange } from '../../model/past-state.js';
import type { StoredTexts } from '../../model/stored-texts.js';
import { SCOPES, byScope, prefixed, stateJson, type StateEntries, type StateEntry } from '../../model/state.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import { numberOf, optionalTextOf } from '../sql/row-values.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  originOf,
  isSameSession,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
  type Tables,
} from '../sql/tables.js';
import { isRecord } from '../../model/objects.js';

/** Entries of the event log that are no appended events. */
export type ChangeKind =
  | 'created'
  | 'state'
  | 'rewritten'
  | 'deleted'
  /** The same, for readers: its row and last events are still there. */
  | 'ending'
  | 'soft-deleted'
  | 'restored'
  | 'trimmed'
  | 'rewound'
  /** Written or brought back by an import. */
  | 'imported';

/** A change to record, in the transaction that makes it. */
interface NewChange {
  /** With an empty session id, or also an empty user id, for state of the user or of the app. */
  session: KnownSession;
  kind: ChangeKind;
  /** The number of the session's newest event. */
  seq: number;
  /** The number of the event that is rewritten. */
  eventSeq?: number;
  /** JSON; by default null. Of `created` and `state`, null has a reader take the state from the tables. */
  data?: string | null;
}

/** From how many bytes of JSON on state is recorded in several changes; a value that is larger has one to itself. */
const MOST_RECORDED = 1_000_000;

/** SQLite refuses conditions that are nested too deeply. */
const DELETED_AT_ONCE = 100;

/** The columns that name a change. */
export interface ChangeKeyRow extends SessionKeyRow {
  change_id: number | string;
}

/** Records changes for the event log (contract J1). Appends record none: the rows of the events are their entries. */
export class ChangeStore {
  readonly #dialect: Dialect;
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables) {
    this.#dialect = dialect;
    this.#text = texts(dialect, tables);
  }

  async record(sql: Sql, change: NewChange): Promise<void> {
    const { session, kind, seq, eventSeq = null } = change;
    const data = encodedData(sql, change);
    if (data !== null) await this.#dialect.limits?.refuseTooLarge(sql, data);
    const values = [kind, seq, eventSeq, data];
    const key = sessionValues(session);
    const id = uncountedId(change);
    if (id !== undefined) {
      await sql.run(this.#text.insert, [...key, id, ...values]);
      return;
    }
    if (kind !== 'created') await sql.run(this.#text.count, key);
    await sql.run(this.#text.insertCounted, [...key, ...key, ...values]);
  }

  /** Records a session that was created, and the state that it was given. */
  async recordCreation(sql: Sql, session: KnownSession, entries: StateEntries): Promise<void> {
    for (const [i, piece] of piecesOf(sql, entries).entries()) {
      if (i === 0) await this.record(sql, { session, kind: 'created', seq: 0, data: stateJson(piece.set) });
      else await this.record(sql, { session, kind: 'state', seq: 0, data: changeText(piece) });
    }
  }

  /**
   * Records state that was set or removed outside of events.
   *
   * @param removed keys with their prefixes.
   */
  async recordState(
    sql: Sql,
    change: Pick<NewChange, 'session' | 'seq'>,
    entries: StateEntries,
    removed: readonly string[] = [],
  ): Promise<void> {
    for (const piece of piecesOf(sql, entries, removed))
      await this.record(sql, { ...change, kind: 'state', data: changeText(piece) });
  }

  /** Records that a session is gone. What was recorded of it before goes as well, except earlier deletions. */
  async recordDeletion(sql: Sql, session: SessionKey): Promise<void> {
    await sql.run(this.#text.deleteOfSession, sessionValues(session));
    await this.record(sql, { session: { ...session, origin: '' }, kind: 'deleted', seq: 0 });
  }

  /**
   * Records that the events before a number are gone. What was recorded before that goes as well.
   *
   * @param state the session's own state after the last of these events; its past begins with it (contract K4).
   */
  async recordTrim(
    sql: Sql,
    session: KnownSession,
    { firstSeq, lastSeq, state }: { firstSeq: number; lastSeq: number; state: readonly StateEntry[] },
  ): Promise<void> {
    const key = sessionValues(session);
    await sql.run(this.#text.deleteTrimmed, [...key, firstSeq, firstSeq]);
    const nothing = encodedData(sql, { session, kind: 'created', seq: 0, data: '{}' });
    await sql.run(this.#text.updateCreated, [nothing, ...key]);
    for (const { set } of piecesOf(sql, byScope(state)))
      await this.record(sql, { session, kind: 'trimmed', seq: lastSeq, data: stateJson(set) });
  }

  /**
   * @returns what was recorded of a session's state, in the order in which it was made; encoded only where `sql` reads it as stored,
   *   and without data where it cannot be decoded.
   */
  async history(sql: Sql, session: SessionKey): Promise<RecordedChange[]> {
    const rows = await sql.all<HistoryRow>(this.#text.selectHistory, sessionValues(session));
    return sql.texts.all(() =>
      rows.map(({ kind, data, ...row }) => {
        const seq = numberOf(row.seq);
        const known = { ...session, origin: row.origin ?? '' };
        const text = optionalTextOf(data);
        const json = text === null ? null : sql.texts.decode(text, () => ofChange(known, { kind, seq }));
        const change = { id: numberOf(row.change_id), kind, seq };
        return json instanceof Undecodable ? { ...change, data: null, undecodable: json } : { ...change, data: json };
      }),
    );
  }

  /** Records for a new session, behind its creation, what a past up to a number needs. */
  async copyHistory(sql: Sql, from: SessionKey, to: KnownSession, upTo: number): Promise<void> {
    if (sql.texts.codec.isNone) {
      await sql.run(this.#text.copyHistory, [
        ...[...sessionValues(to), ...sessionValues(to)],
        ...[...sessionValues(from), upTo],
      ]);
      await sql.run(this.#text.countCopied, [...sessionValues(to), ...sessionValues(to)]);
      return;
    }
    const changes = await this.history(sql, from);
    const base = changes.filter(({ kind }) => kind === 'trimmed').map((change) => ({ ...change, seq: 0 }));
    const later = changes.filter(({ kind, seq }) => kind === 'state' && seq <= upTo);
    for (const change of [...base, ...later]) await this.record(sql, { ...change, session: to });
  }

  /** Takes out what was recorded of a session's state; the entry stays in the log. */
  async empty(sql: Sql, session: KnownSession, { id, kind, seq }: Omit<RecordedChange, 'data'>): Promise<void> {
    const data = kind === 'state' ? changeText({ set: [], removed: [] }) : '{}';
    await sql.run(this.#text.updateData, [
      encodedData(sql, { session, kind, seq, data }),
      ...sessionValues(session),
      id,
    ]);
  }

  /** Deletes what was recorded behind an event, and of later events: their numbers are used again. */
  async forgetAfter(sql: Sql, session: SessionKey, seq: number): Promise<void> {
    await sql.run(this.#text.deleteAfter, [...sessionValues(session), seq, seq]);
  }

  /**
   * Deletes what was recorded of a user in an app, except of sessions that still exist; so many rows at most.
   *
   * @returns how many there were.
   */
  async forgetUser(sql: Sql, appName: string, userId: string, limit: number): Promise<number> {
    const rows = await sql.all<ChangeKeyRow>(this.#text.selectOfUser, [appName, userId, limit]);
    await this.delete(sql, rows);
    return rows.length;
  }

  /** Deletes rows by the primary key: a range would lock what is between its rows, where others write. */
  async delete(sql: Sql, rows: readonly ChangeKeyRow[]): Promise<void> {
    for (let start = 0; start < rows.length; start += DELETED_AT_ONCE) {
      const some = rows.slice(start, start + DELETED_AT_ONCE);
      const where = some.map(() => `(${SESSION_WHERE} and change_id = ?)`).join(' or ');
      const values = some.flatMap((row) => [...sessionValues(sessionKeyOf(row)), numberOf(row.change_id)]);
      await sql.run(`${this.#text.deleteById} ${where}`, values);
    }
  }
}

/** @returns the id of a change that no session's row counts; undefined for the others. */
function uncountedId({ session, kind }: Pick<NewChange, 'session' | 'kind'>): number | undefined {
  // The row is gone. A deletion comes before what is recorded of a later session of its id.
  if (kind === 'deleted') return -++lastUncounted;
  return session.sessionId === '' ? ++lastUncounted : undefined;
}

/** A random number, and then those after it: what one process records in one millisecond stays in its order. */
let lastUncounted = randomInt(2 ** 47) * 16;

/** The kinds that hold contents, and the past of a session's state. */
export const WITH_CONTENT: ReadonlySet<ChangeKind> = new Set(['created', 'state', 'trimmed']);

/** State that is set and removed by one change. */
interface Piece {
  set: (readonly [name: string, json: string])[];
  removed: string[];
}

/** @returns what a codec and a packet of the server take at a time; one piece at least. */
function piecesOf({ texts }: Sql, entries: StateEntries, removed: readonly string[] = []): Piece[] {
  const most = Math.min(MOST_RECORDED, texts.codec.isNone ? Infinity : texts.codec.maxBytes);
  let piece: Piece = { set: [], removed: [] };
  const pieces = [piece];
  let length = 0;
  const pieceFor = (...added: string[]): Piece => {
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

const changeText = ({ set, removed }: Piece) => `{"set":${stateJson(set)},"removed":${JSON.stringify(removed)}}`;

function encodedData({ texts }: Sql, { session, kind, seq, eventSeq, data = null }: NewChange): string | null {
  if (data === null || !WITH_CONTENT.has(kind)) return data;
  return texts.all(() => texts.encode(data, () => ofChange(session, { kind, seq, eventSeq })));
}

/** Within `texts.all`. @returns the JSON; null where there is none, or it cannot be decoded. */
export function decodedData(
  texts: StoredTexts,
  session: KnownSession,
  change: { kind: ChangeKind; seq: number; eventSeq?: number | null },
  data: string | null,
): string | null {
  if (data === null || !WITH_CONTENT.has(change.kind)) return data;
  const json = texts.decode(data, () => ofChange(session, change));
  return typeof json === 'string' ? json : null;
}

/** A change that the past of a session's state is made of. */
export interface RecordedChange {
  id: number;
  kind: PastChange['kind'];
  seq: number;
  data: string | null;
  /** Why it cannot be decoded. */
  undecodable?: Undecodable;
}

/** @returns what a change did to the state; undefined where that cannot be read. */
export function pastChangeOf({ kind, seq, data }: RecordedChange): PastChange | undefined {
  const recorded = data === null ? undefined : decode(data)?.value;
  const { set, removed } = kind === 'state' && isRecord(recorded) ? recorded : { set: recorded, removed: [] };
  const areKeys = Array.isArray(removed) && removed.every((key) => typeof key === 'string');
  return isRecord(set) && areKeys ? { kind, seq, set, removed } : undefined;
}

interface HistoryRow {
  change_id: number | string;
  kind: PastChange['kind'];
  seq: number;
  data: string | null;
  origin: string | null;
}

function texts({ sql }: Dialect, tables: Tables) {
  const { changes, sessions, select } = tables;
  const kinds = [...WITH_CONTENT].map((kind) => `'${kind}'`).join(', ');
  const insert = (id: string) => `insert into ${changes}
    (${SESSION_COLUMNS}, change_id, kind, seq, event_seq, time, data) values (?, ?, ?, ${id}, ?, ?, ?, ${sql.now}, ?)`;
  const deleteOfSession = `${sql.deleteThrough(changes, 'primary')} where ${SESSION_WHERE}`;
  return {
    selectHistory: `select change_id, kind, seq, ${select.data} as data, ${originOf(tables, 'c')} as origin from ${changes} as c
      where ${SESSION_WHERE} and kind in (${kinds}) order by change_id`,
    // A trim's baseline comes before all events, whatever its number was.
    copyHistory: `insert into ${changes} (${SESSION_COLUMNS}, change_id, kind, seq, time, data)
      select ?, ?, ?, (select last_change from ${sessions} where ${SESSION_WHERE}) + row_number() over (order by seq, change_id),
        kind, seq, ${sql.now}, data
        from (select kind, case when kind = 'trimmed' then 0 else seq end as seq, change_id, data from ${changes}
          where ${SESSION_WHERE} and kind in ('state', 'trimmed')) as c where seq <= ?`,
    countCopied: `update ${sessions} set last_change = (select max(change_id) from ${changes} where ${SESSION_WHERE})
      where ${SESSION_WHERE}`,
    // By the row that the caller has locked. On InnoDB to look for the last one would lock what comes after it.
    count: `update ${sessions} set last_change = last_change + 1 where ${SESSION_WHERE}`,
    insert: insert('?'),
    insertCounted: insert(`(select last_change from ${sessions} where ${SESSION_WHERE})`),
    deleteOfSession: `${deleteOfSession} and kind <> 'deleted'`,
    deleteTrimmed: `${deleteOfSession}
      and (seq < ? and kind not in ('created', 'deleted') or kind = 'trimmed' or event_seq < ?)`,
    updateData: `update ${changes} set data = ? where ${SESSION_WHERE} and change_id = ?`,
    updateCreated: `${sql.updateThrough(changes, 'primary')} set data = ? where ${SESSION_WHERE} and kind = 'created'`,
    deleteAfter: `${deleteOfSession} and (kind = 'state' and seq > ? or event_seq > ?)`,
    selectOfUser: `select ${SESSION_COLUMNS}, change_id from ${changes} as c where app_name = ? and user_id = ? and not exists
      (select 1 from ${sessions} as s where ${isSameSession('s', 'c')}) limit ?`,
    deleteById: `${sql.deleteThrough(changes, 'primary')} where`,
  };
}
