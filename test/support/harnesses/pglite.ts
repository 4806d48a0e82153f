import { cp, mkdtemp, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Options } from '@mikro-orm/core';
import { isMikroOrm7 } from '../mikro-orm.js';
import { databaseFolder, isChosen, runPrefix } from '../run.js';
import type { EmbeddedDatabase } from './database.js';
import { postgresql } from './postgresql.js';

/** Loads the driver, for which MikroORM 6 has no package. */
async function driver(): Promise<NonNullable<Options['driver']>> {
  const packageName: string = '@mikro-orm/pglite';
  return ((await import(packageName)) as { PgliteDriver: NonNullable<Options['driver']> }).PgliteDriver;
}

const { server: _, ...likePostgresql } = postgresql;

/** PostgreSQL inside the process. Its only connection is the database. */
export const pglite: EmbeddedDatabase = {
  ...likePostgresql,
  name: 'pglite',
  kind: 'embedded',
  packageName: '@mikro-orm/pglite',
  driver,
  isOfUrl: false,
  isAvailable: () => isMikroOrm7 && isChosen('pglite'),
  async create(template) {
    // The end of the run removes this folder, whatever a failed test leaves.
    const folder = await mkdtemp(path.join(databaseFolder(), runPrefix()));
    const dbName = path.join(folder, 'data');
    if (template !== undefined) await cp(template, dbName, { recursive: true });
    return {
      url: `pglite:${dbName}`,
      options: { driver: await driver(), dbName },
      drop: () => rm(folder, { recursive: true, force: true }),
    };
  },
  template: (orm) => Promise.resolve(orm.config.get('dbName')),
  get unreachable() {
    const secret = 'hunter2';
    return { options: { dbName: `/dev/null/${secret}/agents` }, secret };
  },
};
