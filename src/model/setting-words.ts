/**
 * What messages call a setting of the host, and what the command line calls it that was given a URL and no config. Messages are made
 * of the former, so that the latter can take their place.
 */
const WORDS = {
  database: ["'dbName' or 'clientUrl' in the config of MikroORM", 'the name of the database in --url'],
  pool: ["'pool.max' in the config of MikroORM", 'the pool of your services'],
  driverOptions: ["'driverOptions' in the config of MikroORM", '--url'],
  tablePrefix: ['the option tablePrefix of adkEntities (and of adkMigrations)', '--config instead of --url'],
  migrate: [
    'npx adk-mikro-orm migrate, or npx mikro-orm migration:up (with adkMigrations in your config), or call migrate(orm)',
    'npx adk-mikro-orm migrate --url …, or call migrate(orm)',
  ],
  // Last: others end with it.
  config: ['in the config of MikroORM', 'in --url'],
} as const;

type Setting = keyof typeof WORDS;

/** The words for messages. */
export const SETTINGS: Readonly<Record<Setting, string>> = Object.fromEntries(
  Object.entries(WORDS).map(([setting, [ours]]) => [setting, ours]),
) as Record<Setting, string>;

/** @returns a message in the words of a caller who has given a URL. */
export const inWordsOfUrl = (message: string): string =>
  Object.values(WORDS).reduce((text, [ours, ofUrl]) => text.replaceAll(ours, ofUrl), message);
