import { createEvent, createEventActions, createSession, type Event, type Session } from '@google/adk';
import fc from 'fast-check';
import {
  hasOnlyReadEvents,
  keyOf,
  noteState,
  patch,
  placeEvent,
  revisions,
  setRevision,
} from '../../src/sessions/handle.js';
import { expectOfRandom } from '../support/random.js';

type Values = Record<string, unknown>;

const eventOf = (id: string, stateDelta: Values = {}): Event =>
  createEvent({ id, author: 'a', actions: createEventActions({ stateDelta }) });

const handleOf = (events: Event[] = [], state: Values = {}): Session =>
  createSession({ id: 's1', appName: 'app', userId: 'ada', state, events, lastUpdateTime: 1 });

const historyOf = (incarnation: string) => ({ incarnation, origin: 'origin', lastChange: 7, hasPendingCalls: false });
const headOf = (lastSeq: number, incarnation = 'first') => ({
  ...historyOf(incarnation),
  lastSeq,
  lastUpdateTime: 5,
});

const idsOf = ({ events }: Session) => events.map(({ id }) => id).join(' ');

/** A handle that has read this session up to these events. */
function readHandle(events: Event[], state: Values = {}): Session {
  const handle = handleOf(events, state);
  setRevision(handle, historyOf('first'), events.length);
  noteState(handle, state, Object.keys(state));
  return handle;
}

/** What an append does before it catches up: the caller's events go to the end. */
function append(handle: Session, ...events: Event[]) {
  for (const event of events) placeEvent(handle, event);
  return events.map((event) => ({ event, delta: { values: event.actions.stateDelta, order: undefined } }));
}

/** As the append does it: a session of another incarnation is read from its beginning. */
function catchUp(
  handle: Session,
  head: ReturnType<typeof headOf>,
  state: Values,
  events: Event[],
  appended: ReturnType<typeof append>,
) {
  const of = revisions.get(handle)?.incarnation === head.incarnation ? 'missed' : 'anew';
  patch(handle, appended, { head, state, events, of });
}

/** An event as it comes from the database: another object. */
const stored = (event: Event): Event => ({ ...event });

test('keyOf names the session of a handle, and nothing else of it', () => {
  const key = keyOf(handleOf([eventOf('e')], { a: 1 }));
  expect(key).toEqual({ appName: 'app', userId: 'ada', sessionId: 's1' });
});

describe('the revision of a handle', () => {
  test('E2 is that of the object; a clone and a handle made by hand have none', () => {
    const handle = readHandle([eventOf('1'), eventOf('2')]);
    expect(revisions.get(handle)).toMatchObject({ ...historyOf('first'), seq: 2, eventCount: 2 });
    for (const other of [{ ...handle }, structuredClone(handle), handleOf()])
      expect(revisions.get(other)).toBeUndefined();
    setRevision(handle, historyOf('second'), 9);
    expect(revisions.get(handle)).toMatchObject({ ...historyOf('second'), seq: 9, eventCount: 2 });
    // Nothing of it is to be seen on the handle.
    expect(Reflect.ownKeys(handle)).toEqual(Reflect.ownKeys(handleOf()));
  });

  test('A5 shows whether somebody else has put events into the handle, or taken some out', () => {
    const handle = readHandle([eventOf('1'), eventOf('2')]);
    const revision = revisions.get(handle)!;
    expect(hasOnlyReadEvents(handle, revision)).toBe(true);
    handle.events.push(eventOf('3'));
    expect(hasOnlyReadEvents(handle, revision)).toBe(false);
    handle.events.length = 1;
    expect(hasOnlyReadEvents(handle, revision)).toBe(false);
    // The search of a handle without a revision is never spared.
    expect(hasOnlyReadEvents(handleOf(), { ...revision, eventCount: -1 })).toBe(false);
  });
});

describe('placeEvent', () => {
  test.each([0, 1, 2])('A5 replaces the event with the same id at its place, %i', (place) => {
    const before = [eventOf('0'), eventOf('1'), eventOf('2')];
    const handle = handleOf([...before]);
    const { events } = handle;
    const again = eventOf(String(place));
    for (const _time of [1, 2]) placeEvent(handle, again);
    expect(handle.events).toBe(events);
    expect(events).toHaveLength(3);
    for (const [i, event] of before.entries()) expect(events[i]).toBe(i === place ? again : event);
  });

  test('A3 puts a new event at the end, the object itself, and into the same array', () => {
    const handle = handleOf([eventOf('1')]);
    const { events } = handle;
    const event = eventOf('2');
    placeEvent(handle, event);
    expect(handle.events).toBe(events);
    expect(idsOf(handle)).toBe('1 2');
    expect(events[1]).toBe(event);
  });
});

describe('catchUp in the same session', () => {
  /** Which of the missed events are the caller's own, `o`, in the order in which they are stored. */
  const ORDERS = ['o', 'xo', 'ox', 'xox', 'oxo', 'xxoo', 'ooxx', 'x', 'xx', ''];

  test.each(ORDERS)('E2 puts the missed events in their order; of the own (o) and others (x): %j', (order) => {
    const read = [eventOf('1'), eventOf('2')];
    const handle = readHandle([...read], { n: 2 });
    const { events, state } = handle;
    const all = Array.from(order, (kind, i) => eventOf(`${kind}${i}`, { n: i, [`${kind}${i}`]: i }));
    const own = all.filter(({ id }) => id.startsWith('o'));
    const appended = append(handle, ...own);

    const snapshot = Object.assign({ n: 2 }, ...all.map(({ actions }) => actions.stateDelta)) as Values;
    catchUp(handle, headOf(2 + all.length), snapshot, all.map(stored), appended);

    expect(handle.events).toBe(events);
    expect(events).toEqual([...read, ...all]);
    for (const event of [...read, ...own]) expect(events.find(({ id }) => id === event.id)).toBe(event);
    expect(handle.state).toBe(state);
    expect(state).toEqual(snapshot);
    expect(handle.lastUpdateTime).toBe(5);
    expect(revisions.get(handle)).toMatchObject({
      ...historyOf('first'),
      seq: 2 + all.length,
      eventCount: events.length,
    });
  });

  test('A4 leaves the keys that no missed event wrote: temp: keys, direct ones, and others of the snapshot', () => {
    const deep = {};
    const handle = readHandle([eventOf('1')], { a: 1, direct: deep, 'temp:t': 1, 'app:shared': 1 });
    catchUp(handle, headOf(2), { a: 2, 'app:shared': 2, unseen: 1 }, [eventOf('2', { a: 2 })], []);
    expect(handle.state).toEqual({ a: 2, direct: deep, 'temp:t': 1, 'app:shared': 1 });
    expect(handle.state['direct']).toBe(deep);
  });

  test('B4 gets what is stored, not what an event once wrote', () => {
    const handle = readHandle([], { gone: 1 });
    setRevision(handle, historyOf('first'), 1);
    const missed = [eventOf('2', { a: 'old', gone: 2, never: 1 }), eventOf('3', { a: 'older' })];
    catchUp(handle, headOf(3), { a: 'newest' }, missed, []);
    expect(handle.state).toEqual({ a: 'newest' });
    expect(Object.keys(handle.state)).toEqual(['a']);
  });

  test('B4 the keys that the caller wrote itself are those that are stored, too', () => {
    const handle = readHandle([eventOf('1')]);
    const appended = append(handle, eventOf('2', { a: 'mine', b: 'mine' }));
    Object.assign(handle.state, { a: 'mine', b: 'mine' });
    catchUp(handle, headOf(3), { a: 'theirs' }, [], appended);
    expect(handle.state).toEqual({ a: 'theirs' });
  });

  test('E2 an event that the handle has already moves to its place, and stays the object it is', () => {
    const [known, first] = [eventOf('2'), eventOf('1')];
    const handle = handleOf([known, first]);
    setRevision(handle, historyOf('first'), 1);
    catchUp(handle, headOf(3), {}, [stored(known), eventOf('3')], []);
    expect(idsOf(handle)).toBe('1 2 3');
    expect(handle.events[0]).toBe(first);
    expect(handle.events[1]).toBe(known);
  });

  test('A15 takes missed events without actions', () => {
    const { actions: _actions, ...bare } = eventOf('2');
    const handle = readHandle([eventOf('1')], { a: 1 });
    catchUp(handle, headOf(2), { a: 2 }, [bare as Event], []);
    expect(idsOf(handle)).toBe('1 2');
    expect(handle.state).toEqual({ a: 1 });
  });

  test('B5 sets and removes __proto__ like any other key', () => {
    const own = (json: string) => JSON.parse(`{"__proto__":${json}}`) as Values;
    const handle = readHandle([eventOf('1')]);
    catchUp(handle, headOf(2), own('{"a":1}'), [eventOf('2', own('1'))], []);
    expect(Reflect.ownKeys(handle.state)).toEqual(['__proto__']);
    expect(handle.state).not.toHaveProperty('a');
    expect(Object.getPrototypeOf(handle.state)).toBe(Object.prototype);

    catchUp(handle, headOf(3), {}, [eventOf('3', { ...own('2'), toString: 1 })], []);
    expect(Reflect.ownKeys(handle.state)).toEqual([]);
  });

  test('E2 takes more events and keys than an argument list does', () => {
    const event = eventOf('x');
    const missed = Array.from({ length: 200_000 }, (_, i) => ({ ...event, id: String(i) }));
    const state = Object.fromEntries(missed.map(({ id }) => [`key ${id}`, 1]));
    const handle = readHandle([], { ...state, old: 1 });
    catchUp(handle, headOf(missed.length, 'second'), state, missed, []);
    expect(handle.events).toHaveLength(200_000);
    expect(handle.events[199_999]).toBe(missed[199_999]);
    expect(Object.keys(handle.state)).toHaveLength(200_000);
  });
});

describe('patch in the same session', () => {
  const made = (handle: Session, state: Values, events: Event[], own: ReturnType<typeof append> = []) =>
    patch(handle, own, { head: headOf(events.length), state, events, of: 'whole' });

  test('B4 the handle has exactly these events, in their order; those of the same content stay the same objects', () => {
    const read = [eventOf('1'), eventOf('2', { a: 1 }), eventOf('3'), eventOf('trimmed')];
    const handle = readHandle([...read]);
    const own = append(handle, eventOf('mine'));
    const rewritten = eventOf('2', { a: 2 });
    const events = [stored(read[2]!), rewritten, stored(read[0]!), eventOf('mine', { theirs: 1 }), eventOf('more')];
    made(handle, {}, events, own);
    expect(idsOf(handle)).toBe('3 2 1 mine more');
    expect(handle.events[0]).toBe(read[2]);
    expect(handle.events[1]).toBe(rewritten);
    expect(handle.events[2]).toBe(read[0]);
    expect(handle.events[3]).toBe(own[0]!.event);
    expect(revisions.get(handle)).toMatchObject({ seq: 5, eventCount: 5 });
  });

  test('A4 leaves temp: keys and direct writes, unless others have changed the key', () => {
    const deep = { same: [1] };
    const handle = readHandle([], { a: 1, b: 1, kept: 1, gone: 1, deep });
    Object.assign(handle.state, { a: 'direct', kept: 'direct', more: 'direct', 'temp:t': 1 });
    made(handle, { a: 2, b: 2, kept: 1, added: 1, deep: { same: [1] } }, []);
    expect(handle.state).toEqual({ a: 2, b: 2, kept: 'direct', more: 'direct', 'temp:t': 1, added: 1, deep });
    expect(handle.state['deep']).toBe(deep);
    made(handle, {}, []);
    expect(handle.state).toEqual({ more: 'direct', 'temp:t': 1 });
  });

  test('B4 a key that the caller wrote in this append has its stored value', () => {
    const handle = readHandle([], { a: 1 });
    const own = append(handle, eventOf('1', { a: 1 }));
    handle.state['a'] = 'direct';
    made(handle, { a: 1 }, [eventOf('1', { a: 1 })], own);
    expect(handle.state).toEqual({ a: 1 });
  });

  test('E2 a handle without a revision gets the state, and keeps direct writes', () => {
    const handle = handleOf([], { direct: 1 });
    made(handle, { created: 1, 'app:a': 2 }, [eventOf('1')]);
    expect(handle.state).toEqual({ direct: 1, created: 1, 'app:a': 2 });
  });

  test('B5 sets and removes __proto__ like any other key', () => {
    const own = JSON.parse('{"__proto__":{"a":1}}') as Values;
    const handle = readHandle([], {});
    made(handle, own, []);
    expect(Reflect.ownKeys(handle.state)).toEqual(['__proto__']);
    expect(handle.state).not.toHaveProperty('a');
    made(handle, {}, []);
    expect(Reflect.ownKeys(handle.state)).toEqual([]);
  });
});

describe('catchUp in a session that was created again', () => {
  test.each(['o', 'xo', 'ox', 'xox', 'oxo'])(
    'E2 has the events of the new session only, in their order; of the own (o) and others (x): %s',
    (order) => {
      const handle = readHandle([eventOf('old1'), eventOf('old2')], { old: 1, n: 0 });
      const { events, state } = handle;
      const all = Array.from(order, (kind, i) => eventOf(`${kind}${i}`, { n: i }));
      const own = all.filter(({ id }) => id.startsWith('o'));
      const appended = append(handle, ...own);
      const snapshot = { n: all.length - 1, created: 1 };
      catchUp(handle, headOf(all.length, 'second'), snapshot, all.map(stored), appended);

      expect(handle.events).toBe(events);
      expect(events).toEqual(all);
      for (const event of own) expect(events.find(({ id }) => id === event.id)).toBe(event);
      expect(handle.state).toBe(state);
      expect(state).toEqual(snapshot);
      expect(revisions.get(handle)).toMatchObject({ ...historyOf('second'), seq: all.length, eventCount: all.length });
    },
  );

  test('D4 nothing of the old state stays but temp: keys', () => {
    const handle = readHandle([eventOf('1')], { old: 1, direct: 1, 'app:a': 1, 'user:a': 1, 'temp:t': 1 });
    catchUp(handle, headOf(0, 'second'), { 'app:a': 2, 'user:b': 2 }, [], []);
    expect(handle.state).toEqual({ 'app:a': 2, 'user:b': 2, 'temp:t': 1 });
    expect(handle.events).toEqual([]);
  });

  test("D4 an event with the id of an old one is the new session's", () => {
    const old = eventOf('1', { a: 'old' });
    const handle = readHandle([old], { a: 'old' });
    const mine = eventOf('2', { b: 'mine' });
    const appended = append(handle, mine);
    const other = eventOf('1', { a: 'new' });
    catchUp(handle, headOf(2, 'second'), { a: 'new', b: 'mine' }, [other, stored(mine)], appended);
    expect(handle.events).toHaveLength(2);
    expect(handle.events[0]).toBe(other);
    expect(handle.events[1]).toBe(mine);
    expect(handle.state).toEqual({ a: 'new', b: 'mine' });
  });

  test('E2 so it is for a handle without a revision', () => {
    const handle = handleOf([eventOf('old')], { old: 1, 'temp:t': 1 });
    catchUp(handle, headOf(1), { a: 1 }, [eventOf('1', { a: 1 })], []);
    expect(idsOf(handle)).toBe('1');
    expect(handle.state).toEqual({ a: 1, 'temp:t': 1 });
  });
});

test('E2 B4 whatever was read, missed and appended at random, the handle comes to what is stored', async () => {
  const log = fc.array(
    fc.record({ isOwn: fc.boolean(), key: fc.constantFrom('a', 'b', 'app:a', '__proto__'), value: fc.nat(3) }),
    { maxLength: 12 },
  );
  await expectOfRandom(
    'handles that catch up',
    fc.tuple(log, fc.nat(12), fc.boolean()),
    ([rows, read, isRecreated]) => {
      const events = rows.map(({ key, value }, i) => eventOf(String(i), Object.fromEntries([[key, value]])));
      const stateAt = (n: number) =>
        Object.fromEntries(rows.slice(0, n).map(({ key, value }): [string, unknown] => [key, value]));
      const seen = isRecreated ? 0 : Math.min(read, events.length);

      const handle = isRecreated
        ? readHandle([eventOf('old'), eventOf('0')], { old: 1, 'temp:t': 1 })
        : readHandle(events.slice(0, seen), { ...stateAt(seen), 'temp:t': 1 });
      const own = events.slice(seen).filter((_, i) => rows[seen + i]?.isOwn);
      const appended = append(handle, ...own);
      const head = headOf(events.length, isRecreated ? 'second' : 'first');
      catchUp(handle, head, stateAt(events.length), events.slice(seen).map(stored), appended);

      expect(handle.events).toEqual(events);
      for (const event of own) expect(handle.events.includes(event)).toBe(true);
      const { 'temp:t': temporary, ...state } = handle.state;
      expect(temporary).toBe(1);
      expect(Object.entries(state).sort()).toEqual(Object.entries(stateAt(events.length)).sort());
      expect(hasOnlyReadEvents(handle, revisions.get(handle)!)).toBe(true);
    },
    { runs: 500 },
  );
});
