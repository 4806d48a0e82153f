import { MikroORM, type Options } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { databaseOptions } from '../../../mikro-orm.config.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import type { TestDatabase } from '../../support/servers.js';

/** What a process that a test starts needs to know about a database. */
export type Database = Pick<TestDatabase, 'name' | 'url'>;

export async function openOrm({ name, url }: Database, more: Options = {}): Promise<MikroORM> {
  const options = await databaseOptions(url);
  const { isOfUrl, driver, processOptions } = DATABASES[name];
  if (!isOfUrl) options.driver = await driver();
  return MikroORM.init({ ...options, ...processOptions, ...more, entities: adkEntities() });
}
