import type { SessionKey } from '../../model/keys.js';
import type { PastChange } from '../../model/past-state.js';
import { SCOPES, prefixed, stateJson, type StateEntries } from '../../model/state.js';
import type { Dialect } from '../dialects/dialect.js';
import { checking, type Sql } from '../sql/sql.js';
import { numberOf, textOf } from '../sql/row-values.js';
import {
  SESSION_COLUMNS,
  SESSION_WHERE,
  isSameSession,
  placeholders,
  sessionValues,
  type Tables,
} from '../sql/tables.js';
import { isRecord } from '../../model/objects.js';

/** What the event log has besides appended events. */
export type ChangeKind =
  | 'created'
  | 'state'
  | 'rewritten'
  | 'deleted'
  /** Soft-deleted. */
  | 'hidden'
  | 'restored'
  | 'trimmed'
  | 'rewound';

/** A change to record, in the transaction that makes it. */
export interface NewChange {
  /** With an empty session id, or also an empty user id, for state of the user or of the app. */
  session: SessionKey;
  kind: ChangeKind;
  /** The number of the session's newest event. */
  seq: number;
  /** The number of the event that is rewritten. */
  eventSeq?: number;
  /** JSON; null where a reader is to read the tables instead. */
  data: string | null;
}

/**
 * The longest JSON that is recorded, in code units. What is longer may not fit into a packet of MySQL or MariaDB; a reader
 * takes it from the tables.
 */
const MOST_RECORDED = 1_000_000;

/** Records changes for the event log (contract J1). Appends record none: the rows of the events are their entries. */
export class ChangeStore {
  readonly #text: ReturnType<typeof texts>;

  constructor(dialect: Dialect, tables: Tables) {
    this.#text = texts(dialect, tables);
  }

  async record(sql: Sql, { session, kind, seq, eventSeq, data }: NewChange): Promise<void> {
    await sql.run(this.#text.insert, [...sessionValues(session), kind, seq, eventSeq ?? null, recordedOf(data)]);
  }

  /**
   * Records state that was set or removed outside of events.
   *
   * @param set undefined where a reader is to read the tables instead.
   * @param removed keys with their prefixes.
   */
  async recordState(
    sql: Sql,
    change: Pick<NewChange, 'session' | 'seq'> & { set?: StateEntries; removed?: readonly string[] },
  ): Promise<void> {
    const { session, seq, set, removed = [] } = change;
    const keys = JSON.stringify(removed);
    const whole = set && recordedOf(`{"set":${stateText(set)},"removed":${keys}}`);
    // The names of removed keys are always recorded: without them a reader would keep the keys.
    await this.record(sql, { session, kind: 'state', seq, data: whole ?? `{"removed":${keys}}` });
  }

  /**
   * Records that an event has a new content.
   *
   * @param before the JSON that it had; null where that cannot be read.
   */
  async recordRewriting(
    sql: Sql,
    { before, ...change }: Required<Pick<NewChange, 'session' | 'seq' | 'eventSeq'>> & { before: string | null },
  ): Promise<void> {
    const data = recordedOf(before);
    await this.record(sql, { ...change, kind: 'rewritten', data });
    // No event has what the former content left in the state any more.
    if (data === null) await this.recordState(sql, change);
  }

  /** Records that a session is gone. What was recorded of it before goes as well, except earlier deletions. */
  async recordDeletion(sql: Sql, session: SessionKey): Promise<void> {
    await sql.run(this.#text.deleteOfSession, sessionValues(session));
    await this.record(sql, { session, kind: 'deleted', seq: 0, data: null });
  }

  /**
   * Records that the events before a number are gone. What was recorded before that goes as well, and the session's entry of
   * its creation stands for the state that it left (contract J2).
   *
   * @param state JSON of that state; null where it is not known.
   */
  async recordTrim(
    sql: Sql,
    session: SessionKey,
    { firstSeq, lastSeq, state }: { firstSeq: number; lastSeq: number; state: string | null },
  ): Promise<void> {
    const key = sessionValues(session);
    const recorded = recordedOf(state);
    await sql.run(this.#text.deleteTrimmed, [...key, firstSeq, firstSeq]);
    // The number of rows that an update finds does not do: a host may have the driver count only those that it changes.
    const [created] = await sql.all(this.#text.selectCreated, key);
    if (created) await sql.run(this.#text.updateCreated, [recorded, ...key]);
    // Made by a process of an earlier version.
    else await this.record(sql, { session, kind: 'created', seq: 0, data: recorded });
    await this.record(sql, { session, kind: 'trimmed', seq: lastSeq, data: JSON.stringify({ firstSeq }) });
  }

  /** @returns what was recorded of a session's state, in the order in which it was made. */
  async history(sql: Sql, session: SessionKey): Promise<StateHistory> {
    const rows = await sql.all<HistoryRow>(this.#text.selectHistory, sessionValues(session));
    const history: StateHistory = { created: undefined, changes: [], isComplete: true };
    for (const { kind, data, ...row } of rows) {
      const seq = numberOf(row.seq);
      const recorded: unknown = data === null ? undefined : JSON.parse(textOf(data));
      const value = isRecord(recorded) ? recorded : undefined;
      const set = isRecord(value?.['set']) ? value['set'] : undefined;
      // Too large to be recorded, older than the record, or an event that was rewritten.
      if (kind === 'state' ? !set : !value) history.isComplete = false;
      if (kind === 'created') history.created = value;
      else if (kind === 'rewound') history.changes.push({ kind, seq, ...(value && { state: value }) });
      else if (kind === 'state') {
        const removed = Array.isArray(value?.['removed']) ? value['removed'] : [];
        const names = removed.filter((key) => typeof key === 'string');
        history.changes.push({ kind, seq, ...(set && { set }), removed: names });
      }
    }
    return history;
  }

  /** Records for a new session the changes that were recorded of another one's state up to a number. */
  async copyHistory(sql: Sql, from: SessionKey, to: SessionKey, upTo: number): Promise<void> {
    await sql.run(this.#text.copyHistory, [...sessionValues(to), ...sessionValues(from), upTo]);
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
    const rows = await sql.all<{ change_id: number | string }>(this.#text.selectOfUser, [
      checking(appName),
      userId,
      limit,
    ]);
    // The rows are deleted by the primary key: a range would lock what is between its rows, where others write.
    const ids = rows.map((row) => numberOf(row.change_id));
    if (ids.length > 0) await sql.run(`${this.#text.deleteById} (${placeholders(ids.length)})`, ids);
    return ids.length;
  }
}

const recordedOf = (data: string | null) => (data !== null && data.length > MOST_RECORDED ? null : data);

/** What was recorded of a session's state. */
export interface StateHistory {
  /** What the session was given; undefined where it is not known. */
  created: Record<string, unknown> | undefined;
  changes: PastChange[];
  /**
   * Whether this and the session's events explain every value. A value stays when its event is rewritten without it, and a
   * change may have been too large to be recorded.
   */
  isComplete: boolean;
}

interface HistoryRow {
  kind: 'created' | 'state' | 'rewound' | 'rewritten';
  seq: number;
  data: string | null;
}

/** The JSON of an object of state. */
export function stateText(entries: StateEntries): string {
  return stateJson(
    SCOPES.flatMap((scope) => entries[scope].map(({ key, json }) => [prefixed(scope, key), json] as const)),
  );
}

function texts({ sql }: Dialect, { changes, sessions, select, changesOfSession }: Tables) {
  const deleteOfSession = `${sql.deleteThrough(changes, changesOfSession)} where ${SESSION_WHERE}`;
  return {
    selectHistory: `select kind, seq, case when kind <> 'rewritten' then ${select.data} end as data from ${changes}
      where ${SESSION_WHERE} and kind in ('created', 'state', 'rewound', 'rewritten') order by change_id`,
    copyHistory: `insert into ${changes} (${SESSION_COLUMNS}, kind, seq, time, data)
      select ?, ?, ?, kind, seq, ${sql.now}, data from ${changes}
        where ${SESSION_WHERE} and kind in ('state', 'rewound') and seq <= ? order by change_id`,
    insert: `insert into ${changes} (${SESSION_COLUMNS}, kind, seq, event_seq, time, data)
      values (?, ?, ?, ?, ?, ?, ${sql.now}, ?)`,
    deleteOfSession: `${deleteOfSession} and kind <> 'deleted'`,
    deleteTrimmed: `${deleteOfSession}
      and (seq < ? and kind not in ('created', 'deleted') or kind = 'trimmed' or event_seq < ?)`,
    selectCreated: `select change_id from ${changes} where ${SESSION_WHERE} and kind = 'created'${sql.underLock}`,
    updateCreated: `${sql.updateThrough(changes, changesOfSession)} set data = ? where ${SESSION_WHERE} and kind = 'created'`,
    deleteRewritten: `${deleteOfSession} and event_seq > ?`,
    selectOfUser: `select change_id from ${changes} as c where app_name = ? and user_id = ? and not exists
      (select 1 from ${sessions} as s where ${isSameSession('s', 'c')}) limit ?`,
    deleteById: `${sql.deleteThrough(changes, 'primary')} where change_id in`,
  };
}
