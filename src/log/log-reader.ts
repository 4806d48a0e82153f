import type { LogWentBackError } from '../model/errors.js';
import type { CompleteLogPosition } from '../model/log-history.js';
import type { ReaderCall } from './reader-call.js';
import type { Heads } from './watch/heads.js';

/** What a reader of the log of all sessions reads, and how far it has read it. */
export interface LogContent<Entry> {
  /** Up to which position it was read. */
  position(): number;
  /** @returns the error to throw when a log with this head is not the one that was read so far. */
  wentBack(head: CompleteLogPosition): Promise<LogWentBackError | undefined>;
  /** Reads on, up to a head. */
  readUpTo(head: CompleteLogPosition): AsyncGenerator<Entry>;
}

/** Reads the log of all sessions. */
export class LogReader<Entry> {
  readonly #call: ReaderCall;
  readonly #heads: Heads;
  readonly #content: LogContent<Entry>;

  constructor(call: ReaderCall, heads: Heads, content: LogContent<Entry>) {
    this.#call = call;
    this.#heads = heads;
    this.#content = content;
  }

  /** Reads what is committed now, unless the signal fires. */
  since(): AsyncGenerator<Entry> {
    return this.#call.untilAborted(this.#since());
  }

  async *#since(): AsyncGenerator<Entry> {
    const head = await this.#heads.ofLog(this.#call);
    const error = await this.#content.wentBack(head);
    if (error) throw error;
    yield* this.#content.readUpTo(head);
  }

  /** Reads what is committed now, and then what comes, until the signal fires. */
  watch(): AsyncGenerator<Entry> {
    return this.#call.untilAborted(this.#watch());
  }

  async *#watch(): AsyncGenerator<Entry> {
    const heads = this.#heads.watchLog(this.#call);
    const unfollow = this.#call.follow(() => Math.max(0, heads.newest.position - this.#content.position()));
    try {
      for (let head = await heads.poll(); ; head = await heads.next()) {
        let error = await this.#content.wentBack(head);
        if (error) {
          // A poll that began before the caller's may have read an older head.
          head = await heads.poll();
          error = await this.#content.wentBack(head);
        }
        if (error) throw error;
        yield* this.#content.readUpTo(head);
      }
    } finally {
      unfollow?.();
      await heads.leave();
    }
  }
}
