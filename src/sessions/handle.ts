import { createSession, type Event, type Session } from '@google/adk';
import type { StoredEvent } from '../database/dialects/dialect.js';
import type { ReadHead } from '../database/statements/sessions.js';
import { InvalidArgumentError } from '../model/errors.js';
import type { SessionKey } from '../model/keys.js';
import { isTemporary, setOwn } from '../model/state.js';
import type { StampedDelta } from './delta.js';

/** How far a handle has read its session. */
export interface Revision {
  incarnation: string;
  origin: string;
  /** The id of the newest recorded change that it has (contract B4). */
  lastChange: number;
  seq: number;
  /** The number of events in the handle. If it has another number now, other code has added or removed events. */
  eventCount: number;
}

/** What a handle has read, apart from events. */
type History = Pick<Revision, 'incarnation' | 'origin' | 'lastChange'>;

/** The `eventCount` of a handle that no service has read: its events may not be those of the session. */
export const UNREAD = -1;

export function keyOf({ appName, userId, id }: Session): SessionKey {
  return { appName, userId, sessionId: id };
}

export function handleOf(
  { appName, userId, sessionId }: SessionKey,
  head: ReadHead,
  state: Record<string, unknown>,
  events: Event[],
): Session {
  const session = createSession({ id: sessionId, appName, userId, state, events, lastUpdateTime: head.lastUpdateTime });
  setRevision(session, head, head.lastSeq);
  return session;
}

/** Revisions by object: a clone or an object literal has none. */
const revisions = new WeakMap<Session, Revision>();

/** Events that were appended to a handle inside a host's transaction, which may be rolled back. */
export interface Tentative {
  /** MikroORM's object for the transaction, or for the savepoint of a nested one. */
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
export function setRevision(handle: Session, { incarnation, origin, lastChange }: History, seq: number): void {
  revisions.set(handle, { incarnation, origin, lastChange, seq, eventCount: handle.events.length });
}

export function forgetRevision(handle: Session): void {
  revisions.delete(handle);
}

/**
 * Checks this before the append: it changes the handle in place only after its commit (contract A3, A4), when it is too late to
 * refuse.
 *
 * @throws InvalidArgumentError if the handle, its state or its events are frozen, sealed or not extensible.
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
    // A getter or a setter of the caller threw.
    return false;
  }
}

interface Missed {
  head: History & Pick<ReadHead, 'lastSeq' | 'lastUpdateTime'>;
  /** The session's state, read with the head. */
  state: Readonly<Record<string, unknown>>;
  /** The events after the handle's revision, up to the head; with `isAnew` all events. */
  missed: readonly Event[];
  /** Events with a content that others gave them; some may be among `missed`. */
  rewritten: readonly Event[];
  /** The keys that were changed outside of events; undefined if any may have been. */
  keys: readonly string[] | undefined;
  /** If the oldest events were trimmed: those that are left, by their ids. */
  left: ReadonlyMap<string, unknown> | undefined;
  /** Whether the handle's events belong to a history that is gone, or to an earlier session with this id. */
  isAnew: boolean;
}

/**
 * Updates a handle in place to the head of its session (contract E2): adds the events that it missed, and sets the keys that they
 * and other changes wrote. Other keys stay, since they may be `temp:` keys or direct writes (contract A4).
 *
 * @param appended the events that the caller has just appended, with the keys that they wrote.
 */
export function catchUp(
  handle: Session,
  appended: readonly { event: Event; delta: StampedDelta }[],
  { head, state, missed, rewritten, keys, left, isAnew }: Missed,
): void {
  const deltas = [
    ...appended.map(({ delta }) => delta.values),
    ...[...missed, ...rewritten].map((event) => event.actions?.stateDelta ?? {}),
  ];
  // A handle that has read nothing, such as an object literal, also gets the session's first state.
  if (isAnew || !keys || revisions.get(handle)?.seq === 0) deltas.push(state);
  const touched = deltas.flatMap((delta) => Object.keys(delta));
  const others = isAnew || !keys ? Object.keys(handle.state).filter((key) => !isTemporary(key)) : keys;
  for (const key of [...touched, ...others]) {
    if (Object.hasOwn(state, key)) setOwn(handle.state, key, state[key]);
    else delete handle.state[key];
  }

  // The caller's own event objects stay in the handle (contract A3), in their order among the missed events. If the session was
  // created again, or a transaction rolled back, an event with the same id may have had other content.
  const known = new Map(handle.events.map((event) => [event.id, event]));
  if (isAnew) for (const event of missed) if (!hasSameContent(known.get(event.id), event)) known.delete(event.id);
  for (const { event } of appended) known.set(event.id, event);
  const own = new Set(appended.map(({ event }) => event.id));
  for (const event of rewritten) if (!own.has(event.id)) known.set(event.id, event);
  const ids = new Set(missed.map((event) => event.id));
  const before = isAnew ? [] : handle.events.filter((event) => !ids.has(event.id));
  if (left) {
    const first = before.findIndex(({ id }) => left.has(id));
    before.splice(0, first < 0 ? before.length : first);
  }
  replaceContent(
    handle.events,
    ...[before, missed].map((events) => events.map((event) => known.get(event.id) ?? event)),
  );

  handle.lastUpdateTime = head.lastUpdateTime;
  setRevision(handle, head, head.lastSeq);
}

function hasSameContent(event: Event | undefined, stored: Event): boolean {
  try {
    return JSON.stringify(event) === JSON.stringify(stored);
  } catch {
    // The caller has changed its object, and JSON cannot represent it any more.
    return false;
  }
}

/** Without `push(...parts)`, which fails for more than about a hundred thousand events. */
function replaceContent(target: Event[], ...parts: readonly Event[][]): void {
  target.length = 0;
  for (const part of parts) for (const event of part) target.push(event);
}

/** Whether other code has added or removed no events since the handle had this revision. */
export function hasOnlyReadEvents(handle: Session, revision: Revision): boolean {
  return handle.events.length === revision.eventCount;
}

/** Replaces the event with the same id, or adds the event at the end (contract A5). */
export function placeEvent(handle: Session, event: Event): void {
  const index = handle.events.findIndex(({ id }) => id === event.id);
  if (index >= 0) handle.events[index] = event;
  else handle.events.push(event);
}
