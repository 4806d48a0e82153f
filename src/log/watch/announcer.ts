import type { Database } from '../../database/calls/database.js';
import type { Tables } from '../../database/sql/tables.js';
import { notifyListeners } from '../log-head.js';

const wakers = new WeakMap<Tables, Set<() => void>>();

/** What is called after a write to sessions of these tables was committed in this process. */
export function wakersOf(tables: Tables): Set<() => void> {
  const known = wakers.get(tables) ?? new Set();
  wakers.set(tables, known);
  return known;
}

/** Notifies watchers of the event log that events were written. */
export class Announcer {
  readonly #database: Database;
  /** Those in this process. */
  readonly wakers: ReadonlySet<() => void>;
  /** Whether watchers in other processes are notified. */
  readonly notifies: boolean;
  #sending: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  /** @param notifies whether watchers in other processes are notified, too, if the database can. */
  constructor(database: Database, notifies: boolean) {
    this.#database = database;
    this.wakers = wakersOf(database.tables);
    this.notifies = notifies;
  }

  /** Called after the commit; in a host's transaction, before it. */
  async announce(): Promise<void> {
    if (this.#database.isJoined) {
      // PostgreSQL sends the notification when the host's transaction commits.
      if (this.notifies) await this.#database.run(notifyListeners);
      return;
    }
    for (const wake of this.wakers) wake();
    if (this.notifies) await this.#send();
  }

  /**
   * After the commit: inside an append's transaction it would make every commit on the server wait for the one before
   * (PostgreSQL takes a lock for all notifications). Appends that end while one is being sent share the next one.
   *
   * The append waits for it: it must not be under way when the caller closes the ORM. A statement that begins on a
   * closed pool keeps the process alive for a minute.
   */
  #send(): Promise<void> {
    this.#next ??= (this.#sending ?? Promise.resolve()).then(() => {
      this.#sending = this.#next;
      this.#next = undefined;
      // A notification that fails delays watchers until their next poll.
      return (
        this.#database
          // It is tried once, since the append waits for it.
          .run(notifyListeners, { retries: () => false })
          .catch((error: unknown) => this.#database.report(error, { operation: 'notify', key: {} }))
      );
    });
    return this.#next;
  }
}
