import { decode, decodeEvent } from '../../model/event-codec.js';
import type { SessionKey } from '../../model/keys.js';
import { pastState, type PastEvent } from '../../model/past-state.js';
import type { StateEntry } from '../../model/state.js';
import type { Sql } from '../dialects/dialect.js';
import { pastChangeOf, recordedChanges } from './change-store.js';
import { loggedEventsOf, loggedEventsOfSession } from './logged-events.js';
import type { SessionHead } from './session-store.js';
import type { Stores } from './stores.js';

/** How many events are read at a time. */
const PAGE = 1_000;

/** A session's own state as it was after an event. */
interface StateThen {
  state: StateEntry[];
  /** Whether all rows could be read: one that cannot be may have written anything. */
  isWhole: boolean;
}

/** A session's rows, by which its past goes. */
type PastSession = Pick<SessionHead, 'incarnation' | 'firstSeq' | 'lastSeq'> & { key: SessionKey };

/**
 * Reads a session's own state as it was after an event (contract K4), under its lock or as of one moment. After the last event it
 * is what the tables hold, also what no row explains any more since an event was rewritten.
 *
 * @param seq from the number before the first event that is kept.
 */
export async function stateThen(sql: Sql, stores: Stores, session: PastSession, seq: number): Promise<StateThen> {
  const { key, incarnation, firstSeq, lastSeq } = session;
  if (seq >= lastSeq) {
    const stored = sql.texts.decoded(await stores.state.written(sql, key, 'session'));
    const state = stored.filter(({ json }) => decode(json));
    return { state, isWhole: state.length === stored.length };
  }
  const events: PastEvent[] = [];
  for (let after = firstSeq - 1; after < seq; after += PAGE) {
    const upTo = Math.min(after + PAGE, seq);
    const superseded = await stores.events.superseded(sql, key, { from: after + 1, upTo });
    const page = await loggedEventsOfSession(sql, key, { incarnation, after, upTo, limit: PAGE });
    for (const { seq, json } of sql.texts.decoded(loggedEventsOf(page))) {
      const event = decodeEvent(json ?? undefined);
      if (event) events.push({ seq, event, superseded: superseded.get(seq) });
    }
  }
  const recorded = sql.texts.decoded(await recordedChanges(sql, key));
  const changes = recorded.flatMap((change) => pastChangeOf(change) ?? []);
  const isWhole = events.length === seq - firstSeq + 1 && changes.length === recorded.length;
  return { state: pastState(changes, events, seq), isWhole };
}
