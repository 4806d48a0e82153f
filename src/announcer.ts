import type { SessionStore } from './dialects/session-store.js';
import { LogPoller } from './log-poller.js';
import type { Transactions } from './transaction.js';

/** Tells those who watch the event log that there is something new. */
export class Announcer {
  #isSending = false;
  #isDue = false;

  /** @param notifies whether watchers in other processes are told, too, where the database can. */
  constructor(
    private readonly store: SessionStore,
    private readonly transactions: Transactions,
    private readonly notifies: boolean,
  ) {}

  /** For events that are written: committed, or in the host's transaction and with it. */
  async announce(): Promise<void> {
    if (this.transactions.isJoined) {
      // The server sends it with the host's commit.
      if (this.notifies) await this.transactions.run((sql) => this.store.notify(sql));
      return;
    }
    LogPoller.wake(this.store);
    if (this.notifies) void this.#send();
  }

  /**
   * After the commit and beside the appends that follow: inside an append's transaction it would make every commit on
   * the server wait for the one before (PostgreSQL takes a lock for all notifications). One speaks for all that
   * happens while another is on its way.
   */
  async #send(): Promise<void> {
    this.#isDue = true;
    if (this.#isSending) return;
    this.#isSending = true;
    try {
      while (this.#isDue) {
        this.#isDue = false;
        await this.transactions.run((sql) => this.store.notify(sql));
      }
    } catch {
      // It is only about the time until watchers look by themselves.
    } finally {
      this.#isSending = false;
    }
  }
}
