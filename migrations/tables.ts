import type { Configuration, EntityManager, EntityMetadata, MetadataStorage } from '@mikro-orm/core';
import { TRAITS, quotedName, supportedDialect, type DialectName } from '../entities/dialect-name.js';
import { adkEntities, type AdkEntityOptions } from '../entities/index.js';
import { entityNamed } from '../entities/mikro-orm.js';
import { DEFAULT_PREFIX, refusePlaceholder } from '../entities/naming.js';
import { refuseWildcard } from '../src/database/sql/tables.js';
import { SchemaError } from '../src/model/errors.js';
import { SETTINGS } from '../src/model/setting-words.js';

/** Runs a query, in the caller's transaction if there is one. */
export type Query = (sql: string, values: unknown[]) => Promise<{ name: string }[]>;

/** The database and the names of one set of tables. */
export interface TableLocation extends AdkEntityOptions {
  dialect: DialectName;
}

const makeTables = () =>
  adkEntities().map((entity) => {
    const { className, tableName, props } = entity.init().meta;
    return {
      entity: className,
      suffix: tableName.slice(DEFAULT_PREFIX.length),
      columns: new Set(props.flatMap((prop) => prop.fieldNames)),
    };
  });

let made: ReturnType<typeof makeTables> | undefined;

/**
 * The tables of this version; `suffix` is the name after the prefix. They are made on first use, since MikroORM parses the class of each,
 * which added 5 ms to an import.
 */
export const adkTables = () => (made ??= makeTables());

export const tableNames = ({ tablePrefix = DEFAULT_PREFIX }: AdkEntityOptions): string[] =>
  adkTables().map(({ suffix }) => tablePrefix + suffix);

/**
 * @returns the options with which `adkEntities` was called, from the entities.
 * @throws SchemaError if `adkEntities()` is not among the ORM's entities.
 */
export function locationOf(metadata: MetadataStorage): AdkEntityOptions {
  const session = entityNamed(metadata, 'AdkSession');
  if (!session) throw new SchemaError(`Add ...adkEntities() to 'entities' in the config of MikroORM.`);
  refuseWildcard(session.schema);
  const tablePrefix = session.tableName.replace(/sessions$/, '');
  return session.schema ? { schema: session.schema, tablePrefix } : { tablePrefix };
}

/**
 * Adds the `schema` of MikroORM's config, which applies to entities without one.
 *
 * @throws SchemaError if it is `'*'`, or contains a question mark.
 */
export function locationFor(config: Configuration, location: TableLocation): TableLocation {
  const schema = location.schema ?? config.get('schema');
  // As MikroORM does.
  if (!schema || !TRAITS[location.dialect].hasSchemas) return location;
  refuseWildcard(schema);
  refusePlaceholder(schema);
  return { ...location, schema };
}

/** Where the tables of an `EntityManager` are. @throws SchemaError as `locationOf` and `locationFor`. */
export const locationIn = (em: EntityManager): TableLocation =>
  locationFor(em.config, { dialect: supportedDialect(em.getPlatform()), ...locationOf(em.getMetadata()) });

/** The schema, if the database has schemas and one was named, and the entities of our tables. */
export function ourTables(em: EntityManager): { schema: string | undefined; entities: EntityMetadata[] } {
  const { dialect, schema } = locationIn(em);
  return {
    schema: TRAITS[dialect].hasSchemas ? schema : undefined,
    entities: [...em.getMetadata()].filter(({ className }) => adkTables().some(({ entity }) => entity === className)),
  };
}

/** The columns of a table; none if there is no such table. */
const COLUMNS: Record<DialectName, (query: Query, table: string, schema?: string) => ReturnType<Query>> = {
  sqlite: (query, table) => query('select name from pragma_table_info(?)', [table]),
  // Without a schema, the search path applies, as in every other statement.
  postgresql: (query, table, schema) =>
    query(
      `select attname as name from pg_attribute where attrelid = to_regclass(?) and attnum > 0 and not attisdropped`,
      [quotedName(TRAITS.postgresql.quote, schema, table)],
    ),
  mysql: columnsOnMySql,
  mariadb: columnsOnMySql,
};

function columnsOnMySql(query: Query, table: string, schema?: string): ReturnType<Query> {
  return query(
    `select column_name as name from information_schema.columns
      where table_schema = coalesce(?, database()) and table_name = ?`,
    [schema ?? null, table],
  );
}

/** What is wrong with the tables. */
export interface Findings {
  /** The first table that does not exist. */
  missing?: string;
  /** The first table that exists and lacks a column. */
  different?: { table: string; column: string };
}

export async function checkTables(
  query: Query,
  { dialect, schema, tablePrefix = DEFAULT_PREFIX }: TableLocation,
): Promise<Findings> {
  const findings: Findings = {};
  for (const { suffix, columns } of adkTables()) {
    const table = tablePrefix + suffix;
    const found = new Set((await COLUMNS[dialect](query, table, schema)).map((row) => row.name));
    const column = [...columns].find((name) => !found.has(name));
    if (found.size === 0) findings.missing ??= table;
    else if (column) findings.different ??= { table, column };
  }
  return findings;
}

/** Checks the tables of an `EntityManager`. */
export const findingsOf = (em: EntityManager): Promise<Findings> =>
  checkTables((sql, values) => em.getConnection().execute(sql, values), locationIn(em));

/** @throws SchemaError if a table lacks a column: it is another program's, or older than this version. */
export function refuseDifferent({ different }: Findings): void {
  if (!different) return;
  throw new SchemaError(
    `Table ${different.table} has no column ${different.column}, so it is not the one that this version of ` +
      `adk-mikro-orm needs. If it is another program's, give ours other names with ${SETTINGS.tablePrefix}; ` +
      'if you make it in migrations of your own, create one more with: ' +
      'npx mikro-orm migration:create',
  );
}

/**
 * @param names of our executed migrations.
 * @throws SchemaError if a table that a migration has made does not exist.
 */
export function refuseGone({ missing }: Findings, config: Configuration, names: readonly string[]): void {
  if (!missing) return;
  const { tableName: notes = 'mikro_orm_migrations' } = config.get('migrations');
  const rows = names.map((name) => `'${name}'`).join(', ');
  throw new SchemaError(
    `Table ${missing} is gone, though ${notes} says that it was made: somebody has dropped it. Restore it from a backup. ` +
      `If there is none, make a backup of what is left, run: delete from ${notes} where name in (${rows}) and migrate ` +
      'again. That makes the tables that are missing, empty, and leaves the others as they are.',
  );
}

/** @throws SchemaError if a table does not exist. */
export function refuseMissing({ missing }: Findings): void {
  if (!missing) return;
  throw new SchemaError(
    `There is no table ${missing}. Run ${SETTINGS.migrate}: it makes the table, or says how to bring it back.`,
  );
}
