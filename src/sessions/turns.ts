import type { Stores } from '../database/stores/stores.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';

/**
 * Lets the writes to one session wait for each other in memory (contract O6). Waiting for the lock of its row in the
 * database, each would use a connection, and a session that somebody has locked would use up the pool.
 */
export class Turns {
  static readonly #all = new WeakMap<Stores, Turns>();

  /** The last write to each session that is under way or waits. */
  readonly #last = new Map<string, Promise<unknown>>();

  /** The turns of all services on one ORM and schema. */
  static of(stores: Stores): Turns {
    const turns = Turns.#all.get(stores) ?? new Turns();
    Turns.#all.set(stores, turns);
    return turns;
  }

  /** Runs `work` after the writes to the session that were asked for before, whether they succeed or fail. */
  async run<T>(key: SessionKey, work: () => Promise<T>): Promise<T> {
    const identity = sessionIdentity(key);
    const before = this.#last.get(identity);
    const result = before ? before.then(work) : work();
    const done = result.then(
      () => undefined,
      () => undefined,
    );
    this.#last.set(identity, done);
    try {
      return await result;
    } finally {
      // The entry of a session that nobody waits for would stay in memory.
      if (this.#last.get(identity) === done) this.#last.delete(identity);
    }
  }
}
