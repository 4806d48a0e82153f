import type { LogWentBackError } from '../model/errors.js';
import type { CompleteLogPosition } from '../model/log-history.js';
import type { ReaderCall } from './reader-call.js';
import type { Heads } from './watch/heads.js';

/** What a `LogReader` reads, and how far it has read. */
export interface LogContent<Entry> {
  /** The last position that was read. */
  position(): number;
  /** @returns an error if a log with this head is not the one that was read so far. */
  wentBack(head: CompleteLogPosition): Promise<LogWentBackError | undefined>;
  /** Continues to read, up to a head. */
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

  /** Reads what is committed now. The signal ends it. */
  since(): AsyncGenerator<Entry> {
    return this.#call.untilAborted(this.#since());
  }

  async *#since(): AsyncGenerator<Entry> {
    const head = await this.#heads.ofLog(this.#call);
    const error = await this.#content.wentBack(head);
    if (error) throw error;
    yield* this.#content.readUpTo(head);
  }

  /** Reads what is committed now, and then new entries, until the signal fires. */
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
          // The head may be of a poll that began before the caller read its cursor: ask the database again.
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
