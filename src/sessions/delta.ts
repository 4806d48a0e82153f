import { BaseSessionService, State, createEvent, createSession, trimTempDeltaState, type Event } from '@google/adk';
import { processWide } from '../model/process-wide.js';

/**
 * The value of every key of the state to which `stampDelta` applies a delta. A key that still has it afterwards was written with
 * an older stamp.
 */
const UNTOUCHED = Symbol('untouched');

/** On a plain object, an assignment to `__proto__` would set the prototype instead of a key (contract B5). */
function withoutPrototype(): Record<string, unknown> {
  return Object.create(null) as Record<string, unknown>;
}

/** An object for which ADK keeps stamps, in a weak map. Each one costs a noticeable part of an append's time. */
type Stamps = Record<string, unknown>;

/** A delta whose writes have stamps. */
export interface StampedDelta {
  readonly values: Stamps;
  /**
   * A number that grows with each delta, if all its writes were stamped here at one moment: such deltas can be compared without
   * their stamps.
   */
  readonly order: number | undefined;
}

const deltas = processWide('deltas', () => ({ count: 0 }));

/**
 * For each key of a state, the delta with its newest write, without the values. ADK's own stamps of the state cannot be read or
 * reset, and they also count writes that were never stored.
 */
const newest = processWide('newest writes', () => new WeakMap<object, Map<string, StampedDelta>>());

/** The state to which deltas are applied in order to stamp them. It is replaced from time to time, since it keeps their keys. */
let spare: Stamps | undefined;
let tries = 0;
const MOST_TRIES = 1_000;

/**
 * Applies the delta of an event by ADK's rules, and replaces it by a copy. ADK exports only this method for it; its work is done when
 * it returns. What fails is for nobody: of a getter in the delta it throws again later, and a state that somebody has frozen stays as
 * it is. Unhandled, the rejection would end the process.
 */
function applyTo(state: Record<string, unknown>, event: Event): void {
  const session = createSession({ id: '', appName: '', state });
  BaseSessionService.prototype.appendEvent({ session, event }).catch(ignore);
}

const ignore = () => undefined;

/** The event in which ADK is given a delta: to make one for each would take as long as ADK needs for it. */
const holder = createEvent();

/** @param use replaces the delta of its event by a copy, and returns at once. @returns the copy, which has the stamps. */
function copied(values: Stamps, use: (event: Event) => void): Stamps {
  const { actions } = holder;
  actions.stateDelta = values;
  use(holder);
  const copy = actions.stateDelta;
  actions.stateDelta = NONE;
  return copy;
}

const NONE: Stamps = {};

/** @returns a copy of the values with their stamps, without `temp:` keys. */
export function copyOfDelta({ values }: StampedDelta): Stamps {
  return copied(values, trimTempDeltaState);
}

/**
 * Applies the stamped delta of a stored event to a state by the rules of ADK's base class (contract A8): a write that is older
 * than the one in the state is left out.
 *
 * @param winning the keys of the delta that count, from `winningKeys`.
 */
export function applyDelta(
  state: Record<string, unknown>,
  { values, order }: StampedDelta,
  winning: Iterable<{ key: string }>,
): void {
  if (Object.keys(values).length === 0) return;
  const stamps = copied(values, (event) => applyTo(state, event));
  for (const name of Object.keys(stamps)) stamps[name] = undefined;
  const writes = newest.get(state) ?? new Map<string, StampedDelta>();
  newest.set(state, writes);
  const delta = { values: stamps, order };
  for (const { key } of winning) writes.set(key, delta);
}

/** Forgets which writes were the newest, when the events of a handle are no longer those of the session. */
export function forgetWrites(state: Record<string, unknown>): void {
  newest.delete(state);
}

/**
 * Removes the `temp:` keys from the delta of an event, and stamps each write that ADK's `State` has not stamped. The base class
 * would stamp the delta when it applies it, which here is after the commit: a later write of a parallel branch would lose.
 *
 * @param event a copy; its delta is replaced.
 * @returns the new delta.
 */
export function stampDelta(event: Event): StampedDelta {
  const written = Object.keys(event.actions?.stateDelta ?? {});
  if (written.length === 0) return { values: {}, order: undefined };

  const state = spare ?? withoutPrototype();
  // Not shared until this delta is done: a getter in it might append another event.
  spare = undefined;
  // The state is stamped now: a write with an older stamp is not applied, and one without a stamp is.
  const clock = new State(state, state);
  for (const name of written) clock.set(name, UNTOUCHED);
  applyTo(state, event);

  const values = event.actions.stateDelta;
  const stamps = new State(state, values);
  let isStampedHere = true;
  for (const name of Object.keys(values)) {
    const value = values[name];
    // JSON would drop the key from the event: the state could not be computed from the events any more.
    const kept = value === undefined ? null : value;
    if (state[name] === UNTOUCHED) {
      values[name] = kept;
      isStampedHere = false;
    } else stamps.set(name, kept);
  }
  // Releases the values, which may be large.
  for (const name of written) state[name] = undefined;
  if (++tries % MOST_TRIES > 0) spare = state;
  return { values, order: isStampedHere ? ++deltas.count : undefined };
}

/**
 * Decides which writes count if events are appended to a handle one after the other.
 *
 * @returns a function that gives the keys of a delta whose writes are newer than those of earlier deltas and of those that were
 *   applied to the state. Writes of failed appends do not count, and neither do writes that are not appended yet.
 */
export function winningKeys(state: Record<string, unknown>): (delta: StampedDelta) => ReadonlySet<string> {
  const applied = newest.get(state);
  const before = new Map<string, StampedDelta>();
  let probe: Probe | undefined;
  return (delta) => {
    const unsure: StampedDelta[] = [];
    let winning: string[] = [];
    for (const name of Object.keys(delta.values)) {
      const older = before.get(name) ?? applied?.get(name);
      const areOrdered = older?.order !== undefined && delta.order !== undefined;
      if (older && !areOrdered) unsure.push(older);
      if (!areOrdered || older.order <= delta.order) winning.push(name);
    }
    if (unsure.length > 0) {
      const isNewer = (probe ??= new Probe()).compare(delta, unsure);
      winning = winning.filter(isNewer);
    }
    for (const name of winning) before.set(name, delta);
    return new Set(winning);
  };
}

/** Compares stamps by applying deltas to a state: ADK has no other way. */
class Probe {
  readonly #state = withoutPrototype();
  readonly #applied = new Set<StampedDelta>();

  /** @returns a function that says whether the delta has the newest write of a key, compared with the others and all earlier ones. */
  compare(delta: StampedDelta, others: readonly StampedDelta[]): (name: string) => boolean {
    for (const other of others) if (!this.#applied.has(other)) this.#apply(other);
    for (const name of Object.keys(delta.values)) this.#state[name] = UNTOUCHED;
    this.#apply(delta);
    return (name) => this.#state[name] !== UNTOUCHED;
  }

  #apply(delta: StampedDelta): void {
    copied(delta.values, (event) => applyTo(this.#state, event));
    this.#applied.add(delta);
  }
}
