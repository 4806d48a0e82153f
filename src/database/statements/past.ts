import { writtenState } from './state.js';
import { supersededKeys } from './events.js';
import { decode, decodeEvent } from '../../model/json.js';
import type { SessionKey } from '../../model/keys.js';
import { pastState, type PastEvent } from '../../model/past-state.js';
import type { StateEntry } from '../../model/state.js';
import type { Sql } from '../dialects/dialect.js';
import { pastChangeOf, recordedChanges } from './changes.js';
import { loggedEventsOfSession } from './logged-events.js';
import type { SessionHead } from './stored-session.js';

/** How many events are read at a time. */
const PAGE = 1_000;

/** A session's own state as it was after an event. */
interface StateThen {
  state: StateEntry[];
  /** Whether all rows could be read: an unreadable one may have written anything. */
  isWhole: boolean;
}

/** The session whose past is read. */
type PastSession = Pick<SessionHead, 'incarnation' | 'firstSeq' | 'lastSeq'> & { key: SessionKey };

/**
 * Reads a session's own state as it was after an event (contract K4), under its lock or as of one moment. After the last event this
 * is what the tables hold, including values that no row explains any more because an event was rewritten.
 *
 * @param seq at least the number before the first event that is kept.
 */
export async function stateThen(sql: Sql, session: PastSession, seq: number): Promise<StateThen> {
  const { key, incarnation, firstSeq, lastSeq } = session;
  if (seq >= lastSeq) {
    const stored = await writtenState(sql, key, 'session');
    const state = stored.filter(({ json }) => decode(json));
    return { state, isWhole: state.length === stored.length };
  }
  const superseded = await supersededKeys(sql, key, { from: firstSeq, upTo: seq });
  const events: PastEvent[] = [];
  for (let after = firstSeq - 1; after < seq; after += PAGE) {
    const upTo = Math.min(after + PAGE, seq);
    for (const each of await loggedEventsOfSession(sql, key, { incarnation, after, upTo, limit: PAGE })) {
      const event = decodeEvent(each.json ?? undefined);
      if (event) events.push({ seq: each.seq, event, superseded: superseded.get(each.seq) });
    }
  }
  const all = await recordedChanges(sql, key);
  const changes = all.flatMap((change) => pastChangeOf(change) ?? []);
  const isWhole = events.length === seq - firstSeq + 1 && changes.length === all.length;
  return { state: pastState(changes, events, seq), isWhole };
}
