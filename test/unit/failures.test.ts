import * as mikroOrm from '@mikro-orm/core';
import { DatabaseError } from '../../src/model/errors.js';
import { FAILURES, isPassing, isUncertain, type Failure } from '../../src/model/failures.js';

const NAMES = Object.keys(FAILURES) as Failure[];

test('E4 what may pass is tried again: lost connections, deadlocks, time-outs of locks, a server that is full or away', () => {
  expect(NAMES.filter(isPassing).sort()).toEqual([
    'deadlock',
    'lockTimeout',
    'lostConnection',
    'tooManyConnections',
    'unreachable',
  ]);
});

test('O1 only an answer of the server says that nothing was written', () => {
  expect(NAMES.filter(isUncertain).sort()).toEqual(['inputOutput', 'lostConnection', 'unknown']);
});

test("each reason is the name of a class of MikroORM's errors", () => {
  for (const name of NAMES) {
    const { reason } = FAILURES[name];
    expect([name, mikroOrm]).toEqual([name, expect.objectContaining({ [reason]: expect.any(Function) })]);
    expect(Object.create(mikroOrm[reason].prototype as object)).toBeInstanceOf(mikroOrm.DriverException);
  }
});

test('no two failures are told in the same words', () => {
  expect(new Set(NAMES.map((name) => FAILURES[name].what)).size).toBe(NAMES.length);
});

test.each(NAMES)('A12 %s is told in sentences: what happened, what was written, what to look at', (name) => {
  for (const outcome of ['none', 'unknown'] as const) {
    const { message } = new DatabaseError(FAILURES[name], FAILURES[name].reason, '40P01', outcome);
    expect(message).toMatch(/^[A-Z][^.]*[^.\s] \(40P01\)\. [A-Z][^.]*\. [A-Z].*[^.\s]\.$/);
    expect(message.includes('Nothing was written.')).toBe(outcome === 'none');
  }
});
