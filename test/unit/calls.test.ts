import type { Event } from '@google/adk';
import fc from 'fast-check';
import { Calls, callsIn, callsOf, concernsCalls, type LongRunningCall } from '../../src/conversation/calls.js';
import { callEvents, eventWith } from '../support/random-calls.js';
import { expectOfRandom } from '../support/random.js';

const copied = (rows: LongRunningCall[]) => JSON.parse(JSON.stringify(rows)) as LongRunningCall[];

const numbered = (events: readonly Event[]) => events.map((event, i) => ({ seq: i + 1, event }));

describe('Calls', () => {
  test('H5 thousands of calls with one id take about as long as others', () => {
    const cpuOf = (id: (n: number) => string) => {
      const events = Array.from({ length: 6_000 }, (_, n) => [
        eventWith({ author: 'agent', content: { parts: [{ functionCall: { id: id(n), name: 'pay' } }] } }, `c${n}`),
        eventWith({ author: 'agent', customMetadata: { adk_mikro_orm_tool_result: { id: id(n) } } }, `t${n}`),
        eventWith({ author: 'agent', content: { parts: [{ functionResponse: { id: id(n), name: 'pay' } }] } }, `r${n}`),
      ]).flat();
      const began = process.cpuUsage();
      expect(callsIn(numbered(events)).open).toEqual([]);
      return process.cpuUsage(began).user;
    };
    cpuOf(String);
    expect(cpuOf(() => 'call_0')).toBeLessThan(6 * cpuOf(String));
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
