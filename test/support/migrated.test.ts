import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { adkEntities, migrate } from '../../src/index.js';
import type { Query } from './harnesses/database.js';
import { DATABASES, type DatabaseName } from './harnesses/databases.js';
import { createMigrated } from './migrated.js';
import { availableDatabases, createDatabase, type TestDatabase } from './servers.js';

/** The schema and the rows that a migration leaves. */
async function describeDatabase(name: DatabaseName, { options }: TestDatabase, migrates: boolean): Promise<unknown> {
  const orm = await MikroORM.init({ ...options, entities: adkEntities() });
  try {
    if (migrates) await migrate(orm);
    const query: Query = (sql, values) =>
      (orm.em.getConnection() as AbstractSqlConnection).execute(sql, values && [...values]);
    return {
      schema: await DATABASES[name].schema.describe(query),
      migrations: await query('select id, name from mikro_orm_migrations order by id'),
      counters: await query('select * from adk_counters'),
    };
  } finally {
    await orm.close(true);
  }
}

test.each(availableDatabases())('a copy of a migrated database of %s equals one that was migrated', async (name) => {
  const databases = [await createDatabase(name), await createMigrated(name), await createMigrated(name)];
  const [migrated, copy, another] = databases;
  try {
    const expected = await describeDatabase(name, migrated!, true);
    expect(expected).toMatchObject({ schema: expect.arrayContaining([expect.anything()]) });
    expect(await describeDatabase(name, copy!, false)).toEqual(expected);
    // Nothing is left to do.
    expect(await describeDatabase(name, another!, true)).toEqual(expected);
  } finally {
    for (const database of databases) await database.drop();
  }
});
