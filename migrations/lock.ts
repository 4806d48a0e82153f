import type { DialectName } from '../entities/dialect-name.js';
import type { Sql } from '../src/database/dialects/dialect.js';
import { numberOf } from '../src/database/sql/values.js';
import type { Database } from '../src/database/calls/database.js';
import { now } from '../src/model/clock.js';
import { SchemaError } from '../src/model/errors.js';
import { pause } from '../src/model/signals.js';

/**
 * The first statements of a transaction, which let only one migration of this package run at a time, on databases that create tables in
 * transactions and have one server for all writes. The lock ends with the transaction, even if the process is killed. The other
 * databases have a `MigrationLease`.
 */
export const TRANSACTION_LOCKS = {
  // A write locks the file. A transaction that reads first would fail if another process writes before it does.
  sqlite: ['create table adk_migrating (x)', 'drop table adk_migrating'],
  postgresql: [`select pg_advisory_xact_lock(hashtextextended('adk-mikro-orm', 0))`],
  mysql: undefined,
  mariadb: undefined,
} as const satisfies Record<DialectName, readonly string[] | undefined>;

/** How long the lease of a killed process makes others wait; less than their limit. */
const LEASE_MS = 30_000;
const WAIT_MS = 60_000;

/** The longest time between two checks, which is random. */
const LOOK_MS = 200;

const ROW = "name = 'migrating'";

/** Another process has taken over the lease. */
export class Overtaken extends Error {}

/**
 * Lets only one process migrate at a time on MySQL and MariaDB. There, `create table` commits, so no transaction can keep a lock; and a
 * named lock is one server's, but in a cluster (Galera) several accept writes. So the lock is a row among the counters, with the time
 * at which it may be taken over. Each change is committed, since the nodes of a cluster compare changes only at the commit: a row
 * that is only locked does not stop other nodes.
 *
 * If a statement takes longer than the lease, another process takes over. Both then run the same statements, which are repeatable and
 * wait for each other, and `hold` allows only one of them to record them as executed.
 */
export class MigrationLease {
  readonly #database: Database;
  readonly #counters: string;
  /** The value of the row while this process has the lease: its end in ms, by the server's clock. No other lease has the same. */
  #end: number;

  private constructor(database: Database, counters: string, end: number) {
    this.#database = database;
    this.#counters = counters;
    this.#end = end;
  }

  /**
   * Waits until nobody else has the lease.
   *
   * @param counters the table for the row, quoted.
   * @throws SchemaError after a minute.
   */
  static async take(database: Database, counters: string): Promise<MigrationLease> {
    const deadline = now() + WAIT_MS;
    for (;;) {
      const end = await tryToTake(database, counters);
      if (end !== undefined) return new MigrationLease(database, counters, end);
      if (now() > deadline) {
        throw new SchemaError('Another process has been migrating for a minute. Try again when it has finished.');
      }
      await pause(Math.random() * LOOK_MS);
    }
  }

  /**
   * Keeps the lease until the end of a transaction: if another process takes it meanwhile, its commit fails.
   *
   * @param sql of the transaction.
   * @throws Overtaken if another process has the lease.
   */
  async hold(sql: Sql): Promise<void> {
    // Changes the value, since a cluster ignores a write that changes nothing.
    const text = `update ${this.#counters} set value = value + 1 where ${ROW} and value = ${this.#end}`;
    if ((await sql.run(text)).affectedRows === 0) throw new Overtaken();
    this.#end++;
  }

  /** Releases the lease. If that fails, it expires. */
  async release(): Promise<void> {
    const sql = `delete from ${this.#counters} where ${ROW} and value = ${this.#end}`;
    await this.#database.statement((connection) => connection.run(sql)).catch(() => undefined);
  }
}

/** @returns the end of the lease; undefined if another process has it. */
async function tryToTake(database: Database, counters: string): Promise<number | undefined> {
  const [clock] = await database.run((sql) =>
    sql.all<{ now: number | string }>(`select floor(${database.dialect.sql.now}) as now`),
  );
  const from = numberOf(clock?.now);
  const end = from + LEASE_MS;
  const { affectedRows } = await database.statement((sql) =>
    sql.run(`update ${counters} set value = ${end} where ${ROW} and value < ${from}`),
  );
  if (affectedRows > 0) return end;
  try {
    await database.statement((sql) => sql.run(`insert into ${counters} (name, value) values ('migrating', ${end})`));
    return end;
  } catch (error) {
    if (database.failureOf(error) === 'duplicate') return undefined;
    throw error;
  }
}
