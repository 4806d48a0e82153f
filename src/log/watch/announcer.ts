import type { Database } from '../../database/calls/database.js';
import { processWidePerTables } from '../../database/sql/values.js';
import { notifyListeners } from '../log-head.js';

/** The functions to call after this process has committed a write to these tables. */
export const wakersOf = processWidePerTables('wakers', () => new Set<() => void>());

/** Notifies watchers of the event log that something was written. */
export class Announcer {
  readonly #database: Database;
  /** Wake the watchers in this process. */
  readonly wakers: ReadonlySet<() => void>;
  readonly notifies: boolean;
  #sending: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  /** @param notifies whether to notify watchers in other processes, too, if the database can. */
  constructor(database: Database, notifies: boolean) {
    this.#database = database;
    this.wakers = wakersOf(database);
    this.notifies = notifies;
  }

  /** To be called after the commit; in a host's transaction, before it. */
  async announce(): Promise<void> {
    const { isJoined } = this.#database;
    if (!isJoined) for (const wake of this.wakers) wake();
    // PostgreSQL sends the notification when the host's transaction commits, which a failure must not end.
    if (this.notifies) await (isJoined ? this.#notified(this.#database.transaction(notifyListeners)) : this.#send());
  }

  /**
   * Runs after the commit: PostgreSQL takes one lock for all notifications, so inside the append's transaction, every commit on
   * the server would wait for the previous one. Appends that end while a notification is being sent share the next one.
   *
   * The append waits for it, since the caller may close the ORM afterwards: a statement that begins on a closed pool keeps the
   * process alive for a minute.
   */
  #send(): Promise<void> {
    this.#next ??= (this.#sending ?? Promise.resolve()).then(() => {
      this.#sending = this.#next;
      this.#next = undefined;
      // Not retried, since the append waits for it.
      return this.#notified(this.#database.run(notifyListeners, { retries: () => false }));
    });
    return this.#next;
  }

  /** If it fails, watchers see the event with their next poll. */
  #notified(sent: Promise<void>): Promise<void> {
    return sent.catch((error: unknown) => this.#database.report(error, { operation: 'notify', key: {} }));
  }
}
