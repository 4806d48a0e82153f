import type { Event } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import type { Sql } from '../database/sql/sql.js';
import { Aborted } from '../database/calls/connection.js';
import type { LoggedEvent } from '../database/stores/log-store.js';
import type { SessionHead } from '../database/stores/session-store.js';
import type { Stores } from '../database/stores/stores.js';
import { Database } from '../database/calls/database.js';
import {
  aBoolean,
  aDuration,
  aFunction,
  aString,
  aTime,
  aTimeout,
  aWholeNumber,
  anAbortSignal,
  anything,
  object,
  rule,
  type Known,
} from '../model/arguments.js';
import { DamagedEventError, LogWentBackError } from '../model/errors.js';
import { decodeEvent } from '../model/event-codec.js';
import { checkKeys, checkedSessionKey, givenKey, type SessionKey } from '../model/keys.js';
import {
  historyOf,
  historyText,
  type CompleteLogPosition,
  type LogPosition,
  type ReadHistory,
} from '../model/log-history.js';
import { checkRetry, type ErrorContext, type ReportingOptions, type RetryOptions } from '../model/options.js';
import { gapsIn, notBefore, type SeqRange } from '../model/seq-ranges.js';
import { readComplete } from './complete-log.js';
import type { LogChange, LogEntry, LogEntryPosition, SessionLogEntry, SessionLogPosition } from './entries.js';
import { LogListener, type NotificationClient } from './watch/listener.js';
import { LogPoller, type Watch } from './watch/poller.js';
import { endsOf, cursorAt, restsOf, wentBack, type ReaderCursor } from './went-back.js';

export interface EventLogOptions extends ReportingOptions {
  /** How long a watcher waits between two polls of the database, in ms; 150 by default. */
  pollIntervalMs?: number;
  /**
   * PostgreSQL only, without effect elsewhere: makes a client of `pg`, not yet connected, for a connection of its own
   * on which watchers are notified of commits at once. It needs `notify` on the services that write.
   */
  listen?: () => NotificationClient;
  /** How failures of the database are retried, as for `MikroOrmSessionService`; a watcher throws after the last. */
  retry?: RetryOptions;
  /** How long one attempt may take, in ms, as for `MikroOrmSessionService`. */
  timeoutMs?: number;
}

/** What to read of one session's log; all conditions given must hold. */
export interface SessionLogFilter {
  /** The event's branch begins with this, character by character. */
  branchPrefix?: string;
  author?: string;
  /** The event's author ends in this. */
  authorSuffix?: string;
  invocationId?: string;
  /** Only events later than this, in ms since 1970. */
  afterTimestamp?: number;
  /** End after so many entries. */
  limit?: number;
}

/** What to read of the log. */
export interface LogFilter extends SessionLogFilter {
  /** Events alone; `CompleteLogFilter` asks for more. */
  changes?: false;
  appName?: string;
  userId?: string;
  sessionId?: string;
  /** A session's id; with it come the sessions of its subagents, see `deriveSessionId`. */
  sessionTree?: string;
}

/**
 * What to read of the complete log. Conditions on events leave out events alone; a change is left out by `appName`, `userId`,
 * `sessionId` and `sessionTree`.
 */
export interface CompleteLogFilter extends Omit<LogFilter, 'changes'> {
  /** Also what changed besides appended events: `LogChange`. */
  changes: true;
}

/**
 * Where a reader of the log is: the `cursor` of the last entry that it has seen, what `head` gave, or 0 for the beginning. Of
 * any other position alone, or a position and its epoch, the log does not know in which history it was given out: it finds out
 * only while it is shorter, or by an operator's word, and names the beginning as the cursor to continue from.
 */
export type LogCursor = number | (Omit<LogPosition, 'history'> & { history?: string });

/** An event of the complete log, or a change. */
export type CompleteLogEntry = (LogEntry | LogChange) & { cursor: CompleteLogPosition };

/** Where a reader of one session's log is: an entry's `cursor`, or its `seq` alone. */
export type SessionLogCursor = number | SessionLogPosition;

type AnyFilter = LogFilter | CompleteLogFilter;

const checkHead = object<{ changes?: boolean }>({ changes: aBoolean });

const checkLogPosition = object<LogPosition>(
  {
    position: aWholeNumber,
    epoch: aWholeNumber,
    change: aWholeNumber,
    history: rule(
      'that of a cursor of the log',
      (value) => typeof value === 'string' && historyOf(value) !== undefined,
    ),
  },
  'position',
  'epoch',
);

const NOTHING_READ: ReadHistory = { ends: [], rests: [] };

function readerCursorOf(cursor: LogCursor): ReaderCursor {
  if (typeof cursor === 'object') {
    checkLogPosition(cursor, 'position');
    const { position, epoch, change, history = '' } = cursor;
    return { position, epoch, change, read: historyOf(history) ?? NOTHING_READ };
  }
  aWholeNumber(cursor, 'position');
  return { position: cursor, read: NOTHING_READ };
}

const checkSessionLogPosition = object<SessionLogPosition>(
  { seq: aWholeNumber, incarnation: aString },
  'seq',
  'incarnation',
);

function sessionPositionOf(cursor: SessionLogCursor): SessionLogPosition {
  if (typeof cursor === 'object') {
    checkSessionLogPosition(cursor, 'cursor');
    return { ...cursor };
  }
  aWholeNumber(cursor, 'seq');
  return { seq: cursor, incarnation: '' };
}

export interface WatchOptions {
  /** Ends the loop when it fires. */
  signal?: AbortSignal;
}

const checkOptions = object<EventLogOptions>({
  pollIntervalMs: aDuration,
  listen: aFunction,
  retry: checkRetry,
  timeoutMs: aTimeout,
  onError: aFunction,
});

const checkWatchOptions = object<WatchOptions>({ signal: anAbortSignal });

const SESSION_FILTER: Known<SessionLogFilter> = {
  branchPrefix: aString,
  author: aString,
  authorSuffix: aString,
  invocationId: aString,
  afterTimestamp: aTime,
  limit: aWholeNumber,
};

const checkSessionFilter = object(SESSION_FILTER);

/** `checkKeys` checks the names and ids. */
const checkLogFilter = object<LogFilter | CompleteLogFilter>({
  changes: aBoolean,
  appName: anything,
  userId: anything,
  sessionId: anything,
  sessionTree: anything,
  ...SESSION_FILTER,
});

const FILTER = 'The filter';

const DEFAULT_POLL_MS = 150;

/** Events in memory at a time, for each reader. */
const BATCH = 200;

/**
 * The events of all sessions, to replay and to follow live.
 *
 * Across sessions the cursor is the `position`. Events get theirs after their commit, from the readers of the log, so
 * nothing ever appears behind a cursor: who remembers the last position it has seen gets every event exactly once,
 * whatever order the writers commit in (contract G1). Inside a session it is an entry's `cursor`. An event that is appended
 * again keeps its position; a reader that has passed it does not see its new content.
 *
 * A reader whose account may not write reads what other readers have given positions to.
 *
 * ```ts
 * const log = new EventLog(orm.em);
 * for await (const { position, event } of log.watch(await log.head(), { appName: 'support' }, { signal })) …
 * ```
 */
export class EventLog {
  readonly #database: Database;
  readonly #stores: Stores;
  readonly #poller: LogPoller;
  readonly #listener: LogListener | undefined;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: EventLogOptions = {}) {
    checkOptions(options, 'The options of EventLog');
    const { pollIntervalMs = DEFAULT_POLL_MS, listen } = options;
    this.#database = new Database(em, options);
    this.#stores = this.#database.stores;
    this.#poller = LogPoller.of(this.#database, pollIntervalMs);
    const channel = this.#stores.log.channel;
    if (listen && channel) {
      this.#listener = new LogListener(
        listen,
        channel,
        () => this.#poller.wake(),
        (error) => this.#database.report(error, { operation: 'listen', key: {} }),
      );
    }
  }

  /**
   * @returns the position of the newest event, 0 when there is none; what is committed later comes after it. And the epoch
   *   that the position belongs to: who keeps both learns for sure when the log has gone back.
   * @param options.changes whether it is to be the head of the complete log, for `changes: true`.
   */
  head(options: { changes: true }): Promise<CompleteLogPosition>;
  head(options?: { changes?: boolean }): Promise<LogPosition>;
  async head(options: { changes?: boolean } = {}): Promise<LogPosition | CompleteLogPosition> {
    checkHead(options, 'The options of head');
    const { change, ...head } = await this.#head({ operation: 'head', key: {} });
    return options.changes ? { ...head, change } : head;
  }

  #head(call: ErrorContext, signal?: AbortSignal): Promise<CompleteLogPosition> {
    const report = (error: unknown, operation: string) => this.#database.report(error, { ...call, operation });
    return this.#database.call(call, () => untilAborted(this.#poller.head(report, signal), signal));
  }

  /** @returns the error to throw when the log is not the one that the reader has read so far. */
  #wentBack(
    call: ErrorContext,
    reader: ReaderCursor,
    head: CompleteLogPosition,
    { changes = false }: AnyFilter,
    signal?: AbortSignal,
  ): Promise<LogWentBackError | undefined> {
    return wentBack(reader, head, changes, this.#stores, (work) =>
      this.#database.call(call, () => this.#database.run(work, { signal })),
    );
  }

  /**
   * Reads the events after a position, up to those that are committed when the reading begins.
   *
   * @param cursor where to continue: the `cursor` of the last entry seen, what `head` gave, or 0 for the beginning.
   * @throws InvalidArgumentError when the cursor is not one, or the filter has a name or a value that it cannot have.
   * @throws InvalidKeyError when a name or an id of the filter cannot be a key.
   * @throws LogWentBackError from the loop, when the log has lost what was in it at the cursor, or has begun another epoch; its
   *   `cursor` is where to continue.
   */
  since(cursor: LogCursor, filter: CompleteLogFilter): AsyncIterable<CompleteLogEntry>;
  since(cursor: LogCursor, filter?: LogFilter): AsyncIterable<LogEntry & { cursor: LogPosition }>;
  since(cursor: LogCursor, filter: LogFilter | CompleteLogFilter = {}): AsyncIterable<LogEntry | LogChange> {
    const from = readerCursorOf(cursor);
    checkFilter(filter);
    return limited(filter, this.#since(from, filter));
  }

  async *#since(from: ReaderCursor, filter: AnyFilter): AsyncGenerator<LogEntry | LogChange> {
    const call = { operation: 'since', key: givenKey(filter) };
    const head = await this.#head(call);
    const error = await this.#wentBack(call, from, head, filter);
    if (error) throw error;
    yield* this.#read(call, from, head, filter);
  }

  /**
   * Reads the events after a position, and then those that come, until the signal fires or the loop is left. Where
   * nothing happens, all watchers of a process share one query an interval.
   *
   * @param cursor as for `since`.
   * @throws InvalidArgumentError as `since`, and when an option is not known.
   * @throws InvalidKeyError as `since`.
   * @throws LogWentBackError from the loop, as `since`, also when the log goes back meanwhile.
   * @throws DatabaseError from the loop, when the database stays away after all retries; continue from the last cursor.
   */
  watch(cursor: LogCursor, filter: CompleteLogFilter, options?: WatchOptions): AsyncIterable<CompleteLogEntry>;
  watch(
    cursor: LogCursor,
    filter?: LogFilter,
    options?: WatchOptions,
  ): AsyncIterable<LogEntry & { cursor: LogPosition }>;
  watch(
    cursor: LogCursor,
    filter: LogFilter | CompleteLogFilter = {},
    options: WatchOptions = {},
  ): AsyncIterable<LogEntry | LogChange> {
    const from = readerCursorOf(cursor);
    checkFilter(filter);
    checkWatchOptions(options, 'The options of watch');
    return limited(filter, this.#watch(from, filter, options.signal));
  }

  async *#watch(
    from: ReaderCursor,
    filter: AnyFilter,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<LogEntry | LogChange> {
    let reader = from;
    const call = { operation: 'watch', key: givenKey(filter) };
    yield* this.#watching(call, undefined, signal, async function* (this: EventLog, watch: Watch) {
      let { head } = watch;
      let error = await this.#wentBack(call, reader, head, filter, signal);
      if (error) {
        // A poll that began before the caller's may have read an older head.
        await this.#database.call(call, () => untilAborted(watch.poll(), signal));
        ({ head } = watch);
        error = await this.#wentBack(call, reader, head, filter, signal);
      }
      if (error) throw error;
      reader = yield* this.#read(call, reader, head, filter, signal);
      return () => watch.head !== head;
    });
  }

  /** One session's log; it needs no positions. */
  session(key: SessionKey): SessionLog {
    const session = checkedSessionKey(key);
    return {
      head: async () => (await this.#sessionHead({ operation: 'head', key: session }, session))?.lastSeq ?? 0,
      position: async () => {
        const head = await this.#sessionHead({ operation: 'position', key: session }, session);
        return { seq: head?.lastSeq ?? 0, incarnation: head?.incarnation ?? '' };
      },
      since: (cursor, filter = {}) => {
        const from = sessionPositionOf(cursor);
        checkSessionFilter(filter, FILTER);
        return limited(filter, this.#sinceInSession(session, from, filter));
      },
      watch: (cursor, filter = {}, options = {}) => {
        const from = sessionPositionOf(cursor);
        checkSessionFilter(filter, FILTER);
        checkWatchOptions(options, 'The options of watch');
        return limited(filter, this.#watchSession(session, from, filter, options.signal));
      },
    };
  }

  #sessionHead(call: ErrorContext, session: SessionKey): Promise<SessionHead | undefined> {
    return this.#database.call(call, () => this.#database.run((sql) => this.#stores.sessions.head(sql, session)));
  }

  async *#sinceInSession(
    session: SessionKey,
    from: SessionLogPosition,
    filter: SessionLogFilter,
  ): AsyncGenerator<SessionLogEntry> {
    const call = { operation: 'since', key: session };
    const head = await this.#sessionHead(call, session);
    if (!head) return;
    const after = yield* seqToResumeAt(session, head, from);
    yield* this.#readSession(call, session, head, after, filter);
  }

  async *#watchSession(
    session: SessionKey,
    from: SessionLogPosition,
    filter: SessionLogFilter,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<SessionLogEntry> {
    let cursor = from;
    const call = { operation: 'watch', key: session };
    yield* this.#watching(call, session, signal, async function* (this: EventLog, watch: Watch) {
      const seen = watch.sessionHead;
      if (seen && (isAnother(seen, cursor) || seen.lastSeq < cursor.seq)) {
        // A poll that began before the caller's may have read an older head.
        await this.#database.call(call, () => untilAborted(watch.poll(), signal));
      }
      const head = watch.sessionHead;
      if (head) {
        const after = yield* seqToResumeAt(session, head, cursor);
        yield* this.#readSession(call, session, head, after, filter, signal);
        cursor = { seq: head.lastSeq, incarnation: head.incarnation };
      }
      return () => watch.sessionHead !== head;
    });
  }

  /**
   * @param session to watch one session; without it the events of all.
   * @param readOn yields what there is, and returns a function that checks whether there is more.
   */
  async *#watching<Entry extends LogEntry | LogChange | SessionLogEntry>(
    call: ErrorContext,
    session: SessionKey | undefined,
    signal: AbortSignal | undefined,
    readOn: (this: EventLog, watch: Watch) => AsyncGenerator<Entry, () => boolean>,
  ): AsyncGenerator<Entry> {
    const report = (error: unknown, operation: string) => this.#database.report(error, { ...call, operation });
    const watch = this.#poller.watch(report, session);
    const stopListening = this.#listener?.start();
    try {
      await this.#database.call(call, () => untilAborted(watch.poll(), signal));
      while (!signal?.aborted) {
        const entries = readOn.call(this, watch);
        let next = await entries.next();
        for (; !next.done; next = await entries.next()) {
          if (signal?.aborted) return;
          yield next.value;
        }
        const hasMore = next.value;
        while (!signal?.aborted && !hasMore()) await this.#database.call(call, () => watch.change(signal));
      }
    } catch (error) {
      if (!(error instanceof Aborted)) throw error;
    } finally {
      stopListening?.();
      await watch.leave();
    }
  }

  /** @returns the cursor that it has read up to. */
  async *#read(
    call: ErrorContext,
    from: ReaderCursor,
    head: CompleteLogPosition,
    filter: AnyFilter,
    signal?: AbortSignal,
  ): AsyncGenerator<LogEntry | LogChange, ReaderCursor> {
    if (filter.changes) return yield* this.#readComplete(call, from, head, filter, signal);
    const { epoch, history } = head;
    let after = from.position;
    while (after < head.position) {
      const range = { after, upTo: head.position, limit: BATCH };
      const events = await this.#database.call(call, () =>
        this.#database.run((sql) => this.#stores.log.events(sql, range, filter), { signal }),
      );
      for (const entry of entriesOf(events, filter)) {
        yield { ...entry, cursor: { position: entry.position ?? after, epoch, history } };
      }
      if (events.length < BATCH) break;
      after = events.at(-1)?.position ?? head.position;
    }
    return cursorAt(head);
  }

  async *#readComplete(
    call: ErrorContext,
    from: ReaderCursor,
    head: CompleteLogPosition,
    filter: CompleteLogFilter,
    signal?: AbortSignal,
  ): AsyncGenerator<LogEntry | LogChange, ReaderCursor> {
    const run = <T>(work: (sql: Sql) => Promise<T>) =>
      this.#database.call(call, () => this.#database.run(work, { signal }));
    const { position, change } = from;
    const { epoch } = head;
    // A reader of events alone may have passed some of the changes before its position, never one behind it.
    const start = {
      position,
      change: change ?? (await run((sql) => this.#stores.completeLog.changeBefore(sql, position))),
    };
    let reader = { ...start, epoch, read: { ends: endsOf(head), rests: restsOf(from) } };
    while (reader.position < head.position || reader.change < head.change) {
      const { position, change, read } = reader;
      const page = await run((sql) =>
        readComplete(sql, this.#stores, { after: { position, change }, upTo: head, limit: BATCH }, filter),
      );
      // Entries show what was written since the head was given out. If that is lost they must be read again.
      const now = await this.#head(call, signal);
      const error = await this.#wentBack(call, reader, now, filter, signal);
      if (error) throw error;
      const history = historyText(endsOf(now), read.rests);
      for (const { boundary, ...entry } of page.entries) {
        const cursor = { ...boundary, epoch, history };
        if (entry.change) {
          if (entry.change.change !== 'rewritten' || matches(entry.change.event, filter))
            yield { ...entry.change, cursor };
          continue;
        }
        const { logged, superseded } = entry;
        for (const read of entriesOf([logged], filter)) {
          yield read.event ? { ...read, cursor, superseded } : { ...read, cursor };
        }
      }
      reader = { ...page.after, epoch, read: { ends: endsOf(now), rests: read.rests } };
      reader.read.rests = restsOf(reader);
    }
    return reader;
  }

  async *#readSession(
    call: ErrorContext,
    session: SessionKey,
    { incarnation, firstSeq, lastSeq }: SessionHead,
    after: number,
    { afterTimestamp, ...filter }: SessionLogFilter,
    signal?: AbortSignal,
  ): AsyncGenerator<SessionLogEntry> {
    after = Math.max(after, firstSeq - 1);
    while (after < lastSeq) {
      const range = { incarnation, after, upTo: lastSeq, limit: BATCH, afterTimestamp };
      const { events, upTo, gaps } = await this.#database.call(call, () =>
        this.#database.run(
          async (sql) => {
            const events = await this.#stores.log.sessionEvents(sql, session, range);
            const upTo = events.length < BATCH ? lastSeq : (events.at(-1)?.seq ?? lastSeq);
            const numbers = events.map(({ seq }) => seq);
            // A missing event has no time, so a filter by time passes over it.
            const gaps = afterTimestamp === undefined ? gapsIn(numbers, range.after, upTo) : [];
            // They are missing, or were deleted or trimmed since the head was read.
            const head = gaps.length > 0 ? await this.#stores.sessions.head(sql, session) : undefined;
            return { events, upTo, gaps: head?.incarnation === incarnation ? notBefore(gaps, head.firstSeq) : [] };
          },
          { signal },
        ),
      );
      const entryPosition = (seq: number) => ({ seq, ...session, cursor: { seq, incarnation } });
      // One entry for all of a gap, which the cursor moves over.
      const missing = ({ from, to }: SeqRange) => ({
        ...entryPosition(to),
        error: new DamagedEventError(session.sessionId, from, to),
      });
      for (const { seq, event, error } of entriesOf(events, filter)) {
        for (; gaps[0] && gaps[0].to < seq; gaps.shift()) yield missing(gaps[0]);
        yield event ? { ...entryPosition(seq), event } : { ...entryPosition(seq), error };
      }
      for (const gap of gaps) yield missing(gap);
      if (events.length < BATCH) return;
      after = upTo;
    }
  }
}

/**
 * The log of one session; from `EventLog.session`. The cursor to go on from is an entry's `cursor`: its `seq`, and the
 * incarnation of the session that the number belongs to. Numbers begin again where a session is rewound, or deleted and created
 * under the same id. A reader with a cursor of before that gets one entry `{ change: 'reset' }`, drops what it keeps of the
 * session, and gets the session from its first event. A `seq` alone is not enough for that: a reader that comes back with one
 * learns of it only where the session has fewer events now, by `LogWentBackError`.
 */
export interface SessionLog {
  /** @returns the number of the newest event; 0 when there is none, or no such session. */
  head(): Promise<number>;
  /** @returns the cursor to begin at what comes next. */
  position(): Promise<SessionLogPosition>;
  /**
   * Reads the events after a cursor, up to those that are committed when the reading begins; none where there is no such
   * session.
   *
   * @param cursor the `cursor` of the last entry seen; 0 for the beginning; or a `seq`.
   * @throws InvalidArgumentError when the cursor is not one, or the filter has a name or a value that it cannot have.
   * @throws LogWentBackError from the loop, when the session ends before the cursor and has not been rewound or created again:
   *   the database went back. Its `position` is the `seq` to go on from.
   */
  since(cursor: SessionLogCursor, filter?: SessionLogFilter): AsyncIterable<SessionLogEntry>;
  /**
   * Reads the events after a cursor, and then those that come, as `EventLog.watch`. A session that is not there yet is waited
   * for. One that is rewound, or deleted and created again, gives a `reset` and is read from its start.
   *
   * @param cursor as for `since`.
   * @throws InvalidArgumentError as `since`, and when an option is not known.
   * @throws LogWentBackError from the loop, as `since`, also when the database goes back meanwhile.
   * @throws DatabaseError from the loop, when the database stays away after all retries; go on from the last cursor.
   */
  watch(cursor: SessionLogCursor, filter?: SessionLogFilter, options?: WatchOptions): AsyncIterable<SessionLogEntry>;
}

/** Whether the number of a reader belongs to another history than the session's. */
function isAnother(head: SessionHead, { incarnation }: SessionLogPosition): boolean {
  return incarnation !== '' && incarnation !== head.incarnation;
}

/**
 * @returns the number to go on from; the start, after an entry that says so, where the reader has read another history.
 * @throws LogWentBackError when the reader is ahead of the session.
 */
function* seqToResumeAt(
  session: SessionKey,
  head: SessionHead,
  cursor: SessionLogPosition,
): Generator<SessionLogEntry, number> {
  if (isAnother(head, cursor)) {
    yield { change: 'reset', seq: 0, ...session, cursor: { seq: 0, incarnation: head.incarnation } };
    return 0;
  }
  if (head.lastSeq < cursor.seq) throw new LogWentBackError(head.lastSeq);
  return cursor.seq;
}

function checkFilter(filter: AnyFilter): void {
  checkLogFilter(filter, FILTER);
  const { appName, userId, sessionId, sessionTree } = filter;
  if (appName !== undefined) checkKeys({ appName });
  if (userId !== undefined) checkKeys({ userId });
  if (sessionId !== undefined) checkKeys({ sessionId });
  if (sessionTree !== undefined) checkKeys({ sessionId: sessionTree });
}

/** @throws Aborted when the signal fires first. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work;
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(new Aborted());
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

async function* limited<Entry>({ limit }: SessionLogFilter, entries: AsyncIterable<Entry>): AsyncGenerator<Entry> {
  if (limit === 0) return;
  let count = 0;
  for await (const entry of entries) {
    yield entry;
    if (++count === limit) return;
  }
}

/** An event that cannot be read is given whatever the filter says: nobody can tell whether it was meant (contract G4). */
function* entriesOf(events: readonly LoggedEvent[], filter: SessionLogFilter): Generator<LogEntry> {
  for (const { session, seq, position, json } of events) {
    if (json === undefined) continue;
    const entryPosition: LogEntryPosition = { ...(position !== null && { position }), seq, ...session };
    const event = decodeEvent(json ?? undefined);
    if (!event) yield { ...entryPosition, error: new DamagedEventError(session.sessionId, seq) };
    else if (matches(event, filter)) yield { ...entryPosition, event };
  }
}

function matches(event: Event, { branchPrefix, author, authorSuffix, invocationId }: SessionLogFilter): boolean {
  return (
    (branchPrefix === undefined || text(event.branch).startsWith(branchPrefix)) &&
    (author === undefined || event.author === author) &&
    (authorSuffix === undefined || text(event.author).endsWith(authorSuffix)) &&
    (invocationId === undefined || event.invocationId === invocationId)
  );
}

/** A stored event may hold anything, and a reader goes on whatever it is (contract G4). */
function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
