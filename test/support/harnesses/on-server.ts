import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { newName, serverUrl, urlVariable } from '../run.js';
import type { NewDatabase, ServerDatabase } from './database.js';

type ServerHarness = Pick<ServerDatabase, 'name' | 'driver' | 'server'>;

/** How the tables are distributed on a coordinator of Citus: by `user` or `schema`. */
export const citusLayout = (name: string) => (name === 'postgresql' ? process.env['ADK_TEST_CITUS'] : undefined);

let workers: Promise<{ host: string }[]> | undefined;

/** The hosts and ports of a coordinator's worker nodes. */
export async function workersOf(harness: ServerHarness): Promise<string[]> {
  if (citusLayout(harness.name) === undefined) return [];
  workers ??= executeAt(
    harness,
    databaseUrl(harness.name, harness.server.adminDatabase),
    `select nodename || ':' || nodeport as host from pg_dist_node where groupid > 0`,
  );
  return (await workers).map(({ host }) => host);
}

/**
 * Runs a statement as the server's administrator, outside any test's database. With Citus it runs on each node, since Citus
 * does not create databases on the workers.
 *
 * @returns the rows from the server, or from the coordinator.
 */
export async function executeOn<Row>(
  harness: ServerHarness,
  sql: string,
  database = harness.server.adminDatabase,
): Promise<Row[]> {
  const url = databaseUrl(harness.name, database);
  const rows = await executeAt<Row>(harness, url, sql);
  for (const host of await workersOf(harness))
    await executeAt(harness, Object.assign(new URL(url), { host }).href, sql);
  return rows;
}

export async function executeAt<Row>({ driver }: ServerHarness, url: string, sql: string): Promise<Row[]> {
  const orm = await MikroORM.init({
    driver: await driver(),
    clientUrl: url,
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

/** @param more the text after `create database x`: options, and on MySQL and MariaDB more statements. */
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

/** A server that does not exist. */
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
