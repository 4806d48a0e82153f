import { State, createEvent, createEventActions, type Event } from '@google/adk';
import { applyDelta, stampDelta, winningKeys, type StampedDelta } from '../../src/sessions/delta.js';
import { randomNumbers } from '../../bench/payloads.js';

type Values = Record<string, unknown>;

/** An event whose delta has no stamps, such as one that an agent builds itself. */
const writing = (stateDelta: Values): Event => createEvent({ actions: createEventActions({ stateDelta }) });

/** An event whose delta was written by ADK's `State`, key by key, as tools and callbacks do. */
function writtenByState(values: Values): Event {
  const event = writing({});
  const state = new State({}, event.actions.stateDelta);
  for (const [key, value] of Object.entries(values)) state.set(key, value);
  return event;
}

const stampedDeltas = new Map<object, StampedDelta>();

/** As it is before an append. */
function stamped(event: Event): Event {
  const delta = stampDelta(event);
  stampedDeltas.set(delta.values, delta);
  return event;
}

const deltaOf = ({ actions: { stateDelta: values } }: Event): StampedDelta =>
  stampedDeltas.get(values) ?? { values, order: undefined };

const winningOf = (state: Values, event: Event) => [...winningKeys(state)(deltaOf(event))];
const entriesOf = (keys: Iterable<string>) => Array.from(keys, (key) => ({ key }));

const apply = (state: Values, event: Event) => applyDelta(state, deltaOf(event), entriesOf(winningOf(state, event)));

function stateAfter(...events: readonly Event[]): Values {
  const state: Values = {};
  for (const event of events) apply(state, event);
  return state;
}

const own = (value: unknown): Values => JSON.parse(`{"__proto__":${JSON.stringify(value)}}`) as Values;
const ownValue = (state: object) => Object.getOwnPropertyDescriptor(state, '__proto__')?.value as unknown;

/** In the order in which the writes are made, whatever the way. */
const WAYS = {
  'both bare': () => [stamped(writing({ k: 'first', a: 1 })), stamped(writing({ k: 'second', b: 1 }))],
  'both by State': () =>
    [writtenByState({ k: 'first', a: 1 }), writtenByState({ k: 'second', b: 1 })].reverse().map(stamped).reverse(),
  'the first by State, and stamped last': () => {
    const first = writtenByState({ k: 'first', a: 1 });
    const second = stamped(writing({ k: 'second', b: 1 }));
    return [stamped(first), second];
  },
  'the second by State': () => [stamped(writing({ k: 'first', a: 1 })), stamped(writtenByState({ k: 'second', b: 1 }))],
  'one delta by both ways': () => {
    const first = writtenByState({ k: 'first' });
    first.actions.stateDelta['a'] = 1;
    return [stamped(first), stamped(writing({ k: 'second', b: 1 }))];
  },
};

describe.each(Object.entries(WAYS))('two writes of a key, %s', (_way, make) => {
  test('A8 the later one wins, whichever event comes first', () => {
    const [first, second] = make() as [Event, Event];
    expect(stateAfter(first, second)).toEqual({ k: 'second', a: 1, b: 1 });
    expect(stateAfter(second, first)).toEqual({ k: 'second', a: 1, b: 1 });
  });

  test('A8 the keys of the earlier one that still win are the others', () => {
    const [first, second] = make() as [Event, Event];
    const state = stateAfter(second);
    expect(winningOf(state, first)).toEqual(['a']);
    expect(winningOf(state, second).sort()).toEqual(['b', 'k']);
    expect(winningOf({}, first).sort()).toEqual(['a', 'k']);
  });

  test('A8 the later one wins among events that are appended together', () => {
    const [first, second] = make() as [Event, Event];
    const winning = winningKeys({});
    expect([...winning(deltaOf(second))].sort()).toEqual(['b', 'k']);
    expect([...winning(deltaOf(first))]).toEqual(['a']);
  });

  test('A5 an event that is appended again brings nothing back', () => {
    const [first, second] = make() as [Event, Event];
    const state = stateAfter(first, second);
    apply(state, stamped({ ...first, actions: { ...first.actions } }));
    expect(state).toEqual({ k: 'second', a: 1, b: 1 });
  });
});

describe('stampDelta', () => {
  test('A7 leaves temp: keys out of the delta, of the event and of what it returns', () => {
    for (const event of [writing({ 'temp:a': 1, a: 2 }), writtenByState({ 'temp:a': 1, a: 2 })]) {
      const delta = stampDelta(event).values;
      expect(Object.entries(delta)).toEqual([['a', 2]]);
      expect(event.actions.stateDelta).toBe(delta);
    }
    expect(Object.keys(stampDelta(writing({ 'temp:': 1 })).values)).toEqual([]);
  });

  test("A11 changes nothing but its copy's delta", () => {
    const event = writing({ 'temp:a': 1, a: undefined, b: [1] });
    const { stateDelta } = event.actions;
    const copy = { ...event, actions: { ...event.actions } };
    const delta = stampDelta(copy).values;
    expect(event.actions.stateDelta).toBe(stateDelta);
    expect(Object.entries(stateDelta)).toEqual([
      ['temp:a', 1],
      ['a', undefined],
      ['b', [1]],
    ]);
    expect(delta['b']).toBe(stateDelta['b']);
  });

  test('B2 makes null of undefined, which JSON would drop, and keeps the order of the writes', () => {
    const [bare, byState] = [writing({ k: undefined }), writtenByState({ k: undefined })];
    const later = stamped(writing({ k: 'later' }));
    expect(Object.entries(stamped(byState).actions.stateDelta)).toEqual([['k', null]]);
    expect(stateAfter(later, byState)).toEqual({ k: 'later' });
    expect(Object.entries(stamped(bare).actions.stateDelta)).toEqual([['k', null]]);
    expect(stateAfter(bare, later)).toEqual({ k: null });
    expect(stateAfter(later, bare)).toEqual({ k: null });
  });

  test('A15 takes an event without actions, or with an empty delta, as it is', () => {
    const { actions: _actions, ...bare } = createEvent();
    const empty = writing({});
    const { stateDelta } = empty.actions;
    for (const event of [bare as Event, empty]) expect(stampDelta(event).values).toEqual({});
    expect(bare).not.toHaveProperty('actions');
    expect(empty.actions.stateDelta).toBe(stateDelta);
  });

  test('B5 has __proto__, constructor and toString as keys', () => {
    const values = { ...own({ polluted: 1 }), constructor: 1, toString: null };
    const keys = stampDelta(writing(Object.assign(Object.create(null) as object, values))).values;
    expect(Object.keys(keys)).toEqual(['__proto__', 'constructor', 'toString']);

    const delta = stampDelta(writing(own({ polluted: 1 }))).values;
    expect(ownValue(delta)).toEqual({ polluted: 1 });
    expect(delta).not.toHaveProperty('polluted');
  });

  test('B5 stamps __proto__ like any other key', () => {
    const [first, second] = [stamped(writing(own('first'))), stamped(writing(own('second')))];
    for (const order of [
      [first, second],
      [second, first],
    ]) {
      expect(ownValue(stateAfter(...order))).toBe('second');
    }
    // Appended again, it keeps the stamp that it has.
    expect(ownValue(stateAfter(second, stamped(first)))).toBe('second');
  });
});

describe('applyDelta', () => {
  test('A4 writes into the state before it returns, and leaves the other keys', () => {
    const state: Values = { a: 1, 'temp:b': 2, c: { d: 3 } };
    const { c } = state;
    const value = { deep: [1] };
    apply(state, stamped(writing({ a: value, new: null })));
    expect(state).toEqual({ a: value, 'temp:b': 2, c: { d: 3 }, new: null });
    expect(state['c']).toBe(c);
    expect(state['a']).toBe(value);
  });

  test('A8 a write that carries no stamp is the latest', () => {
    const state = stateAfter(stamped(writing({ k: 'stamped' })));
    apply(state, writing({ k: 'bare' }));
    expect(state).toEqual({ k: 'bare' });
  });

  test('A8 a key that a tool wrote into the live state after the event keeps its value', () => {
    const event = stamped(writing({ k: 'event', other: 1 }));
    const state: Values = {};
    new State(state).set('k', 'tool');
    apply(state, event);
    expect(state).toEqual({ k: 'tool', other: 1 });
    apply(state, stamped(writing({ k: 'next' })));
    expect(state).toEqual({ k: 'next', other: 1 });
  });
});

describe('winningKeys', () => {
  test('A11 leaves the values, the keys and their order as they are', () => {
    const state: Values = Object.assign(Object.create(null) as object, { z: 1, a: undefined, ...own(1) });
    Object.defineProperty(state, 'hidden', { value: 1, configurable: true });
    const before = Object.getOwnPropertyDescriptors(state);
    const event = stamped(writing({ a: 2, new: 3, hidden: 4, ...own(5) }));
    expect(winningOf(state, event).sort()).toEqual(['__proto__', 'a', 'hidden', 'new']);
    expect(Object.getOwnPropertyDescriptors(state)).toEqual(before);
    expect(Reflect.ownKeys(state)).toEqual(['z', 'a', '__proto__', 'hidden']);
  });

  test('B5 removes a __proto__ that was not there, and no prototype changes', () => {
    const state: Values = {};
    const event = stamped(writing(own({ polluted: 1 })));
    expect(winningOf(state, event)).toEqual(['__proto__']);
    expect(Reflect.ownKeys(state)).toEqual([]);
    expect(Object.getPrototypeOf(state)).toBe(Object.prototype);
  });

  test('leaves the delta that it is given, as applyDelta does', () => {
    const event = stamped(writing({ a: [1] }));
    expect(winningOf({}, event)).toEqual(['a']);
    apply({}, event);
    expect(Object.entries(event.actions.stateDelta)).toEqual([['a', [1]]]);
  });

  test('A8 of many events in one batch, and in two, the writes win that are newer than all before them', () => {
    const random = randomNumbers(2);
    for (let round = 0; round < 200; round++) {
      // Written in one order, and appended in another one.
      const events = Array.from({ length: 6 }, (_, time) => {
        const names = ['a', 'b', 'c', 'd'].filter(() => random() < 0.5);
        const values = Object.fromEntries(names.map((name) => [name, time]));
        return { time, names, event: stamped(random() < 0.5 ? writing(values) : writtenByState(values)) };
      }).sort(() => random() - 0.5);
      const newest: Record<string, number> = {};
      const state: Values = {};
      for (const batch of [events.slice(0, 2), events.slice(2)]) {
        const winning = winningKeys(state);
        for (const { time, names, event } of batch) {
          const expected = names.filter((name) => time > (newest[name] ?? -1));
          const found = winning(deltaOf(event));
          expect([...found]).toEqual(expected);
          for (const name of expected) newest[name] = time;
          applyDelta(state, deltaOf(event), entriesOf(found));
        }
      }
      expect(state).toEqual(newest);
    }
  });

  test('A8 asked twice it answers the same, and the event can still be applied', () => {
    const state: Values = {};
    const event = stamped(writing({ k: 1 }));
    for (const _time of [1, 2]) expect(winningOf(state, event)).toEqual(['k']);
    apply(state, event);
    expect(state).toEqual({ k: 1 });
  });
});
