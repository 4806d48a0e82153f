import type { EventPage } from '../conversation/messages.js';
import type { Sql } from '../database/dialects/dialect.js';
import { eventsWithHead } from '../log/logged-events.js';
import { SessionNotFoundError } from '../model/errors.js';
import { checkedSessionKey, type SessionKey } from '../model/keys.js';
import { EVENTS_OF_PAGE, rangeIn } from '../model/pages.js';
import { MAX_SEQ, gapsIn } from '../model/seq-ranges.js';
import { readableEvents } from './read.js';
import type { ServiceContext } from './service-context.js';

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
  service: ServiceContext,
  session: SessionKey,
  { limit = EVENTS_OF_PAGE, order = 'asc', ...bounds }: ReadEventsRequest,
): Promise<EventPage> {
  const key = checkedSessionKey(session);
  const { before = Infinity, after = 0 } = bounds;
  const fromFirst = before === Infinity && bounds.after !== undefined;
  const range = { after: Math.min(after, MAX_SEQ), upTo: Math.min(before - 1, MAX_SEQ), limit, fromFirst };
  const { head, ...page } = await service.read('readEvents', key, readPage);
  const { value, damaged } = readableEvents(page);
  service.refuseDamage(key, damaged);
  const events = value.map(({ seq, event, appendTime }) => ({
    seq,
    event,
    ...(appendTime !== null && { appendTime }),
  }));
  const { firstSeq, lastSeq } = head;
  return { events: order === 'desc' ? events.reverse() : events, firstSeq, lastSeq };

  async function readPage(sql: Sql) {
    let head = await eventsWithHead(sql, key, range);
    for (;;) {
      if (!head) throw new SessionNotFoundError(key.sessionId);
      const { from, upTo } = rangeIn(head, { ...bounds, limit });
      // Instead of missing events there are others before or after the page.
      const events = head.events.filter(({ seq }) => seq >= from && seq <= upTo);
      const numbers = events.map(({ seq }) => seq);
      const page = { head, events, missing: gapsIn(numbers, from - 1, upTo) };
      if (events.every(({ json }) => typeof json === 'string')) return page;
      // Missing content is damage, unless the session was trimmed, rewound or deleted since.
      const now = await eventsWithHead(sql, key, range);
      if (now?.incarnation === head.incarnation && now.firstSeq === head.firstSeq) return page;
      head = now;
    }
  }
}
