import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { promisify } from 'node:util';
import { migrate } from '../../../migrations/migrate.js';
import config from '../../../mikro-orm.config.js';
import { databasesOfUrls, type TestDatabase } from '../../support/servers.js';
import {
  MIGRATIONS,
  TABLES,
  appliedMigrations,
  dialectOf,
  emptyDatabase,
  openHost,
  pendingMigrations,
  tablesWith,
} from './support.js';

/** The program that `npx mikro-orm` runs. */
const MIKRO_ORM = require.resolve('@mikro-orm/cli/package.json').replace('package.json', 'cli.js');

async function mikroOrm(database: TestDatabase, command: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [MIKRO_ORM, ...command.split(' ')], {
    env: { ...process.env, ADK_DATABASE_URL: database.url, NO_COLOR: '1' },
  });
  return stdout;
}

const databases = databasesOfUrls();

describe.each(databases)("F2 this repository's own config on %s", (name) => {
  const folder = `./migrations/${dialectOf(name)}`;

  test('migration:up, check, pending and down', async () => {
    const database = await emptyDatabase(name);
    const orm = await openHost(database);

    expect(await mikroOrm(database, 'migration:pending')).toContain(MIGRATIONS[0]);
    await mikroOrm(database, 'migration:up');
    expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
    expect(await mikroOrm(database, 'migration:pending')).toContain('No pending migrations');
    expect(await pendingMigrations(orm)).toEqual([]);
    await migrate(orm);
    expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);

    expect(await mikroOrm(database, 'migration:check')).toContain('No changes required');

    await mikroOrm(database, 'migration:down --to 0');
    expect(await tablesWith('adk_', orm, name)).toEqual([]);
  });

  test('migration:create has nothing to add to the folder of the dialect', async () => {
    const database = await emptyDatabase(name);
    const before = await readdir(folder);
    expect(await mikroOrm(database, 'migration:create')).toContain('No changes required');
    expect(await readdir(folder)).toEqual(before);
  });

  test('what migration:create makes goes to the folder of the dialect', async () => {
    process.env.ADK_DATABASE_URL = (await emptyDatabase(name)).url;
    try {
      expect((await config()).migrations).toMatchObject({ path: folder });
    } finally {
      delete process.env.ADK_DATABASE_URL;
    }
  });
});
