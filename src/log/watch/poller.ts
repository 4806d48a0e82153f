import { Aborted } from '../../database/calls/connection.js';
import type { Database } from '../../database/calls/database.js';
import type { SessionHead } from '../../database/statements/sessions.js';
import type { Tables } from '../../database/sql/tables.js';
import type { SessionKey } from '../../model/keys.js';
import type { CompleteLogPosition } from '../../model/log-history.js';
import { detached } from '../../telemetry/telemetry.js';
import { changeCounter } from '../log-head.js';
import { Positions, type Report } from '../positions.js';
import { wakersOf } from './announcer.js';
import { Waiters } from './waiters.js';
import { WatchedSessions } from './watched-sessions.js';

/** A watcher's part in a poller. */
export interface Watch<Head> {
  /** As of the last poll; the same object as long as nothing has moved. */
  readonly head: Head;
  /** Polls now. */
  poll(): Promise<void>;
  /** @returns when a poll has found something new, or at once when the signal fires. */
  change(signal: AbortSignal | undefined): Promise<void>;
  /** @returns when nothing is under way for it any more. */
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
 * 1. asks for the database's change counter, if it has one, and ends if the counter and the watched sessions are as before;
 * 2. gives positions to the events that are committed (`Positions`);
 * 3. reads the heads of the sessions that are watched one by one (`WatchedSessions`);
 * 4. wakes the watchers that wait (`Waiters`), if one of these has moved.
 *
 * The heads are kept here, and watchers compare them with what they have read. So a wake-up that comes too early, too late
 * or not at all costs no event (contract G2).
 */
export class LogPoller {
  static readonly #pollers = new WeakMap<Tables, Map<number, LogPoller>>();

  readonly #wakers: Set<() => void>;
  readonly #database: Database;
  readonly #intervalMs: number;
  readonly #positions: Positions;
  readonly #sessions: WatchedSessions;
  readonly #waiters = new Waiters();
  readonly #watchers = new Set<{ report: Report }>();
  #head: CompleteLogPosition = { position: 0, epoch: 0, change: 0, history: '' };
  /** The change counter of the last poll, with the number of watchers that had come. */
  #seen: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> | undefined;
  #isPollDue = false;
  /** Ends the poll that is under way, when nobody waits for it any more. */
  #end = new AbortController();
  /** Whether somebody waited for the last poll that failed, and threw its error. */
  #wasHeard = false;

  /** The poller of a database and interval. */
  static of(database: Database, intervalMs: number): LogPoller {
    const { tables } = database;
    const pollers = LogPoller.#pollers.get(tables) ?? new Map<number, LogPoller>();
    LogPoller.#pollers.set(tables, pollers);
    const poller = pollers.get(intervalMs) ?? new LogPoller(database, intervalMs);
    pollers.set(intervalMs, poller);
    return poller;
  }

  private constructor(database: Database, intervalMs: number) {
    this.#wakers = wakersOf(database.tables);
    this.#database = database;
    this.#intervalMs = intervalMs;
    this.#positions = new Positions(database);
    this.#sessions = new WatchedSessions(database);
  }

  /** Gives positions to all events that are committed now, if this account may. @returns how far the log goes. */
  async head(report: Report, signal?: AbortSignal): Promise<CompleteLogPosition> {
    const { position, epoch, change, history } = await this.#positions.assign(report, signal);
    return { position, epoch, change, history };
  }

  /**
   * Watches the log of all sessions.
   *
   * @param report is called with failures while the watcher is not waiting.
   */
  watch(report: Report): Watch<CompleteLogPosition> {
    return this.#watch(
      report,
      () => this.#head,
      () => undefined,
    );
  }

  /** Watches one session; its head is undefined while it is missing. @param report as for `watch`. */
  watchSession(report: Report, key: SessionKey): Watch<SessionHead | undefined> {
    const session = this.#sessions.add(key);
    // A poll that is under way does not know the session.
    this.#isPollDue = true;
    return this.#watch(
      report,
      () => session.head,
      () => this.#sessions.leave(session),
    );
  }

  #watch<Head>(report: Report, head: () => Head, forget: () => void): Watch<Head> {
    const watcher = { report };
    this.#watchers.add(watcher);
    this.#wakers.add(this.wake);
    return {
      get head() {
        return head();
      },
      poll: async () => {
        try {
          await this.#poll();
        } catch (error) {
          // A poll of watchers that have left was ended; this one may still be here.
          if (!(error instanceof Aborted) || !this.#watchers.has(watcher)) throw error;
          await this.#poll();
        }
      },
      change: (signal) => {
        this.#timer?.ref();
        return this.#waiters.wait(signal);
      },
      leave: async () => {
        forget();
        this.#watchers.delete(watcher);
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

  /** A failure goes to whoever waits; if nobody does, to the hosts' logs. The next poll tries again. */
  #pollUnasked(): void {
    this.#poll().catch((error: unknown) => {
      if (!this.#wasHeard && !(error instanceof Aborted)) this.#report(error, 'poll');
    });
  }

  #report(error: unknown, operation: string): void {
    for (const { report } of this.#watchers) report(error, operation);
  }

  #poll(): Promise<void> {
    // It serves all watchers, and its timer begins the next poll.
    return (this.#polling ??= detached(() => this.#pollNow()));
  }

  async #pollNow(): Promise<void> {
    clearTimeout(this.#timer);
    try {
      do {
        this.#isPollDue = false;
        await this.#pollOnce();
      } while (this.#isPollDue);
    } catch (error) {
      if (error instanceof Aborted) throw error;
      this.#wasHeard = !this.#waiters.isEmpty;
      this.#waiters.reject(error);
      throw error;
    } finally {
      // In the same step as the last test of #isPollDue: a wake-up after that test must find no poll under way.
      this.#polling = undefined;
      this.#schedule();
    }
  }

  async #pollOnce(): Promise<void> {
    const { signal } = this.#end;
    const { added } = this.#sessions;
    const counter =
      this.#database.dialect.sql.changeCounter === undefined
        ? undefined
        : await this.#database.run(changeCounter, { signal });
    // The counter shows changes to what the last poll has read; it has not read a session that was added since.
    const seen = counter === undefined ? undefined : `${counter} ${added}`;
    if (seen !== undefined && seen === this.#seen) return;

    const { isPending } = await this.#positions.assign(
      (error, operation) => this.#report(error, operation),
      signal,
      ({ position, epoch, change, history }) => {
        // A head that is lower, or as high in another history, is new as well: the database may have gone back (contract O2).
        const isSame = position === this.#head.position && change === this.#head.change && epoch === this.#head.epoch;
        if (isSame && history === this.#head.history) return;
        this.#head = { position, epoch, change, history };
        this.#waiters.resolve();
      },
    );
    if (await this.#sessions.poll(signal)) this.#waiters.resolve();
    // Events without a position are to be retried, though nothing changes in the tables.
    this.#seen = isPending ? undefined : seen;
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    if (this.#watchers.size === 0) return;
    this.#timer = setTimeout(() => this.#pollUnasked(), this.#intervalMs);
    // A loop that was left without an end would keep the process alive (contract O8).
    if (this.#waiters.isEmpty) this.#timer.unref();
  }

  async #stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#seen = undefined;
    this.#end.abort();
    this.#end = new AbortController();
    // Its statements must not meet an ORM that is closed when the loop has ended: there they wait for a minute.
    await this.#polling?.catch(() => undefined);
  }
}
