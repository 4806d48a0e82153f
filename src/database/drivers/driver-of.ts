import { processWide } from '../../model/process-wide.js';
import type { Driver } from './driver.js';
import { MariadbConnector, isMariadb } from './mariadb-connector.js';
import { Mysql2, isMysql2 } from './mysql2.js';
import { NodePostgres, isPostgresClient } from './node-postgres.js';
import { AsynchronousDriver, SynchronousDriver, isAsynchronousSqlite, isSynchronousSqlite } from './sqlite.js';

const drivers = processWide('drivers', () => new WeakMap<object, Driver>());

/** @returns the same object for the same connection; undefined if its driver is not known. */
export function driverOf(raw: object): Driver | undefined {
  const known = drivers.get(raw);
  if (known) return known;
  const driver = newDriver(raw);
  if (driver) drivers.set(raw, driver);
  return driver;
}

function newDriver(raw: object): Driver | undefined {
  if (isSynchronousSqlite(raw)) return new SynchronousDriver(raw);
  if (isAsynchronousSqlite(raw)) return new AsynchronousDriver(raw);
  if (isPostgresClient(raw)) return new NodePostgres(raw);
  if (isMysql2(raw)) return new Mysql2(raw);
  return isMariadb(raw) ? new MariadbConnector(raw) : undefined;
}
