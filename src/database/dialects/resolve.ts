import type { Platform } from '@mikro-orm/core';
import { supportedDialect } from '../../../entities/dialect-name.js';
import type { Dialect } from './dialect.js';
import { mariadb } from './mariadb.js';
import { mysql } from './mysql.js';
import { postgresql } from './postgresql.js';
import { sqlite } from './sqlite.js';

export const DIALECTS = { sqlite, postgresql, mysql, mariadb };

/** @throws SchemaError for a database that is not supported. */
export function resolveDialect(platform: Platform): Dialect {
  return DIALECTS[supportedDialect(platform)];
}
