import { AsyncResource } from 'node:async_hooks';
import { Aborted } from '../../database/calls/connection.js';
import type { Database } from '../../database/calls/database.js';
import type { SessionHead } from '../../database/statements/stored-session.js';
import { perTables } from '../../database/sql/values.js';
import { clearTimeout, setTimeout } from '../../model/clock.js';
import type { SessionKey } from '../../model/keys.js';
import type { CompleteLogPosition } from '../../model/log-history.js';
import { detached } from '../../telemetry/telemetry.js';
import { changeCounter } from '../log-head.js';
import { Positions, type Report } from '../positions.js';
import type { ReaderCall } from '../reader-call.js';
import { wakersOf } from './announcer.js';
import { Waiters } from './waiters.js';
import { WatchedSessions } from './watched-sessions.js';

/** The heads that one reader gets, one after the other. Whoever has one must `leave` it. */
export interface HeadWatch<Head> {
  /** @returns the head as of the last poll. */
  newest(): Head;
  /** Polls now. @returns the head, which may be unchanged. @throws Aborted when the signal fires. */
  poll(): Promise<Head>;
  /** Waits for a head that the reader does not have. @throws Aborted when the signal fires. */
  next(): Promise<Head>;
  /** Resolves once no statement runs for the reader. */
  leave(): Promise<void>;
}

/**
 * Polls for new events on behalf of all watchers of a database in this process: one cheap query an interval, however
 * many watchers there are.
 *
 * A poll is due when the interval is over, when a commit in this process or a notification wakes the poller, or when a
 * watcher begins. There is one poll at a time. What becomes due during a poll makes it poll once more, since that poll
 * may have read the tables before the commit. A poll
 *
 * 1. reads the database's change counter, if it has one, and ends if neither the counter nor the watched sessions changed;
 * 2. assigns positions to committed events (`Positions`);
 * 3. reads the heads of the sessions that are watched (`WatchedSessions`);
 * 4. wakes the waiting watchers (`Waiters`), if a head has changed.
 *
 * The heads are kept here, and watchers compare them with what they have read. So no event is lost if a wake-up comes too early,
 * too late or not at all (contract G2).
 */
export class LogPoller {
  /** Each copy of this package polls for itself: what a failed poll throws is of its own classes. Commits wake the pollers of all. */
  static readonly #pollersOf = perTables(() => new Map<number, LogPoller>());

  readonly #positions: Positions;
  readonly #wakers: Set<() => void>;
  readonly #database: Database;
  readonly #intervalMs: number;
  readonly #sessions: WatchedSessions;
  /** That of the only watcher, from which the host's settings come: an append of another user may wake the poller. */
  readonly #context: AsyncResource | undefined;
  readonly #waiters = new Waiters();
  /** They get failures while they are not waiting. */
  readonly #watchers = new Set<{ report: Report }>();
  #head: CompleteLogPosition = { position: 0, epoch: 0, change: 0, history: '' };
  /** The change counter of the last poll, with the number of watchers that had been added. */
  #seen: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> | undefined;
  #isPollDue = false;
  /** Ends the running poll when the last watcher leaves. */
  #end = new AbortController();
  /** Whether a watcher waited for the last failed poll, and got its error. */
  #wasHeard = false;

  /** @returns the poller of a database and an interval, which all watchers share; one for each if the host sets values for each. */
  static of(database: Database, intervalMs: number): LogPoller {
    if (database.connections.hasSettings) return new LogPoller(database, intervalMs);
    const pollers = LogPoller.#pollersOf(database);
    const poller = pollers.get(intervalMs) ?? new LogPoller(database, intervalMs);
    pollers.set(intervalMs, poller);
    return poller;
  }

  private constructor(database: Database, intervalMs: number) {
    this.#wakers = wakersOf(database);
    this.#database = database;
    this.#intervalMs = intervalMs;
    this.#positions = new Positions(database);
    this.#sessions = new WatchedSessions(database);
    this.#context = database.connections.hasSettings ? new AsyncResource('LogPoller') : undefined;
  }

  /** Watches the log of all sessions. */
  watch(call: ReaderCall): HeadWatch<CompleteLogPosition> {
    return this.#watch(
      call,
      () => this.#head,
      () => undefined,
    );
  }

  /** Watches one session. Its head is undefined while there is no such session. */
  watchSession(call: ReaderCall, key: SessionKey): HeadWatch<SessionHead | undefined> {
    const session = this.#sessions.add(key);
    return this.#watch(
      call,
      () => session.head,
      () => this.#sessions.leave(session),
    );
  }

  /** @param newest gives the same object until something changes. */
  #watch<Head>(call: ReaderCall, newest: () => Head, forget: () => void): HeadWatch<Head> {
    this.#watchers.add(call);
    this.#wakers.add(this.wake);
    let head: Head | undefined;
    return {
      newest,
      poll: async () => {
        await call.waitOrAbort(() =>
          this.#pollAnew().catch((error: unknown) => {
            // The last watchers left and ended the poll, but this one has come since: poll again.
            if (error instanceof Aborted && this.#watchers.has(call)) return this.#poll();
            throw error;
          }),
        );
        return (head = newest());
      },
      next: async () => {
        for (;;) {
          if (call.signal?.aborted) throw new Aborted();
          if (newest() !== head) return (head = newest());
          await call.wait(() => {
            this.#timer?.ref();
            return this.#waiters.wait(call.signal);
          });
        }
      },
      leave: async () => {
        forget();
        this.#watchers.delete(call);
        if (this.#watchers.size > 0) return;
        this.#wakers.delete(this.wake);
        await this.#stop();
      },
    };
  }

  readonly wake = (): void => {
    if (this.#watchers.size === 0) return;
    if (this.#polling) this.#isPollDue = true;
    else this.#pollUnasked();
  };

  /** A failure rejects the waiting watchers; without any, it is reported. The next poll tries again. */
  #pollUnasked(): void {
    this.#poll().catch((error: unknown) => {
      if (!this.#wasHeard && !(error instanceof Aborted)) this.#report(error, 'poll');
    });
  }

  #report(error: unknown, operation: string): void {
    for (const { report } of this.#watchers) report(error, operation);
  }

  /** A running poll may have read less than the reader, and does not know a session that was added since. */
  async #pollAnew(): Promise<void> {
    if (this.#polling) {
      this.#isPollDue = true;
      await this.#polling.catch(() => undefined);
    }
    await this.#poll();
  }

  #poll(): Promise<void> {
    // Detached from the caller: the poll serves all watchers.
    const poll = () => detached(() => this.#pollNow());
    return (this.#polling ??= this.#context ? this.#context.runInAsyncScope(poll) : poll());
  }

  async #pollNow(): Promise<void> {
    clearTimeout(this.#timer);
    this.#isPollDue = false;
    try {
      await this.#pollOnce();
    } catch (error) {
      this.#isPollDue = false;
      if (error instanceof Aborted) throw error;
      this.#wasHeard = !this.#waiters.isEmpty;
      this.#waiters.reject(error);
      throw error;
    } finally {
      this.#polling = undefined;
      // Begins a new poll, so that a reader waits for one poll only, however often commits make another one due.
      if (this.#isPollDue) this.wake();
      else this.#schedule();
    }
  }

  async #pollOnce(): Promise<void> {
    const { signal } = this.#end;
    const { added } = this.#sessions;
    const counter =
      this.#database.dialect.sql.changeCounter === undefined
        ? undefined
        : await this.#database.run(changeCounter, { signal });
    // With the number of added watchers: the last poll has not read a session that was added since.
    const seen = counter === undefined ? undefined : `${counter} ${added}`;
    if (seen !== undefined && seen === this.#seen) return;

    const { isPending } = await this.#positions.assign(
      (error, operation) => this.#report(error, operation),
      signal,
      ({ position, epoch, change, history }) => {
        // A lower head is new, too, and so is one of another history: the database may have gone back (contract O2).
        const isSame = position === this.#head.position && change === this.#head.change && epoch === this.#head.epoch;
        if (isSame && history === this.#head.history) return;
        this.#head = { position, epoch, change, history };
        this.#waiters.resolve();
      },
    );
    if (await this.#sessions.poll(signal)) this.#waiters.resolve();
    // If events have no position yet, the next poll must try again though nothing has changed in the tables.
    this.#seen = isPending ? undefined : seen;
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    if (this.#watchers.size === 0) return;
    this.#timer = setTimeout(() => this.#pollUnasked(), this.#intervalMs);
    // A loop that was abandoned without its end would otherwise keep the process alive (contract O8).
    if (this.#waiters.isEmpty) this.#timer.unref();
  }

  async #stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#seen = undefined;
    this.#end.abort();
    this.#end = new AbortController();
    // The host may close the ORM once its loop has ended, and a statement on a closed pool waits for a minute.
    await this.#polling?.catch(() => undefined);
  }
}
