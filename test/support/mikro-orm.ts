import { BetterSqliteDriver as BetterSqliteDriverOf6 } from '@mikro-orm/better-sqlite';
import { AbstractSqlConnection, SqliteDriver } from '@mikro-orm/sqlite';

/** Whether tests run on MikroORM 7. */
export const isMikroOrm7 = 'getClient' in AbstractSqlConnection.prototype;

/** The driver for better-sqlite3, which is in MikroORM 7's package for SQLite. */
export const BetterSqliteDriver = isMikroOrm7 ? SqliteDriver : BetterSqliteDriverOf6;

/** Options for a driver's connection, where this MikroORM expects them. */
export const connectionOptions = (connection: object) => (isMikroOrm7 ? connection : { connection });
