import { TableNotFoundException, type EntityManager, type Transaction } from '@mikro-orm/core';
import { TRAITS, supportedDialect } from '../entities/dialect-name.js';
import { textOf } from '../src/database/sql/values.js';
import { driverCodeOf } from '../src/model/errors.js';

/**
 * Reads MikroORM's list of executed migrations, without its `MigrationStorage`, which in version 7 makes the table before it reads
 * it: two processes would make it at once, and `status` must not write.
 *
 * @returns the names, oldest first; none if there is no list yet.
 */
export async function executedNames(em: EntityManager, transaction?: Transaction): Promise<string[]> {
  const { tableName = 'mikro_orm_migrations' } = em.config.get('migrations');
  const namesSchema = tableName.includes('.') || !TRAITS[supportedDialect(em.getPlatform())].hasSchemas;
  const path = namesSchema
    ? tableName.split('.')
    : [em.config.get('schema') ?? '', tableName].filter((part) => part !== '');
  const table = path.map((part) => em.getPlatform().quoteIdentifier(part)).join('.');
  // By the driver object, since the connection would throw the database's own errors.
  const driver = em.getDriver() as unknown as ExecutingDriver;
  try {
    const rows = await driver.execute(`select name from ${table} order by id`, [], 'all', transaction);
    // Like MikroORM, whose earlier versions recorded the names of files.
    return rows.map(({ name }) => textOf(name).replace(/\.[jt]s$/, ''));
  } catch (error) {
    // On MySQL and MariaDB a schema is a database, which may be missing, too.
    if (error instanceof TableNotFoundException || driverCodeOf(error) === 'ER_BAD_DB_ERROR') return [];
    throw error;
  }
}

/** The member of MikroORM's drivers for SQL that is used. */
interface ExecutingDriver {
  execute(text: string, values: unknown[], method: 'all', context?: Transaction): Promise<{ name: unknown }[]>;
}
