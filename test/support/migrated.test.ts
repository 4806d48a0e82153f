import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { adkEntities, migrate } from '../../src/index.js';
import { createMigrated } from './migrated.js';
import { availableDatabases, createDatabase, type DatabaseName, type TestDatabase } from './servers.js';

type Query = (sql: string) => Promise<Record<string, unknown>[]>;

const POSTGRESQL_SCHEMA = [
  `select table_name, column_name, ordinal_position, data_type, collation_name, column_default, is_nullable,
    character_maximum_length from information_schema.columns where table_schema = 'public' order by 1, 3`,
  `select indexdef from pg_indexes where schemaname = 'public' order by indexname`,
  `select conrelid::regclass::text as name, conname, pg_get_constraintdef(oid) as definition from pg_constraint
    where connamespace = 'public'::regnamespace order by 1, 2`,
];

async function createStatements(query: Query): Promise<unknown[]> {
  const tables = await query(
    'select table_name as name from information_schema.tables where table_schema = database() order by 1',
  );
  return Promise.all(tables.map(async ({ name }) => query(`show create table ${String(name)}`)));
}

/** What makes a schema, as the database itself describes it. */
const SCHEMA: Record<DatabaseName, (query: Query) => Promise<unknown[]>> = {
  sqlite: (query) => query('select type, name, tbl_name, sql from sqlite_master order by name'),
  'better-sqlite': (query) => SCHEMA.sqlite(query),
  postgresql: (query) => Promise.all(POSTGRESQL_SCHEMA.map(query)),
  mysql: createStatements,
  mariadb: createStatements,
};

/** The schema and the rows that a migration leaves. */
async function describeDatabase(name: DatabaseName, { options }: TestDatabase, migrates: boolean): Promise<unknown> {
  const orm = await MikroORM.init({ ...options, entities: adkEntities() });
  try {
    if (migrates) await migrate(orm);
    const query: Query = (sql) => (orm.em.getConnection() as AbstractSqlConnection).execute(sql);
    return {
      schema: await SCHEMA[name](query),
      migrations: await query('select id, name from mikro_orm_migrations order by id'),
      counters: await query('select * from adk_counters'),
      mode: name.includes('sqlite') && (await query('pragma journal_mode')),
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
    // There is nothing left to be done.
    expect(await describeDatabase(name, another!, true)).toEqual(expected);
  } finally {
    for (const database of databases) await database.drop();
  }
});
