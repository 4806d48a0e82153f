import { createSession, type Event, type Session } from '@google/adk';
import type { StoredEvent } from '../database/dialects/dialect.js';
import type { ReadHead } from '../database/statements/stored-session.js';
import { InvalidArgumentError } from '../model/errors.js';
import type { SessionKey } from '../model/keys.js';
import { processWide } from '../model/process-wide.js';
import { isTemporary, setOwn } from '../model/state.js';
import type { StampedDelta } from './delta.js';

/** How far a handle has read its session. */
export interface Revision {
  incarnation: string;
  origin: string;
  /** The id of the newest recorded change that it has (contract B4). */
  lastChange: number;
  /** Whether it had pending calls: an append then locks it at once. */
  hasPendingCalls: boolean;
  seq: number;
  /** The number of events in the handle. If it has another number now, other code has added or removed events. */
  eventCount: number;
  /** Whether the handle was read without some of the session's events, and so has to stay without them. */
  isPartial: boolean;
  /** The stored state as the handle has read or written it. All else in the handle's state are `temp:` keys and direct writes. */
  state: Map<string, unknown>;
}

/** What a handle has read, apart from events. */
type History = Pick<Revision, 'incarnation' | 'origin' | 'lastChange' | 'hasPendingCalls'>;

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
  const { firstSeq, lastSeq: seq } = head;
  const isPartial = events.length < seq - firstSeq + 1;
  const read = { seq, eventCount: events.length, isPartial, state: new Map(Object.entries(state)) };
  revisions.set(session, revisionOf(head, read));
  return session;
}

/** Revisions by object: a clone or an object literal has none. */
export const revisions = processWide('revisions', () => new WeakMap<Session, Revision>());

/** Events that were appended to a handle inside a host's transaction, which may be rolled back. */
export interface Tentative {
  /** MikroORM's object for the transaction, or for the savepoint of a nested one. */
  transaction: object;
  events: readonly StoredEvent[];
}

export const tentatives = processWide('tentatives', () => new WeakMap<Session, Tentative>());

/** @param history the session's head, or an earlier revision. */
export function setRevision(handle: Session, history: History, seq: number): void {
  const { isPartial, state } = revisions.get(handle) ?? { isPartial: true, state: new Map<string, unknown>() };
  revisions.set(handle, revisionOf(history, { seq, eventCount: handle.events.length, isPartial, state }));
}

/** Each append makes one, without a spread: docs/architecture.md says why. */
function revisionOf(history: History, read: Omit<Revision, keyof History>): Revision {
  const { incarnation, origin, lastChange, hasPendingCalls } = history;
  const { seq, eventCount, isPartial, state } = read;
  return { incarnation, origin, lastChange, hasPendingCalls, seq, eventCount, isPartial, state };
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

/** An append's events, with the keys that they wrote. */
type OwnEvents = readonly { event: Event; delta: StampedDelta }[];

/**
 * What a handle that is behind reads: the events that it `missed`, if others have done nothing but append; the `whole` session; or a
 * session that begins `anew`, since the handle belongs to a history that is gone, or to an earlier session with this id.
 */
export type Reading = 'missed' | 'whole' | 'anew';

/** What a handle that is behind has read. */
interface ReadAgain {
  head: History & Pick<ReadHead, 'lastSeq' | 'lastUpdateTime'>;
  /** The state of the session, read with the events. */
  state: Readonly<Record<string, unknown>>;
  /** The caller's own are among them. */
  events: readonly Event[];
  of: Reading;
}

/**
 * Makes a handle what its session is now (contract E2). Events and values whose content is the same stay the objects that they are.
 * Keys that nobody else has changed stay, too, since they may be `temp:` keys or direct writes (contract A4); of a session that begins
 * anew, only `temp:` keys.
 */
export function patch(handle: Session, own: OwnEvents, { head, state, events, of }: ReadAgain): void {
  const { isPartial = true, state: stored = new Map<string, unknown>() } = revisions.get(handle) ?? {};
  const keys = {
    missed: () => events.flatMap((event) => Object.keys(event.actions?.stateDelta ?? {})),
    whole: () => changedKeys(stored, state),
    anew: () => [...Object.keys(state), ...Object.keys(handle.state).filter((key) => !isTemporary(key))],
  }[of]();
  takeState(handle, state, [...own.flatMap(({ delta }) => Object.keys(delta.values)), ...keys]);
  const known = new Map(handle.events.map((event) => [event.id, event]));
  const ids = new Set(events.map(({ id }) => id));
  const before = of === 'missed' ? handle.events.filter(({ id }) => !ids.has(id)) : [];
  // The caller's own objects stay in the handle, even if others have rewritten them already (contract A3).
  const ownIds = new Set(own.map(({ event }) => event.id));
  const isKept = (event: Event) => ownIds.has(event.id) || hasSameContent(known.get(event.id), event);
  const after = events.map((event) => (isKept(event) && known.get(event.id)) || event);
  // Without `push(...after)`, which fails for more than about a hundred thousand events.
  handle.events.length = 0;
  for (const event of before) handle.events.push(event);
  for (const event of after) handle.events.push(event);
  handle.lastUpdateTime = head.lastUpdateTime;
  setRevision(handle, head, head.lastSeq);
  if (of === 'missed') return;
  const now = { isPartial: isPartial && of !== 'anew', state: new Map(Object.entries(state)) };
  Object.assign(revisions.get(handle) ?? {}, now);
}

/** @returns the keys whose stored value is not the one that a handle has read, or that it has read and are gone. */
function changedKeys(stored: ReadonlyMap<string, unknown>, state: Readonly<Record<string, unknown>>): string[] {
  const changed = Object.keys(state).filter((key) => !stored.has(key) || !hasSameContent(stored.get(key), state[key]));
  return [...changed, ...[...stored.keys()].filter((key) => !Object.hasOwn(state, key))];
}

/** Gives a handle the stored values of some keys. */
function takeState(handle: Session, state: Readonly<Record<string, unknown>>, keys: readonly string[]): void {
  for (const key of keys) {
    if (!Object.hasOwn(state, key)) delete handle.state[key];
    else if (!Object.hasOwn(handle.state, key) || !hasSameContent(handle.state[key], state[key]))
      setOwn(handle.state, key, state[key]);
  }
  noteState(handle, state, keys);
}

/** Remembers what is stored under some keys of a handle. */
export function noteState(handle: Session, state: Readonly<Record<string, unknown>>, keys: readonly string[]): void {
  const stored = revisions.get(handle)?.state;
  for (const key of keys) {
    if (Object.hasOwn(state, key)) stored?.set(key, state[key]);
    else stored?.delete(key);
  }
}

function hasSameContent(value: unknown, stored: unknown): boolean {
  try {
    return value === stored || JSON.stringify(value) === JSON.stringify(stored);
  } catch {
    // The caller has changed its object, and JSON cannot represent it any more.
    return false;
  }
}

/** Whether other code has added or removed no events since the handle had this revision. */
export function hasOnlyReadEvents(handle: Session, revision: Revision): boolean {
  return handle.events.length === revision.eventCount;
}

/**
 * Whether a handle had an event at a revision, as the same object. It is true only if the event's row was lost and its caller appends
 * it again. Only events of its time or later are compared: in a long session, to search through all takes longer than an append.
 */
export function hasEvent({ events }: Session, event: Event, { eventCount }: Revision): boolean {
  for (let i = eventCount - 1; i >= 0; i--) {
    const each = events[i];
    if (each === event) return true;
    if (each && each.timestamp < event.timestamp) return false;
  }
  return false;
}

/** Replaces the event with the same id, or adds the event at the end (contract A5). */
export function placeEvent(handle: Session, event: Event): void {
  const index = handle.events.findIndex(({ id }) => id === event.id);
  if (index >= 0) handle.events[index] = event;
  else handle.events.push(event);
}
