import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../entities/index.js';
import { databaseOptions } from '../../mikro-orm.config.js';
import type { TestDatabase } from '../support/servers.js';

/** What a process that a test has started needs to know of a database. */
export type Database = Pick<TestDatabase, 'name' | 'url'>;

export async function openOrm({ name, url }: Database): Promise<MikroORM> {
  const options = await databaseOptions(url);
  if (name === 'better-sqlite') options.driver = (await import('@mikro-orm/better-sqlite')).BetterSqliteDriver;
  // MariaDB's driver gives up after one second, which is too short where many processes start at once.
  if (name === 'mariadb') options.driverOptions = { connection: { connectTimeout: 60_000 } };
  return MikroORM.init({ ...options, entities: adkEntities() });
}
