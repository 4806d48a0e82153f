import type { Platform } from '@mikro-orm/core';
import { SchemaError } from '../src/model/errors.js';

/** The databases this package speaks to. */
export type DialectName = 'sqlite' | 'postgresql' | 'mysql' | 'mariadb';

/**
 * Finds out which database a MikroORM platform is for; nothing else decides that. It looks at the column types that the
 * platform declares: to import its class is to import every driver, and a bundler changes the name of the class.
 */
export function dialectName(platform: Platform): DialectName | undefined {
  switch (platform.getBooleanTypeDeclarationSQL()) {
    case 'integer':
      return 'sqlite';
    case 'tinyint(1)':
      // MariaDB has no JSON type: in conditions its platform compares JSON as text, that of MySQL as a document.
      return typeof platform.convertJsonToDatabaseValue({}, { mode: 'query' }) === 'string' ? 'mariadb' : 'mysql';
    default:
      return platform.getJsonDeclarationSQL() === 'jsonb' ? 'postgresql' : undefined;
  }
}

/** What is asked of a database where its `Dialect` is not at hand: in entities, in migrations, below the dialects. */
interface DialectTraits {
  /** Whether a table can be in a schema. */
  hasSchemas: boolean;
  /** Whether it runs in this process, so that a connection has no server that could be lost. */
  isInProcess: boolean;
  /** What names are quoted with. */
  quote: '"' | '`';
}

export const TRAITS: Readonly<Record<DialectName, DialectTraits>> = {
  sqlite: { hasSchemas: false, isInProcess: true, quote: '`' },
  postgresql: { hasSchemas: true, isInProcess: false, quote: '"' },
  mysql: { hasSchemas: true, isInProcess: false, quote: '`' },
  mariadb: { hasSchemas: true, isInProcess: false, quote: '`' },
};

/** What is thrown for every other database. */
export const unsupportedDatabase = () =>
  new SchemaError('adk-mikro-orm runs on SQLite, PostgreSQL, MySQL and MariaDB only.');

/** @throws SchemaError for a database that is not supported. */
export function supportedDialect(platform: Platform): DialectName {
  const name = dialectName(platform);
  if (!name) throw unsupportedDatabase();
  return name;
}
