import type { MikroORM } from '@mikro-orm/core';
import type { NewDatabase, ServerDatabase } from './database.js';
import { citusLayout, createOn, executeAt, executeOn, workersOf } from './on-server.js';

/** By schema, the tables need one of their own. */
export const CITUS_SCHEMA = 'adk';

/** Makes a database with Citus on each of its nodes, or a copy of one, in which its nodes and tables are known, too. */
export async function createOnCitus(harness: ServerDatabase, template?: string): Promise<NewDatabase> {
  // Citus works in each database in the background, and one that is in use is not copied.
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
  // Tests name tables without it. A copy does not have the setting.
  await executeAt(harness, url.href, `alter database ${database} set search_path = ${CITUS_SCHEMA}`);
  return { ...created, options: { ...created.options, schema: CITUS_SCHEMA } };
}

/** Few shards: each is a table with its indexes. */
export async function distributeTables(orm: MikroORM): Promise<void> {
  const { distribute } = await import('../../../src/index.js');
  if (citusLayout('postgresql') === 'schema') await distribute(orm, { by: 'schema' });
  else await distribute(orm, { shards: 4 });
}
