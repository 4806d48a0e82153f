import type { Platform } from '@mikro-orm/core';

/** The databases this package speaks to. */
export type DialectName = 'sqlite' | 'postgresql' | 'mysql' | 'mariadb';

/** MariaDB's platform extends MySQL's, so it is found first on the way up the prototype chain. */
const PLATFORMS: ReadonlyMap<string, DialectName> = new Map([
  ['BaseSqlitePlatform', 'sqlite'],
  ['PostgreSqlPlatform', 'postgresql'],
  ['MySqlPlatform', 'mysql'],
  ['MariaDbPlatform', 'mariadb'],
]);

/**
 * Tells which database a MikroORM platform stands for; the only place that decides it.
 * By class name, since importing the classes would import every driver.
 */
export function dialectName(platform: Platform): DialectName | undefined {
  for (let type: unknown = platform.constructor; typeof type === 'function'; type = Object.getPrototypeOf(type)) {
    const name = PLATFORMS.get(type.name);
    if (name) return name;
  }
  return undefined;
}
