import type { EntityManager } from '@mikro-orm/core';
import { Database } from '../database/calls/database.js';
import { aDuration, anAbortSignal, object, type Checks } from '../model/arguments.js';
import { checkedSessionKey, partialKey, type SessionKey } from '../model/keys.js';
import type { CompleteLogPosition, LogCursor } from '../model/log-history.js';
import { LISTENING_OPTIONS, type CommonOptions, type PostgresqlOptions } from '../model/options.js';
import { completeLog } from './complete-log.js';
import { readerCursorOf, sessionPositionOf } from './cursors.js';
import type { CompleteLogEntry, LogEntry, SessionLogCursor, SessionLogEntry } from './entries.js';
import { checkFilter, checkSessionFilter, type LogFilter, type SessionLogFilter } from './filters.js';
import { logEvents, readLog, type LogContent, type LogReading, type ReadMethod } from './log-reader.js';
import { ReaderCall } from './reader-call.js';
import { sessionLog } from './session-log-reader.js';
import { Heads } from './watch/heads.js';

/** Options of `EventLog`, in addition to those of all services. A watcher retries, too, and throws when its retries are used up. */
export interface EventLogOptions extends CommonOptions {
  postgresql?: Omit<PostgresqlOptions, 'notify'>;
  /** How long a watcher waits between two polls of the database, in ms; 150 by default. */
  pollIntervalMs?: number;
}

export const LOG_OPTIONS: Checks<EventLogOptions> = {
  pollIntervalMs: aDuration,
  ...LISTENING_OPTIONS,
};

const checkOptions = object(LOG_OPTIONS);

export const checkWatchOptions = object<{ signal?: AbortSignal }>({ signal: anAbortSignal });

const DEFAULT_POLL_MS = 150;

/** @returns the heads of a database's log, read as the options say. */
export function headsOf(database: Database, { pollIntervalMs = DEFAULT_POLL_MS, postgresql }: EventLogOptions): Heads {
  return new Heads(database, pollIntervalMs, postgresql?.listen);
}

/**
 * Replays the events of all sessions, and follows them live.
 *
 * Events of all sessions are numbered by `position`. Readers of the log assign positions after the commit, so no event ever
 * appears before a cursor: a reader that keeps the cursor of the last entry gets every event exactly once, whatever order the
 * transactions commit in (contract G1). An event that is appended again keeps its position; a reader that has passed it does
 * not see the new content.
 *
 * A reader whose account may not write sees only the events to which other readers have assigned positions.
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
   * @throws InvalidArgumentError if an option is unknown or its value is invalid.
   * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: EventLogOptions = {}) {
    const checked = checkOptions(options, 'The options of EventLog');
    this.#database = new Database(em, checked);
    this.#heads = headsOf(this.#database, checked);
  }

  /**
   * @returns the cursor after the newest event; its position is 0 if there is none. Everything committed later comes after it.
   *   Keep the whole cursor, not only the position: only then a reader always notices that the log went back.
   */
  async head(): Promise<LogCursor> {
    const { change: _, ...head } = await this.#heads.ofLog(this.#call('head', {}));
    return head;
  }

  /**
   * Reads the events after a cursor that are committed when the reading begins.
   *
   * @param cursor where to continue: the `cursor` of the last entry seen, what `head` gave, or 0 for the beginning.
   * @throws InvalidArgumentError if it is not a cursor, or the filter has an unknown name or an invalid value.
   * @throws InvalidKeyError if a name or an id of the filter cannot be a key.
   * @throws LogWentBackError from the loop, if the log no longer has the events that the cursor has passed, or another epoch has
   *   begun. Continue from the error's `cursor`.
   */
  since(cursor: LogCursor | number, filter: LogFilter = {}): AsyncIterable<LogEntry> {
    return this.#read('since', cursor, filter, logEvents);
  }

  /**
   * Reads the events after a cursor and then new ones, until the signal fires or the loop is left. While nothing happens, all
   * watchers of a process share one query per interval.
   *
   * @param cursor as for `since`.
   * @throws InvalidArgumentError as `since`, and if an option is unknown.
   * @throws InvalidKeyError as `since`.
   * @throws LogWentBackError from the loop, as `since`, also if the log goes back meanwhile.
   * @throws DatabaseError from the loop, if the database is still unavailable after all retries; continue from the last cursor.
   */
  watch(
    cursor: LogCursor | number,
    filter: LogFilter = {},
    options: { signal?: AbortSignal } = {},
  ): AsyncIterable<LogEntry> {
    return this.#read('watch', cursor, filter, logEvents, options);
  }

  /** @returns the complete log: events, and every other change of sessions and their state. */
  complete(): CompleteEventLog {
    return {
      head: () => this.#heads.ofLog(this.#call('head', {})),
      since: (cursor, filter = {}) => this.#read('since', cursor, filter, completeLog),
      watch: (cursor, filter = {}, options = {}) => this.#read('watch', cursor, filter, completeLog, options),
    };
  }

  /** @returns the log of one session, which needs no positions. */
  session(key: SessionKey): SessionLog {
    const session = checkedSessionKey(key);
    const read = (
      method: ReadMethod,
      from: SessionLogCursor | number,
      given: SessionLogFilter,
      options?: { signal?: AbortSignal },
    ) => {
      const cursor = sessionPositionOf(from);
      const filter = checkSessionFilter(given);
      const call = this.#call(method, session, options);
      return call.yielded(
        readLog(method, sessionLog({ call, heads: this.#heads, session, cursor, filter })),
        filter.limit,
      );
    };
    return {
      head: async () => {
        const { lastSeq: seq = 0, incarnation = '' } =
          (await this.#heads.ofSession(this.#call('head', session), session)) ?? {};
        return { seq, incarnation };
      },
      since: (from, filter = {}) => read('since', from, filter),
      watch: (from, filter = {}, options = {}) => read('watch', from, filter, options),
    };
  }

  #call(operation: string, key: Partial<SessionKey>, options: { signal?: AbortSignal } = {}): ReaderCall {
    const { signal } = checkWatchOptions(options, 'The options of watch');
    return new ReaderCall(this.#database, { operation, key }, signal);
  }

  #read<Entry>(
    method: ReadMethod,
    from: LogCursor | number,
    given: LogFilter,
    contentOf: (reading: LogReading) => LogContent<CompleteLogPosition, Entry>,
    options?: { signal?: AbortSignal },
  ): AsyncIterable<Entry> {
    const cursor = readerCursorOf(from);
    const filter = checkFilter(given);
    const call = this.#call(method, partialKey(filter), options);
    return call.yielded(readLog(method, contentOf({ call, heads: this.#heads, cursor, filter })), filter.limit);
  }
}

/** The complete log: events and every other change, in one order. `EventLog.complete` returns it. */
export interface CompleteEventLog {
  /** @returns the cursor after the newest event or change. */
  head(): Promise<LogCursor>;
  /**
   * Reads the events and changes after a cursor, like `EventLog.since`.
   *
   * @param cursor the `cursor` of the last entry seen, what `head` gave, or 0 for the beginning.
   * @throws InvalidArgumentError, InvalidKeyError, LogWentBackError as `EventLog.since`.
   */
  since(cursor: LogCursor | number, filter?: LogFilter): AsyncIterable<CompleteLogEntry>;
  /**
   * Reads the events and changes after a cursor and then new ones, like `EventLog.watch`.
   *
   * @param cursor as for `since`.
   * @throws InvalidArgumentError, InvalidKeyError, LogWentBackError, DatabaseError as `EventLog.watch`.
   */
  watch(
    cursor: LogCursor | number,
    filter?: LogFilter,
    options?: { signal?: AbortSignal },
  ): AsyncIterable<CompleteLogEntry>;
}

/**
 * The log of one session. `EventLog.session` returns it. Continue from the `cursor` of the last entry: its `seq`, and the
 * incarnation of the session that the number belongs to. If the session is rewound, or deleted and created again, numbers are
 * used again: a reader with an earlier cursor then gets an entry `{ change: 'reset' }`, after which it must drop what it keeps
 * of the session, and then all events from the first one. A reader with a bare `seq` notices only if the session has fewer
 * events now; it gets a `LogWentBackError`.
 */
export interface SessionLog {
  /** @returns the cursor after the newest event. Its `seq` is 0 if there is none, or no such session. */
  head(): Promise<SessionLogCursor>;
  /**
   * Reads the events after a cursor that are committed when the reading begins; none if there is no such session.
   *
   * @param cursor the `cursor` of the last entry seen; 0 for the beginning; or a `seq`.
   * @throws InvalidArgumentError if it is not a cursor, or the filter has an unknown name or an invalid value.
   * @throws LogWentBackError from the loop, if the database went back: the session ends before the cursor, but was not rewound
   *   or created again. Continue from the `seq` in the error's `position`.
   */
  since(cursor: SessionLogCursor | number, filter?: SessionLogFilter): AsyncIterable<SessionLogEntry>;
  /**
   * Reads the events after a cursor and then new ones, like `EventLog.watch`. Waits for a session that does not exist yet. If
   * the session is rewound, or deleted and created again, it yields a `reset` and reads from the first event.
   *
   * @param cursor as for `since`.
   * @throws InvalidArgumentError as `since`, and if an option is unknown.
   * @throws LogWentBackError from the loop, as `since`, also if the database goes back meanwhile.
   * @throws DatabaseError from the loop, if the database is still unavailable after all retries; continue from the last cursor.
   */
  watch(
    cursor: SessionLogCursor | number,
    filter?: SessionLogFilter,
    options?: { signal?: AbortSignal },
  ): AsyncIterable<SessionLogEntry>;
}
