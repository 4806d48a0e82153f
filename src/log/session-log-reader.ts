import { eventsByNumber, type NumberedPage } from './logged-events.js';
import { sessionHead } from '../database/statements/sessions.js';
import type { SessionHead } from '../database/statements/stored-session.js';
import { DamagedEventError, LogWentBackError } from '../model/errors.js';
import { withoutUndefined } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import { notBefore } from '../model/seq-ranges.js';
import type { SessionLogEntry, SessionLogCursor } from './entries.js';
import { entriesOf, type SessionLogFilter } from './filters.js';
import type { LogContent } from './log-reader.js';
import { BATCH, type ReaderCall } from './reader-call.js';
import type { Heads } from './watch/heads.js';

/** A reader of one session's log. */
interface SessionReading {
  call: ReaderCall;
  heads: Heads;
  session: SessionKey;
  cursor: SessionLogCursor;
  filter: SessionLogFilter;
}

/**
 * Reads one session's log, by the numbers of its events: it needs no positions. If the session has another history than the cursor,
 * it yields a reset and reads from the first event.
 */
export function sessionLog(reading: SessionReading): LogContent<SessionHead | undefined, SessionLogEntry> {
  const { call, heads, session, filter } = reading;
  let { cursor } = reading;
  const isAnother = ({ incarnation }: SessionHead) => cursor.incarnation !== '' && cursor.incarnation !== incarnation;

  const readPage = (head: SessionHead, after: number) =>
    call.run(async (sql): Promise<NumberedPage> => {
      const { incarnation, lastSeq } = head;
      const range = { incarnation, after, upTo: lastSeq, limit: BATCH, afterTimestamp: filter.afterTimestamp };
      const { gaps, ...page } = await eventsByNumber(sql, session, range);
      // The events are missing, or were deleted or trimmed since the head was read.
      const now = gaps.length > 0 ? await sessionHead(sql, session) : undefined;
      return { ...page, gaps: now?.incarnation === incarnation ? notBefore(gaps, now.firstSeq) : [] };
    });

  function* entriesIn({ events, gaps }: NumberedPage, incarnation: string): Generator<SessionLogEntry> {
    const entryPosition = (seq: number) => ({ seq, ...session, cursor: { seq, incarnation } });
    // One entry for a whole gap; its cursor is after the gap.
    const missingBefore = function* (seq: number): Generator<SessionLogEntry> {
      for (; gaps[0] && gaps[0].to < seq; gaps.shift()) {
        const { from, to } = gaps[0];
        yield { ...entryPosition(to), error: new DamagedEventError(session.sessionId, from, to) };
      }
    };
    for (const { seq, appendTime, event, error } of entriesOf(events, filter)) {
      yield* missingBefore(seq);
      const entry = { ...entryPosition(seq), ...withoutUndefined({ appendTime }) };
      yield event ? { ...entry, event } : { ...entry, error };
    }
    yield* missingBefore(Infinity);
  }

  return {
    head: () => heads.ofSession(call, session),
    watch: () => heads.watchSession(call, session),
    isAhead: (head) => head !== undefined && (isAnother(head) || head.lastSeq < cursor.seq),
    async *readUpTo(head) {
      if (!head) return;
      const { incarnation, firstSeq, lastSeq } = head;
      if (isAnother(head)) {
        cursor = { seq: 0, incarnation };
        yield { change: 'reset', seq: 0, ...session, cursor: { ...cursor } };
      }
      if (lastSeq < cursor.seq) throw new LogWentBackError(lastSeq);
      let after = Math.max(cursor.seq, firstSeq - 1);
      while (after < lastSeq) {
        const page = await readPage(head, after);
        yield* entriesIn(page, incarnation);
        after = page.upTo;
      }
      cursor = { seq: lastSeq, incarnation };
    },
  };
}
