import type { DialectName } from '../../entities/dialect-name.js';
import type { NewDatabase } from './harnesses/database.js';
import {
  DATABASES,
  FILE_DATABASES,
  SERVERS,
  isTested,
  type DatabaseName,
  type ServerName,
} from './harnesses/databases.js';
import { executeOn } from './harnesses/on-server.js';

export { FILE_DATABASES, SERVERS, type DatabaseName, type ServerName };

export interface TestDatabase extends NewDatabase {
  name: DatabaseName;
}

const ALL = [...FILE_DATABASES, ...SERVERS];

export const availableDatabases = () => ALL.filter(isTested);

/** The databases that another process can open by a URL. */
export const databasesOfUrls = () => ALL.filter((name) => DATABASES[name].isOfUrl && DATABASES[name].isAvailable());

/** The databases of these dialects. For a loop, since jest refuses an empty `each`. */
export const databasesOf = (...dialects: readonly DialectName[]) =>
  availableDatabases().filter((name) => dialects.includes(DATABASES[name].dialect));

export const availableServers = () => SERVERS.filter((name) => DATABASES[name].isAvailable());

/** The databases for the programs in `examples`: one file and one server; all with ADK_TEST_FULL. */
export const databasesOfExamples = () =>
  databasesOfUrls().filter((name) => process.env['ADK_TEST_FULL'] || ['sqlite', 'postgresql'].includes(name));

/** A new, empty database that nobody else uses. */
export async function createDatabase(name: DatabaseName): Promise<TestDatabase> {
  return { name, ...(await DATABASES[name].create()) };
}

/**
 * Runs a statement as the server's administrator, outside any test's database, for example to end connections. MySQL and
 * MariaDB take several statements.
 */
export function executeOnServer<Row>(name: ServerName, sql: string): Promise<Row[]> {
  return executeOn<Row>(DATABASES[name], sql);
}
