import { createSession, type Event, type Session } from '@google/adk';
import type { StoredEvent } from '../database/dialects/dialect.js';
import type { SessionHead } from '../database/statements/sessions.js';
import { InvalidArgumentError } from '../model/errors.js';
import type { SessionKey } from '../model/keys.js';
import { isTemporary, setOwn } from '../model/state.js';
import type { StampedDelta } from './delta.js';

/** How far a handle has read: which session of its id, and up to which event. */
export interface Revision {
  incarnation: string;
  origin: string;
  seq: number;
  /** The number of events in the handle at that time. If it differs now, other code has added or removed events. */
  eventCount: number;
}

/** The `eventCount` of a handle that no service has read: its events are not known to be those of the session. */
export const UNREAD = -1;

/** What names the session of a handle. */
export function keyOf({ appName, userId, id }: Session): SessionKey {
  return { appName, userId, sessionId: id };
}

/** A handle of a session that was just read. */
export function handleOf(
  { appName, userId, sessionId }: SessionKey,
  head: SessionHead,
  state: Record<string, unknown>,
  events: Event[],
): Session {
  const session = createSession({ id: sessionId, appName, userId, state, events, lastUpdateTime: head.lastUpdateTime });
  setRevision(session, head, head.lastSeq);
  return session;
}

/** Revisions by object: a clone or an object literal has none. */
const revisions = new WeakMap<Session, Revision>();

/** What was appended to a handle inside a host's transaction, which may be rolled back. */
export interface Tentative {
  /** The transaction as MikroORM knows it; of a nested transaction the savepoint. */
  transaction: object;
  events: readonly StoredEvent[];
}

const tentatives = new WeakMap<Session, Tentative>();

export function tentativeOf(handle: Session): Tentative | undefined {
  return tentatives.get(handle);
}

export function setTentative(handle: Session, tentative: Tentative | undefined): void {
  if (tentative) tentatives.set(handle, tentative);
  else tentatives.delete(handle);
}

export function revisionOf(handle: Session): Revision | undefined {
  return revisions.get(handle);
}

/** @param history the session's head, or an earlier revision. */
export function setRevision(
  handle: Session,
  { incarnation, origin }: Pick<Revision, 'incarnation' | 'origin'>,
  seq: number,
): void {
  revisions.set(handle, { incarnation, origin, seq, eventCount: handle.events.length });
}

export function forgetRevision(handle: Session): void {
  revisions.delete(handle);
}

/**
 * An append changes the handle in place (contract A3, A4), after its commit, when it is too late to refuse it.
 *
 * @throws InvalidArgumentError when the handle, its state or its events are frozen, sealed or not extensible.
 */
export function refuseUnchangeable(handle: Session, events: readonly Event[]): void {
  if (!isChangeable(handle, events)) {
    throw new InvalidArgumentError(
      'The Session object cannot be changed: it, its state or its events are frozen, sealed or not extensible; nothing was written. ' +
        'Append to the object that getSession returns, and leave it as it is.',
    );
  }
}

function isChangeable(handle: Session, appended: readonly Event[]): boolean {
  try {
    const { events, state } = handle;
    for (const { actions } of appended)
      for (const name of Object.keys(actions?.stateDelta ?? {}))
        if (Object.getOwnPropertyDescriptor(state, name)?.configurable === false) return false;
    return (
      Object.isExtensible(events) &&
      Object.getOwnPropertyDescriptor(events, 'length')?.writable === true &&
      Object.isExtensible(state) &&
      Reflect.set(handle, 'lastUpdateTime', handle.lastUpdateTime)
    );
  } catch {
    // A getter or a setter of the caller's.
    return false;
  }
}

/** What a handle lacks. */
interface Missed {
  head: Omit<SessionHead, 'firstSeq'>;
  /** The session's, read with the head. */
  state: Readonly<Record<string, unknown>>;
  /** The events from the one after the handle's revision to the head's last; with `isAnew` all events. */
  missed: readonly Event[];
  /** Whether the handle's events are those of another session of this id, or of a history that is gone. */
  isAnew: boolean;
}

/**
 * Brings a handle up to the head of its session in place (contract E2): adds the events it missed and takes over the keys that
 * they wrote. Other keys stay, since they may be written directly or `temp:` (contract A4).
 *
 * @param appended events that the caller itself has just appended, and the keys they wrote.
 */
export function catchUp(
  handle: Session,
  appended: readonly { event: Event; delta: StampedDelta }[],
  { head, state, missed, isAnew }: Missed,
): void {
  const deltas = [
    ...appended.map(({ delta }) => delta.values),
    ...missed.map((event) => event.actions?.stateDelta ?? {}),
  ];
  // A handle that has read nothing, such as an object literal, also gets the state that the session was created with.
  if (isAnew || revisions.get(handle)?.seq === 0) deltas.push(state);
  const touched = deltas.flatMap((delta) => Object.keys(delta));
  const old = isAnew ? Object.keys(handle.state).filter((key) => !isTemporary(key)) : [];
  for (const key of [...touched, ...old]) {
    if (Object.hasOwn(state, key)) setOwn(handle.state, key, state[key]);
    else delete handle.state[key];
  }

  // The caller's event object stays in the handle (contract A3), in its order among the events that were missed.
  // In a session that was created again, an event may have the id of an event of the deleted session.
  const kept = isAnew ? appended.map(({ event }) => event) : handle.events;
  const known = new Map(kept.map((event) => [event.id, event]));
  const ids = new Set(missed.map((event) => event.id));
  const before = isAnew ? [] : handle.events.filter((event) => !ids.has(event.id));
  const after = missed.map((event) => known.get(event.id) ?? event);
  replaceContent(handle.events, before, after);

  handle.lastUpdateTime = head.lastUpdateTime;
  setRevision(handle, head, head.lastSeq);
}

/** In place, without `push(...parts)`: an argument list is limited to about a hundred thousand entries. */
function replaceContent(target: Event[], ...parts: readonly Event[][]): void {
  target.length = 0;
  for (const part of parts) for (const event of part) target.push(event);
}

/** Whether nobody else has put events into the handle, or taken some out, since it had this revision. */
export function hasOnlyReadEvents(handle: Session, revision: Revision): boolean {
  return handle.events.length === revision.eventCount;
}

/** Puts an event into the handle: instead of the one with its id, or at the end (contract A5). */
export function placeEvent(handle: Session, event: Event): void {
  const index = handle.events.findIndex(({ id }) => id === event.id);
  if (index >= 0) handle.events[index] = event;
  else handle.events.push(event);
}
