import { Calls, callsIn, type LongRunningCall } from '../conversation/calls.js';
import type { Run, Sql } from '../database/dialects/dialect.js';
import { SESSION_WHERE, sessionValues, numberOf } from '../database/sql/tables.js';
import { recordTrim } from '../database/statements/changes.js';
import { databaseTime } from '../database/statements/clock.js';
import { firstOpenCall, openCallsOf, setOpenCalls } from '../database/statements/open-calls.js';
import { stateThen } from '../database/statements/past.js';
import { readAfter } from '../database/statements/session-reader.js';
import { storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { decodeEvent } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import type { MaintenanceResult } from '../model/results.js';
import { MAX_SEQ } from '../model/seq-ranges.js';
import { onlySkipped, type Deletion, type DeletionRun, type BatchCounts, type Task } from './deletion-run.js';
import { dropFirst, numbersBefore } from './first-events.js';
import { trimmedSession, type TrimOptions } from './options.js';

/** See `SessionMaintenance.trim`. */
export async function trim(run: DeletionRun, options: TrimOptions): Promise<MaintenanceResult<'sessions' | 'events'>> {
  const { appName, userId, keepLast, eventsOlderThan = 0, dropOpenCalls } = options;
  const key = trimmedSession(options);
  const now = await run.read(databaseTime);
  const firstWanted: FirstKept = (session, before, read) => {
    if (keepLast !== undefined) return Math.min(before, session.lastSeq - keepLast + 1);
    return read(async (sql) => (await firstLater(sql, session, before, now - eventsOlderThan)) ?? before);
  };
  const firstEvents = new FirstEvents(run, async (session, before, read) => {
    const wanted = await firstWanted(session, before, read);
    if (dropOpenCalls || wanted <= session.firstSeq) return wanted;
    const open = await read((sql) => firstOpenCall(sql, session.key));
    return Math.min(wanted, open ?? wanted);
  });
  return run.run(
    () => run.batches.result,
    async () => {
      if (!key) return run.walk(firstEvents, { appName, userId, by: 'key' });
      const session = await run.read((sql) => storedSession(sql, key));
      if (session) await run.deleteOf(firstEvents, [session]);
    },
  );
}

/** @returns the number of the session's first event before a number that is later than a time. */
async function firstLater(
  sql: Sql,
  { key, firstSeq }: StoredSession,
  before: number,
  time: number,
): Promise<number | undefined> {
  const [row] = await sql.all<{ seq: number }>(
    `select seq from ${sql.tables.events} where ${SESSION_WHERE}
      and seq >= ? and seq < ? and timestamp > ? order by seq limit 1`,
    [...sessionValues(key), firstSeq, before, time],
  );
  return row && numberOf(row.seq);
}

/**
 * @param before only events before this number may be deleted; the others need not be read.
 * @returns the number of the first event to keep, at most `before`.
 */
type FirstKept = (session: StoredSession, before: number, read: Run) => Promise<number> | number;

/** Deletes the first events of sessions. */
class FirstEvents implements Deletion {
  readonly #run: DeletionRun;
  readonly #firstKept: FirstKept;

  constructor(run: DeletionRun, firstKept: FirstKept) {
    this.#run = run;
    this.#firstKept = firstKept;
  }

  async plan(session: StoredSession): Promise<Task | undefined> {
    const firstKept = await this.#firstKeptOf(session, session.lastSeq + 1, this.#run.read);
    if (firstKept === undefined) return undefined;
    const events = firstKept - session.firstSeq;
    return { session, events, rows: events };
  }

  /** @returns undefined if no event is to be deleted. */
  async #firstKeptOf(session: StoredSession, before: number, read: Run): Promise<number | undefined> {
    if (session.deletedAt !== undefined) return undefined;
    const firstKept = await this.#firstKept(session, before, read);
    return firstKept > session.firstSeq ? firstKept : undefined;
  }

  delete(sql: Sql, { session, events }: Task): Promise<BatchCounts> {
    return this.#trim(sql, session, session.firstSeq + events);
  }

  async deleteLarge({ session, events }: Task): Promise<void> {
    const firstKept = session.firstSeq + events;
    /** The session after the last transaction, while there is more to do. The next one does nothing if it finds another. */
    let left = [session];
    await this.#run.drain(
      () => left,
      async (sql, [found = session]) => {
        const { firstSeq, isOver, done, skipped } = await this.#trim(sql, found, firstKept);
        left = isOver ? [] : [{ ...found, firstSeq }];
        const isTrimmed = isOver && skipped === 0 && firstSeq > session.firstSeq;
        return { done: { sessions: isTrimmed ? 1 : 0, events: done.events }, skipped };
      },
    );
  }

  /** @returns the first events that one transaction deletes; undefined if there are none. */
  async #dropped(sql: Sql, session: StoredSession, firstKept: number): Promise<Dropped | undefined> {
    const { size } = this.#run.batches;
    const { key, lastSeq } = session;
    // The session may have been rewound since.
    const most = Math.min(firstKept, lastSeq + 1);
    const numbers = await numbersBefore(sql, key, most, size);
    const before = numbers.length < size ? most : (numbers.at(-1) ?? 0) + 1;
    const firstSeq = await this.#firstKeptOf(session, before, (work) => work(sql));
    if (firstSeq === undefined) return undefined;
    const isOver = firstSeq < before || before === most;
    return { firstSeq, numbers: numbers.filter((seq) => seq < firstSeq), isOver };
  }

  /** Deletes as many of a session's first events as fit into a transaction. */
  async #trim(
    sql: Sql,
    session: StoredSession,
    firstKept: number,
  ): Promise<BatchCounts & { firstSeq: number; isOver: boolean }> {
    const { locked, skipped } = await this.#run.lock(sql, session);
    const nothing = { ...onlySkipped(skipped), firstSeq: session.firstSeq, isOver: true };
    // The session was created again, or imported again with its first events.
    if (locked?.createTime !== session.createTime || locked.firstSeq < session.firstSeq) return nothing;
    const dropped = await this.#dropped(sql, locked, firstKept);
    if (!dropped) return nothing;
    const { key, origin, lastSeq } = locked;
    const { firstSeq, numbers, isOver } = dropped;
    // Rows that cannot be read are ignored here: they are deleted with these events.
    const { state } = await stateThen(sql, locked, firstSeq - 1);
    await recordTrim(sql, { session: { ...key, origin }, seq: lastSeq }, firstSeq, state);
    await dropFirst(sql, key, firstSeq, numbers);
    await setOpenCalls(sql, key, await callsFrom(sql, key, firstSeq));
    return { done: { sessions: 1, events: numbers.length }, skipped, firstSeq, isOver };
  }
}

/** The first events of a session that are deleted. */
interface Dropped {
  /** The number of the first event that stays. */
  firstSeq: number;
  numbers: readonly number[];
  /** Whether no further transaction is needed. */
  isOver: boolean;
}

/** @returns the calls of a session's events from a number on. */
async function callsFrom(sql: Sql, key: SessionKey, firstSeq: number): Promise<Calls> {
  const stored = await openCallsOf(sql, key);
  const isCut = ({ seq, openUntil = MAX_SEQ }: LongRunningCall) => seq < firstSeq && openUntil >= firstSeq;
  if (!stored.some(isCut)) return new Calls(stored.filter(({ seq }) => seq >= firstSeq));
  // Without the calls that they answered, later events may answer others.
  const read = await readAfter(sql, key, firstSeq - 1);
  return callsIn((read?.events ?? []).map(({ seq, json }) => ({ seq, event: decodeEvent(json) })));
}
