import { DATABASES, FILE_DATABASES, SERVERS } from './databases.js';
import type { Harness } from './harness.js';
import { libsqlHarness, ownHarness, pgliteHarness, pgliteInMemory, sqliteInMemory } from './own.js';
import { databaseReference, inMemoryReference } from './references.js';

/** Every harness, by the name of the test file that runs it: `test/contract/<name>.test.ts`. */
export const HARNESSES: Readonly<Record<string, Harness>> = {
  ...Object.fromEntries([...FILE_DATABASES, ...SERVERS].map((name) => [name, ownHarness(DATABASES[name], name)])),
  'sqlite-in-memory': sqliteInMemory,
  libsql: libsqlHarness,
  pglite: pgliteHarness,
  'pglite-in-memory': pgliteInMemory,
  'reference-in-memory': inMemoryReference,
  'reference-database-sqlite': databaseReference('sqlite'),
  'reference-database-postgresql': databaseReference('postgresql'),
};
