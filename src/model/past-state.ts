import type { Event } from '@google/adk';
import { decode, isRecord, recordOf } from './json.js';
import { isTemporary, scopeOf, type StateEntry } from './state.js';

/** A change of a session's state, from a row of `adk_changes`. */
export interface PastChange {
  /** `created` and a trim's baseline come before all events. */
  kind: 'created' | 'trimmed' | 'state';
  /** The number of the event before it. */
  seq: number;
  /** Keys with their prefixes. */
  set: Record<string, unknown>;
  removed: readonly string[];
}

/**
 * Parses a row of `adk_changes`.
 *
 * @returns the keys that it has set and removed, with their prefixes; undefined for what cannot be read, or was not recorded.
 */
export function recordedState({ kind, data }: { kind: string; data: string | null }): {
  set: Record<string, unknown> | undefined;
  removed: readonly string[] | undefined;
} {
  const recorded = data === null ? undefined : decode(data)?.value;
  const { set, removed } = kind === 'state' ? recordOf(recorded) : { set: recorded, removed: [] };
  const areKeys = Array.isArray(removed) && removed.every((key) => typeof key === 'string');
  return { set: isRecord(set) ? set : undefined, removed: areKeys ? removed : undefined };
}

/** An event, and the keys of its delta that lost to an earlier one (contract A8). */
export interface PastEvent {
  seq: number;
  event: Event;
  superseded: readonly string[] | undefined;
}

/**
 * Computes a session's past state from its rows (contract K4).
 *
 * @param changes in the order in which they were made.
 * @param events by number.
 * @returns the session's own state after the event `seq`.
 */
export function pastState(changes: readonly PastChange[], events: readonly PastEvent[], seq: number): StateEntry[] {
  const steps = [
    ...changes.map(({ kind, ...change }) => ({ ...change, eventId: null, at: kind === 'state' ? change.seq : -1 })),
    ...events.map(({ seq, event: { id, actions }, superseded = [] }) => {
      const delta = Object.entries(actions?.stateDelta ?? {}).filter(([key]) => !superseded.includes(key));
      return { at: seq - 0.5, set: Object.fromEntries(delta), removed: [], eventId: id };
    }),
  ];
  const state = new Map<string, StateEntry>();
  for (const { at, set, removed, eventId } of steps.sort((a, b) => a.at - b.at)) {
    if (at > seq) break;
    for (const [key, value] of Object.entries(set)) {
      if (scopeOf(key).scope !== 'session' || isTemporary(key)) continue;
      state.set(key, { key, json: JSON.stringify(value), eventId });
    }
    for (const key of removed) state.delete(key);
  }
  return [...state.values()];
}
