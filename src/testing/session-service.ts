import { Utils, type MikroORM, type Options } from '@mikro-orm/core';
import { installedSqlite } from '../database/drivers/installed-sqlite.js';
import { MikroOrmSessionService, adkEntities, migrate } from '../index.js';
import { SchemaError } from '../model/errors.js';

/** A session service for one test, with a database of its own. */
export interface TestSessionService {
  service: MikroOrmSessionService;
  /** The ORM of the database: read its tables, or make another service with your own options. */
  orm: MikroORM;
  /** Closes the ORM. The database is gone then. */
  close(): Promise<void>;
}

/**
 * Makes a session service on a new SQLite database in memory, with the tables of `migrate`. The first call of a process runs the
 * migrations; later calls copy their result, which takes a few milliseconds.
 *
 * The driver is the one that is installed: `@mikro-orm/sqlite`, `@mikro-orm/better-sqlite` or `@mikro-orm/libsql`, in this order.
 *
 * ```ts
 * const { service, orm, close } = await testSessionService();
 * ```
 *
 * @returns the service, its ORM, and a function that closes both, which the caller must call.
 * @throws SchemaError if none of the drivers is installed, and the errors of `migrate`.
 */
export async function testSessionService(): Promise<TestSessionService> {
  template ??= makeTemplate();
  const [statements, orm] = await Promise.all([template, openInMemory()]);
  const connection = orm.em.getConnection();
  for (const { sql, values } of statements) await connection.execute(sql, values);
  return { service: new MikroOrmSessionService(orm.em), orm, close: () => orm.close(true) };
}

/** The statements that make the tables and fill those that are not empty. */
type Template = readonly { sql: string; values?: unknown[] }[];

let template: Promise<Template> | undefined;

async function makeTemplate(): Promise<Template> {
  const orm = await openInMemory();
  try {
    await migrate(orm);
    const connection = orm.em.getConnection();
    const made = (await connection.execute(
      "select type, name, sql from sqlite_master where sql is not null and name not like 'sqlite_%' order by rowid",
    )) as { type: string; name: string; sql: string }[];
    const statements: { sql: string; values?: unknown[] }[] = made.map(({ sql }) => ({ sql }));
    // Also copies MikroORM's list of executed migrations: otherwise `migrate` would run them again.
    for (const { name } of made.filter(({ type }) => type === 'table')) {
      for (const row of (await connection.execute(`select * from "${name}"`)) as object[]) {
        const values: unknown[] = Object.values(row);
        statements.push({ sql: `insert into "${name}" values (${values.map(() => '?').join(', ')})`, values });
      }
    }
    return statements;
  } finally {
    await orm.close(true);
  }
}

/** What a driver's package exports. Not every driver exists for every version of MikroORM. */
interface SqlitePackage {
  MikroORM: { init(options: Partial<Options>): Promise<MikroORM> };
}

async function openInMemory(): Promise<MikroORM> {
  const { MikroORM } = await installedSqlite((name) => import(name) as Promise<SqlitePackage>).catch(
    (cause: unknown) => {
      const version = Utils.getORMVersion();
      throw new SchemaError(
        `testSessionService needs a driver for SQLite. Run: npm install --save-dev @mikro-orm/libsql@${version}`,
        { cause },
      );
    },
  );
  return MikroORM.init({ dbName: ':memory:', entities: adkEntities() });
}
