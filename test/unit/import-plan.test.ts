import { AlreadyExistsError } from '../../src/model/errors.js';
import { planOf, type ExistingSession } from '../../src/sessions/import-plan.js';
import type { ImportRules } from '../../src/owned/record-writer.js';

const numbers = { createTime: 1, lastUpdateTime: 2, firstSeq: 1, lastSeq: 5 };
const record = { type: 'session', appName: 'app', userId: 'ada', sessionId: 's', ...numbers, state: [] } as const;
const here: ExistingSession = { status: 'active', ...numbers, isLeased: false, isAsImported: true };
const rules = (part: Partial<ImportRules> = {}): ImportRules => ({
  sharedState: 'overwrite',
  onExisting: 'replace',
  force: false,
  isForeign: false,
  ...part,
});

test('L1 what is not here, or what nobody sees, is written', () => {
  for (const onExisting of ['skip', 'replace', 'error'] as const) {
    expect(planOf(record, undefined, rules({ onExisting }))).toBe('write');
    for (const status of ['importing', 'ending'] as const)
      expect(planOf(record, { ...here, status, isAsImported: false }, rules({ onExisting }))).toBe('replace');
  }
});

test('L1 what is here is kept, replaced or refused as a whole', () => {
  for (const status of ['active', 'deleted'] as const) {
    expect(planOf(record, { ...here, status }, rules({ onExisting: 'skip', force: true }))).toBe('keep');
    expect(planOf(record, { ...here, status }, rules())).toBe('replace');
    expect(() => planOf(record, { ...here, status }, rules({ onExisting: 'error' }))).toThrow(AlreadyExistsError);
  }
});

test('L1 what somebody has written to, or works on, is replaced only by force', () => {
  for (const part of [{ isAsImported: false }, { isLeased: true }]) {
    expect(planOf(record, { ...here, ...part }, rules())).toBe('keep');
    expect(planOf(record, { ...here, ...part }, rules({ force: true }))).toBe('replace');
  }
});

test('L2 a session that has not changed in another store is kept', () => {
  const isForeign = true;
  expect(planOf(record, here, rules({ isForeign }))).toBe('keep');
  for (const name of ['createTime', 'lastUpdateTime', 'firstSeq', 'lastSeq'] as const)
    expect(planOf({ ...record, [name]: 9 }, here, rules({ isForeign }))).toBe('replace');
});
