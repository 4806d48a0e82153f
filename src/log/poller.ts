import type { LogHead } from '../database/stores/log-store.js';
import type { SessionHead } from '../database/stores/session-store.js';
import type { Stores } from '../database/stores/stores.js';
import type { Transactions } from '../database/transaction.js';
import { isRefusedWrite } from '../model/failures.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';

interface WatchedSession {
  readonly key: SessionKey;
  watchers: number;
  /** Undefined while the session is missing. */
  head: SessionHead | undefined;
}

interface Waiter {
  resolve(): void;
  reject(error: unknown): void;
}

/** A watcher's part in a poller. */
export interface Watch {
  /** As of the last look. */
  readonly head: number;
  readonly sessionHead: SessionHead | undefined;
  /** Looks now. */
  look(): Promise<void>;
  /** @returns when a look has found something new, or at once when the signal fires. */
  change(signal: AbortSignal | undefined): Promise<void>;
  /** @returns when nothing is under way for it any more. */
  leave(): Promise<void>;
}

/** Tells the host of a failure that no caller is told of. */
type Report = (error: unknown, operation: string) => void;

/** How long an account that may not write is not asked to again. */
const READ_ONLY_MS = 60_000;

/** The most sessions in one statement; SQLite's expressions end at a depth of 1,000. */
const SESSIONS_AT_ONCE = 200;

/**
 * Looks for new events on behalf of all watchers of a database in this process: one cheap query an interval, however
 * many watchers there are. What it finds it keeps, and watchers compare; so a wake-up that comes too early, too late
 * or not at all costs no event (contract G2).
 */
export class LogPoller {
  static readonly #pollers = new WeakMap<Stores, Map<number, LogPoller>>();

  readonly #transactions: Transactions;
  readonly #stores: Stores;
  readonly #intervalMs: number;
  readonly #sessions = new Map<string, WatchedSession>();
  readonly #waiters = new Set<Waiter>();
  readonly #watchers = new Set<{ report: Report }>();
  #head = 0;
  #seen: string | undefined;
  #registrations = 0;
  /** When this account was last told that it may not write. */
  #readOnlySince = -Infinity;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;
  #isLookDue = false;
  /** Whether the last look that failed had somebody waiting for it, who threw. */
  #wasHeard = false;

  static of(stores: Stores, transactions: Transactions, intervalMs: number): LogPoller {
    const pollers = LogPoller.#pollers.get(stores) ?? new Map<number, LogPoller>();
    LogPoller.#pollers.set(stores, pollers);
    const poller = pollers.get(intervalMs) ?? new LogPoller(stores, transactions, intervalMs);
    pollers.set(intervalMs, poller);
    return poller;
  }

  /** Tells the watchers in this process of a commit. */
  static wake(stores: Stores): void {
    for (const poller of LogPoller.#pollers.get(stores)?.values() ?? []) poller.wake();
  }

  private constructor(stores: Stores, transactions: Transactions, intervalMs: number) {
    this.#stores = stores;
    this.#transactions = transactions;
    this.#intervalMs = intervalMs;
  }

  /**
   * @param report is told of failures while the watcher is not waiting.
   * @param session to watch one session; without it the events of all.
   */
  watch(report: Report, session?: SessionKey): Watch {
    const watched = session && this.#watchSession(session);
    const watcher = { report };
    this.#watchers.add(watcher);
    const head = () => this.#head;
    return {
      get head() {
        return head();
      },
      get sessionHead() {
        return watched?.head;
      },
      look: () => this.#look(),
      change: (signal) => this.#change(signal),
      leave: async () => {
        if (watched && --watched.watchers === 0) this.#sessions.delete(sessionIdentity(watched.key));
        this.#watchers.delete(watcher);
        if (this.#watchers.size === 0) await this.#stop();
      },
    };
  }

  wake(): void {
    if (this.#watchers.size === 0) return;
    // What a look that is under way has not seen, the next one has to.
    if (this.#looking) this.#isLookDue = true;
    else this.#lookUnasked();
  }

  /** Gives positions to all events that are committed now, where this account may. @returns the last position. */
  async position(report: Report): Promise<number> {
    let head = await this.#transactions.run((sql) => this.#stores.log.head(sql));
    while (head.isPending && this.#mayWrite()) head = await this.#assignPositions(head, [{ report }]);
    return head.position;
  }

  /** Tried again now and then: a server that is read-only during a failover is not for ever. */
  #mayWrite(): boolean {
    return performance.now() - this.#readOnlySince > READ_ONLY_MS;
  }

  async #assignPositions(head: LogHead, told: Iterable<{ report: Report }>): Promise<LogHead> {
    try {
      const assigned = await this.#transactions.transaction((sql) => this.#stores.log.assignPositions(sql));
      this.#readOnlySince = -Infinity;
      return assigned;
    } catch (error) {
      if (!isRefusedWrite(this.#transactions.failureOf(error))) throw error;
      // Somebody else's reader gives the positions. An account may be meant to read alone, so once is enough.
      if (this.#readOnlySince === -Infinity) for (const { report } of told) report(error, 'assignPositions');
      this.#readOnlySince = performance.now();
      return head;
    }
  }

  #watchSession(key: SessionKey): WatchedSession {
    const watched = this.#sessions.get(sessionIdentity(key)) ?? { key, watchers: 0, head: undefined };
    watched.watchers++;
    this.#sessions.set(sessionIdentity(key), watched);
    this.#registrations++;
    this.#isLookDue = true;
    return watched;
  }

  /** A failure goes to whoever waits; where nobody does, to the hosts' logs. The next look tries again. */
  #lookUnasked(): void {
    this.#look().catch((error: unknown) => {
      if (!this.#wasHeard) for (const { report } of this.#watchers) report(error, 'poll');
    });
  }

  #look(): Promise<void> {
    return (this.#looking ??= this.#lookNow());
  }

  async #lookNow(): Promise<void> {
    clearTimeout(this.#timer);
    try {
      do {
        this.#isLookDue = false;
        await this.#lookOnce();
      } while (this.#isLookDue);
    } catch (error) {
      this.#wasHeard = this.#waiters.size > 0;
      for (const waiter of this.#waiters) waiter.reject(error);
      this.#waiters.clear();
      throw error;
    } finally {
      // At once: a wake-up that comes now must not take this look for one that is still to see what it tells of.
      this.#looking = undefined;
      this.#schedule();
    }
  }

  async #lookOnce(): Promise<void> {
    const { log } = this.#stores;
    const registrations = this.#registrations;
    const mark = await this.#transactions.run((sql) => log.changeMark(sql));
    // The mark tells of changes to what was looked at; a session that is new to us was not.
    const seen = mark === undefined ? undefined : `${mark} ${registrations}`;
    if (seen !== undefined && seen === this.#seen) return;

    let head = await this.#transactions.run((sql) => log.head(sql));
    this.#found(head);
    while (head.isPending && this.#mayWrite()) {
      head = await this.#assignPositions(head, this.#watchers);
      this.#found(head);
    }
    if (await this.#lookAtSessions()) this.#wakeWaiters();
    this.#seen = seen;
  }

  #found({ position }: LogHead): void {
    if (position <= this.#head) return;
    this.#head = position;
    this.#wakeWaiters();
  }

  /** @returns whether one of them has changed. */
  async #lookAtSessions(): Promise<boolean> {
    const watched = [...this.#sessions.values()];
    let isChanged = false;
    for (let i = 0; i < watched.length; i += SESSIONS_AT_ONCE) {
      const some = watched.slice(i, i + SESSIONS_AT_ONCE);
      const keys = some.map(({ key }) => key);
      const found = await this.#transactions.run((sql) => this.#stores.sessions.heads(sql, keys));
      const heads = new Map(found.map(({ key, head }) => [sessionIdentity(key), head]));
      for (const session of some) {
        const head = heads.get(sessionIdentity(session.key));
        if (head?.incarnation === session.head?.incarnation && head?.lastSeq === session.head?.lastSeq) continue;
        session.head = head;
        isChanged = true;
      }
    }
    return isChanged;
  }

  #wakeWaiters(): void {
    for (const waiter of this.#waiters) waiter.resolve();
    this.#waiters.clear();
  }

  #change(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const finish = () => {
        this.#waiters.delete(waiter);
        signal?.removeEventListener('abort', finish);
        resolve();
      };
      const waiter: Waiter = {
        resolve: finish,
        reject: (error) => {
          signal?.removeEventListener('abort', finish);
          reject(error instanceof Error ? error : new Error(String(error)));
        },
      };
      if (signal?.aborted) {
        resolve();
        return;
      }
      signal?.addEventListener('abort', finish);
      this.#waiters.add(waiter);
    });
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    if (this.#watchers.size === 0) return;
    this.#timer = setTimeout(() => this.#lookUnasked(), this.#intervalMs);
  }

  async #stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#seen = undefined;
    // Its statements must not meet an ORM that is closed when the loop has ended: there they wait for a minute.
    await this.#looking?.catch(() => undefined);
  }
}
