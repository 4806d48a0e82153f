import type { EntityManager } from '@mikro-orm/core';
import { Database } from '../database/calls/database.js';
import { aDuration, anAbortSignal, object, type Known } from '../model/arguments.js';
import { checkedSessionKey, givenKey, type SessionKey } from '../model/keys.js';
import type { LogCursor } from '../model/log-history.js';
import { COMMON_OPTIONS, type CommonOptions } from '../model/options.js';
import { CompleteLog } from './complete-log.js';
import { readerCursorOf, sessionPositionOf, type ReaderCursor } from './cursors.js';
import type { CompleteLogEntry, LogEntry, SessionLogCursor, SessionLogEntry } from './entries.js';
import { checkFilter, checkSessionFilter, limited, type LogFilter, type SessionLogFilter } from './filters.js';
import { LogEvents } from './log-events.js';
import { LogReader, type LogContent } from './log-reader.js';
import { ReaderCall } from './reader-call.js';
import { SessionLogReader } from './session-log-reader.js';
import { Heads } from './watch/heads.js';

/** With the options of all services. A watcher retries, too, and throws when the retries have failed. */
export interface EventLogOptions extends CommonOptions {
  /** How long a watcher waits between two polls of the database, in ms; 150 by default. */
  pollIntervalMs?: number;
}

export interface WatchOptions {
  /** Ends the loop when it fires. */
  signal?: AbortSignal;
}

export const LOG_OPTIONS: Known<EventLogOptions> = {
  pollIntervalMs: aDuration,
  ...COMMON_OPTIONS,
};

const checkOptions = object(LOG_OPTIONS);

export const checkWatchOptions = object<WatchOptions>({ signal: anAbortSignal });

const DEFAULT_POLL_MS = 150;

/** The heads of a database's log, as the options of `EventLog` have them read. */
export function headsOf(database: Database, { pollIntervalMs = DEFAULT_POLL_MS, postgresql }: EventLogOptions): Heads {
  return new Heads(database, pollIntervalMs, postgresql?.listen);
}

/**
 * The events of all sessions, to replay and to follow live.
 *
 * Across sessions the cursor is the `position`. Readers of the log assign positions after the commit, so nothing ever
 * appears behind a cursor: a reader that remembers the last position it has seen gets every event exactly once, in
 * whatever order the transactions commit (contract G1). Inside a session the cursor is the entry's `cursor`. An event that
 * is appended again keeps its position; a reader that has passed it does not see the new content.
 *
 * A reader whose account may not write sees only what other readers have assigned positions to.
 *
 * ```ts
 * const log = new EventLog(orm.em);
 * for await (const { position, event } of log.watch(await log.head(), { appName: 'support' }, { signal })) …
 * ```
 */
export class EventLog {
  readonly #database: Database;
  readonly #heads: Heads;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: EventLogOptions = {}) {
    const checked = checkOptions(options, 'The options of EventLog');
    this.#database = new Database(em, checked);
    this.#heads = headsOf(this.#database, checked);
  }

  /**
   * @returns the position of the newest event, 0 if there is none, and its epoch. Everything committed later comes after it. A
   *   reader that keeps both learns for sure when the log has gone back.
   */
  async head(): Promise<LogCursor> {
    const { change: _, ...head } = await this.#heads.ofLog(this.#call('head', {}));
    return head;
  }

  /**
   * Reads the events after a position, up to those that are committed when the reading begins.
   *
   * @param cursor where to continue: the `cursor` of the last entry seen, what `head` gave, or 0 for the beginning.
   * @throws InvalidArgumentError when the cursor is not one, or the filter has a name or a value that it cannot have.
   * @throws InvalidKeyError when a name or an id of the filter cannot be a key.
   * @throws LogWentBackError from the loop, when the log no longer has what it had at the cursor, or has begun another epoch.
   *   Continue from the error's `cursor`.
   */
  since(cursor: LogCursor | number, filter: LogFilter = {}): AsyncIterable<LogEntry & { cursor: LogCursor }> {
    return this.#since(cursor, filter, eventsOf);
  }

  /**
   * Reads the events after a position and then new ones, until the signal fires or the loop is left. While
   * nothing happens, all watchers of a process share one query per interval.
   *
   * @param cursor as for `since`.
   * @throws InvalidArgumentError as `since`, and when an option is not known.
   * @throws InvalidKeyError as `since`.
   * @throws LogWentBackError from the loop, as `since`, also when the log goes back meanwhile.
   * @throws DatabaseError from the loop, when the database stays away after all retries; continue from the last cursor.
   */
  watch(
    cursor: LogCursor | number,
    filter: LogFilter = {},
    options: WatchOptions = {},
  ): AsyncIterable<LogEntry & { cursor: LogCursor }> {
    return this.#watch(cursor, filter, options, eventsOf);
  }

  /** The complete log: events, and every other change of sessions and their state. */
  complete(): CompleteEventLog {
    return {
      head: () => this.#heads.ofLog(this.#call('head', {})),
      since: (cursor, filter = {}) => this.#since(cursor, filter, completeOf),
      watch: (cursor, filter = {}, options = {}) => this.#watch(cursor, filter, options, completeOf),
    };
  }

  /** One session's log; it needs no positions. */
  session(key: SessionKey): SessionLog {
    const session = checkedSessionKey(key);
    const head = (operation: string) => this.#heads.ofSession(this.#call(operation, session), session);
    return {
      head: async () => (await head('head'))?.lastSeq ?? 0,
      position: async () => {
        const { lastSeq: seq = 0, incarnation = '' } = (await head('position')) ?? {};
        return { seq, incarnation };
      },
      since: (from, given = {}) => {
        const cursor = sessionPositionOf(from);
        const filter = checkSessionFilter(given);
        const call = this.#call('since', session);
        const reader = new SessionLogReader(call, this.#heads, { session, cursor, filter });
        return limited(filter, reader.since());
      },
      watch: (from, given = {}, options = {}) => {
        const cursor = sessionPositionOf(from);
        const filter = checkSessionFilter(given);
        const { signal } = checkWatchOptions(options, 'The options of watch');
        const call = this.#call('watch', session, signal);
        const reader = new SessionLogReader(call, this.#heads, { session, cursor, filter });
        return limited(filter, reader.watch());
      },
    };
  }

  #call(operation: string, key: Partial<SessionKey>, signal?: AbortSignal): ReaderCall {
    return new ReaderCall(this.#database, { operation, key }, signal);
  }

  #since<Entry extends object>(
    cursor: LogCursor | number,
    given: LogFilter,
    contentOf: ContentOf<Entry>,
  ): AsyncIterable<Entry> {
    const from = readerCursorOf(cursor);
    const filter = checkFilter(given);
    const call = this.#call('since', givenKey(filter));
    return limited(filter, new LogReader(call, this.#heads, contentOf(call, this.#heads, from, filter)).since());
  }

  #watch<Entry extends object>(
    cursor: LogCursor | number,
    given: LogFilter,
    options: WatchOptions,
    contentOf: ContentOf<Entry>,
  ): AsyncIterable<Entry> {
    const from = readerCursorOf(cursor);
    const filter = checkFilter(given);
    const { signal } = checkWatchOptions(options, 'The options of watch');
    const call = this.#call('watch', givenKey(filter), signal);
    return limited(filter, new LogReader(call, this.#heads, contentOf(call, this.#heads, from, filter)).watch());
  }
}

/** What a reader reads, and from where. */
type ContentOf<Entry> = (call: ReaderCall, heads: Heads, from: ReaderCursor, filter: LogFilter) => LogContent<Entry>;

const eventsOf: ContentOf<LogEntry & { cursor: LogCursor }> = (call, _heads, from, filter) =>
  new LogEvents(call, from, filter);

const completeOf: ContentOf<CompleteLogEntry> = (call, heads, from, filter) =>
  new CompleteLog(call, heads, from, filter);

/** The complete log; from `EventLog.complete`. Its readers read as those of `EventLog`. */
export interface CompleteEventLog {
  /** @returns the cursor after the newest event or change. */
  head(): Promise<LogCursor>;
  /**
   * Reads the events and changes after a cursor, as `EventLog.since`.
   *
   * @param cursor the `cursor` of the last entry seen, what `head` gave, or 0 for the beginning.
   * @throws InvalidArgumentError, InvalidKeyError, LogWentBackError as `EventLog.since`.
   */
  since(cursor: LogCursor | number, filter?: LogFilter): AsyncIterable<CompleteLogEntry>;
  /**
   * Reads the events and changes after a cursor and then new ones, as `EventLog.watch`.
   *
   * @param cursor as for `since`.
   * @throws InvalidArgumentError, InvalidKeyError, LogWentBackError, DatabaseError as `EventLog.watch`.
   */
  watch(cursor: LogCursor | number, filter?: LogFilter, options?: WatchOptions): AsyncIterable<CompleteLogEntry>;
}

/**
 * The log of one session; from `EventLog.session`. Continue from the `cursor` of the last entry: its `seq`, and the
 * incarnation of the session that the number belongs to. Numbers begin again if a session is rewound, or deleted and created
 * again under its id. A reader with an earlier cursor gets one entry `{ change: 'reset' }`, drops what it keeps of the
 * session, and then gets the session from its first event. A bare `seq` is not enough for that: its reader notices only if
 * the session has fewer events now, by `LogWentBackError`.
 */
export interface SessionLog {
  /** @returns the number of the newest event; 0 if there is none, or no such session. */
  head(): Promise<number>;
  /** @returns the cursor after the newest event. */
  position(): Promise<SessionLogCursor>;
  /**
   * Reads the events after a cursor, up to those that are committed when the reading begins; none if there is no such
   * session.
   *
   * @param cursor the `cursor` of the last entry seen; 0 for the beginning; or a `seq`.
   * @throws InvalidArgumentError when the cursor is not one, or the filter has a name or a value that it cannot have.
   * @throws LogWentBackError from the loop, when the session ends before the cursor and has not been rewound or created again:
   *   the database went back. Continue from the `seq` in its `position`.
   */
  since(cursor: SessionLogCursor | number, filter?: SessionLogFilter): AsyncIterable<SessionLogEntry>;
  /**
   * Reads the events after a cursor and then new ones, as `EventLog.watch`. If there is no such session yet, it waits for
   * it. If the session is rewound, or deleted and created again, it gives a `reset` and reads from the first event.
   *
   * @param cursor as for `since`.
   * @throws InvalidArgumentError as `since`, and when an option is not known.
   * @throws LogWentBackError from the loop, as `since`, also when the database goes back meanwhile.
   * @throws DatabaseError from the loop, when the database stays away after all retries; continue from the last cursor.
   */
  watch(
    cursor: SessionLogCursor | number,
    filter?: SessionLogFilter,
    options?: WatchOptions,
  ): AsyncIterable<SessionLogEntry>;
}
