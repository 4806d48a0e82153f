import type { LogWentBackError } from '../model/errors.js';
import { historyText, type CompleteLogPosition, type LogBoundary } from '../model/log-history.js';
import { readPage, type CompleteEntry } from './complete-page.js';
import { endsOf, restsOf, wentBack, type ReaderCursor } from './cursors.js';
import type { CompleteLogEntry } from './entries.js';
import { entriesOf, type LogFilter } from './filters.js';
import type { LogContent } from './log-reader.js';
import { changeBefore } from './logged-changes.js';
import { BATCH, type ReaderCall } from './reader-call.js';
import type { Heads } from './watch/heads.js';

/** Entries that were read together, and where to continue. The cursor also passes entries that the filter left out. */
interface LogPage {
  entries: CompleteLogEntry[];
  cursor: CompleteLogPosition;
}

/** Reads events and changes in the order of the log. */
export class CompleteLog implements LogContent<CompleteLogEntry> {
  readonly #call: ReaderCall;
  readonly #heads: Heads;
  readonly #filter: LogFilter;
  #cursor: ReaderCursor;

  constructor(call: ReaderCall, heads: Heads, cursor: ReaderCursor, filter: LogFilter) {
    this.#call = call;
    this.#heads = heads;
    this.#cursor = cursor;
    this.#filter = filter;
  }

  position(): number {
    return this.#cursor.position;
  }

  wentBack(head: CompleteLogPosition): Promise<LogWentBackError | undefined> {
    return wentBack(this.#call, this.#cursor, head, { isComplete: true });
  }

  async *readUpTo(head: CompleteLogPosition): AsyncGenerator<CompleteLogEntry> {
    for await (const { entries } of this.#pagesUpTo(head)) yield* entries;
  }

  /** Its entries in pages, each with the cursor after it. */
  get pages(): LogContent<LogPage> {
    return {
      position: () => this.position(),
      wentBack: (head) => this.wentBack(head),
      readUpTo: (head) => this.#pagesUpTo(head),
    };
  }

  async *#pagesUpTo(head: CompleteLogPosition): AsyncGenerator<LogPage> {
    const { epoch } = head;
    let after = await this.#boundary();
    let rests = restsOf(this.#cursor);
    this.#cursor = { ...after, epoch, read: { ends: endsOf(head), rests } };
    while (after.position < head.position || after.change < head.change) {
      const range = { after, upTo: head, limit: BATCH };
      const page = await this.#call.run((sql) => readPage(sql, range, this.#filter));
      // A page also shows what was written after its head was read. If the database went back meanwhile, read it again.
      const now = await this.#heads.ofLog(this.#call);
      const error = await this.wentBack(now);
      if (error) throw error;
      const ends = endsOf(now);
      const history = historyText(ends, rests);
      const emitted = page.entries.flatMap((entry) => this.#emitted(entry, { ...entry.boundary, epoch, history }));
      after = page.after;
      rests = restsOf({ ...after, read: { ends, rests } });
      this.#cursor = { ...after, epoch, read: { ends, rests } };
      yield { entries: emitted, cursor: { ...after, epoch, history: historyText(ends, rests) } };
    }
  }

  /** The boundary of the cursor. One of `EventLog.since` has no change: take the last change before its position. */
  async #boundary(): Promise<LogBoundary> {
    const { position, change } = this.#cursor;
    return { position, change: change ?? (await this.#call.run((sql) => changeBefore(sql, position))) };
  }

  #emitted(entry: CompleteEntry, cursor: CompleteLogPosition): CompleteLogEntry[] {
    if (entry.change) return [{ ...entry.change, cursor }];
    const { logged, superseded } = entry;
    return [...entriesOf([logged], this.#filter)].map((read) =>
      read.event ? { ...read, cursor, superseded } : { ...read, cursor },
    );
  }
}
