import { mkdtemp, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Options } from '@mikro-orm/core';
import { LibSqlDriver } from '@mikro-orm/libsql';
import { createMigrated } from '../support/migrated.js';
import { databaseFolder, runPrefix } from '../support/servers.js';
import type { OwnHarness } from './harness.js';
import { openStore, ownHarness } from './own.js';

/** A folder that the end of the run removes, whatever a failed test leaves. */
const newFolder = () => mkdtemp(path.join(databaseFolder(), runPrefix()));

export const libsql: OwnHarness = {
  ...ownHarness('sqlite'),
  name: 'libsql',
  isSynchronous: true,
  async open() {
    // The file is SQLite's.
    const { options, drop } = await createMigrated('sqlite');
    return openStore({ ...options, driver: LibSqlDriver }, { drop });
  },
};

/** MikroORM 6 has no such package. */
async function pgliteOptions(dbName: string): Promise<Options> {
  const packageName: string = '@mikro-orm/pglite';
  const { PgliteDriver } = (await import(packageName)) as { PgliteDriver: NonNullable<Options['driver']> };
  return { driver: PgliteDriver, dbName };
}

/** PostgreSQL in the process, whose one connection is the database. */
function pgliteHarness(name: string, open: OwnHarness['open']): OwnHarness {
  const secret = 'hunter2';
  return {
    ...ownHarness('postgresql'),
    name,
    hasConnections: false,
    open,
    unreachable: { options: { dbName: `/dev/null/${secret}/agents` }, secret },
  };
}

export const pgliteInMemory = pgliteHarness('pglite in memory', async () =>
  openStore(await pgliteOptions('memory://'), { isMigrated: false }),
);

export const pglite = pgliteHarness('pglite', async () => {
  const folder = await newFolder();
  const store = await openStore(await pgliteOptions(path.join(folder, 'data')), { isMigrated: false });
  return {
    ...store,
    async close() {
      await store.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
});
