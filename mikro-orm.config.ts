import type { Options } from '@mikro-orm/core';
import { adkEntities } from './entities/index.js';
import { databaseOptions } from './packages/cli/src/connect.js';

export { databaseOptions };

const DEFAULT_DATABASE_URL = 'sqlite:./adk.sqlite';

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
  const database = await databaseOptions(url);
  return {
    ...database,
    entities: adkEntities(),
    extensions: [Migrator],
    migrations: {
      path: migrationsPath(url),
      snapshot: usesSnapshot,
      snapshotName: '.snapshot',
      // One transaction for all begins by reading the list; in a file it can't write once another process has written.
      allOrNothing: database.clientUrl !== undefined,
    },
  };
}
