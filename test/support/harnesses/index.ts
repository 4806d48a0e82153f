import { DATABASES, FILE_DATABASES, SERVERS } from './databases.js';
import type { OwnHarness } from './harness.js';
import { libsqlHarness, ownHarness, pgliteHarness, pgliteInMemory, sqliteInMemory } from './own.js';

/** Every harness, by the name of the test file that runs it: `test/contract/<name>.test.ts`. */
export const HARNESSES: Readonly<Record<string, OwnHarness>> = {
  ...Object.fromEntries([...FILE_DATABASES, ...SERVERS].map((name) => [name, ownHarness(DATABASES[name], name)])),
  'sqlite-in-memory': sqliteInMemory,
  libsql: libsqlHarness,
  pglite: pgliteHarness,
  'pglite-in-memory': pgliteInMemory,
};
