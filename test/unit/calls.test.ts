import type { Event } from '@google/adk';
import fc from 'fast-check';
import { Calls, callsIn, callsOf, concernsCalls, type LongRunningCall } from '../../src/conversation/calls.js';
import { callEvents, eventWith } from '../support/random-calls.js';
import { expectOfRandom } from '../support/random.js';
import { workIn } from '../support/work.js';

const copied = (rows: LongRunningCall[]) => JSON.parse(JSON.stringify(rows)) as LongRunningCall[];

const numbered = (events: readonly Event[]) => events.map((event, i) => ({ seq: i + 1, event }));

const part = (author: string, key: string, content: object, more: Partial<Event> = {}): Partial<Event> => ({
  ...{ author, content: { parts: [{ [key]: content }] } },
  ...more,
});
const made = (id: string, more?: Partial<Event>, name = 'pay', args = {}) =>
  part('agent', 'functionCall', { id, name, args }, more);
const waiting = (id: string, more?: Partial<Event>, name?: string, args?: object) =>
  made(id, { longRunningToolIds: [id], ...more }, name, args);
const returned = (id: string, more?: Partial<Event>) =>
  part('agent', 'functionResponse', { id, name: 'pay', response: {} }, more);
const answered = (id: string, name = 'pay') =>
  part('user', 'functionResponse', { id, name, response: { confirmed: true } });
const CONFIRMATION = 'adk_request_confirmation';
const confirm = (id: string) => waiting(id, {}, CONFIRMATION, { originalFunctionCall: { id: 'call_0', name: 'pay' } });
const logIn = (id: string) => waiting(id, {}, 'adk_request_credential', { functionCallId: 'call_0', authConfig: {} });

/** What a turn does, by its number. */
const TURNS: Record<string, (n: number) => Partial<Event>[]> = {
  'a call has the same id': () => [made('call_0'), returned('call_0')],
  'a call has the same id and no result': () => [made('call_0')],
  'a journal keeps the result': () => [
    ...[made('call_0'), { author: 'agent', customMetadata: { adk_mikro_orm_tool_result: { id: 'call_0' } } }],
    returned('call_0'),
  ],
  'branches number their calls anew': (n) => [
    made('call_0', { branch: `b${n}` }),
    returned('call_0', { branch: `b${n}` }),
  ],
  'the user answers calls of a branch': () => [made('call_0', { branch: 'b' }), answered('call_0')],
  'the user answers what was never asked': () => [answered('call_0')],
  'a call that nobody answers waits': (n) => [waiting(`c${n}`), returned(`c${n}`)],
  'a call with the same id waits again': () => [
    waiting('call_0'),
    returned('call_0'),
    made('call_0'),
    returned('call_0'),
  ],
  'a call with the same id is answered': () => [waiting('call_0'), answered('call_0')],
  'a call with the same id waits in its own branch': (n) => [
    waiting('call_0', { branch: `b${n}` }),
    returned('call_0'),
  ],
  'a confirmation is given': (n) => [
    made('call_0'),
    confirm(`q${n}`),
    answered(`q${n}`, CONFIRMATION),
    returned('call_0'),
  ],
  'a confirmation is given, and the run breaks off': (n) => [
    ...[made('call_0'), confirm(`q${n}`), answered(`q${n}`, CONFIRMATION)],
  ],
  'a confirmation is never given': (n) => [made('call_0'), confirm(`q${n}`)],
  'nobody logs in': (n) => [made('call_0'), logIn(`q${n}`), returned('call_0')],
  'a workflow asks': () => [
    ...[waiting('ask', { nodeInfo: { path: 'flow' } }, 'adk_request_input'), answered('ask', 'adk_request_input')],
  ],
};

describe('Calls', () => {
  test.each(Object.entries(TURNS))('H5 twice as many turns, in which %s, are twice the work', (_, turn) => {
    const workOf = (turns: number) => {
      const contents = Array.from({ length: turns }, (_, n) =>
        turn(n).map((each) => ({ invocationId: `i${n}`, ...each })),
      );
      const events = numbered(contents.flat().map((content, i) => eventWith(content, `e${i}`)));
      return workIn('/src/conversation/', () => callsIn(events).rows);
    };
    const few = workOf(200);
    expect(few).toBeGreaterThan(200);
    expect(workOf(400)).toBeLessThan(2.2 * few);
  });

  test('H5 rows that are continued with random events are those of all events', () =>
    expectOfRandom(
      'calls that wait',
      fc.array(callEvents, { maxLength: 12 }),
      (contents) => {
        const events = contents.map((content, i) => eventWith(content, `e${i}`));
        let rows: LongRunningCall[] = [];
        let mayChange = false;
        const whole = new Calls();
        for (const { seq, event } of numbered(events)) {
          const asked = (row: LongRunningCall) => callsOf(events[row.seq - 1]!)[row.number]!['args'] as object;
          const calls = new Calls(
            rows.map((row) => (row.takes === 'schema' ? { ...row, args: { ...asked(row) } } : row)),
          );
          const { refused } = calls.add(seq, event);
          const expected = whole.add(seq, event);
          // What the rows refuse is looked up in the events.
          if (expected.refused) expect(refused).toBeDefined();
          const now = copied(whole.rows);
          expect(copied(calls.rows)).toEqual(now);
          // An append that needs no lock changes nothing.
          if (!mayChange && !concernsCalls(event)) expect(now).toEqual(rows);
          rows = now;
          mayChange = new Calls(rows).areUnsettled;
          expect(mayChange).toBe(whole.areUnsettled);
        }
        expect(copied(callsIn(numbered(events)).rows)).toEqual(rows);
      },
      { runs: 400 },
    ));
});
