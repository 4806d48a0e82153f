/** What messages call a setting of the host. The command line says it otherwise to somebody who has given a URL and no config. */
export const SETTINGS = {
  database: "'dbName' or 'clientUrl' in the config of MikroORM",
  pool: "'pool.max' in the config of MikroORM",
  driverOptions: "'driverOptions' in the config of MikroORM",
  tablePrefix: 'the option tablePrefix of adkEntities (and of adkMigrations)',
  migrate:
    'npx adk-mikro-orm migrate, or npx mikro-orm migration:up (with adkMigrations in your config), or call migrate(orm)',
  config: 'in the config of MikroORM',
} as const;
