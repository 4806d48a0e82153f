import type { Migration } from '@mikro-orm/migrations';
import { mariadb } from '../src/database/dialects/mariadb.js';
import { mysql, wrongServer } from '../src/database/dialects/mysql.js';
import { SchemaError } from '../src/model/errors.js';

/**
 * Refuses a MySQL server behind the `mariadb` driver and the other way round. Both speak the same protocol, but
 * neither has the other's binary collations, and the first `create table` would fail without saying why. Refuses also
 * what the sessions themselves refuse, such as `autocommit = 0`.
 *
 * @param migration the migration that is about to run.
 * @param driver the driver whose SQL the migration holds.
 * @throws SchemaError that names the driver of the server, or the setting and what mends it.
 */
export async function requireServer(migration: Migration, driver: 'mysql' | 'mariadb'): Promise<void> {
  const [row] = (await migration.execute('select version() as version')) as { version: string }[];
  const wrong = wrongServer(row?.version ?? '', driver);
  if (wrong !== undefined) throw new SchemaError(wrong);
  const { settings } = (driver === 'mysql' ? mysql : mariadb).connections;
  try {
    await migration.execute('select ? as checked', [settings.around('')]);
  } catch (error) {
    throw settings.refusal(error) ?? error;
  }
}
