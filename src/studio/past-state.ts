import { loggedEventsOf } from '../database/stores/log-store.js';
import type { Sql } from '../database/sql/sql.js';
import type { TimedChange } from '../database/stores/browsing-store.js';
import { pastChangeOf } from '../database/stores/change-store.js';
import type { Stores } from '../database/stores/stores.js';
import type { TransferredSession } from '../database/stores/transfer-store.js';
import { decode, decodeEvent } from '../model/event-codec.js';
import { isRecord } from '../model/objects.js';
import { pastState, type PastChange, type PastEvent } from '../model/past-state.js';
import { scopeOf, type StateEntry } from '../model/state.js';

/** How much is read for the state as of an event. */
export interface PastLimits {
  /** How many keys are looked up. */
  keys: number;
  /** How many events before the point are read, and in which steps. */
  events: number;
  step: number;
  /** From how many characters of events on no more are read. */
  text: number;
  /** How many changes outside of events are read, up to the point and after it. */
  changes: number;
}

/** The largest number that the columns take. */
const MAX_SEQ = 2 ** 31 - 1;

const LIMITS: PastLimits = { keys: 200, events: 1_000, step: 100, text: 4_000_000, changes: 500 };

/** A session's own state as it was after an event, as far as it can be told from the events before that. */
interface PastState {
  /** Keys without prefix. */
  values: StateEntry[];
  /** Keys that were written later, and not in the events that were read: what they had, if anything, is further back. */
  unread: string[];
  /** How many keys were not looked up. */
  more: number;
  /** Whether other keys may have been removed since: there are more later changes than are read. */
  isPartial: boolean;
}

/**
 * Tells the state as of an event without reading the session's history, which may be long: a value that was written before
 * and is still stored was the value then, and for the other keys the events before are read until all are found.
 *
 * @param sql of a snapshot.
 * @param at from the number before the session's first event to that of its last one.
 */
export async function pastStateOf(
  sql: Sql,
  stores: Stores,
  session: TransferredSession,
  at: number,
  limits: PastLimits = LIMITS,
): Promise<PastState> {
  const { key } = session;
  const { browsing } = stores;
  const stored = new Map((await stores.state.written(sql, key, 'session')).map((entry) => [entry.key, entry]));
  const limit = limits.changes;
  const earlier = await browsing.changes(sql, key, { from: 0, upTo: at, limit });
  const all = await browsing.changes(sql, key, { from: at + 1, upTo: MAX_SEQ, limit });
  // What is older than a rewind to this event, or to one before it, belongs to a history that is gone.
  const rewind = earlier.findLast(({ kind }) => kind === 'rewound')?.id ?? 0;
  const later = changesOf(all.filter(({ id }) => id > rewind));
  const setLater = new Set(later.flatMap(namesOf));
  const found = [...new Set([...stored.keys(), ...setLater])].sort();
  const names = found.slice(0, limits.keys);

  const entries = names.flatMap((name) => stored.get(name) ?? []);
  const ids = [...new Set(entries.flatMap(({ eventId }) => eventId ?? []))];
  const numbers = new Map((await browsing.writers(sql, key, 'session', ids, {})).map(({ id, seq }) => [id, seq]));
  const isLaterKnown = all.length < limit && later.every(isRecorded);
  // An event that is not there was trimmed.
  const isOfThen = ({ key: name, eventId }: StateEntry) =>
    eventId === null ? isLaterKnown && !setLater.has(name) : (numbers.get(eventId) ?? 0) <= at;
  const values = entries.filter(isOfThen);
  const known = new Set(values.map(({ key: name }) => name));
  const open = new Set(names.filter((name) => !known.has(name)));

  const recorded = new Set([...setLater, ...changesOf(earlier).flatMap(namesOf)]);
  const unrecorded = Object.fromEntries(
    entries
      .filter(({ key: name, eventId }) => eventId === null && !recorded.has(name))
      .map(({ key: name, json }) => [name, decode(json)?.value]),
  );
  const pieces = history(sql, stores, session, at, earlier, limits);
  while (open.size > 0) {
    const { done, value: piece } = await pieces.next();
    if (done) break;
    const { events, changes, base } = piece;
    const isFromBeginning = base !== undefined || changes.some(({ kind }) => kind === 'rewound');
    const touched = new Set([...events.flatMap(({ delta }) => Object.keys(delta)), ...changes.flatMap(namesOf)]);
    const replayed = pastState(base ?? {}, changes, events, unrecorded);
    for (const name of open) {
      if (!isFromBeginning && !touched.has(name)) continue;
      const value = replayed.get(name);
      if (value) values.push({ key: name, ...value });
      open.delete(name);
    }
  }
  return { values, unread: [...open], more: found.length - names.length, isPartial: all.length === limit };
}

/** The newest part of what came before a point. */
interface Piece {
  events: PastEvent[];
  changes: PastChange[];
  /** The state at its beginning, where that is known. */
  base?: Record<string, unknown>;
}

/** Gives larger and larger pieces, as far as may be read. */
async function* history(
  sql: Sql,
  stores: Stores,
  { key, incarnation, firstSeq }: TransferredSession,
  at: number,
  earlier: readonly TimedChange[],
  limits: PastLimits,
): AsyncGenerator<Piece, undefined> {
  const isWhole = earlier.length < limits.changes;
  // Of the events after the first of the changes that were read all changes are known.
  const least = isWhole ? 0 : (earlier[0]?.seq ?? 0) + 1;
  const first = Math.max(firstSeq, at - limits.events + 1, least);
  const created = earlier.find(({ kind }) => kind === 'created')?.data ?? null;
  const given = created === null ? undefined : decode(created)?.value;
  const piece = (events: PastEvent[], from: number): Piece => {
    if (isWhole && from <= firstSeq)
      return { events, changes: changesOf(earlier), ...(isRecord(given) && { base: given }) };
    return { events, changes: changesOf(withoutUndone(earlier).filter(({ seq }) => seq >= from)) };
  };
  if (at < firstSeq) yield piece([], firstSeq);
  let events: PastEvent[] = [];
  let length = 0;
  for (let upTo = at; upTo >= first && length < limits.text; upTo -= limits.step) {
    const from = Math.max(first, upTo - limits.step + 1);
    const rows = await stores.log.sessionEvents(sql, key, { incarnation, after: from - 1, upTo, limit: limits.step });
    const read = sql.texts.decoded(loggedEventsOf(rows)).flatMap(({ seq, json }): PastEvent[] => {
      length += json?.length ?? 0;
      const event = decodeEvent(json ?? undefined);
      return event ? [{ seq, id: event.id, delta: event.actions?.stateDelta ?? {} }] : [];
    });
    // One that cannot be read may have written anything.
    if (read.length < upTo - from + 1) return undefined;
    events = [...read, ...events];
    yield piece(events, from);
  }
  return undefined;
}

/** Without what a rewind has undone. */
function withoutUndone(changes: readonly TimedChange[]): TimedChange[] {
  const kept: TimedChange[] = [];
  for (const change of changes) {
    if (change.kind === 'rewound') while ((kept.at(-1)?.seq ?? 0) > change.seq) kept.pop();
    kept.push(change);
  }
  return kept;
}

const changesOf = (changes: readonly TimedChange[]) => changes.flatMap((change) => pastChangeOf(change) ?? []);

/** The session's own keys that a change has set or removed. */
function namesOf(change: PastChange): string[] {
  const set = Object.keys((change.kind === 'state' ? change.set : change.state) ?? {});
  const names = change.kind === 'state' ? [...set, ...change.removed] : set;
  return names.filter((name) => scopeOf(name).scope === 'session');
}

const isRecorded = (change: PastChange) => (change.kind === 'state' ? change.set : change.state) !== undefined;
