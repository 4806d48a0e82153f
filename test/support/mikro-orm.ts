import { BetterSqliteDriver as BetterSqliteDriverOf6 } from '@mikro-orm/better-sqlite';
import { AbstractSqlConnection, SqliteDriver } from '@mikro-orm/sqlite';

/** What tests have to know of the MikroORM that they run on. */
export const isMikroOrm7 = 'getClient' in AbstractSqlConnection.prototype;

/** better-sqlite3, which MikroORM 7 has in its package for SQLite. */
export const BetterSqliteDriver = isMikroOrm7 ? SqliteDriver : BetterSqliteDriverOf6;

/** Options of a driver's connection, in the place where MikroORM looks for them. */
export const connectionOptions = (connection: object) => (isMikroOrm7 ? connection : { connection });
