import { loggedEvents, loggedEventsOf } from '../database/statements/logged-events.js';
import type { LogWentBackError } from '../model/errors.js';
import type { CompleteLogPosition, LogPosition } from '../model/log-history.js';
import { cursorAt, type ReaderCursor } from './cursors.js';
import type { LogEntry } from './entries.js';
import { entriesOf, type LogFilter } from './filters.js';
import type { LogContent } from './log-reader.js';
import { BATCH, type ReaderCall } from './reader-call.js';
import { wentBack } from './went-back.js';

/** Reads the events of all sessions, by their positions. */
export class LogEvents implements LogContent<LogEntry & { cursor: LogPosition }> {
  readonly #call: ReaderCall;
  readonly #filter: LogFilter;
  #cursor: ReaderCursor;
  /** The last position that was read. */
  #position: number;

  constructor(call: ReaderCall, cursor: ReaderCursor, filter: LogFilter) {
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
      const events = await this.#call.read(async (sql) => loggedEventsOf(await loggedEvents(sql, range, this.#filter)));
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
