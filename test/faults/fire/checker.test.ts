import type { StormHistory } from '../processes/storm-protocol.js';
import type { Stored } from '../processes/tables.js';
import { violations } from './checker.js';

const history: StormHistory = {
  acknowledged: ['a', 'b'],
  failed: [
    { id: 'c', outcome: 'unknown', code: 'x' },
    { id: 'd', outcome: 'none', code: 'x' },
  ],
  interrupted: [],
  reads: [['a'], ['a', 'b']],
  handle: ['a', 'b'],
  seen: [
    { id: 'b', position: 1 },
    { id: 'a', position: 2 },
    { id: 'c', position: 3 },
  ],
  unhandled: [],
};

const stored: Stored = { ids: ['a', 'b', 'c'], seqs: [1, 2, 3], lastSeq: 3, state: { x: 1 }, folded: { x: 1 } };

test('the checker of the storms finds nothing where all is well', () => {
  expect(violations([history], stored)).toEqual([]);
  // An append that was interrupted by the kill was neither acknowledged nor refused.
  expect(violations([{ ...history, failed: [], interrupted: ['c'] }], stored)).toEqual([]);
});

test.each<[string, Partial<StormHistory>, Partial<Stored>]>([
  [
    'c was acknowledged and is not stored',
    { acknowledged: ['a', 'b', 'c'] },
    { ids: ['a', 'b'], seqs: [1, 2], lastSeq: 2 },
  ],
  ['stored in another order', { acknowledged: ['b', 'a'] }, {}],
  [
    'of c it was said that nothing was written, and it is stored',
    { failed: [{ id: 'c', outcome: 'none', code: 'x' }] },
    {},
  ],
  ['e is stored, and nobody appended it', {}, { ids: ['a', 'b', 'c', 'e'] }],
  ['stored twice', {}, { ids: ['a', 'b', 'c', 'c'] }],
  ['numbers are not 1, 2, 3', {}, { seqs: [1, 2, 4] }],
  ['numbers are not 1, 2, 3', {}, { lastSeq: 4 }],
  ['state is not what the events make of it', {}, { state: {} }],
  ['read does not fit', { reads: [['b']] }, {}],
  ['handle does not fit', { handle: ['a', 'c'] }, {}],
  ['later read has fewer events', { reads: [['a', 'b'], ['a']] }, {}],
  ['positions do not rise', { seen: [...history.seen].reverse() }, {}],
  ['not seen each event once', { seen: [...history.seen, { id: 'a', position: 4 }] }, {}],
  ['not seen each event once', { seen: history.seen.slice(1) }, {}],
  ['nobody handled: Error', { unhandled: ['Error'] }, {}],
])('the checker of the storms finds: %s', (what, told, held) => {
  expect(violations([{ ...history, ...told }], { ...stored, ...held })).toContainEqual(expect.stringContaining(what));
});
