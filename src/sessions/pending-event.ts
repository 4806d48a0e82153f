import type { Event, Session } from '@google/adk';
import { concernsCalls } from '../conversation/calls.js';
import type { StoredEvent } from '../database/dialects/dialect.js';
import { aRecord } from '../model/arguments.js';
import { SessionNotFoundError, UnserializableValueError } from '../model/errors.js';
import { encode, refuseUnlikeJson } from '../model/json.js';
import { checkKeys, isIncomplete } from '../model/keys.js';
import { checkStateKey, setOwn, type StateEntry } from '../model/state.js';
import { beginsTurn } from '../model/turn.js';
import { copyOfDelta, stampDelta, type StampedDelta } from './delta.js';
import { keyOf } from './handle.js';

/** An event on its way into the database. */
export interface PendingEvent {
  /** The caller's object, which will be in the handle. */
  event: Event;
  stored: StoredEvent;
  /** A copy of the event's state delta with stamps, without `temp:` keys. */
  delta: StampedDelta;
  /** The delta as rows of the state tables. */
  writes: readonly StateEntry[];
  /** Whether it makes or answers a long-running call. */
  concernsCalls: boolean;
}

/** Checks an event and encodes it as JSON, without `temp:` keys (contract A7). */
export function pendingEvent(session: Session, event: Event): PendingEvent {
  const key = keyOf(session);
  if (isIncomplete(key)) throw new SessionNotFoundError(session.id);
  const { appName, userId, sessionId } = key;
  checkKeys({ appName, userId, sessionId, eventId: event.id });
  if (!Number.isFinite(event.timestamp)) throw new UnserializableValueError('timestamp', 'not a finite number');
  const { stateDelta } = event.actions ?? {};
  // Before the copy, in which a `Map` would be an empty object.
  if (event.actions) refuseUnlikeJson(event.actions, 'actions');
  if (stateDelta !== undefined && stateDelta !== null) {
    aRecord(stateDelta, 'actions.stateDelta');
    refuseUnlikeJson(stateDelta, 'actions.stateDelta');
  }
  const copy: Event = event.actions ? { ...event, actions: { ...event.actions } } : event;
  const delta = stampDelta(copy);
  const writes: StateEntry[] = [];
  for (const name of Object.keys(delta.values)) {
    const value = delta.values[name];
    checkStateKey(key, name);
    const stored = encode(value, `actions.stateDelta.${name}`);
    // The handle must show the value that a later read returns, and not the object before its toJSON (contract I6).
    if (stored.value !== value) setOwn(delta.values, name, stored.value);
    writes.push({ key: name, json: stored.json, eventId: event.id });
  }

  const { json } = encode(copy, '');
  if (Object.keys(event.actions?.stateDelta ?? {}).length > 0) {
    try {
      event.actions.stateDelta = copyOfDelta(delta);
    } catch {
      // The delta is frozen: it stays as the caller made it.
    }
  }
  // `concernsCalls` is true only for events with long-running calls or responses. Most have neither, and to search the text is fast.
  const mayHaveCalls = (copy.longRunningToolIds ?? []).length > 0 || json.includes('"functionResponse"');
  return {
    event,
    concernsCalls: mayHaveCalls && concernsCalls(copy),
    stored: {
      id: event.id,
      timestamp: event.timestamp,
      json,
      beginsTurn: event.author === 'user' && beginsTurn(event),
    },
    delta,
    writes,
  };
}
