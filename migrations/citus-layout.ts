import { tableNames } from '../src/database/sql/tables.js';
import { numberOf, textOf, type Row } from '../src/database/sql/values.js';
import { HAS_CITUS } from '../src/database/dialects/citus.js';
import type { Sql } from '../src/database/dialects/dialect.js';

// Finds out where Citus has placed tables, and places them.

/**
 * Where the rows of a table are: spread by user or, without users, by their key, all of them on every node, or on one node with the
 * other tables of the schema.
 */
export type Placement = 'by user' | 'by key' | 'on every node' | 'with the schema';

/** The columns by which rows are spread. */
const COLUMNS = { 'by user': 'user_id', 'by key': 'slot' } as const;

type Spread = keyof typeof COLUMNS;

/** Also `otherwise`; undefined if the table is not placed. */
export type FoundPlacement = Placement | 'otherwise' | undefined;

/** @param table its quoted name. */
export async function placementOf(sql: Sql, table: string): Promise<FoundPlacement> {
  const [row] = await sql.all<Row<'partmethod' | 'repmodel' | 'colocation' | 'by'>>(
    `select partmethod::text as partmethod, repmodel::text as repmodel, colocationid as colocation,
      column_to_column_name(logicalrelid, partkey) as by from pg_dist_partition where logicalrelid = to_regclass(?)`,
    [table],
  );
  if (!row) return undefined;
  const method = `${textOf(row.partmethod)}${textOf(row.repmodel)}`;
  if (textOf(row.partmethod) === 'h') {
    const by = row.by === null ? undefined : textOf(row.by);
    return by === COLUMNS['by user'] ? 'by user' : by === COLUMNS['by key'] ? 'by key' : 'otherwise';
  }
  if (method === 'nt') return 'on every node';
  // Citus also lists tables that it has not placed.
  if (method === 'ns') return numberOf(row.colocation) === 0 ? undefined : 'with the schema';
  return 'otherwise';
}

/** Whether the database has Citus. */
export async function hasCitus(sql: Sql): Promise<boolean> {
  return (await sql.all(`select 1 from (select ${HAS_CITUS} as has) as citus where has`)).length > 0;
}

/** The numbers of nodes that hold rows, and of shards of a table. */
export async function sizeOf(sql: Sql, table: string): Promise<{ nodes: number; shards: number }> {
  const [row] = await sql.all<{ nodes: number | string; shards: number | string }>(
    `select (select count(*) from pg_dist_node where noderole = 'primary' and shouldhaveshards) as nodes,
      (select count(*) from pg_dist_shard where logicalrelid = to_regclass(?)) as shards`,
    [table],
  );
  return { nodes: numberOf(row?.nodes), shards: numberOf(row?.shards) };
}

/** @param like the table whose shards it shares, or the number of its shards. */
export async function spread(sql: Sql, table: string, by: Spread, like: string | number): Promise<void> {
  const [option, value] = typeof like === 'string' ? ['colocate_with', like] : ['shard_count', like];
  const alone = typeof like === 'string' ? '' : `, colocate_with := 'none'`;
  const type = typeof like === 'string' ? 'text' : 'int';
  await sql.all(
    `select 1 from create_distributed_table(to_regclass(?), '${COLUMNS[by]}', ${option} := cast(? as ${type})${alone})`,
    [table, value],
  );
}

/** Where all tables are. */
interface Layout {
  /** The number of tables, by placement. */
  placed: ReadonlyMap<Placement | 'otherwise', number>;
  /** The quoted names of tables that are not placed. */
  unplaced: readonly string[];
  nodes: number;
  shards: number;
}

/** @returns undefined if the database has no Citus. */
export async function layoutOf(sql: Sql): Promise<Layout | undefined> {
  if (!(await hasCitus(sql))) return undefined;
  const { tables } = sql;
  const placed = new Map<Placement | 'otherwise', number>();
  const unplaced: string[] = [];
  for (const table of tableNames(tables)) {
    const placement = await placementOf(sql, table);
    if (placement === undefined) unplaced.push(table);
    else placed.set(placement, (placed.get(placement) ?? 0) + 1);
  }
  return { placed, unplaced, ...(await sizeOf(sql, tables.sessions)) };
}
