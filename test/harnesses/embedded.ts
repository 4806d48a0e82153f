import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Options } from '@mikro-orm/core';
import { LibSqlDriver } from '@mikro-orm/libsql';
import { runPrefix } from '../support/servers.js';
import type { OwnHarness } from './harness.js';
import { openStore, ownHarness } from './own.js';

/** A folder that the end of the run removes, whatever a failed test leaves. */
const newFolder = () => mkdtemp(path.join(tmpdir(), runPrefix()));

const without = (folder: string) => () => rm(folder, { recursive: true, force: true });

export const libsql: OwnHarness = {
  ...ownHarness('sqlite'),
  name: 'libsql',
  isSynchronous: true,
  async open() {
    const folder = await newFolder();
    return openStore({ driver: LibSqlDriver, dbName: path.join(folder, 'test.db') }, without(folder), false);
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
  openStore(await pgliteOptions('memory://'), undefined, false),
);

export const pglite = pgliteHarness('pglite', async () => {
  const folder = await newFolder();
  const store = await openStore(await pgliteOptions(path.join(folder, 'data')), undefined, false);
  return {
    ...store,
    async close() {
      await store.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
});
