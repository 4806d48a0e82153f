import type { MikroORM } from '@mikro-orm/core';
import type { NewDatabase, ServerDatabase } from './database.js';
import { citusLayout, createOn, executeAt, executeOn, workersOf } from './on-server.js';

/** The schema that the tables have if they are distributed by schema. */
export const CITUS_SCHEMA = 'adk';

/** Makes a database with Citus on each node, or copies one together with its metadata of nodes and tables. */
export async function createOnCitus(harness: ServerDatabase, template?: string): Promise<NewDatabase> {
  // Citus works in each database in the background, and PostgreSQL copies no database that is in use.
  if (template !== undefined)
    await executeOn(
      harness,
      `alter database ${template} allow_connections false;
       select pg_terminate_backend(pid) from pg_stat_activity where datname = '${template}'`,
    );
  const created = await createOn(harness, () =>
    template === undefined ? '' : ` template ${template} strategy file_copy`,
  );
  const url = new URL(created.url);
  const database = url.pathname.slice(1);
  if (template === undefined) {
    await executeOn(harness, 'create extension citus', database);
    const add = (name: string, host: string) => `select ${name}('${host.replace(/:(\d+)$/, "', $1")})`;
    const nodes = (await workersOf(harness)).map((host) => add('citus_add_node', host));
    for (const sql of [add('citus_set_coordinator_host', url.host), ...nodes]) await executeAt(harness, url.href, sql);
  }
  if (citusLayout(harness.name) !== 'schema') return created;
  if (template === undefined) await executeAt(harness, url.href, `create schema ${CITUS_SCHEMA}`);
  // Tests name tables without the schema. A copy does not inherit the setting.
  await executeAt(harness, url.href, `alter database ${database} set search_path = ${CITUS_SCHEMA}`);
  return { ...created, options: { ...created.options, schema: CITUS_SCHEMA } };
}

/** Uses few shards, since each is a table with its indexes. */
export async function distributeTables(orm: MikroORM): Promise<void> {
  const { distribute } = await import('../../../migrations/index.js');
  if (citusLayout('postgresql') === 'schema') await distribute(orm, { by: 'schema' });
  else await distribute(orm, { shards: 4 });
}
