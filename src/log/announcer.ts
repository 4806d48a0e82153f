import type { Stores } from '../database/stores/stores.js';
import type { Transactions } from '../database/transaction.js';
import { LogPoller } from './poller.js';

/** Tells those who watch the event log that there is something new. */
export class Announcer {
  #sending: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  /** @param notifies whether watchers in other processes are told, too, where the database can. */
  constructor(
    private readonly stores: Stores,
    private readonly transactions: Transactions,
    private readonly notifies: boolean,
  ) {}

  /** For events that are written: committed, or in the host's transaction and with it. */
  async announce(): Promise<void> {
    if (this.transactions.isJoined) {
      // The server sends it with the host's commit.
      if (this.notifies) await this.transactions.run((sql) => this.stores.log.notify(sql));
      return;
    }
    LogPoller.wake(this.stores);
    if (this.notifies) await this.#send();
  }

  /**
   * After the commit: inside an append's transaction it would make every commit on the server wait for the one before
   * (PostgreSQL takes a lock for all notifications). One speaks for all that happens while another is on its way.
   *
   * The append waits for it: it must not be under way when the caller closes the ORM. A statement that begins on a
   * closed pool keeps the process alive for a minute.
   */
  #send(): Promise<void> {
    this.#next ??= (this.#sending ?? Promise.resolve()).then(() => {
      this.#sending = this.#next;
      this.#next = undefined;
      // Without it watchers look by themselves, some time later.
      return this.transactions
        .run((sql) => this.stores.log.notify(sql))
        .catch((error: unknown) => this.transactions.report(error, { operation: 'notify', key: {} }));
    });
    return this.#next;
  }
}
