import { Calls, callsIn, type LongRunningCall } from '../conversation/calls.js';
import type { SqlRunner, Sql } from '../database/dialects/dialect.js';
import { recordTrim } from '../database/statements/changes.js';
import { databaseTime } from '../database/statements/clock.js';
import { firstLaterThan, lastWithWords, seqOfEvent } from '../database/statements/events.js';
import { firstOpenCall, openCallsOf, setOpenCalls } from '../database/statements/open-calls.js';
import { writtenState } from '../database/statements/state.js';
import { stateThen } from '../sessions/past.js';
import { readAfter } from '../sessions/session-reader.js';
import { storedSession, type StoredSession } from '../database/statements/stored-session.js';
import { eventsByNumber } from '../log/logged-events.js';
import { decode, decodeEvent } from '../model/json.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { MaintenanceResult } from '../model/results.js';
import { MAX_SEQ } from '../model/seq-ranges.js';
import { summaryOf } from '../model/turn.js';
import type { StateEntry } from '../model/state.js';
import { onlySkipped, type Deletion, type DeletionRun, type BatchCounts, type Task } from './deletion-run.js';
import { dropFirst, numbersBefore } from './first-events.js';
import { trimmedSession, type TrimOptions } from './options.js';

/** See `SessionMaintenance.trim`. */
export async function trim(run: DeletionRun, options: TrimOptions): Promise<MaintenanceResult<'sessions' | 'events'>> {
  const { appName, userId } = options;
  const key = trimmedSession(options);
  const firstEvents = new FirstEvents(run, options, await run.read(databaseTime));
  return run.run(
    () => run.batches.result,
    async () => {
      if (!key) return run.walk(firstEvents, { appName, userId, by: 'key' });
      const session = await run.read((sql) => storedSession(sql, key));
      if (session) await run.deleteOf(firstEvents, [session]);
    },
  );
}

/** Deletes the first events of sessions. */
class FirstEvents implements Deletion {
  readonly #run: DeletionRun;
  readonly #options: TrimOptions;
  readonly #now: number;
  /** Of the sessions that are being trimmed. */
  readonly #shown = new Map<string, ShownHistory>();

  /** @param now by the database's clock, in ms. */
  constructor(run: DeletionRun, options: TrimOptions, now: number) {
    this.#run = run;
    this.#options = options;
    this.#now = now;
  }

  async plan(session: StoredSession): Promise<Task | undefined> {
    const firstKept = await this.#firstKept(session, session.lastSeq + 1, this.#run.read);
    if (firstKept === undefined) return undefined;
    const events = firstKept - session.firstSeq;
    return { session, events, parts: [{ key: session.key, before: firstKept }], rows: events };
  }

  /**
   * @param before only events before this number may be deleted; the others need not be read.
   * @returns the number of the first event to keep, at most `before`; undefined if no event is to be deleted.
   */
  async #firstKept(session: StoredSession, before: number, read: SqlRunner): Promise<number | undefined> {
    const { key, firstSeq, lastSeq, deletedAt } = session;
    if (deletedAt !== undefined) return undefined;
    const { keepLast, eventsOlderThan = 0, dropOpenCalls, keepSummary = true } = this.#options;
    const later = (sql: Sql) => firstLaterThan(sql, key, this.#now - eventsOlderThan, before);
    const wanted = keepLast === undefined ? await read(later) : lastSeq - keepLast + 1;
    let firstKept = Math.min(wanted ?? before, before);
    const stopBefore = async (first: (sql: Sql) => Promise<number | undefined>) => {
      if (firstKept > firstSeq) firstKept = Math.min((await read(first)) ?? firstKept, firstKept);
    };
    if (!dropOpenCalls) await stopBefore((sql) => firstOpenCall(sql, key));
    if (keepSummary) await stopBefore((sql) => this.#firstShown(sql, session));
    return firstKept > firstSeq ? firstKept : undefined;
  }

  /** Reads only events that were added since its last call: each transaction calls it, under the session's lock. */
  async #firstShown(sql: Sql, session: StoredSession): Promise<number | undefined> {
    const { incarnation, firstSeq, lastSeq } = session;
    const id = sessionIdentity(session.key);
    const known = this.#shown.get(id);
    const { upTo, first } = known?.incarnation === incarnation ? known : { upTo: firstSeq - 1, first: undefined };
    const newest = { incarnation, upTo: lastSeq, first: (await firstShown(sql, session, upTo)) ?? first };
    this.#shown.set(id, newest);
    return newest.first;
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
  async #dropped(sql: Sql, session: StoredSession, firstKept: number) {
    const { size } = this.#run.batches;
    const { key, lastSeq } = session;
    // The session may have been rewound since.
    const most = Math.min(firstKept, lastSeq + 1);
    const numbers = await numbersBefore(sql, key, most, size);
    const before = numbers.length < size ? most : (numbers.at(-1) ?? 0) + 1;
    const firstSeq = await this.#firstKept(session, before, (work) => work(sql));
    if (firstSeq === undefined) return undefined;
    // Whether no further transaction is needed.
    const isOver = firstSeq < before || before === most;
    return { firstSeq, numbers: numbers.filter((seq) => seq < firstSeq), isOver };
  }

  /** Deletes as many of a session's first events as fit into a transaction. */
  async #trim(
    sql: Sql,
    session: StoredSession,
    firstKept: number,
  ): Promise<BatchCounts & { firstSeq: number; isOver: boolean }> {
    // If it was created or imported again, its first events are others.
    const { locked, skipped } = await this.#run.lockSame(sql, session, 'origin');
    const nothing = { ...onlySkipped(skipped), firstSeq: session.firstSeq, isOver: true };
    const dropped = locked && (await this.#dropped(sql, locked, firstKept));
    if (!dropped) return nothing;
    const { key, origin, lastSeq } = locked;
    const { firstSeq, numbers, isOver } = dropped;
    if (isOver) this.#shown.delete(sessionIdentity(key));
    const then = await stateThen(sql, locked, firstSeq - 1);
    const state = then.isWhole ? then.state : await withWritten(sql, key, firstSeq, then.state);
    await recordTrim(sql, { session: { ...key, origin }, seq: lastSeq }, firstSeq, state);
    await dropFirst(sql, key, firstSeq, numbers);
    await setOpenCalls(sql, key, await callsFrom(sql, key, firstSeq));
    return { done: { sessions: 1, events: numbers.length }, skipped, firstSeq, isOver };
  }
}

/** How many events are read at a time, from the newest on. */
const PAGE = 100;

/** A text with none of them is no summary. The last one is of encoded texts, which are read. */
const SUMMARY_WORDS = ['"isCompacted"', '"compaction"', '"adk-codec"'] as const;

/** Where the events begin that a model is shown, as of a session's event. */
interface ShownHistory {
  incarnation: string;
  upTo: number;
  first: number | undefined;
}

/**
 * @param since the number of an event; only later ones are read.
 * @returns the first event that a model is shown beside the newest summary, or that summary; the first of all if a newer event
 *   cannot be decoded, since it may be a summary; undefined without a summary.
 */
async function firstShown(
  sql: Sql,
  { key, incarnation, firstSeq, lastSeq }: StoredSession,
  since: number,
): Promise<number | undefined> {
  for (let end = lastSeq; end > since;) {
    const upTo = await lastWithWords(sql, key, SUMMARY_WORDS, { after: since, upTo: end });
    if (upTo === undefined) return undefined;
    const after = Math.max(upTo - PAGE, since);
    const { events } = await eventsByNumber(sql, key, { incarnation, after, upTo, limit: PAGE });
    for (const { seq, json, undecodable } of events.reverse()) {
      if (undecodable) return firstSeq;
      const endTime = summaryOf(decodeEvent(json))?.endTime;
      if (typeof endTime === 'number') return (await firstLaterThan(sql, key, endTime, seq)) ?? seq;
    }
    end = after;
  }
  return undefined;
}

/** Adds to a state what events before a number have written, and nobody since: also events that cannot be read. */
async function withWritten(
  sql: Sql,
  key: SessionKey,
  before: number,
  state: readonly StateEntry[],
): Promise<StateEntry[]> {
  const byKey = new Map(state.map((entry) => [entry.key, entry]));
  for (const entry of await writtenState(sql, key, 'session')) {
    const { eventId, json } = entry;
    const isBefore = eventId !== null && ((await seqOfEvent(sql, key, eventId)) ?? 0) < before;
    if (isBefore && decode(json)) byKey.set(entry.key, entry);
  }
  return [...byKey.values()];
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
