import { aString, object, type Check } from '../src/model/arguments.js';
import { SchemaError } from '../src/model/errors.js';

/** Schema and names of the tables in a host's database. */
export interface AdkEntityOptions {
  /** The database schema of the tables (on MySQL and MariaDB: the database); by default the ORM's own. */
  schema?: string;
  /** The beginning of the names of tables, indexes and constraints; `adk_` by default. */
  tablePrefix?: string;
}

/** @throws SchemaError for a name with a question mark, which MikroORM would replace by a value. */
export function refusePlaceholder(name: string): void {
  if (name.includes('?')) {
    throw new SchemaError("The names of schema and tables must not hold '?'. Choose another schema or tablePrefix.");
  }
}

const aName: Check = (value, name) => {
  aString(value, name);
  refusePlaceholder(String(value));
};

export const checkEntityOptions = object<AdkEntityOptions>({ schema: aName, tablePrefix: aName });

export const DEFAULT_PREFIX = 'adk_';

/** The names of one set of entities, which the host's naming strategy must not change. */
export interface Naming {
  /** Adds the prefix to the name of an index or a constraint. */
  named(suffix: string): string;
  table(suffix: string): { tableName: string; schema?: string };
}

export function naming(options: AdkEntityOptions = {}): Naming {
  const { schema, tablePrefix = DEFAULT_PREFIX } = checkEntityOptions(options, 'The options of adkEntities');
  return {
    named: (suffix) => tablePrefix + suffix,
    table: (suffix) => ({ tableName: tablePrefix + suffix, ...(schema !== undefined && { schema }) }),
  };
}
