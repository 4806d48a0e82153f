import { writtenState } from './state.js';
import { supersededKeys } from './events.js';
import { decode, decodeEvent } from '../../model/json.js';
import type { SessionKey } from '../../model/keys.js';
import { pastState, type PastEvent } from '../../model/past-state.js';
import type { StateEntry } from '../../model/state.js';
import type { Undecoded } from '../../model/stored-texts.js';
import type { Sql } from '../dialects/dialect.js';
import { pastChangeOf, recordedChanges } from './changes.js';
import { loggedEventOf, loggedEventsOfSession, type StoredLogEvent } from './logged-events.js';
import type { SessionHead } from './sessions.js';

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
export async function stateThen(sql: Sql, session: PastSession, seq: number): Promise<Undecoded<StateThen>> {
  const { key, incarnation, firstSeq, lastSeq } = session;
  if (seq >= lastSeq) {
    const written = await writtenState(sql, key, 'session');
    return (texts) => {
      const stored = written(texts);
      const state = stored.filter(({ json }) => decode(json));
      return { state, isWhole: state.length === stored.length };
    };
  }
  const stored: StoredLogEvent[] = [];
  for (let after = firstSeq - 1; after < seq; after += PAGE) {
    const upTo = Math.min(after + PAGE, seq);
    stored.push(...(await loggedEventsOfSession(sql, key, { incarnation, after, upTo, limit: PAGE })));
  }
  const superseded = await supersededKeys(sql, key, { from: firstSeq, upTo: seq });
  const recorded = await recordedChanges(sql, key);
  return (texts) => {
    const events = stored.flatMap((each): PastEvent[] => {
      const event = decodeEvent(loggedEventOf(texts, each).json ?? undefined);
      return event ? [{ seq: each.seq, event, superseded: superseded.get(each.seq) }] : [];
    });
    const all = recorded(texts);
    const changes = all.flatMap((change) => pastChangeOf(change) ?? []);
    const isWhole = events.length === seq - firstSeq + 1 && changes.length === all.length;
    return { state: pastState(changes, events, seq), isWhole };
  };
}
