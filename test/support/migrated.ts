import { existsSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { adkEntities, migrate } from '../../src/index.js';
import {
  createDatabase,
  createFile,
  createOnServer,
  databaseFolder,
  isFileDatabase,
  runPrefix,
  type DatabaseName,
  type TestDatabase,
} from './servers.js';

/**
 * A new database that nobody else uses, with the tables of this package: a copy of one that `migrate` has made, since a
 * migration takes longer than most tests.
 */
export async function createMigrated(name: DatabaseName): Promise<TestDatabase> {
  const template = await templateOf(name);
  if (isFileDatabase(name)) return createFile(name, template);
  // A copy by the log takes longer, of the empty database that PostgreSQL copies otherwise as well.
  if (name === 'postgresql') return createOnServer(name, () => ` template ${template} strategy file_copy`);
  return createOnServer(name, (database) => `; use ${database}; ${template}`);
}

const templates = new Map<DatabaseName, Promise<string>>();

/** @returns what is copied: the path of a file on SQLite, a database on PostgreSQL, statements on MySQL and MariaDB. */
export function templateOf(name: DatabaseName): Promise<string> {
  const template = templates.get(name) ?? findOrMake(name);
  templates.set(name, template);
  return template;
}

/** Each worker of jest has its own, and runs one test file at a time: no two make it at once. */
async function findOrMake(name: DatabaseName): Promise<string> {
  const note = path.join(databaseFolder(), `${runPrefix()}template_${name}_${process.env['JEST_WORKER_ID']}`);
  if (existsSync(note)) return readFile(note, 'utf8');

  // Nobody drops it but the end of the run.
  const { options } = await createDatabase(name);
  const orm = await MikroORM.init({ ...options, entities: adkEntities() });
  let template = orm.config.get('dbName')!;
  try {
    await migrate(orm);
    if (name === 'mysql' || name === 'mariadb') template = await statementsOf(orm);
  } finally {
    // SQLite then has all of it in one file, and PostgreSQL copies no database that is in use.
    await orm.close(true);
  }
  // A file that has the name is whole.
  await writeFile(`${note}.new`, template);
  await rename(`${note}.new`, note);
  return template;
}

/** The statements that make the tables of a database of MySQL or MariaDB in another one, and copy their rows. */
async function statementsOf(orm: MikroORM): Promise<string> {
  const database = orm.config.get('dbName');
  const connection = orm.em.getDriver().getConnection() as AbstractSqlConnection;
  const statements = ['set foreign_key_checks = 0'];
  for (const { name } of await connection.execute<{ name: string }[]>(
    'select table_name as name from information_schema.tables where table_schema = database()',
  )) {
    const [row] = await connection.execute<{ 'Create Table': string }[]>(`show create table ${name}`);
    statements.push(row!['Create Table']);
    const [{ count } = { count: 0 }] = await connection.execute<{ count: number }[]>(
      `select count(*) as count from ${name}`,
    );
    if (count > 0) statements.push(`insert into ${name} select * from ${database}.${name}`);
  }
  return statements.join(';\n');
}
