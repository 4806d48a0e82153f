import { isMikroOrm7 } from '../support/mikro-orm.js';
import { FILE_DATABASES, SERVERS, availableDatabases, isChosen, type DatabaseName } from '../support/servers.js';
import { libsql, pglite, pgliteInMemory } from './embedded.js';
import type { Harness } from './harness.js';
import { inMemorySqlite, ownHarness } from './own.js';
import { databaseReference, inMemoryReference } from './references.js';

/** Every harness, by the name of the test file that runs it: `test/contract/<name>.test.ts`. */
export const HARNESSES: Readonly<Record<string, Harness>> = {
  ...Object.fromEntries([...FILE_DATABASES, ...SERVERS].map((name) => [name, ownHarness(name)])),
  'sqlite-in-memory': inMemorySqlite,
  libsql,
  pglite,
  'pglite-in-memory': pgliteInMemory,
  'reference-in-memory': inMemoryReference,
  'reference-database-sqlite': databaseReference('sqlite'),
  'reference-database-postgresql': databaseReference('postgresql'),
};

/** What a harness needs to run. */
export function isAvailable(name: string): boolean {
  if (name === 'libsql') return isChosen(name);
  if (name.startsWith('pglite')) return isMikroOrm7 && isChosen('pglite');
  const needed: Record<string, DatabaseName> = {
    'sqlite-in-memory': 'sqlite',
    'reference-in-memory': 'sqlite',
    'reference-database-sqlite': 'sqlite',
    'reference-database-postgresql': 'postgresql',
  };
  const database = needed[name] ?? name;
  return availableDatabases().some((available) => available === database);
}
