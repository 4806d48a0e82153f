import { historyText, type CompleteLogPosition, type LogBoundary } from '../model/log-history.js';
import { readPage, type CompleteEntry } from './complete-page.js';
import { endsOf, restsOf, wentBack, type ReaderCursor } from './cursors.js';
import type { CompleteLogEntry } from './entries.js';
import { entriesOf, type LogFilter } from './filters.js';
import { contentOf, type LogContent, type LogReading } from './log-reader.js';
import { changeBefore } from './logged-changes.js';
import { BATCH, type ReaderCall } from './reader-call.js';

/** Entries that were read together, and where to continue. The cursor also passes entries that the filter left out. */
interface LogPage {
  entries: CompleteLogEntry[];
  cursor: CompleteLogPosition;
}

const isComplete = true;

/** Reads events and changes in the order of the log. */
export function completeLog(reading: LogReading): LogContent<CompleteLogPosition, CompleteLogEntry> {
  return contentOf(reading, { isComplete }, async function* (head) {
    for await (const { entries } of pagesUpTo(head, reading)) yield* entries;
  });
}

/** Reads the same in pages, each with the cursor after it. */
export const completePages = (reading: LogReading): LogContent<CompleteLogPosition, LogPage> =>
  contentOf(reading, { isComplete }, (head) => pagesUpTo(head, reading));

async function* pagesUpTo(head: CompleteLogPosition, reading: LogReading): AsyncGenerator<LogPage> {
  const { call, heads, filter } = reading;
  const { epoch } = head;
  let after = await boundaryOf(call, reading.cursor);
  let rests = restsOf(reading.cursor);
  reading.cursor = { ...after, epoch, read: { ends: endsOf(head), rests } };
  while (after.position < head.position || after.change < head.change) {
    const range = { after, upTo: head, limit: BATCH };
    const page = await call.run((sql) => readPage(sql, range, filter));
    // A page also shows what was written after its head was read. If the database went back meanwhile, read it again.
    const now = await heads.ofLog(call);
    const error = await wentBack(call, reading.cursor, now, { isComplete });
    if (error) throw error;
    const ends = endsOf(now);
    const history = historyText(ends, rests);
    const emitted = page.entries.flatMap((entry) => emittedOf(entry, { ...entry.boundary, epoch, history }, filter));
    after = page.after;
    rests = restsOf({ ...after, read: { ends, rests } });
    reading.cursor = { ...after, epoch, read: { ends, rests } };
    yield { entries: emitted, cursor: { ...after, epoch, history: historyText(ends, rests) } };
  }
}

/** The boundary of a cursor. One of `EventLog.since` has no change: take the last change before its position. */
async function boundaryOf(call: ReaderCall, { position, change }: ReaderCursor): Promise<LogBoundary> {
  return { position, change: change ?? (await call.run((sql) => changeBefore(sql, position))) };
}

function emittedOf(entry: CompleteEntry, cursor: CompleteLogPosition, filter: LogFilter): CompleteLogEntry[] {
  if (entry.change) return [{ ...entry.change, cursor }];
  const { logged, superseded } = entry;
  return [...entriesOf([logged], filter)].map((read) =>
    read.event ? { ...read, cursor, superseded } : { ...read, cursor },
  );
}
