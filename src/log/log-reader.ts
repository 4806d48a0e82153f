import { loggedEvents } from './logged-events.js';
import type { CompleteLogPosition } from '../model/log-history.js';
import { cursorAt, wentBack, type ReaderCursor } from './cursors.js';
import type { LogEntry } from './entries.js';
import { entriesOf, type LogFilter } from './filters.js';
import { BATCH, type ReaderCall } from './reader-call.js';
import type { Heads } from './watch/heads.js';
import type { HeadWatch } from './watch/poller.js';

/** The method of a reader: of what is committed now, or also of what follows. */
export type ReadMethod = 'since' | 'watch';

/** What `readLog` reads, up to heads, which say how far there is something to read. */
export interface LogContent<Head, Entry> {
  head(): Promise<Head>;
  watch(): HeadWatch<Head>;
  /** Whether the reader has read something that the head does not have. */
  isAhead(head: Head): boolean | Promise<boolean>;
  /** Continues to read, up to a head. @throws LogWentBackError if the log is not the one that was read so far. */
  readUpTo(head: Head): AsyncGenerator<Entry>;
}

export async function* readLog<Head, Entry>(
  method: ReadMethod,
  content: LogContent<Head, Entry>,
): AsyncGenerator<Entry> {
  if (method === 'since') {
    yield* content.readUpTo(await content.head());
    return;
  }
  const heads = content.watch();
  try {
    for (let head = await heads.poll(); ; head = await heads.next()) {
      // The head may be of a poll that began before the caller read its cursor: ask the database again.
      if (await content.isAhead(head)) head = await heads.poll();
      yield* content.readUpTo(head);
    }
  } finally {
    await heads.leave();
  }
}

/** A reader of the log of all sessions. */
export interface LogReading {
  call: ReaderCall;
  heads: Heads;
  filter: LogFilter;
  /** How far it has read. */
  cursor: ReaderCursor;
}

/** @param read reads up to a head, and sets the cursor of the reading. */
export function contentOf<Entry>(
  reading: LogReading,
  options: { isComplete: boolean },
  read: (head: CompleteLogPosition) => AsyncGenerator<Entry>,
): LogContent<CompleteLogPosition, Entry> {
  const { call, heads } = reading;
  const lost = (head: CompleteLogPosition) => wentBack(call, reading.cursor, head, options);
  return {
    head: () => heads.ofLog(call),
    watch: () => heads.watchLog(call, () => reading.cursor.position),
    isAhead: async (head) => (await lost(head)) !== undefined,
    async *readUpTo(head) {
      const error = await lost(head);
      if (error) throw error;
      yield* read(head);
    },
  };
}

/** Reads the events of all sessions, by their positions. */
export function logEvents(reading: LogReading): LogContent<CompleteLogPosition, LogEntry> {
  const { call, filter } = reading;
  return contentOf(reading, { isComplete: false }, async function* (head) {
    const { epoch, history } = head;
    let isCut = true;
    while (isCut && reading.cursor.position < head.position) {
      const range = { after: reading.cursor.position, upTo: head.position, limit: BATCH };
      const events = await call.run((sql) => loggedEvents(sql, range, filter));
      for (const entry of entriesOf(events, filter))
        yield { ...entry, cursor: { position: entry.position, epoch, history } };
      isCut = events.length === BATCH;
      reading.cursor = { ...reading.cursor, position: events.at(-1)?.position ?? head.position };
    }
    reading.cursor = cursorAt(head);
  });
}
