import { AbstractSqlConnection } from '@mikro-orm/sqlite';
import type { DatabaseName } from './servers.js';

/** What tests have to know of the MikroORM that they run on. */
export const isMikroOrm7 = 'getClient' in AbstractSqlConnection.prototype;

/** Whether the driver waits for a lock by stopping the process. */
export const isSynchronous = (name: DatabaseName) => name === 'better-sqlite';

/** It does not parse every double exactly. MikroORM 7 uses it for MariaDB, too. */
export const isReadByMysql2 = (name: DatabaseName) => name === 'mysql' || (name === 'mariadb' && isMikroOrm7);
