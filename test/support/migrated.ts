import { existsSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities, migrate } from '../../src/index.js';
import { DATABASES, type DatabaseName } from './harnesses/databases.js';
import { databaseFolder, runPrefix } from './run.js';
import type { TestDatabase } from './servers.js';

/**
 * A new database that nobody else uses, with the tables of this package. It is a copy, since a migration takes longer than
 * most tests.
 */
export async function createMigrated(name: DatabaseName): Promise<TestDatabase> {
  return { name, ...(await DATABASES[name].create(await templateOf(name))) };
}

type AnyDatabase = keyof typeof DATABASES;

const templates = new Map<AnyDatabase, Promise<string>>();

/** @returns the template for the harness's `create`. */
export function templateOf(name: AnyDatabase): Promise<string> {
  const template = templates.get(name) ?? findOrMake(name);
  templates.set(name, template);
  return template;
}

/** Each worker of jest has its own template, and runs one test file at a time, so two files never make it at once. */
async function findOrMake(name: AnyDatabase): Promise<string> {
  const note = path.join(databaseFolder(), `${runPrefix()}template_${name}_${process.env['JEST_WORKER_ID']}`);
  if (existsSync(note)) return readFile(note, 'utf8');

  // Only the end of the run drops it.
  const { options } = await DATABASES[name].create();
  const orm = await MikroORM.init({ ...options, entities: adkEntities() });
  let template: string;
  try {
    await migrate(orm);
    template = await DATABASES[name].template(orm);
  } finally {
    // Afterwards SQLite has everything in one file. PostgreSQL copies no database that is in use.
    await orm.close(true);
  }
  // Renamed when it is complete.
  await writeFile(`${note}.new`, template);
  await rename(`${note}.new`, note);
  return template;
}
