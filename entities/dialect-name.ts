import type { Platform } from '@mikro-orm/core';
import { SchemaError } from '../src/model/errors.js';

/** The databases this package speaks to. */
export type DialectName = 'sqlite' | 'postgresql' | 'mysql' | 'mariadb';

/**
 * The only place that decides which database a MikroORM platform is for: by the column types that it declares. Its class cannot be
 * used, since that would import every driver, and bundlers change class names.
 */
export function dialectName(platform: Platform): DialectName | undefined {
  switch (platform.getBooleanTypeDeclarationSQL()) {
    case 'integer':
      return 'sqlite';
    case 'tinyint(1)':
      // In conditions, the platform of MariaDB, which has no JSON type, compares JSON as text, and that of MySQL as a document.
      return typeof platform.convertJsonToDatabaseValue({}, { mode: 'query' }) === 'string' ? 'mariadb' : 'mysql';
    default:
      return platform.getJsonDeclarationSQL() === 'jsonb' ? 'postgresql' : undefined;
  }
}

/** Facts about a database for code without a `Dialect`: entities, migrations, and rooms below the dialects. */
interface DialectTraits {
  /** Whether a table can be in a schema. */
  hasSchemas: boolean;
  /** Whether it runs in this process, so that a connection has no server that could be lost. */
  isInProcess: boolean;
  /** The quote of names. */
  quote: '"' | '`';
}

export const TRAITS: Readonly<Record<DialectName, DialectTraits>> = {
  sqlite: { hasSchemas: false, isInProcess: true, quote: '`' },
  postgresql: { hasSchemas: true, isInProcess: false, quote: '"' },
  mysql: { hasSchemas: true, isInProcess: false, quote: '`' },
  mariadb: { hasSchemas: true, isInProcess: false, quote: '`' },
};

/** @returns a name in SQL, after that of its schema if there is one. */
export const quotedName = (quote: string, ...names: readonly (string | undefined)[]): string =>
  names.flatMap((name) => (name ? [quote + name.replaceAll(quote, quote + quote) + quote] : [])).join('.');

export const unsupportedDatabase = () =>
  new SchemaError('adk-mikro-orm runs on SQLite, PostgreSQL, MySQL and MariaDB only.');

/** @throws SchemaError for a database that is not supported. */
export function supportedDialect(platform: Platform): DialectName {
  const name = dialectName(platform);
  if (!name) throw unsupportedDatabase();
  return name;
}
