import type { Database } from '../database/calls/database.js';
import { changesAfter, pastChangeOf } from '../database/statements/changes.js';
import type { SessionKey } from '../model/keys.js';
import type { Revision } from './handle.js';

/** What recorded changes have done to a session since a handle was read. */
interface MissedChanges {
  /** The keys that they set or removed, with their prefixes; undefined if any key may have changed. */
  keys: readonly string[] | undefined;
  /** The numbers of the events whose content they replaced. */
  rewritten: ReadonlySet<number>;
  /** Whether the oldest events may be gone. */
  areTrimmed: boolean;
}

const NONE_MISSED: MissedChanges = { keys: [], rewritten: new Set(), areTrimmed: false };

/** @param upTo the id of the last change to read. */
export async function missedChanges(
  database: Database,
  key: SessionKey,
  { origin, lastChange: after, seq: lastSeq }: Revision,
  upTo: number,
): Promise<MissedChanges> {
  if (upTo === after) return NONE_MISSED;
  const changes = await database.read((sql) => changesAfter(sql, { ...key, origin }, { after, upTo }));
  const keys: string[] = [];
  const rewritten = new Set<number>();
  // A trim deletes the records before it. It leaves its own, so the ids then have a gap.
  let areAllKnown = changes.length === upTo - after;
  let areTrimmed = !areAllKnown;
  for (const { kind, seq, eventSeq, data } of changes) {
    const change = kind === 'state' ? pastChangeOf({ kind, seq, data }) : undefined;
    if (change) for (const name of [...Object.keys(change.set), ...change.removed]) keys.push(name);
    else if (kind === 'trimmed') areTrimmed = true;
    else if (kind === 'rewritten') {
      rewritten.add(eventSeq);
      // The keys of the former content are not known if the handle did not have the event.
      if (eventSeq > lastSeq) areAllKnown = false;
    }
    // An import; a record that cannot be read. A soft deletion and its end leave the state as it is.
    else if (kind !== 'soft-deleted' && kind !== 'restored') areAllKnown = false;
  }
  return { keys: areAllKnown ? keys : undefined, rewritten, areTrimmed };
}
