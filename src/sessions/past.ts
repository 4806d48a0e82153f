import { writtenState } from '../database/statements/state.js';
import { supersededKeys } from '../database/statements/events.js';
import { decode } from '../model/json.js';
import { pastState, type PastChange, type PastEvent } from '../model/past-state.js';
import type { StateEntry } from '../model/state.js';
import type { Sql } from '../database/dialects/dialect.js';
import { pastChangeOf, recordedChanges, type RecordedChange } from '../database/statements/changes.js';
import { eventsByNumber, type LoggedEvent, type NumberedPage } from '../log/logged-events.js';
import type { SeqRange } from '../model/seq-ranges.js';
import type { StoredSession } from '../database/statements/stored-session.js';
import { damagedChanges, encodingsOf, readableEvents, type Readable } from './read.js';

/** How many events are read at a time. */
const PAGE = 1_000;

/** A session's own state as it was after an event. */
interface StateThen {
  state: StateEntry[];
  /** Whether all rows could be read: an unreadable one may have written anything. */
  isWhole: boolean;
}

/**
 * Reads a session's own state as it was after an event (contract K4), under its lock or as of one moment. After the last event this
 * is what the tables hold, including values that no row explains any more because an event was rewritten.
 *
 * @param seq at least the number before the first event that is kept.
 */
export async function stateThen(sql: Sql, session: StoredSession, seq: number): Promise<StateThen> {
  if (seq >= session.lastSeq) {
    const stored = await writtenState(sql, session.key, 'session');
    const state = stored.filter(({ json }) => decode(json));
    return { state, isWhole: state.length === stored.length };
  }
  const events = await pastEvents(sql, session, seq);
  const changes = readableChanges(await recordedChanges(sql, session.key));
  const isWhole = !events.damaged && !changes.damaged;
  return { state: pastState(changes.value, events.value, seq), isWhole };
}

/** Reads the events of a session up to a number, under its lock or as of one moment. */
export async function pastEvents(
  sql: Sql,
  session: StoredSession,
  upTo: number,
): Promise<Readable<(PastEvent & Pick<LoggedEvent, 'json' | 'appendTime'>)[]>> {
  const stored: LoggedEvent[] = [];
  const missing: SeqRange[] = [];
  for await (const { events, gaps } of eventPages(sql, session, upTo, PAGE)) {
    for (const event of events) stored.push(event);
    missing.push(...gaps);
  }
  const superseded = await supersededKeys(sql, session.key, { from: session.firstSeq, upTo });
  const { value, damaged } = readableEvents({ events: stored, missing });
  return { value: value.map((event) => ({ ...event, superseded: superseded.get(event.seq) })), damaged };
}

/**
 * @param recorded the changes that were recorded of a session.
 * @returns also those that cannot be read.
 */
export function readableChanges(
  recorded: readonly RecordedChange[],
): Readable<PastChange[]> & { lost: readonly RecordedChange[] } {
  const value = recorded.flatMap((change) => pastChangeOf(change) ?? []);
  if (value.length === recorded.length) return { value, lost: [], damaged: undefined };
  const lost = recorded.filter((change) => !pastChangeOf(change));
  const encodings = encodingsOf(lost.flatMap((change) => change.undecodable ?? []));
  return { value, lost, damaged: { events: damagedChanges(lost), stateKeys: [], encodings } };
}

/** Reads the events of a session up to a number, page by page, each with the numbers between which it is. */
export async function* eventPages(
  sql: Sql,
  { key, incarnation, firstSeq }: StoredSession,
  seq: number,
  limit: number,
): AsyncGenerator<NumberedPage & { after: number }> {
  for (let after = firstSeq - 1; after < seq;) {
    const page = await eventsByNumber(sql, key, { incarnation, after, upTo: seq, limit });
    yield { ...page, after };
    after = page.upTo;
  }
}
