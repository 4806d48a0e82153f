import { MikroORM } from '@mikro-orm/core';
import { databaseOptions } from '../mikro-orm.config.js';
import { adkEntities } from '../src/index.js';
import { BetterSqliteDriver } from '../test/support/mikro-orm.js';

/** An ORM on a database of another process. Both drivers of SQLite have the same URLs. */
export async function connect(name: string, url: string): Promise<MikroORM> {
  const driver = name === 'better-sqlite' ? { driver: BetterSqliteDriver } : {};
  return MikroORM.init({ ...(await databaseOptions(url)), ...driver, entities: adkEntities() });
}
