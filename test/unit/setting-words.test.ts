import { FAILURES } from '../../src/model/failures.js';
import { SETTINGS, inWordsOfUrl } from '../../src/model/setting-words.js';

test('no message for a caller with a URL names a config', () => {
  for (const words of Object.values(SETTINGS)) expect(inWordsOfUrl(`Look ${words}, please.`)).not.toContain(words);
  for (const { advice } of Object.values(FAILURES)) expect(inWordsOfUrl(advice)).not.toMatch(/config of MikroORM/);
  expect(inWordsOfUrl(`Change ${SETTINGS.pool}.`)).toBe("Change 'pool.max' of your services.");
});
