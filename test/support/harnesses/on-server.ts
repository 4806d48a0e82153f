import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { newName, serverUrl, urlVariable } from '../run.js';
import type { NewDatabase, ServerDatabase } from './database.js';

type ServerHarness = Pick<ServerDatabase, 'name' | 'driver' | 'server'>;

/** Runs a statement as the server's administrator, outside any test's database. */
export async function executeOn<Row>({ name, driver, server }: ServerHarness, sql: string): Promise<Row[]> {
  const orm = await MikroORM.init({
    driver: await driver(),
    clientUrl: databaseUrl(name, server.adminDatabase),
    entities: [],
    discovery: { warnWhenNoEntities: false },
    multipleStatements: true,
  });
  try {
    return await (orm.em.getDriver().getConnection() as AbstractSqlConnection).execute<Row[]>(sql);
  } finally {
    await orm.close(true);
  }
}

/** @param more what follows `create database x`: options, and on MySQL and MariaDB statements. */
export async function createOn(harness: ServerHarness, more = (_database: string) => ''): Promise<NewDatabase> {
  const database = newName();
  await executeOn(harness, `create database ${database}${more(database)}`);
  const url = databaseUrl(harness.name, database);
  return {
    url,
    options: { driver: await harness.driver(), clientUrl: url, pool: { min: 0, max: 10 } },
    drop: async () => {
      await executeOn(harness, harness.server.drop(database));
    },
  };
}

/** Nobody answers there. */
export function unreachableServer(name: string): ServerDatabase['unreachable'] {
  const secret = 'hunter2';
  return { options: { clientUrl: `${name}://agent:${secret}@127.0.0.1:9/agents` }, secret };
}

function databaseUrl(name: string, database: string): string {
  const server = serverUrl(name);
  if (!server) throw new Error(`No ${name} server: set ${urlVariable(name)}`);
  const url = new URL(server);
  url.pathname = database;
  return url.href;
}
