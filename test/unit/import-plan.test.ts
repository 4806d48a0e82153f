import { AlreadyExistsError } from '../../src/model/errors.js';
import { planOf, type ExistingSession } from '../../src/sessions/import-plan.js';
import type { ImportRules } from '../../src/owned/record-writer.js';

const numbers = { createTime: 1, lastUpdateTime: 2, firstSeq: 1, lastSeq: 5 };
const record = { type: 'session', appName: 'app', userId: 'ada', sessionId: 's', ...numbers, state: [] } as const;
const here: ExistingSession = { status: 'active', ...numbers, isLeased: false };
const isAsImported = () => Promise.resolve(true);
const isChanged = () => Promise.resolve(false);
const rules = (part: Partial<ImportRules> = {}): ImportRules => ({
  sharedState: 'overwrite',
  onExisting: 'replace',
  force: false,
  isOfOtherStore: false,
  ...part,
});

test('L1 what is not here, or what nobody sees, is written', async () => {
  for (const onExisting of ['skip', 'replace', 'error'] as const) {
    expect(await planOf(record, undefined, rules({ onExisting }), isChanged)).toBe('write');
    for (const status of ['importing', 'ending'] as const)
      expect(await planOf(record, { ...here, status }, rules({ onExisting }), isChanged)).toBe('replace');
  }
});

test('L1 what is here is kept, replaced or refused as a whole', async () => {
  for (const status of ['active', 'deleted'] as const) {
    const existing = { ...here, status };
    expect(await planOf(record, existing, rules({ onExisting: 'skip', force: true }), isAsImported)).toBe('keep');
    expect(await planOf(record, existing, rules(), isAsImported)).toBe('replace');
    const refused = planOf(record, existing, rules({ onExisting: 'error' }), isAsImported);
    await expect(refused).rejects.toThrow(AlreadyExistsError);
  }
});

test('L1 what somebody has written to, or works on, is replaced only by force', async () => {
  for (const [existing, isSame] of [
    [here, isChanged],
    [{ ...here, isLeased: true }, isAsImported],
  ] as const) {
    expect(await planOf(record, existing, rules(), isSame)).toBe('keep');
    expect(await planOf(record, existing, rules({ force: true }), isSame)).toBe('replace');
  }
});

test('L2 a session that has not changed in another store is kept', async () => {
  const isOfOtherStore = true;
  expect(await planOf(record, here, rules({ isOfOtherStore }), isAsImported)).toBe('keep');
  for (const name of ['createTime', 'lastUpdateTime', 'firstSeq', 'lastSeq'] as const)
    expect(await planOf({ ...record, [name]: 9 }, here, rules({ isOfOtherStore }), isAsImported)).toBe('replace');
});
