import { isChosen } from '../run.js';
import type { EmbeddedDatabase } from './database.js';
import { createFile } from './files.js';
import { sqlite } from './sqlite.js';

const driver = async () => (await import('@mikro-orm/libsql')).LibSqlDriver;

/** libSQL, whose files are SQLite's. */
export const libsql: EmbeddedDatabase = {
  ...sqlite,
  name: 'libsql',
  kind: 'embedded',
  packageName: '@mikro-orm/libsql',
  driver,
  isOfUrl: false,
  isAvailable: () => isChosen('libsql'),
  create: async (template) => createFile(await driver(), template),
};
