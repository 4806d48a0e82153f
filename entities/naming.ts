import { aString, object, type Check } from '../src/model/arguments.js';
import { InvalidArgumentError, SchemaError } from '../src/model/errors.js';
import { isStorable } from '../src/model/keys.js';

/** Schema and names of the tables in a host's database. */
export interface AdkEntityOptions {
  /** The database schema of the tables (on MySQL and MariaDB: the database); by default the ORM's own. */
  schema?: string;
  /** The beginning of the names of tables, indexes and constraints, at most 32 bytes of UTF-8; `adk_` by default. */
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
  if (!isStorable(String(value)))
    throw new InvalidArgumentError(`${name} must hold no NUL and no half of a surrogate pair.`);
};

/** PostgreSQL cuts names after 63 bytes. This leaves room for the longest name of an index or a constraint after the prefix. */
const MOST_PREFIX_BYTES = 32;

const aPrefix: Check = (value, name) => {
  aName(value, name);
  if (Buffer.byteLength(String(value)) > MOST_PREFIX_BYTES)
    throw new InvalidArgumentError(`${name} must have at most ${MOST_PREFIX_BYTES} bytes of UTF-8.`);
};

export const checkEntityOptions = object<AdkEntityOptions>({ schema: aName, tablePrefix: aPrefix });

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
