import type { Event } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import type { LoggedEvent } from './dialects/log-store.js';
import { SessionStore, type SessionHead } from './dialects/session-store.js';
import { DamagedEventError, InvalidKeyError } from './errors.js';
import { branded } from './event-codec.js';
import { checkKeys, checkWholeNumbers, checkedSessionKey, type SessionKey } from './keys.js';
import { LogListener, type NotificationClient } from './log-listener.js';
import { LogPoller, type Watch } from './log-poller.js';
import { checkDuration, type RetryOptions } from './options.js';
import { Transactions, guarded } from './transaction.js';

export interface EventLogOptions {
  /** How long a watcher waits between two looks at the database, in ms; 150 by default. */
  pollIntervalMs?: number;
  /**
   * PostgreSQL only, without effect elsewhere: makes a client of `pg`, not yet connected, for a connection of its own
   * on which watchers are told of commits at once. It needs `notify` on the services that write.
   */
  listen?: () => NotificationClient;
  /** How failures of the database are retried, as for `MikroOrmSessionService`; a watcher throws after the last. */
  retry?: RetryOptions;
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
  appName?: string;
  userId?: string;
  /** A session's id. */
  session?: string;
  /** A session's id; with it come the sessions of its subagents, see `deriveSessionId`. */
  sessionTree?: string;
}

/** An event of the log, or what is wrong with it. */
export type LogEntry = LogPlace &
  ({ event: Event; error?: undefined } | { event?: undefined; error: DamagedEventError });

export interface LogPlace {
  /** Its place among the events of all sessions, and the cursor to go on from; absent in one session's log. */
  position?: number;
  /** Its number in the session, and the cursor there. */
  seq: number;
  appName: string;
  userId: string;
  sessionId: string;
}

const DEFAULT_POLL_MS = 150;

/** Events in memory at a time, for each reader. */
const BATCH = 200;

/**
 * The events of all sessions, to replay and to follow live.
 *
 * Across sessions the cursor is the `position`. Events get theirs after their commit, from the readers of the log, so
 * nothing ever appears behind a cursor: who remembers the last position it has seen gets every event exactly once,
 * whatever order the writers commit in (contract G1). Inside a session the cursor is `seq`. An event that is appended
 * again keeps its place; a reader that has passed it does not see its new content.
 *
 * A reader whose account may not write reads what other readers have given positions to.
 *
 * ```ts
 * const log = new EventLog(orm.em);
 * for await (const { position, event } of log.watch(await log.head(), { appName: 'support' }, { signal })) …
 * ```
 */
export class EventLog {
  readonly #transactions: Transactions;
  readonly #store: SessionStore;
  readonly #poller: LogPoller;
  readonly #listener: LogListener | undefined;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidKeyError when `pollIntervalMs` is not above 0, or longer than a timer runs.
   * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, { pollIntervalMs = DEFAULT_POLL_MS, listen, retry }: EventLogOptions = {}) {
    checkDuration('pollIntervalMs', pollIntervalMs);
    this.#transactions = new Transactions(em, retry);
    this.#store = SessionStore.of(em, this.#transactions.dialect);
    this.#poller = LogPoller.of(this.#store, this.#transactions, pollIntervalMs);
    const channel = this.#store.channel;
    if (listen && channel) this.#listener = new LogListener(listen, channel, () => this.#poller.wake());
  }

  /** @returns the position of the newest event; what is committed later comes after it. 0 when there is none. */
  async head(): Promise<number> {
    return guarded(() => this.#poller.position());
  }

  /**
   * Reads the events after a position, up to those that are committed when the reading begins.
   *
   * @param position where to go on: the `position` of the last entry seen; 0 for the beginning.
   * @throws InvalidKeyError when the position or the filter is not one.
   */
  since(position: number, filter: LogFilter = {}): AsyncIterable<LogEntry> {
    checkFilter(filter, { position });
    return limited(filter, this.#since(position, filter));
  }

  async *#since(position: number, filter: LogFilter): AsyncGenerator<LogEntry> {
    yield* this.#read(position, await this.head(), filter);
  }

  /**
   * Reads the events after a position, and then those that come, until the signal fires or the loop is left. Where
   * nothing happens, all watchers of a process share one query an interval.
   *
   * @param position as for `since`.
   * @throws InvalidKeyError when the position or the filter is not one.
   * @throws DatabaseError from the loop, when the database stays away after all retries; go on from the last position.
   */
  watch(position: number, filter: LogFilter = {}, options: { signal?: AbortSignal } = {}): AsyncIterable<LogEntry> {
    checkFilter(filter, { position });
    return limited(filter, this.#watch(position, filter, options.signal));
  }

  async *#watch(position: number, filter: LogFilter, signal: AbortSignal | undefined): AsyncGenerator<LogEntry> {
    yield* this.#watching(this.#poller.watch(), signal, async function* (this: EventLog, watch: Watch) {
      const upTo = watch.head;
      yield* this.#read(position, upTo, filter);
      position = Math.max(position, upTo);
      return () => watch.head > position;
    });
  }

  /** One session's log; it needs no positions. */
  session(key: SessionKey): SessionLog {
    const session = checkedSessionKey(key);
    return {
      head: () =>
        guarded(async () => (await this.#transactions.run((sql) => this.#store.head(sql, session)))?.lastSeq ?? 0),
      since: (seq, filter = {}) => {
        checkFilter(filter, { seq });
        return limited(filter, this.#sinceInSession(session, seq, filter));
      },
      watch: (seq, filter = {}, options = {}) => {
        checkFilter(filter, { seq });
        return limited(filter, this.#watchSession(session, seq, filter, options.signal));
      },
    };
  }

  async *#sinceInSession(session: SessionKey, seq: number, filter: SessionLogFilter): AsyncGenerator<LogEntry> {
    const head = await guarded(() => this.#transactions.run((sql) => this.#store.head(sql, session)));
    if (head) yield* this.#readSession(session, head, seq, filter);
  }

  async *#watchSession(
    session: SessionKey,
    seq: number,
    filter: SessionLogFilter,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<LogEntry> {
    let seen: SessionHead | undefined;
    yield* this.#watching(this.#poller.watch(session), signal, async function* (this: EventLog, watch: Watch) {
      const head = watch.sessionHead;
      // A session that was deleted and created again begins anew.
      if (head && seen && head.incarnation !== seen.incarnation) seq = 0;
      if (head) {
        yield* this.#readSession(session, head, seq, filter);
        seq = Math.max(seq, head.lastSeq);
        seen = head;
      }
      return () => watch.sessionHead !== head;
    });
  }

  /** @param readOn yields what there is, and returns what tells whether there is more. */
  async *#watching(
    watch: Watch,
    signal: AbortSignal | undefined,
    readOn: (this: EventLog, watch: Watch) => AsyncGenerator<LogEntry, () => boolean>,
  ): AsyncGenerator<LogEntry> {
    const stopListening = this.#listener?.start();
    try {
      await guarded(() => watch.look());
      while (!signal?.aborted) {
        const entries = readOn.call(this, watch);
        let next = await entries.next();
        for (; !next.done; next = await entries.next()) {
          if (signal?.aborted) return;
          yield next.value;
        }
        const hasMore = next.value;
        while (!signal?.aborted && !hasMore()) await guarded(() => watch.change(signal));
      }
    } finally {
      stopListening?.();
      await watch.leave();
    }
  }

  async *#read(after: number, upTo: number, filter: LogFilter): AsyncGenerator<LogEntry> {
    while (after < upTo) {
      const range = { after, upTo, limit: BATCH };
      const events = await guarded(() => this.#transactions.run((sql) => this.#store.log.events(sql, range, filter)));
      yield* entriesOf(events, filter);
      if (events.length < BATCH) return;
      after = events.at(-1)?.position ?? upTo;
    }
  }

  async *#readSession(
    session: SessionKey,
    { incarnation, lastSeq }: SessionHead,
    after: number,
    { afterTimestamp, ...filter }: SessionLogFilter,
  ): AsyncGenerator<LogEntry> {
    while (after < lastSeq) {
      const range = { incarnation, after, upTo: lastSeq, limit: BATCH, afterTimestamp };
      const events = await guarded(() =>
        this.#transactions.run((sql) => this.#store.log.sessionEvents(sql, session, range)),
      );
      yield* entriesOf(events, filter);
      if (events.length < BATCH) return;
      after = events.at(-1)?.seq ?? lastSeq;
    }
  }
}

/**
 * The log of one session; from `EventLog.session`. Its cursor is `seq`, which begins again where a session is deleted and
 * created under the same id: a reader that comes back to such a session has to know that, one that stays is told.
 */
export interface SessionLog {
  /** @returns the number of the newest event; 0 when there is none, or no such session. */
  head(): Promise<number>;
  /** As `EventLog.since`, with the `seq` of the last entry seen. */
  since(seq: number, filter?: SessionLogFilter): AsyncIterable<LogEntry>;
  /** As `EventLog.watch`. A session that is not there yet is waited for; one that is created again is read from its start. */
  watch(seq: number, filter?: SessionLogFilter, options?: { signal?: AbortSignal }): AsyncIterable<LogEntry>;
}

function checkFilter(filter: LogFilter, cursor: Record<string, number>): void {
  const { appName, userId, session, sessionTree, limit, afterTimestamp } = filter;
  if (appName !== undefined) checkKeys({ appName });
  if (userId !== undefined) checkKeys({ userId });
  if (session !== undefined) checkKeys({ sessionId: session });
  if (sessionTree !== undefined) checkKeys({ sessionId: sessionTree });
  checkWholeNumbers({ ...cursor, limit });
  if (afterTimestamp !== undefined && !Number.isFinite(afterTimestamp)) {
    throw new InvalidKeyError('afterTimestamp must be a number of ms since 1970.');
  }
}

async function* limited({ limit }: SessionLogFilter, entries: AsyncIterable<LogEntry>): AsyncGenerator<LogEntry> {
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
    const place: LogPlace = { ...(position !== null && { position }), seq, ...session };
    const event = eventOf(json);
    if (!event) yield { ...place, error: new DamagedEventError(session.sessionId, seq) };
    else if (matches(event, filter)) yield { ...place, event };
  }
}

function eventOf(json: string | null): Event | undefined {
  try {
    const value: unknown = JSON.parse(json ?? '');
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? branded(value) : undefined;
  } catch {
    return undefined;
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
