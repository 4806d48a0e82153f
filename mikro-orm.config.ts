import type { Options } from '@mikro-orm/core';
import { adkEntities } from './entities/index.js';

const DEFAULT_DATABASE_URL = 'sqlite:./adk.sqlite';

/**
 * Turns a database URL into options for `MikroORM.init`. Loads that database's driver and no other.
 *
 * @param url `sqlite:<file>`, `sqlite::memory:`, `postgresql://…`, `mysql://…` or `mariadb://…`.
 * @returns the driver and where it connects to; add entities and whatever else you want.
 * @throws Error when the URL begins with something else.
 */
export async function databaseOptions(url: string): Promise<Options> {
  switch (url.slice(0, url.indexOf(':'))) {
    case 'sqlite':
      return {
        driver: (await import('@mikro-orm/sqlite')).SqliteDriver,
        dbName: url.replace(/^sqlite:(\/\/)?/, ''),
      };
    case 'postgres':
    case 'postgresql':
      return { driver: (await import('@mikro-orm/postgresql')).PostgreSqlDriver, clientUrl: url };
    case 'mysql':
      return { driver: (await import('@mikro-orm/mysql')).MySqlDriver, clientUrl: url };
    case 'mariadb':
      return { driver: (await import('@mikro-orm/mariadb')).MariaDbDriver, clientUrl: url };
    default:
      // The URL itself stays out of the message: it can hold a password.
      throw new Error('The database URL has to begin with sqlite:, postgresql:, mysql: or mariadb:');
  }
}

/** The folder of migrations for a database URL. */
function migrationsPath(url: string): string {
  return `./migrations/${url.slice(0, url.indexOf(':')).replace(/^postgres$/, 'postgresql')}`;
}

// The snapshot is what the entities say. `migration:up` would overwrite it with what the database holds, other
// people's tables included, and the next `migration:create` would drop those.
const usesSnapshot = process.argv.some((argument) => /^migration:(create|check)$/.test(argument));

/** What the `mikro-orm` command of this repository runs with; `ADK_DATABASE_URL` says on which database. */
export default async function config(): Promise<Options> {
  const url = process.env.ADK_DATABASE_URL ?? DEFAULT_DATABASE_URL;
  const { Migrator } = await import('@mikro-orm/migrations');
  return {
    ...(await databaseOptions(url)),
    entities: adkEntities(),
    extensions: [Migrator],
    migrations: {
      path: migrationsPath(url),
      snapshot: usesSnapshot,
      snapshotName: '.snapshot',
      // One transaction for all begins by reading the list; on SQLite it can't write once another process has written.
      allOrNothing: !url.startsWith('sqlite:'),
    },
  };
}
