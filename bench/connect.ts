import { MikroORM } from '@mikro-orm/core';
import { databaseOptions } from '../mikro-orm.config.js';
import { adkEntities } from '../src/index.js';
import { CITUS_SCHEMA } from '../test/support/harnesses/citus.js';
import { citusLayout } from '../test/support/harnesses/on-server.js';
import { BetterSqliteDriver } from '../test/support/mikro-orm.js';

/** An ORM on a database of another process. Both drivers of SQLite have the same URLs. */
export async function connect(name: string, url: string): Promise<MikroORM> {
  const driver = name === 'better-sqlite' ? { driver: BetterSqliteDriver } : {};
  const schema = citusLayout(name) === 'schema' ? { schema: CITUS_SCHEMA } : {};
  return MikroORM.init({ ...(await databaseOptions(url)), ...driver, ...schema, entities: adkEntities() });
}
