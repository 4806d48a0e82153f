import type { Platform } from '@mikro-orm/core';

/** The databases this package speaks to. */
export type DialectName = 'sqlite' | 'postgresql' | 'mysql' | 'mariadb';

/**
 * Tells which database a MikroORM platform stands for; the only place that decides it.
 * By the types that it declares: importing the classes would import every driver, and a bundler gives them other names.
 */
export function dialectName(platform: Platform): DialectName | undefined {
  switch (platform.getBooleanTypeDeclarationSQL()) {
    case 'integer':
      return 'sqlite';
    case 'tinyint(1)':
      // In a condition MySQL compares JSON with a document, MariaDB, which has no such type, with its text.
      return typeof platform.convertJsonToDatabaseValue({}, { mode: 'query' }) === 'string' ? 'mariadb' : 'mysql';
    default:
      return platform.getJsonDeclarationSQL() === 'jsonb' ? 'postgresql' : undefined;
  }
}
