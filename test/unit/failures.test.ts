import * as mikroOrm from '@mikro-orm/core';
import { DatabaseError, driverCodeOf } from '../../src/model/errors.js';
import { FAILURES, isUncertain, passingOf, spoilsConnection, type Failure } from '../../src/model/failures.js';

const NAMES = Object.keys(FAILURES) as Failure[];

test("E4 failures caused by another transaction's locks are retried at once", () => {
  expect(NAMES.filter((name) => passingOf(name) === 'conflict').sort()).toEqual([
    'changedSinceSnapshot',
    'commitRolledBack',
    'deadlock',
    'lockTimeout',
  ]);
});

test('O4 an outage is waited out: servers that are gone, starting, full, silent or read-only', () => {
  expect(NAMES.filter((name) => passingOf(name) === 'outage').sort()).toEqual([
    'commitFailed',
    'lostConnection',
    'poolTimeout',
    'readOnly',
    'refusedByGroup',
    'timedOut',
    'tooManyConnections',
    'unreachable',
  ]);
});

test('O5 a connection is used again only if the server has reported the result of the statement, and takes writes', () => {
  expect(NAMES.filter(spoilsConnection).sort()).toEqual([
    'closed',
    'commitFailed',
    'inputOutput',
    'lostConnection',
    'readOnly',
    'refused',
    'refusedByGroup',
    'rolledBack',
    'timedOut',
    'tooManyConnections',
    'unknown',
    'unreachable',
  ]);
});

test('O1 only an answer of the server says that nothing was written', () => {
  expect(NAMES.filter(isUncertain).sort()).toEqual([
    'commitFailed',
    'commitRolledBack',
    'inputOutput',
    'lostConnection',
    'timedOut',
    'unknown',
  ]);
});

test("each reason is the name of a class of MikroORM's errors", () => {
  for (const name of NAMES) {
    const { reason } = FAILURES[name];
    expect([name, mikroOrm]).toEqual([name, expect.objectContaining({ [reason]: expect.any(Function) })]);
    expect(Object.create(mikroOrm[reason].prototype as object)).toBeInstanceOf(mikroOrm.DriverException);
  }
});

test('no two failures have the same words', () => {
  expect(new Set(NAMES.map((name) => FAILURES[name].what)).size).toBe(NAMES.length);
});

test.each(NAMES)('A12 %s is described in sentences: what happened, what was written, what to look at', (name) => {
  for (const outcome of ['none', 'unknown'] as const) {
    const { message } = new DatabaseError(FAILURES[name], FAILURES[name].reason, '40P01', outcome);
    expect(message).toMatch(/^[A-Z][^.]*[^.\s] \(40P01\)\. [A-Z][^.]*\. [A-Z].*[^.\s]\.$/);
    expect(message.includes('Nothing was written.')).toBe(outcome === 'none');
  }
});

test.each([
  [{ code: 'ER_DUP_ENTRY', errno: 1062 }, 'ER_DUP_ENTRY'],
  [{ code: '', errno: 5 }, '5'],
  [{ code: 'UNKNOWN', errno: 4999 }, '4999'],
  [{ code: 'UNKNOWN', errno: -4094 }, undefined],
  ['text', undefined],
])('the code of %j is %s', (error, code) => {
  expect(driverCodeOf(error)).toBe(code);
});
