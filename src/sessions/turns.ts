import { setImmediate } from 'node:timers/promises';
import type { Stores } from '../database/stores/stores.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { Append, Appender } from './append.js';

/** A call that waits for its turn. */
interface Waiting {
  /** Of an append: what it is, and what writes it. */
  readonly append?: { readonly by: Appender; readonly what: Append };
  /** @param written its result, when another append has written it; otherwise its turn has come. */
  readonly proceed: (written?: { readonly result: Promise<void> }) => void;
}

/**
 * Lets the writes to one session wait for each other in memory (contract O6). Waiting for the lock of its row in the
 * database, each would use a connection, and a session that somebody has locked would use up the pool. Appends that wait
 * are written together, in the order of the calls (contract A9): one round trip and one commit for all of them.
 */
export class Turns {
  static readonly #all = new WeakMap<Stores, Turns>();

  /** The calls that wait, of each session to which a write is under way. */
  readonly #waiting = new Map<string, Waiting[]>();

  /** The turns of all services on one ORM and schema. */
  static of(stores: Stores): Turns {
    const turns = Turns.#all.get(stores) ?? new Turns();
    Turns.#all.set(stores, turns);
    return turns;
  }

  /** Runs `work` after the writes to the session that were asked for before, whether they succeed or fail. */
  async run<T>(key: SessionKey, work: () => Promise<T>): Promise<T> {
    const identity = sessionIdentity(key);
    const waiting = this.#waiting.get(identity);
    if (waiting) await new Promise<void>((proceed) => waiting.push({ proceed: () => proceed() }));
    else this.#waiting.set(identity, []);
    try {
      return await work();
    } finally {
      this.#next(identity);
    }
  }

  /** Writes an append after the writes to the session that were asked for before, or together with those of them that are appends. */
  async append(key: SessionKey, by: Appender, what: Append): Promise<void> {
    const identity = sessionIdentity(key);
    const waiting = this.#waiting.get(identity);
    if (waiting) {
      const written = await new Promise<{ readonly result: Promise<void> } | undefined>((proceed) =>
        waiting.push({ append: { by, what }, proceed }),
      );
      if (written) return written.result;
    } else this.#waiting.set(identity, []);

    const others = this.#takeOthers(identity, by, what);
    try {
      const results = by.append([what, ...others.map(({ append }) => append.what)]);
      for (const [i, other] of others.entries()) other.proceed({ result: results.then((all) => all[i + 1]) });
      const [own] = await results;
      await own;
    } finally {
      // Callers that append again at once are to find their place before the next batch begins.
      if (others.length > 0 || this.#waiting.get(identity)?.length) {
        void setImmediate().then(() => this.#next(identity));
      } else this.#next(identity);
    }
  }

  /** Takes the appends out of the queue that can be written together with the one whose turn it is. */
  #takeOthers(identity: string, by: Appender, what: Append) {
    const waiting = this.#waiting.get(identity) ?? [];
    const others: Required<Waiting>[] = [];
    for (const { append, proceed } of waiting) {
      if (append?.by !== by || !by.canJoin([what, ...others.map((other) => other.append.what)], append.what)) break;
      others.push({ append, proceed });
    }
    waiting.splice(0, others.length);
    return others;
  }

  #next(identity: string): void {
    const next = this.#waiting.get(identity)?.shift();
    if (next) next.proceed();
    // The entry of a session that nobody waits for would stay in memory.
    else this.#waiting.delete(identity);
  }
}
