import { SETTINGS } from '../../../src/model/setting-words.js';

/** What the package says to programmers, and what it means to somebody who runs a command. */
const WORDS: readonly (readonly [ofPackage: string, ofCommands: string])[] = [
  [', or call migrate(orm)', ''],
  ['; inside em.transactional use service.withEntityManager(tx)', ''],
  [" within 'timeoutMs'", ' in time'],
  ["; raise 'timeoutMs' if the work takes that long", ''],
  ["If the load is expected, raise 'retry.attempts'.", 'Run the command again.'],
  ["The pools ('pool.max') of", 'The pools of'],
  ['Begin a transaction of your own again, from its first read. If that', 'Run the command again. If that'],
  ['let it write before it reads, or use READ COMMITTED', 'look for what changes the same sessions'],
  ['Begin a transaction of your own again.', 'Run the command again.'],
  [
    'Let such an error end the transaction, or run the statement in a nested one, tx.transactional(…). After a deadlock begin the whole transaction again.',
    'Run the command again.',
  ],
  [" The driver's own error goes to 'onError'.", ''],
  [" ('result' has their counts)", ''],
  ['the same call again', 'the same command again'],
  ['The same call again', 'The same command again'],
  ['Use getOrCreateSession, or leave', 'Choose another id, or leave'],
  ['Call eraseUser again, or with includeLeased: true.', 'Run the command again, or with --include-leased.'],
  [' Read it again with getSession.', ' Run the command again.'],
  ['which is in owned.', 'which "owned" in package.json names. Its entity must be in your config of MikroORM.'],
];

/** If there is a URL, there is no config. */
const SETTINGS_OF_URL: typeof WORDS = [
  [SETTINGS.database, 'the name of the database in --url'],
  [SETTINGS.pool, 'the pool of your services'],
  [SETTINGS.driverOptions, '--url'],
  [SETTINGS.tablePrefix, '--config instead of --url'],
  [SETTINGS.migrate, 'npx adk-mikro-orm migrate --url …, or call migrate(orm)'],
  // Last: others end with it.
  [SETTINGS.config, 'in --url'],
];

const WORDS_OF_URL: typeof WORDS = [
  [
    'Its entity must be in your config of MikroORM.',
    'With --url only the tables of adk-mikro-orm are known: use --config instead, or take it out of package.json.',
  ],
];

const replaced = (message: string, words: typeof WORDS) =>
  words.reduce((text, [ours, theirs]) => text.replaceAll(ours, theirs), message);

/** @returns a message of the package in the words of a caller who has given a URL. */
export const inWordsOfUrl = (message: string): string => replaced(message, SETTINGS_OF_URL);

/** Makes a message or advice of the package speak of commands, and of `--url` instead of a config if that was given. */
export function inWordsOf({ url }: { url?: string | undefined }, message: string): string {
  if (url === undefined) return replaced(message, WORDS);
  return replaced(replaced(inWordsOfUrl(message), WORDS), WORDS_OF_URL);
}
