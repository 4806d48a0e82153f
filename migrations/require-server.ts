import type { Migration } from '@mikro-orm/migrations';
import { mariadb } from '../src/database/dialects/mariadb.js';
import { mysql } from '../src/database/dialects/mysql.js';
import { postgresql } from '../src/database/dialects/postgresql.js';
import { refuseConnection } from '../src/database/dialects/settings.js';

const DIALECTS = { postgresql, mysql, mariadb };

/**
 * Refuses a MySQL server behind the `mariadb` driver, and the other way round. Both speak the same protocol, but neither has the other's
 * binary collations, and the first `create table` would fail without saying why. It also refuses what the services refuse, such as TiDB
 * and `autocommit = 0`.
 *
 * @param migration the migration that is about to run.
 * @param driver the driver for which the migration is written.
 * @throws SchemaError with the right driver, or with the setting and how to change it.
 */
export async function requireServer(migration: Migration, driver: keyof typeof DIALECTS): Promise<void> {
  await refuseConnection(DIALECTS[driver].connections, (text) => migration.execute(text) as Promise<object[]>);
}
