import { loggedEvents } from '../database/statements/logged-events.js';
import type { LogWentBackError } from '../model/errors.js';
import type { CompleteLogPosition, LogPosition } from '../model/log-history.js';
import { cursorAt, wentBack, type ReaderCursor } from './cursors.js';
import type { LogEntry } from './entries.js';
import { entriesOf, type LogFilter } from './filters.js';
import { BATCH, type ReaderCall } from './reader-call.js';
import type { Heads } from './watch/heads.js';

/** The method of a reader: of what is committed now, or also of what follows. */
export type ReadMethod = 'since' | 'watch';

/** What `readLog` reads, and how far it has read. */
export interface LogContent<Entry> {
  /** The last position that was read. */
  position(): number;
  /** @returns an error if a log with this head is not the one that was read so far. */
  wentBack(head: CompleteLogPosition): Promise<LogWentBackError | undefined>;
  /** Continues to read, up to a head. */
  readUpTo(head: CompleteLogPosition): AsyncGenerator<Entry>;
}

export type LogContentClass<Entry> = new (
  call: ReaderCall,
  heads: Heads,
  cursor: ReaderCursor,
  filter: LogFilter,
) => LogContent<Entry>;

/** Reads the log of all sessions, until the signal fires. */
export function readLog<Entry>(method: ReadMethod, ...reading: Reading<Entry>): AsyncGenerator<Entry> {
  const [call] = reading;
  return call.untilAborted(method === 'since' ? since(...reading) : watch(...reading));
}

type Reading<Entry> = [call: ReaderCall, heads: Heads, content: LogContent<Entry>];

async function* since<Entry>(...[call, heads, content]: Reading<Entry>): AsyncGenerator<Entry> {
  const head = await heads.ofLog(call);
  const error = await content.wentBack(head);
  if (error) throw error;
  yield* content.readUpTo(head);
}

async function* watch<Entry>(...[call, all, content]: Reading<Entry>): AsyncGenerator<Entry> {
  const heads = all.watchLog(call);
  const unfollow = call.follow(() => Math.max(0, heads.newest().position - content.position()));
  try {
    for (let head = await heads.poll(); ; head = await heads.next()) {
      let error = await content.wentBack(head);
      if (error) {
        // The head may be of a poll that began before the caller read its cursor: ask the database again.
        head = await heads.poll();
        error = await content.wentBack(head);
      }
      if (error) throw error;
      yield* content.readUpTo(head);
    }
  } finally {
    unfollow?.();
    await heads.leave();
  }
}

/** Reads the events of all sessions, by their positions. */
export class LogEvents implements LogContent<LogEntry & { cursor: LogPosition }> {
  readonly #call: ReaderCall;
  readonly #filter: LogFilter;
  #cursor: ReaderCursor;
  /** The last position that was read. */
  #position: number;

  constructor(call: ReaderCall, _heads: Heads, cursor: ReaderCursor, filter: LogFilter) {
    this.#call = call;
    this.#cursor = cursor;
    this.#position = cursor.position;
    this.#filter = filter;
  }

  position(): number {
    return this.#position;
  }

  wentBack(head: CompleteLogPosition): Promise<LogWentBackError | undefined> {
    return wentBack(this.#call, this.#cursor, head, { isComplete: false });
  }

  async *readUpTo(head: CompleteLogPosition): AsyncGenerator<LogEntry & { cursor: LogPosition }> {
    const { epoch, history } = head;
    let after = this.#cursor.position;
    while (after < head.position) {
      const range = { after, upTo: head.position, limit: BATCH };
      const events = await this.#call.run((sql) => loggedEvents(sql, range, this.#filter));
      for (const entry of entriesOf(events, this.#filter)) {
        yield { ...entry, cursor: { position: entry.position ?? after, epoch, history } };
      }
      if (events.length < BATCH) break;
      this.#position = after = events.at(-1)?.position ?? head.position;
    }
    this.#cursor = cursorAt(head);
    this.#position = head.position;
  }
}
