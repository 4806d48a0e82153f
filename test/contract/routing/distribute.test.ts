import type { MikroORM } from '@mikro-orm/core';
import { adkEntities, migrate, MikroOrmSessionService } from '../../../src/index.js';
import { distribute } from '../../../migrations/index.js';
import { examine, type Finding } from '../../../packages/studio/src/operations/doctor.js';
import { HARNESSES } from '../../support/harnesses/index.js';
import { availableDatabases } from '../../support/servers.js';

/** The functions of Citus in `pg_catalog` that are used. They record their calls. */
const CITUS = [
  `create table pg_dist_partition (logicalrelid regclass, partmethod "char", repmodel "char", partkey text, colocationid int)`,
  `create table pg_dist_node as select 'primary' as noderole, true as shouldhaveshards from generate_series(1, 2)`,
  `create table pg_dist_shard (logicalrelid regclass)`,
  `create table pg_dist_placement as select 101 as shardid, 1 as groupid`,
  `create function get_shard_id_for_distribution_column(regclass, text) returns int language sql as 'select 101'`,
  `create function column_to_column_name(regclass, text) returns text language sql as 'select $2'`,
  `create function create_reference_table(named regclass) returns void language sql as
    $$ insert into public.pg_dist_partition values (named, 'n', 't', null, 1) $$`,
  `create function create_distributed_table(named regclass, by text, shard_count int default 0, colocate_with text default '')
    returns void language sql as $$
      insert into public.pg_dist_partition values (named, 'h', 's', by, 2);
      insert into public.pg_dist_shard select named from generate_series(1, shard_count) $$`,
  `create function citus_schema_distribute(named regnamespace) returns void language sql as
    $$ insert into public.pg_dist_partition select oid, 'n', 's', null, 3 from pg_class
      where relnamespace = named and relkind = 'r' and relname like 'adk%' $$`,
];

const harness = HARNESSES['postgresql'];

/** On a database with Citus, and our tables in a schema, if one is named. */
async function onCitus(schema: string | undefined, work: (orm: MikroORM) => Promise<void>): Promise<void> {
  const store = await harness!.open();
  try {
    for (const sql of CITUS) await store.query(sql);
    const orm = await store.connect({ entities: adkEntities(schema === undefined ? {} : { schema }) });
    if (schema !== undefined) await store.query(`create schema ${schema}`);
    await migrate(orm);
    await work(orm);
  } finally {
    await store.close();
  }
}

async function distribution(orm: MikroORM): Promise<Finding | undefined> {
  for await (const finding of examine(orm.em, { readsAll: false }))
    if (finding.check === 'distribution') return finding;
  return undefined;
}

describe('distribute', () => {
  if (!harness?.isAvailable()) {
    test.skip('PostgreSQL is not available', () => undefined);
    return;
  }

  test('F7 by user each table with users gets the shards of the first, those it refers to before it; the others are everywhere', async () => {
    await onCitus(undefined, async (orm) => {
      expect(await distribution(orm)).toMatchObject({
        state: 'ok',
        found: expect.stringContaining('none of the tables'),
      });
      const { by, nodes, placed } = await distribute(orm, { shards: 8 });
      expect({ by, nodes }).toEqual({ by: 'user', nodes: 2 });
      const placement = (suffix: string) => placed.find(({ table }) => table === `adk_${suffix}`)?.placement;
      expect(placed).toHaveLength(17);
      expect(placement('retry_tokens')).toBe('by key');
      expect(['app_states', 'counters', 'projections'].map(placement)).toEqual(Array(3).fill('on every node'));
      expect(placed.filter((each) => each.placement === 'by user')).toHaveLength(13);
      const order = placed.map(({ table }) => table);
      for (const [first, then] of [
        ['sessions', 'events'],
        ['artifacts', 'artifact_versions'],
        ['artifact_versions', 'artifact_parts'],
      ])
        expect(order.indexOf(`adk_${first}`)).toBeLessThan(order.indexOf(`adk_${then}`));

      expect(await distribute(orm)).toEqual({ by: 'user', nodes: 2, placed: [] });
      await expect(distribute(orm, { by: 'schema' })).rejects.toMatchObject({ code: 'ADK_SCHEMA' });
      await migrate(orm);
      expect(await distribution(orm)).toMatchObject({
        state: 'ok',
        found: expect.stringMatching(/13 tables by user.*8 shards, 2 nodes/),
      });
      await orm.em
        .getConnection()
        .execute(`delete from pg_dist_partition where logicalrelid = 'adk_memories'::regclass`);
      expect(await distribution(orm)).toMatchObject({
        state: 'advice',
        found: expect.stringContaining('adk_memories'),
      });
      expect(await distribute(orm)).toMatchObject({ placed: [{ table: 'adk_memories' }] });
    });
  });

  test('F7 tables with rows are moved only if that is asked for, and the calls of this process notice', async () => {
    await onCitus(undefined, async (orm) => {
      const service = new MikroOrmSessionService(orm.em);
      const session = await service.createSession({ appName: 'app', userId: 'ada' });
      await expect(distribute(orm)).rejects.toThrow(/has rows.*--move/);
      expect(await orm.em.getConnection().execute('select 1 from pg_dist_partition')).toEqual([]);
      expect((await distribute(orm, { move: true })).placed).toHaveLength(17);
      const sent: string[] = [];
      orm.config.set('onQuery', (text: string) => (sent.push(text), text));
      await service.appendEvent({ session, event: { id: 'e', author: 'agent', timestamp: 1 } as never });
      expect(sent.some((text) => text === 'begin')).toBe(true);
    });
  });

  test('F7 by schema all tables are placed at once; they need a schema of their own', async () => {
    await onCitus('kb', async (orm) => {
      expect(await distribute(orm, { by: 'schema' })).toMatchObject({ by: 'schema', placed: { length: 17 } });
      expect(await distribute(orm, { by: 'schema' })).toMatchObject({ placed: [] });
    });
    await onCitus(undefined, async (orm) => {
      await expect(distribute(orm, { by: 'schema' })).rejects.toThrow(/one of their own/);
    });
  });

  test.each(availableDatabases())('F7 without Citus it is refused, on %s', async (name) => {
    const store = await HARNESSES[name]!.open();
    try {
      await expect(distribute(store.orm)).rejects.toMatchObject({
        code: 'ADK_SCHEMA',
        message: expect.stringContaining('Citus'),
      });
      for (const options of [{ by: 'app' }, { shards: 0 }, { by: 'schema', shards: 4 }, { force: true }] as object[])
        await expect(distribute(store.orm, options)).rejects.toMatchObject({ code: 'ADK_INVALID_ARGUMENT' });
    } finally {
      await store.close();
    }
  });
});
