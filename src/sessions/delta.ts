import { BaseSessionService, State, createSession, type Event } from '@google/adk';

/**
 * The value of every key of the state that `stampDelta` applies a delta to. A key that still has it afterwards was
 * written with an older stamp.
 */
const UNTOUCHED = Symbol('untouched');

/** On a plain object an assignment to `__proto__` sets the prototype, not a key (contract B5). */
function withoutPrototype(): Record<string, unknown> {
  return Object.create(null) as Record<string, unknown>;
}

/**
 * Applies an event's delta to a state by the rules of ADK's base class (contract A8): `temp:` keys are taken out of the
 * delta, and a write that is older than the one the state holds is left out. ADK exports no function for it but this
 * method, which has done its work when it returns.
 */
export function applyDelta(state: Record<string, unknown>, event: Event): void {
  void BaseSessionService.prototype.appendEvent({ session: createSession({ id: '', appName: '', state }), event });
}

/**
 * Takes the `temp:` keys out of the delta of an event, and gives each write in it a stamp of now where ADK's `State`
 * has not given it one. The base class stamps a bare delta only when it applies it, which here is after the commit:
 * a later write of a parallel branch would lose to it.
 *
 * @param event a copy; its delta is replaced.
 * @returns the new delta.
 */
export function stampDelta(event: Event): Record<string, unknown> {
  const written = Object.keys(event.actions?.stateDelta ?? {});
  if (written.length === 0) return {};

  // Stamped with now, so a write with an older stamp does not apply. A write without a stamp always applies.
  const state = withoutPrototype();
  const clock = new State(state);
  for (const name of written) clock.set(name, UNTOUCHED);
  applyDelta(state, event);

  const delta = event.actions.stateDelta;
  const stamps = new State(withoutPrototype(), delta);
  for (const [name, value] of Object.entries(delta)) {
    // JSON would drop the key from the event, and the state would no longer follow from the events.
    const kept = value === undefined ? null : value;
    if (state[name] === UNTOUCHED) delta[name] = kept;
    else stamps.set(name, kept);
  }
  return delta;
}

/**
 * The keys of a stamped delta whose writes are newer than those in the state. The state is restored before it returns.
 */
export function winningKeys(state: Record<string, unknown>, event: Event, delta: Record<string, unknown>): Set<string> {
  const names = Object.keys(delta);
  const before = names.map((name) => Object.getOwnPropertyDescriptor(state, name));
  applyDelta(state, { ...event, actions: { ...event.actions, stateDelta: delta } });
  const winning = names.filter((name) => state[name] === delta[name]);
  names.forEach((name, i) => {
    const descriptor = before[i];
    if (descriptor) Object.defineProperty(state, name, descriptor);
    else delete state[name];
  });
  return new Set(winning);
}
