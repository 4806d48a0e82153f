import { BaseSessionService, State, createEvent, createSession, trimTempDeltaState, type Event } from '@google/adk';

/**
 * The value of every key of the state that `stampDelta` applies a delta to. A key that still has it afterwards was
 * written with an older stamp.
 */
const UNTOUCHED = Symbol('untouched');

/** On a plain object an assignment to `__proto__` sets the prototype, not a key (contract B5). */
function withoutPrototype(): Record<string, unknown> {
  return Object.create(null) as Record<string, unknown>;
}

/** An object that ADK keeps stamps for, in a weak map: one more of them costs as much as many another step of an append. */
type Stamps = Record<string, unknown>;

/** A delta whose writes have stamps. */
export interface StampedDelta {
  readonly values: Stamps;
  /**
   * Where all writes were stamped here, at one moment: greater than the one of each delta that was stamped before. Two such
   * deltas need no comparison of their stamps.
   */
  readonly order: number | undefined;
}

let deltas = 0;

/**
 * Of each key of a state the delta with its newest write, without the values. The stamps that ADK keeps for the state can
 * neither be read nor taken back, and also count writes that no event has brought into storage.
 */
const newest = new WeakMap<object, Map<string, StampedDelta>>();

/** The state that deltas are applied to before they are stamped. A new one takes its place after so many, since it keeps their keys. */
let spare: Stamps | undefined;
let tries = 0;
const MOST_TRIES = 1_000;

/**
 * ADK exports no function for it but this method, which has done its work when it returns.
 *
 * @returns its promise. For a state and a delta of our own it resolves; a handler would keep each event of a batch in memory
 *   until the whole batch is prepared.
 */
function applyTo(state: Record<string, unknown>, event: Event): Promise<unknown> {
  const session = createSession({ id: '', appName: '', state });
  return BaseSessionService.prototype.appendEvent({ session, event });
}

const EMPTY_EVENT = createEvent();

/** An event with a delta, which has its stamps. */
function having(stateDelta: Stamps): Event {
  return { ...EMPTY_EVENT, actions: { ...EMPTY_EVENT.actions, stateDelta } };
}

/** @returns a copy of the values with the stamps and without `temp:` keys. */
export function copyOfDelta({ values }: StampedDelta): Stamps {
  return trimTempDeltaState(having(values)).actions.stateDelta;
}

/**
 * Applies an event's stamped delta to a state by the rules of ADK's base class (contract A8): a write that is older than the
 * one the state holds is left out. For an event that is stored.
 *
 * @param winning its writes that count, by their keys, as `winningKeys` gave them.
 */
export function applyDelta(
  state: Record<string, unknown>,
  { values, order }: StampedDelta,
  winning: Iterable<{ key: string }>,
): void {
  if (Object.keys(values).length === 0) return;
  const event = having(values);
  // A state that somebody froze meanwhile stays as it is; the rejection would end the process.
  applyTo(state, event).catch(() => undefined);
  // The base class has put a copy there.
  const stamps = event.actions.stateDelta;
  for (const name of Object.keys(stamps)) stamps[name] = undefined;
  const writes = newest.get(state) ?? new Map<string, StampedDelta>();
  newest.set(state, writes);
  const delta = { values: stamps, order };
  for (const { key } of winning) writes.set(key, delta);
}

/** For a state whose events are not those of the session any more. */
export function forgetWrites(state: Record<string, unknown>): void {
  newest.delete(state);
}

/**
 * Takes the `temp:` keys out of the delta of an event, and gives each write in it a stamp of now if ADK's `State`
 * has not given it one. The base class stamps a bare delta only when it applies it, which here is after the commit:
 * a later write of a parallel branch would lose to it.
 *
 * @param event a copy; its delta is replaced.
 * @returns the new delta.
 */
export function stampDelta(event: Event): StampedDelta {
  const written = Object.keys(event.actions?.stateDelta ?? {});
  if (written.length === 0) return { values: {}, order: undefined };

  const state = spare ?? withoutPrototype();
  // Not for another delta until this one is done: a getter of it might append an event.
  spare = undefined;
  // Stamped with now, so a write with an older stamp does not apply. A write without a stamp always applies.
  const clock = new State(state, state);
  for (const name of written) clock.set(name, UNTOUCHED);
  // What a getter of the delta throws comes again below; the rejection would end the process.
  applyTo(state, event).catch(() => undefined);

  const values = event.actions.stateDelta;
  const stamps = new State(state, values);
  let isStampedHere = true;
  for (const [name, value] of Object.entries(values)) {
    // JSON would drop the key from the event, and the state would no longer follow from the events.
    const kept = value === undefined ? null : value;
    if (state[name] === UNTOUCHED) {
      values[name] = kept;
      isStampedHere = false;
    } else stamps.set(name, kept);
  }
  // Values may be large.
  for (const name of written) state[name] = undefined;
  if (++tries % MOST_TRIES > 0) spare = state;
  return { values, order: isStampedHere ? ++deltas : undefined };
}

/**
 * For stamped deltas of events that are appended to a handle one after the other.
 *
 * @returns what gives of each delta the keys whose writes are newer than those of the deltas before it, and of those that were
 *   applied to the state. What an append that failed wrote does not count, nor does what is not appended yet: its own append
 *   will win.
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

/** Compares stamps, which ADK does only when it applies a delta to a state. */
class Probe {
  readonly #state = withoutPrototype();
  readonly #applied = new Set<StampedDelta>();

  /** @returns whether no delta has a newer write of a key: neither the others, nor those that were given before. */
  compare(delta: StampedDelta, others: readonly StampedDelta[]): (name: string) => boolean {
    for (const other of others) if (!this.#applied.has(other)) this.#apply(other);
    for (const name of Object.keys(delta.values)) this.#state[name] = UNTOUCHED;
    this.#apply(delta);
    return (name) => this.#state[name] !== UNTOUCHED;
  }

  #apply(delta: StampedDelta): void {
    void applyTo(this.#state, having(delta.values));
    this.#applied.add(delta);
  }
}
