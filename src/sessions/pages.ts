import type { EventPage } from '../conversation/messages.js';
import type { Sql } from '../database/dialects/dialect.js';
import { loggedEventsOfSession } from '../database/statements/logged-events.js';
import { sessionHead } from '../database/statements/sessions.js';
import { SessionNotFoundError } from '../model/errors.js';
import { decodeEvent, given } from '../model/json.js';
import { checkedSessionKey, type SessionKey } from '../model/keys.js';
import { EVENTS_OF_PAGE, rangeIn } from '../model/pages.js';
import { gapsIn } from '../model/seq-ranges.js';
import { readEvents as readable } from './read.js';
import type { SessionCalls } from './session-calls.js';

/** Which events of a session to read. */
export interface ReadEventsRequest {
  /** Only events with lower numbers. The page has the newest of them. */
  before?: number;
  /** Only events with higher numbers; 0 for all. Without `before`, the page has the oldest of them. */
  after?: number;
  /** How many events the page has at most; 100 by default. */
  limit?: number;
  /** The order of the events in the page; `asc` (append order) by default. */
  order?: 'asc' | 'desc';
}

/** See `MikroOrmSessionService.readEvents`. */
export async function readEvents(
  calls: SessionCalls,
  session: SessionKey,
  { limit = EVENTS_OF_PAGE, order = 'asc', ...bounds }: ReadEventsRequest,
): Promise<EventPage> {
  const key = checkedSessionKey(session);
  const { head, from, upTo, contents } = await calls.read('readEvents', key, readPage);
  const missing = gapsIn(
    contents.map(({ seq }) => seq),
    from - 1,
    upTo,
  );
  calls.refuseDamage(key, readable({ events: contents, missing, uncounted: [] }).damaged);
  const events = contents.flatMap(({ seq, json, appendTime }) => {
    const event = decodeEvent(json);
    return event ? [{ seq, event, ...given({ appendTime }) }] : [];
  });
  const { firstSeq, lastSeq } = head;
  return { events: order === 'desc' ? events.reverse() : events, firstSeq, lastSeq };

  async function readPage(sql: Sql) {
    let head = await sessionHead(sql, key);
    for (;;) {
      if (!head) throw new SessionNotFoundError(key.sessionId);
      const { from, upTo } = rangeIn(head, { ...bounds, limit });
      const range = { incarnation: head.incarnation, after: from - 1, upTo, limit };
      const events = await loggedEventsOfSession(sql, key, range);
      const contents = events.map(({ json, appendTime, ...event }) => {
        return { ...event, json: json ?? undefined, appendTime: appendTime ?? undefined };
      });
      const page = { head, from, upTo, contents };
      if (events.length === Math.max(0, upTo - from + 1)) return page;
      // A missing event is damage, unless the session was trimmed, rewound or deleted since.
      const now = await sessionHead(sql, key);
      if (now?.incarnation === head.incarnation && now.firstSeq === head.firstSeq) return page;
      head = now;
    }
  }
}
