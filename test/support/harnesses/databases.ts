import type { EntityManager } from '@mikro-orm/core';
import { dialectName } from '../../../entities/dialect-name.js';
import { betterSqlite } from './better-sqlite.js';
import type { Database } from './database.js';
import { libsql } from './libsql.js';
import { mariadb } from './mariadb.js';
import { mysql } from './mysql.js';
import { pglite } from './pglite.js';
import { postgresql } from './postgresql.js';
import { sqlite } from './sqlite.js';
import { areAllRequired, areChosen } from '../run.js';

/** Every database, with everything that tests know about it. In each dialect the fastest comes first. */
export const DATABASES = {
  'better-sqlite': betterSqlite,
  sqlite,
  postgresql,
  mysql,
  mariadb,
  libsql,
  pglite,
};

type Databases = typeof DATABASES;

type NamesOf<Kind> = {
  [Name in keyof Databases]: Databases[Name] extends { kind: Kind } ? Name : never;
}[keyof Databases];

export type FileName = NamesOf<'file'>;
export type ServerName = NamesOf<'server'>;

/** The databases that all tests run on. */
export type DatabaseName = FileName | ServerName;

const NAMES = Object.keys(DATABASES) as (keyof Databases)[];

const namesOf = <Kind extends 'file' | 'server'>(kind: Kind) =>
  NAMES.filter((name): name is NamesOf<Kind> => DATABASES[name].kind === kind);

export const FILE_DATABASES = namesOf('file');
export const SERVERS = namesOf('server');

/**
 * Drivers of one dialect share most code, and `npm test` should take only minutes: unless the databases are named, each
 * dialect is tested with its first database.
 */
export function isTested(name: keyof Databases): boolean {
  const { isAvailable, dialect } = DATABASES[name];
  const ofDialect = NAMES.filter((each) => DATABASES[each].dialect === dialect && DATABASES[each].isAvailable());
  return isAvailable() && (areChosen() || areAllRequired() || ofDialect[0] === name);
}

/** The databases that are left out because another one has the same dialect. */
export const repeatedDatabases = () => NAMES.filter((name) => DATABASES[name].isAvailable() && !isTested(name));

/** The harness of an `EntityManager`'s database, or of one with the same dialect. */
export function harnessOf(em: EntityManager): Database {
  const dialect = dialectName(em.getPlatform());
  const found = Object.values<Database>(DATABASES).find((each) => each.dialect === dialect);
  if (!found) throw new Error(`No harness has the dialect ${dialect}`);
  return found;
}
