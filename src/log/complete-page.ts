import type { Sql } from '../database/dialects/dialect.js';
import { loggedEvent, loggedEvents, type LogColumns, type LoggedEvent } from './logged-events.js';
import { currentState } from './owners-state.js';
import { decodeEvent } from '../model/json.js';
import { sessionIdentity } from '../model/keys.js';
import type { LogBoundary } from '../model/log-history.js';
import { recordedState } from '../model/past-state.js';
import type { CurrentState } from './current-state.js';
import type { LogChange, WithoutCursor } from './entries.js';
import { loggedChanges, type LoggedChange } from './logged-changes.js';

interface CompletePage {
  entries: CompleteEntry[];
  /** Where to continue. */
  after: LogBoundary;
}

/** An event as it was appended, or a change. */
export type CompleteEntry = { boundary: LogBoundary } & (
  | { logged: LoggedEvent; superseded: readonly string[]; change?: undefined }
  | { change: WithoutCursor<LogChange>; logged?: undefined }
);

interface CompleteRange {
  after: LogBoundary;
  upTo: LogBoundary;
  /** At most this many events, and as many changes. */
  limit: number;
}

/** Reads events and changes between two boundaries, in the order of the log (contract J1). */
export async function readPage(sql: Sql, range: CompleteRange, columns: LogColumns): Promise<CompletePage> {
  const { events, changes, isAll } = await readRows(sql, range, columns);
  const owners = [...events, ...changes].map(({ session }) => [sessionIdentity(session), session] as const);
  const current = await currentState(sql, [...new Map(owners).values()]);
  const entries: CompleteEntry[] = events.map((logged) => {
    const delta = decodeEvent(logged.json ?? undefined)?.actions?.stateDelta ?? {};
    const superseded = current.superseded(logged.session, delta);
    return { boundary: { position: logged.position ?? 0, change: 0 }, logged, superseded };
  });
  for (const change of changes) {
    const { session, eventSeq, position, number } = change;
    const rewritten = eventSeq === null ? undefined : await loggedEvent(sql, session, eventSeq);
    const entry = changeOf(change, rewritten, current);
    if (entry) entries.push({ boundary: { position, change: number }, change: entry });
  }
  // An event comes before the changes that follow it.
  entries.sort((a, b) => a.boundary.position - b.boundary.position || a.boundary.change - b.boundary.change);
  const { after, upTo } = range;
  let { change } = after;
  for (const { boundary } of entries) boundary.change = change = Math.max(change, boundary.change);
  const read = {
    position: events.at(-1)?.position ?? after.position,
    change: changes.at(-1)?.number ?? after.change,
  };
  return { entries, after: isAll ? upTo : read };
}

/** @returns events and changes up to a boundary, and whether they are all of the range. */
async function readRows(
  sql: Sql,
  { after, upTo, limit }: CompleteRange,
  columns: LogColumns,
): Promise<{ events: LoggedEvent[]; changes: LoggedChange[]; isAll: boolean }> {
  const ofEvents = { after: after.position, upTo: upTo.position, limit };
  const events = await loggedEvents(sql, ofEvents, columns, { isComplete: true });
  const areEventsCut = events.length === limit;
  const lastEvent = events.at(-1)?.position ?? 0;
  const ofChanges = { after: after.change, upTo: upTo.change, limit };
  const changes = await loggedChanges(sql, ofChanges, columns);
  const areChangesCut = changes.length === limit;
  const lastChange = changes.at(-1)?.position ?? 0;
  // If one list was cut, drop what comes after its end in the other: entries of the first may be missing between.
  return {
    events: areChangesCut ? events.filter(({ position }) => (position ?? 0) <= lastChange) : events,
    changes: areEventsCut ? changes.filter(({ position }) => position <= lastEvent) : changes,
    isAll: !areEventsCut && !areChangesCut,
  };
}

/**
 * @param rewritten the event that was rewritten, as it is now.
 * @returns undefined if the session is gone: the entry of its deletion follows.
 */
function changeOf(
  { session, kind, seq, firstSeq, eventSeq, position, data }: LoggedChange,
  rewritten: LoggedEvent | undefined,
  current: CurrentState,
): WithoutCursor<LogChange> | undefined {
  const entryPosition = { position, seq, ...session };
  const recorded = recordedState({ kind, data });
  switch (kind) {
    case 'created': {
      const { set: state = current.of(session) } = recorded;
      return { ...entryPosition, change: 'created', state, superseded: current.superseded(session, state) };
    }
    case 'state': {
      const { set: state = current.of(session), removed = [] } = recorded;
      const superseded = [
        ...current.superseded(session, state),
        ...removed.filter((name) => current.has(session, name)),
      ];
      return { ...entryPosition, change: 'state', state, removed, superseded };
    }
    case 'deleted':
    case 'ending':
      return { ...entryPosition, change: 'deleted', soft: false, state: current.of({ ...session, sessionId: '' }) };
    case 'soft-deleted':
      return { ...entryPosition, change: 'deleted', soft: true, state: {} };
    default: {
      if (firstSeq === null) return undefined;
      const replaced = {
        ...entryPosition,
        change: 'replaced',
        reason: kind,
        firstSeq,
        state: current.of(session),
      } as const;
      const event = decodeEvent(rewritten?.json ?? undefined);
      return event && eventSeq !== null ? { ...replaced, eventSeq, event } : replaced;
    }
  }
}
