import type { MikroORM } from '@mikro-orm/core';
import { TRAITS, quotedName, supportedDialect } from '../entities/dialect-name.js';
import { DEFAULT_PREFIX } from '../entities/naming.js';
import { forgetDistribution } from '../src/database/calls/connections.js';
import { Database, refuseInside } from '../src/database/calls/database.js';
import { emOf } from './em-of.js';
import { hasCitus, spread, placementOf, sizeOf, type FoundPlacement, type Placement } from './citus-layout.js';
import type { Sql } from '../src/database/dialects/dialect.js';
import { ormConnectionOf } from '../src/database/orm/orm-connection.js';
import { aBoolean, aCount, object, oneOf } from '../src/model/arguments.js';
import { InvalidArgumentError, SchemaError } from '../src/model/errors.js';
import { adkTables, findingsOf, locationIn, refuseMissing, type TableLocation } from './tables.js';

export interface DistributeOptions {
  /**
   * `user` (the default) puts the rows of each user on one node, so that one set of tables can use many nodes. `schema` puts all tables
   * of the schema on one node, so that several sets of tables, each in its own schema, can use many nodes.
   */
  by?: 'user' | 'schema';
  /**
   * How many parts (shards) the rows are divided into, by user; 32 by default. A node holds whole shards, so choose more than you will
   * ever have nodes.
   */
  shards?: number;
  /** Also move tables that have rows. Citus locks them until they are moved. */
  move?: boolean;
}

export interface DistributeResult {
  by: 'user' | 'schema';
  /** Nodes that take rows. */
  nodes: number;
  /** The tables that this call has distributed, in order; empty if all were distributed already. */
  placed: { table: string; placement: Placement }[];
}

/** Where a table belongs. `query` is its quoted name. */
interface TablePlacement {
  table: string;
  query: string;
  wanted: Placement;
  found: FoundPlacement;
}

/** Tables without users. Those on every node are read and written beside the rows of any user. */
const OF_ALL: Readonly<Record<string, Placement>> = {
  app_states: 'on every node',
  counters: 'on every node',
  projections: 'on every node',
  retry_tokens: 'by key',
};

const DEFAULT_SHARDS = 32;

const checkOptions = object<DistributeOptions>({ by: oneOf('user', 'schema'), shards: aCount, move: aBoolean });

/**
 * Distributes the tables over the nodes of Citus. You may call it again: tables that are distributed stay as they are. Call it through
 * the coordinator, after `migrate(orm)`. Then restart your other processes, since their open connections still treat the tables as those
 * of one server.
 *
 * @param orm the host's ORM, with `adkEntities()` among its entities.
 * @returns which tables were distributed.
 * @throws InvalidArgumentError if `orm` is not a MikroORM, or an option is unknown or its value is invalid.
 * @throws SchemaError if the database has no Citus or lacks tables, a table is distributed in another way, tables have rows and `move`
 *   is not set, or `by` is `schema` and the tables have no schema of their own. Nothing was changed.
 * @throws the driver's own error, with SQL, if a statement fails; call it again.
 * @throws InsideTransactionError inside a transaction of the same ORM.
 */
export async function distribute(orm: MikroORM, options: DistributeOptions = {}): Promise<DistributeResult> {
  const { by = 'user', shards, move = false } = checkOptions(options, 'options');
  if (by === 'schema' && shards !== undefined)
    throw new InvalidArgumentError('shards is for by: user. By schema all rows are on one node.');
  const em = emOf(orm, 'distribute');
  refuseInside(em);
  const dialect = supportedDialect(em.getPlatform());
  if (dialect !== 'postgresql')
    throw new SchemaError(`Only Citus, on PostgreSQL, distributes tables. This is ${dialect}.`);
  await ormConnectionOf(em).open();
  const location = locationIn(em);
  const { schema } = location;
  refuseMissing(await findingsOf(em));
  // Moving rows takes as long as it takes.
  const database = new Database(em, { timeoutMs: 0, retry: { attempts: 1 } });
  const places = await database.run((sql) => placesOf(sql, location, by));
  refuseOthers(places);
  const missing = places.filter(({ found }) => found === undefined);
  for (const { table, query } of move ? [] : missing) {
    // Citus would lock them while it moves them.
    if ((await database.run((sql) => sql.all(`select 1 from ${query} limit 1`))).length === 0) continue;
    throw new SchemaError(
      `Table ${table} has rows, and would be locked until they are moved. Nothing was changed. Stop what writes to it, ` +
        'and run npx adk-mikro-orm distribute --move, or distribute(orm, { move: true }).',
    );
  }
  if (by === 'schema' && missing.length > 0) {
    if (schema === undefined || schema === 'public')
      throw new SchemaError(
        `By schema, the tables need one of their own: adkEntities({ schema: 'kb' }). Nothing was changed.`,
      );
    const text = 'select 1 from citus_schema_distribute(cast(cast(? as text) as regnamespace))';
    await database.run((sql) => sql.all(text, [schema]));
  } else {
    let first = places.find(({ found }) => found === 'by user')?.query;
    for (const { query, wanted } of missing) {
      const everywhere = 'select 1 from create_reference_table(to_regclass(?)::regclass)';
      if (wanted === 'on every node') await database.run((sql) => sql.all(everywhere, [query]));
      else
        await database.run((sql) =>
          spread(sql, query, wanted === 'by key' ? wanted : 'by user', first ?? shards ?? DEFAULT_SHARDS),
        );
      if (wanted === 'by user') first ??= query;
    }
  }
  forgetDistribution();
  const { nodes } = await database.run((sql) => sizeOf(sql, sql.tables.sessions));
  return { by, nodes, placed: missing.map(({ table, wanted }) => ({ table, placement: wanted })) };
}

/** Tables in an order in which those that others refer to come first. */
async function placesOf(sql: Sql, { schema, tablePrefix = DEFAULT_PREFIX }: TableLocation, by: 'user' | 'schema') {
  if (!(await hasCitus(sql)))
    throw new SchemaError(
      'This database has no Citus. Nothing was changed. Run: create extension citus; and add nodes with citus_add_node.',
    );
  const places: TablePlacement[] = [];
  const ordered = [...adkTables()].sort((a, b) => Number(b.suffix in OF_ALL) - Number(a.suffix in OF_ALL));
  for (const { suffix } of ordered) {
    const table = tablePrefix + suffix;
    const query = quotedName(TRAITS.postgresql.quote, schema, table);
    const wanted = by === 'schema' ? 'with the schema' : (OF_ALL[suffix] ?? 'by user');
    places.push({ table, query, wanted, found: await placementOf(sql, query) });
  }
  return places;
}

function refuseOthers(places: readonly TablePlacement[]): void {
  const other = places.find(({ wanted, found }) => found !== undefined && found !== wanted);
  if (!other) return;
  throw new SchemaError(
    `Table ${other.table} is distributed already, ${other.found === 'otherwise' ? 'in another way' : other.found}. Nothing was ` +
      'changed. Give the other --by, or undistribute the tables first (undistribute_table, citus_schema_undistribute).',
  );
}
