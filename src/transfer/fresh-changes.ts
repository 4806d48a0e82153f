import type { RecordedChange } from '../database/statements/changes.js';
import { ofChange, type KnownSession } from '../model/codec.js';
import { AS_STORED, Undecodable, isEncoded, type StoredTexts } from '../model/stored-texts.js';
import type { StateEntry } from '../model/state.js';
import type { SessionRecord, StateChangeRecord } from './records.js';

/** A session that is here, and that the records of a later export continue. */
interface Continued {
  key: KnownSession;
  /** The number of its oldest event here. */
  firstSeq: number;
  /** What is recorded of its state here, as it is stored. */
  changes: readonly RecordedChange[];
}

/** What a later export says of the state that was set outside a run. */
interface FreshChanges {
  /** The changes that are not here yet: without them the past of the session would be another one (contract K4). */
  fresh: readonly StateChangeRecord[];
  /** Whether something is recorded here that the records do not have. */
  hasOwn: boolean;
}

/** The data of a recorded change. */
export const changeData = ({ kind, set = {}, removed, encoded }: StateChangeRecord): string =>
  encoded ?? JSON.stringify(kind === 'state' ? { set, removed } : set);

export function freshChanges(texts: StoredTexts, session: SessionRecord, here: Continued): FreshChanges {
  // Both sides are decoded, since a text is encoded in another way each time. Without a codec or a key they are compared as they are
  // stored.
  const readable = texts.codec.isNone ? AS_STORED : texts;
  const idOf = (data: string, { kind, seq }: Pick<RecordedChange, 'kind' | 'seq'>) => {
    const json = readable.decode(data, () => ofChange(here.key, { kind, seq }));
    return `${seq} ${json instanceof Undecodable ? data : json}`;
  };
  const stored = new Map<string, number>();
  for (const { kind, seq, data } of here.changes) {
    // Those of events that the exported session does not have any more are not in the records.
    if (kind !== 'state' || data === null || isTrimmed(seq, session.firstSeq, here.firstSeq)) continue;
    const id = idOf(data, { kind, seq });
    stored.set(id, (stored.get(id) ?? 0) + 1);
  }
  const fresh = (session.changes ?? []).filter((change) => {
    const { kind, seq } = change;
    if (kind !== 'state' || isTrimmed(seq, here.firstSeq, session.firstSeq)) return false;
    const id = idOf(changeData(change), change);
    const count = stored.get(id) ?? 0;
    stored.set(id, count - 1);
    return count <= 0;
  });
  return { fresh, hasOwn: [...stored.values()].some((count) => count > 0) };
}

/** Whether a change after an event was dropped by a trim that the other session does not have. */
const isTrimmed = (seq: number, firstSeq: number, others: number) => firstSeq > others && seq < firstSeq;

/**
 * Whether the records say by events and changes how the state has become what it is. An event that was appended again with other
 * content leaves what nothing explains, and other stores do not say what was set outside a run.
 *
 * @param stored the state before the last batch.
 * @param events the ids of the events that the last batch brings.
 */
export function isExplained(
  entries: readonly StateEntry[],
  stored: readonly StateEntry[],
  changes: readonly StateChangeRecord[],
  events: ReadonlySet<string>,
): boolean {
  const before = new Map(stored.map((entry) => [entry.key, entry]));
  const outside = new Map<string, string | undefined>();
  for (const { set = {}, removed } of changes) {
    for (const [name, value] of Object.entries(set)) outside.set(name, JSON.stringify(value));
    for (const name of removed) outside.set(name, undefined);
  }
  const areSet = entries.every(({ key, json, eventId }) => {
    const here = before.get(key);
    if (isEncoded(json) || (here?.json === json && here.eventId === eventId)) return true;
    return eventId === null ? outside.get(key) === json : events.has(eventId);
  });
  const kept = new Set(entries.map(({ key }) => key));
  return areSet && stored.every(({ key }) => kept.has(key) || (outside.has(key) && outside.get(key) === undefined));
}
