import { inLogOrder } from './log-order.js';
import { isTemporary, scopeOf } from './state.js';

/** A change to a session's state that was recorded outside of events; without values that were too large to be recorded. */
export type PastChange = { seq: number } & (
  | { kind: 'state'; set?: Record<string, unknown>; removed: readonly string[] }
  /** The session was taken back to event `seq`, and its own state became this. */
  | { kind: 'rewound'; state?: Record<string, unknown> }
);

/** What an event wrote to the state. */
export interface PastEvent {
  seq: number;
  id: string;
  delta: Record<string, unknown>;
}

/** A value of the state, and the event that wrote it; null where it was set outside a run. */
interface PastValue {
  json: string;
  eventId: string | null;
}

/**
 * The state that a session's history leaves, by keys with their prefixes; of user and app what this session wrote.
 *
 * @param created the state that the session was given.
 * @param changes in the order in which they were made.
 * @param events by number.
 * @param unrecorded keys that a change set to values that were too large to be recorded.
 */
export function pastState(
  created: Record<string, unknown>,
  changes: readonly PastChange[],
  events: readonly PastEvent[],
  unrecorded: Record<string, unknown> = {},
): Map<string, PastValue> {
  const state = new Map<string, PastValue>();
  const set = (values: Record<string, unknown>, eventId: string | null) => {
    for (const [key, value] of Object.entries(values)) {
      if (!isTemporary(key)) state.set(key, { json: JSON.stringify(value), eventId });
    }
  };
  set(created, null);
  for (const { event, change } of inLogOrder(events, changes)) {
    if (event) {
      set(event.delta, event.id);
    } else if (change.kind === 'state') {
      set(change.set ?? unrecorded, null);
      for (const key of change.removed) state.delete(key);
    } else {
      for (const key of state.keys()) if (scopeOf(key).scope === 'session') state.delete(key);
      set(change.state ?? unrecorded, null);
    }
  }
  return state;
}
