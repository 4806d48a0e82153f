import { randomInt } from 'node:crypto';
import { decode } from '../../model/event-codec.js';
import { isEncoded, ofChange, type KnownSession } from '../../model/codec.js';
import type { SessionKey } from '../../model/keys.js';
import type { PastChange } from '../../model/past-state.js';
import type { StoredTexts } from '../../model/stored-texts.js';
import { SCOPES, prefixed, stateJson, type StateEntries } from '../../model/state.js';
import type { Dialect } from '../dialects/dialect.js';
import type { Sql } from '../sql/sql.js';
import { numberOf, optionalNumberOf, optionalTextOf } from '../sql/row-values.js';
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
  /** Soft-deleted. */
  | 'hidden'
  | 'restored'
  | 'trimmed'
  | 'rewound'
  /** Brought back by an import. */
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
  /** JSON; null where a reader is to read the tables instead. */
  data: string | null;
  /** Whether it is an entry of the event log; by default it is. */
  isLogged?: boolean;
}

/** An event that was appended again with another content. */
interface NewRewriting extends Pick<NewChange, 'session' | 'seq'> {
  /** The number of the event. */
  eventSeq: number;
  /**
   * The session's own state after the rewriting, of the keys in the delta of either content: `removed` are those that it does
   * not have; no `set` where a value cannot be read. Forks and rewinds need it, because no stored event has what the former
   * content alone wrote, or shows what was set between the append and the rewriting.
   */
  left: { set?: StateEntries; removed: readonly string[] };
}

/**
 * The longest JSON that is recorded, in code units. What is longer may not fit into a packet of MySQL or MariaDB; a reader
 * takes it from the tables.
 */
const MOST_RECORDED = 1_000_000;

/** SQLite refuses conditions that are nested too deeply. */
const DELETED_AT_ONCE = 100;

/** The columns that name a change. */
export interface ChangeKeyRow extends SessionKeyRow {
  change_id: number | string;
}

/** Instead of the number of an entry of the log, for what only a session's history needs. */
const NOT_LOGGED = -1;

/** @returns whether a row of `adk_changes` is an entry of the event log, or becomes one when it gets its number. */
export const isEntryOfLog = ({ number }: { number: number | string | null }) => optionalNumberOf(number) !== NOT_LOGGED;

/** Records changes for the event log (contract J1). Appends record none: the rows of the events are their entries. */
export class ChangeStore {
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables) {
    this.#text = texts(dialect, tables);
  }

  async record(sql: Sql, change: NewChange): Promise<void> {
    await this.#insert(sql, change, encodedData(sql, change));
  }

  async #insert(sql: Sql, change: NewChange, data: string | null): Promise<void> {
    const { session, kind, seq, eventSeq, isLogged = true } = change;
    const values = [kind, seq, eventSeq ?? null, data, isLogged ? null : NOT_LOGGED];
    const key = sessionValues(session);
    const id = uncountedId(change);
    if (id !== undefined) {
      await sql.run(this.#text.insert, [...key, id, ...values]);
      return;
    }
    if (kind !== 'created') await sql.run(this.#text.count, key);
    await sql.run(this.#text.insertCounted, [...key, ...key, ...values]);
  }

  /**
   * Records state that was set or removed outside of events.
   *
   * @param set undefined where a reader is to read the tables instead.
   * @param removed keys with their prefixes.
   */
  async recordState(
    sql: Sql,
    change: Pick<NewChange, 'session' | 'seq' | 'isLogged'> & { set?: StateEntries; removed?: readonly string[] },
  ): Promise<void> {
    const { set, removed = [], ...recorded } = change;
    const keys = JSON.stringify(removed);
    const whole: NewChange = {
      ...{ ...recorded, kind: 'state' },
      data: set ? `{"set":${stateText(set)},"removed":${keys}}` : null,
    };
    // The names of removed keys are always recorded: without them a reader would keep the keys.
    const data = encodedData(sql, whole) ?? encodedData(sql, { ...whole, data: `{"removed":${keys}}` });
    await this.#insert(sql, whole, data);
  }

  /** Records that an event has a new content. */
  async recordRewriting(sql: Sql, { eventSeq, left, ...change }: NewRewriting): Promise<void> {
    await this.#insert(sql, { ...change, kind: 'rewritten', eventSeq, data: null }, null);
    await this.recordState(sql, { ...change, ...left, isLogged: false });
  }

  /** Records that a session is gone. What was recorded of it before goes as well, except earlier deletions. */
  async recordDeletion(sql: Sql, session: SessionKey): Promise<void> {
    await sql.run(this.#text.deleteOfSession, sessionValues(session));
    await this.#insert(sql, { session: { ...session, origin: '' }, kind: 'deleted', seq: 0, data: null }, null);
  }

  /**
   * Records that the events before a number are gone. What was recorded before that goes as well, and the session's entry of
   * its creation stands for the state that it left (contract J2).
   *
   * @param state JSON of that state; null where it is not known.
   */
  async recordTrim(
    sql: Sql,
    session: KnownSession,
    { firstSeq, lastSeq, state }: { firstSeq: number; lastSeq: number; state: string | null },
  ): Promise<void> {
    const key = sessionValues(session);
    const creation: NewChange = { session, kind: 'created', seq: 0, data: state };
    const recorded = encodedData(sql, creation);
    await sql.run(this.#text.deleteTrimmed, [...key, firstSeq, firstSeq]);
    await sql.run(this.#text.updateCreated, [recorded, ...key]);
    await this.record(sql, { session, kind: 'trimmed', seq: lastSeq, data: null });
  }

  /** @returns what was recorded of a session's state, in the order in which it was made; encoded only where `sql` reads it as stored. */
  async history(sql: Sql, session: SessionKey): Promise<StateHistory> {
    const history: StateHistory = { created: undefined, changes: [], completeBefore: Infinity };
    const recorded = await this.#recorded(sql, session);
    for (const [i, change] of recorded.entries()) {
      const { kind, data, seq, eventSeq = seq } = change;
      if (data !== null && isEncoded(data)) {
        if (kind === 'created') history.encodedCreated = data;
        else if (kind === 'rewound') history.changes.push({ kind, seq, encoded: data });
        else if (kind === 'state') history.changes.push({ kind, seq, removed: [], encoded: data });
        continue;
      }
      const value = recordedIn(data);
      // Too large to be recorded.
      const isMissing =
        kind === 'rewritten'
          ? recorded[i + 1]?.isLogged !== false
          : !isRecord(kind === 'state' ? value?.['set'] : value);
      if (isMissing) history.completeBefore = Math.min(history.completeBefore, eventSeq);
      if (kind === 'created') history.created = value;
      const past = pastChangeOf(change);
      if (past) history.changes.push(past);
    }
    return history;
  }

  /** @returns what was recorded of a session's state, without data where it cannot be decoded. */
  async #recorded(sql: Sql, session: SessionKey): Promise<Omit<NewChange, 'session'>[]> {
    const { selectHistory } = sql.texts.codec.isNone ? this.#text : this.#text.withOrigin;
    const rows = await sql.all<HistoryRow>(selectHistory, sessionValues(session));
    return sql.texts.all(() =>
      rows.map(({ kind, data, ...row }) => {
        const seq = numberOf(row.seq);
        const known = { ...session, origin: row.origin ?? '' };
        const eventSeq = optionalNumberOf(row.event_seq);
        const json = decodedData(sql.texts, known, { kind, seq }, optionalTextOf(data));
        return { kind, seq, ...(eventSeq !== undefined && { eventSeq }), isLogged: isEntryOfLog(row), data: json };
      }),
    );
  }

  /** Records for a new session the changes that were recorded of another one's state up to a number. */
  async copyHistory(sql: Sql, from: SessionKey, to: KnownSession, upTo: number): Promise<void> {
    if (sql.texts.codec.isNone) {
      await sql.run(this.#text.copyHistory, [
        ...[...sessionValues(to), ...sessionValues(to)],
        ...[...sessionValues(from), upTo],
      ]);
      await sql.run(this.#text.countCopied, [...sessionValues(to), ...sessionValues(to)]);
      return;
    }
    const recorded = await this.#recorded(sql, from);
    for (const change of recorded.filter(({ kind, seq }) => (kind === 'state' || kind === 'rewound') && seq <= upTo))
      await this.record(sql, { ...change, session: to, isLogged: true });
  }

  /** Deletes the records of events that are removed, from a number on: their numbers are used again. */
  async forgetRewritten(sql: Sql, session: SessionKey, after: number): Promise<void> {
    await sql.run(this.#text.deleteRewritten, [...sessionValues(session), after]);
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

/** The kinds that hold contents. */
export const WITH_CONTENT: ReadonlySet<ChangeKind> = new Set(['created', 'state', 'rewound']);

/** @returns what is stored; null where it is too long. */
function encodedData({ texts }: Sql, { session, kind, seq, eventSeq, data }: NewChange): string | null {
  if (data === null || !WITH_CONTENT.has(kind)) return data;
  if (!texts.codec.isNone && Buffer.byteLength(data) > texts.codec.maxBytes) return null;
  const text = texts.all(() => texts.encode(data, () => ofChange(session, { kind, seq, eventSeq })));
  return text.length > MOST_RECORDED ? null : text;
}

/** Within `texts.all`. @returns the JSON; null where there is none, or it cannot be decoded: the tables have the rest. */
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

/** What was recorded of a session's state. */
export interface StateHistory {
  /** What the session was given; undefined where it is not known. */
  created: Record<string, unknown> | undefined;
  /** The same as a codec has stored it. */
  encodedCreated?: string;
  changes: (PastChange & { encoded?: string })[];
  /**
   * The state after each event with a lower number follows from `created`, `changes` and the session's events; Infinity where
   * every state does. A change may have been too large to be recorded.
   */
  completeBefore: number;
}

/** @returns what a change did to the state; undefined for one that did nothing to it. */
export function pastChangeOf({ kind, seq, data }: Pick<NewChange, 'kind' | 'seq' | 'data'>): PastChange | undefined {
  const value = recordedIn(data);
  if (kind === 'rewound') return { kind, seq, ...(value && { state: value }) };
  if (kind !== 'state') return undefined;
  const set = isRecord(value?.['set']) ? value['set'] : undefined;
  const removed = Array.isArray(value?.['removed']) ? value['removed'] : [];
  return { kind, seq, ...(set && { set }), removed: removed.filter((key) => typeof key === 'string') };
}

function recordedIn(data: string | null): Record<string, unknown> | undefined {
  const recorded = data === null ? undefined : decode(data)?.value;
  return isRecord(recorded) ? recorded : undefined;
}

interface HistoryRow {
  kind: 'created' | 'state' | 'rewound' | 'rewritten';
  seq: number;
  event_seq: number | null;
  number: number | string | null;
  data: string | null;
  /** Without a codec it is not selected. */
  origin?: string | null;
}

/** The JSON of an object of state. */
export function stateText(entries: StateEntries): string {
  return stateJson(
    SCOPES.flatMap((scope) => entries[scope].map(({ key, json }) => [prefixed(scope, key), json] as const)),
  );
}

function texts({ sql }: Dialect, tables: Tables) {
  const { changes, sessions, select } = tables;
  const selectHistory = (
    more = '',
  ) => `select kind, seq, event_seq, number, case when kind <> 'rewritten' then ${select.data} end as data${more} from ${changes} as c
      where ${SESSION_WHERE} and kind in ('created', 'state', 'rewound', 'rewritten') order by change_id`;
  const insert = (id: string) => `insert into ${changes}
    (${SESSION_COLUMNS}, change_id, kind, seq, event_seq, time, data, number) values (?, ?, ?, ${id}, ?, ?, ?, ${sql.now}, ?, ?)`;
  const deleteOfSession = `${sql.deleteThrough(changes, 'primary')} where ${SESSION_WHERE}`;
  return {
    selectHistory: selectHistory(),
    withOrigin: { selectHistory: selectHistory(`, ${originOf(tables, 'c')} as origin`) },
    copyHistory: `insert into ${changes} (${SESSION_COLUMNS}, change_id, kind, seq, time, data)
      select ?, ?, ?, (select last_change from ${sessions} where ${SESSION_WHERE}) + row_number() over (order by change_id),
        kind, seq, ${sql.now}, data from ${changes}
        where ${SESSION_WHERE} and kind in ('state', 'rewound') and seq <= ?`,
    countCopied: `update ${sessions} set last_change = (select max(change_id) from ${changes} where ${SESSION_WHERE})
      where ${SESSION_WHERE}`,
    // By the row that the caller has locked. On InnoDB to look for the last one would lock what comes after it.
    count: `update ${sessions} set last_change = last_change + 1 where ${SESSION_WHERE}`,
    insert: insert('?'),
    insertCounted: insert(`(select last_change from ${sessions} where ${SESSION_WHERE})`),
    deleteOfSession: `${deleteOfSession} and kind <> 'deleted'`,
    deleteTrimmed: `${deleteOfSession}
      and (seq < ? and kind not in ('created', 'deleted') or kind = 'trimmed' or event_seq < ?)`,
    updateCreated: `${sql.updateThrough(changes, 'primary')} set data = ? where ${SESSION_WHERE} and kind = 'created'`,
    deleteRewritten: `${deleteOfSession} and event_seq > ?`,
    selectOfUser: `select ${SESSION_COLUMNS}, change_id from ${changes} as c where app_name = ? and user_id = ? and not exists
      (select 1 from ${sessions} as s where ${isSameSession('s', 'c')}) limit ?`,
    deleteById: `${sql.deleteThrough(changes, 'primary')} where`,
  };
}
