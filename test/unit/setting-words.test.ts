import { inWordsOf, inWordsOfUrl } from '../../packages/cli/src/words.js';
import { AlreadyExistsError, DatabaseError, StaleSessionError, UserNotErasedError } from '../../src/index.js';
import { FAILURES } from '../../src/model/failures.js';
import { SETTINGS } from '../../src/model/setting-words.js';

test('no message for a caller with a URL names a config', () => {
  for (const words of Object.values(SETTINGS)) expect(inWordsOfUrl(`Look ${words}, please.`)).not.toContain(words);
  for (const { advice } of Object.values(FAILURES)) expect(inWordsOfUrl(advice)).not.toMatch(/config of MikroORM/);
  expect(inWordsOfUrl(`Change ${SETTINGS.pool}.`)).toBe('Change the pool of your services.');
});

/** Names of methods, options and objects, which a command line does not have. */
const OF_API = /\b(?:get|erase|include|with)[A-Z]\w*|\bem\.|\btx\b|\(orm\)|'(?:timeoutMs|retry\.\w+|onError|result)'/;

const result = { done: {}, batches: 1, more: false, skipped: 1 };
const { deadlock } = FAILURES;
const MESSAGES = [
  ...Object.values(FAILURES).map(({ what, advice }) => `${what} (CODE). Nothing was written. ${advice}`),
  ...(['none', 'partial', 'unknown'] as const).map(
    (outcome) => new DatabaseError(deadlock, deadlock.reason, undefined, outcome, result).message,
  ),
  ...[new AlreadyExistsError('s'), new StaleSessionError('s'), new UserNotErasedError(result)].map(
    ({ message }) => message,
  ),
  `The tables of adk-mikro-orm are missing or outdated. Run ${SETTINGS.migrate}.`,
];

test.each([{}, { url: 'sqlite:x' }])('no message of a command has words of the API: %j', (context) => {
  expect(MESSAGES.filter((message) => OF_API.test(message)).length).toBeGreaterThan(9);
  expect(MESSAGES.map((message) => inWordsOf(context, message)).filter((message) => OF_API.test(message))).toEqual([]);
});

test('a command that was given a URL names it', () => {
  const message = `Run ${SETTINGS.migrate}.`;
  expect(inWordsOf({ url: 'sqlite:x' }, message)).toBe('Run npx adk-mikro-orm migrate --url ….');
});

test('a table of the host that a URL does not know is explained', () => {
  const message = 'The ORM does not know Order, which is in owned.';
  expect(inWordsOf({}, message)).toMatch(/"owned" in package\.json names\. Its entity must be in your config/);
  expect(inWordsOf({ url: 'sqlite:x' }, message)).toMatch(/use --config instead, or take it out of package\.json\.$/);
});
