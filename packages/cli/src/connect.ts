import { MikroORM, Utils, type Options } from '@mikro-orm/core';
import type { DialectName } from '../../../migrations/index.js';
import { adkEntities } from '../../../src/index.js';
import { installedSqlite } from '../../../src/internal.js';
import { LAZILY, hostOrm, ormOf } from './mikro-orm.js';
import { UsageError } from './errors.js';
import { checkExists } from './files.js';

/** Where the database is. If both are left out, MikroORM's own rules find the host's config. */
export interface ConnectionOptions {
  config?: string;
  url?: string;
}

/**
 * @param mayCreate whether to create a SQLite file that does not exist.
 * @returns an ORM that knows the entities of this package; the caller closes it.
 * @throws UsageError if there is no config, no driver or no file.
 */
export async function connect({ config, url }: ConnectionOptions, mayCreate: boolean): Promise<MikroORM> {
  if (url !== undefined) return open(url, { entities: adkEntities() }, mayCreate);
  if (config !== undefined) checkExists(config);
  return hostOrm(config);
}

/**
 * @param url the database of another store, which is only read.
 * @returns an ORM without entities; the caller closes it.
 */
export function connectForeign(url: string): Promise<MikroORM> {
  return open(url, { entities: [], discovery: { warnWhenNoEntities: false } }, false);
}

async function open(url: string, options: Partial<Options>, mayCreate: boolean): Promise<MikroORM> {
  const database = await databaseOptions(url);
  if (!mayCreate) checkPlace(database);
  return MikroORM.init({ ...database, ...options, ...LAZILY });
}

function checkPlace({ dbName, clientUrl }: Partial<Options>): void {
  if (clientUrl === undefined && dbName !== undefined && dbName !== ':memory:') checkExists(dbName);
}

/**
 * Loads every driver that is installed, for callers that cannot wait for one later.
 *
 * @returns like `connect` with a URL. The file of a SQLite database has to exist.
 */
export async function connector(): Promise<(url: string) => MikroORM> {
  const drivers = new Map<DialectName, PromiseSettledResult<Options['driver']>>();
  for (const scheme of SCHEMES) drivers.set(scheme, ...(await Promise.allSettled([driverOf(scheme)])));
  return (url) => {
    const scheme = schemeOf(url);
    const driver = drivers.get(scheme);
    if (driver?.status !== 'fulfilled') throw driver?.reason;
    const place = placeOf(scheme, url);
    checkPlace(place);
    return ormOf({ driver: driver.value, ...place, entities: adkEntities() });
  };
}

/** By the scheme of a URL, which is also the end of the package's name. */
const DRIVERS: Readonly<Record<DialectName, () => Promise<Options['driver']>>> = {
  sqlite: sqliteDriver,
  postgresql: async () => (await import('@mikro-orm/postgresql')).PostgreSqlDriver,
  mysql: async () => (await import('@mikro-orm/mysql')).MySqlDriver,
  mariadb: async () => (await import('@mikro-orm/mariadb')).MariaDbDriver,
};

/** Not every package exists for every version of MikroORM. */
type SqliteExports = Partial<Record<'SqliteDriver' | 'BetterSqliteDriver' | 'LibSqlDriver', Options['driver']>>;

async function sqliteDriver(): Promise<Options['driver']> {
  const exported = await installedSqlite((name) => import(name) as Promise<SqliteExports>);
  return exported.LibSqlDriver ?? exported.BetterSqliteDriver ?? exported.SqliteDriver;
}

const isScheme = (name: string): name is DialectName => Object.hasOwn(DRIVERS, name);
const SCHEMES = Object.keys(DRIVERS).filter(isScheme);

/**
 * Turns a database URL into options for `MikroORM.init`. Loads that database's driver and no other.
 *
 * @param url `sqlite:<file>`, `sqlite::memory:`, `postgresql://…`, `mysql://…` or `mariadb://…`.
 * @returns the driver and where it connects to; add entities and whatever else you want.
 * @throws UsageError if the URL begins with something else, or the driver is not installed.
 */
export async function databaseOptions(url: string): Promise<Partial<Options>> {
  const scheme = schemeOf(url);
  return { driver: await driverOf(scheme), ...placeOf(scheme, url) };
}

const placeOf = (scheme: DialectName, url: string): Partial<Options> =>
  scheme === 'sqlite' ? { dbName: url.replace(/^sqlite:(\/\/)?/, '') } : { clientUrl: url };

function schemeOf(url: string): DialectName {
  const scheme = url.slice(0, url.indexOf(':')).replace(/^postgres$/, 'postgresql');
  if (isScheme(scheme)) return scheme;
  const schemes = SCHEMES.map((name) => `${name}:`);
  // The message does not show the URL, which can hold a password.
  throw new UsageError(`The database URL has to begin with ${schemes.slice(0, -1).join(', ')} or ${schemes.at(-1)}`);
}

async function driverOf(scheme: DialectName): Promise<Options['driver']> {
  try {
    return await DRIVERS[scheme]();
  } catch (cause) {
    const name = scheme === 'sqlite' ? 'libsql' : scheme;
    const driver = `@mikro-orm/${name}@${Utils.getORMVersion()}`;
    throw new UsageError(`This URL needs a driver that could not be loaded: npm install ${driver}`, { cause });
  }
}
