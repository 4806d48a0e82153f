import { BetterSqliteDriver, isMikroOrm7 } from '../mikro-orm.js';
import { isChosen } from '../run.js';
import type { FileDatabase } from './database.js';
import { createFile } from './files.js';
import { SETTINGS_OF_BETTER_SQLITE, sqlite } from './sqlite.js';

export const betterSqlite: FileDatabase = {
  ...sqlite,
  name: 'better-sqlite',
  packageName: '@mikro-orm/better-sqlite',
  driver: () => Promise.resolve(BetterSqliteDriver),
  isOfUrl: false,
  // On MikroORM 7 `sqlite` is what `better-sqlite` is on MikroORM 6.
  isAvailable: () => !isMikroOrm7 && isChosen('better-sqlite'),
  create: (template) => createFile(BetterSqliteDriver, template),
  driverOptions: { harmless: SETTINGS_OF_BETTER_SQLITE, refused: [] },
};
