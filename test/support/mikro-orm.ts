import { BetterSqliteDriver as BetterSqliteDriverOf6 } from '@mikro-orm/better-sqlite';
import { AbstractSqlConnection, SqliteDriver } from '@mikro-orm/sqlite';
import type { DatabaseName } from './servers.js';

/** What tests have to know of the MikroORM that they run on. */
export const isMikroOrm7 = 'getClient' in AbstractSqlConnection.prototype;

/** Whether the driver waits for a lock by stopping the process. */
export const isSynchronous = (name: DatabaseName) => name === 'better-sqlite';

/** It does not parse every double exactly. MikroORM 7 uses it for MariaDB, too. */
export const isReadByMysql2 = (name: DatabaseName) => name === 'mysql' || (name === 'mariadb' && isMikroOrm7);

/** better-sqlite3, which MikroORM 7 has in its package for SQLite. */
export const BetterSqliteDriver = isMikroOrm7 ? SqliteDriver : BetterSqliteDriverOf6;

/** Options of a driver's connection, in the place where MikroORM looks for them. */
export const connectionOptions = (connection: object) => (isMikroOrm7 ? connection : { connection });
