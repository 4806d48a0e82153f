import { setTimeout } from 'node:timers/promises';
import type { DialectName } from '../entities/dialect-name.js';
import type { AttemptConnection } from '../src/database/calls/connection.js';
import { numberOf } from '../src/database/sql/row-values.js';
import type { Database } from '../src/database/calls/database.js';
import { SchemaError } from '../src/model/errors.js';

/**
 * Statements that come first in a transaction and let one migration of this package run at a time, on databases that make
 * tables in transactions: the lock is the transaction's and ends with it, also when the process is killed. One server takes
 * all writes. The others have a `MigrationLease`.
 */
export const TRANSACTION_LOCKS = {
  // Writes lock the file. A transaction that reads first fails when it writes and another process has written in between.
  sqlite: ['create table adk_migrating (x)', 'drop table adk_migrating'],
  postgresql: [`select pg_advisory_xact_lock(hashtextextended('adk-mikro-orm', 0))`],
  mysql: undefined,
  mariadb: undefined,
} as const satisfies Record<DialectName, readonly string[] | undefined>;

/** What must precede the transaction. */
export const BEFORE_MIGRATIONS: Readonly<Record<DialectName, string | undefined>> = {
  // SQLite refuses this in a transaction. The file keeps the mode.
  sqlite: 'pragma journal_mode = wal',
  postgresql: undefined,
  mysql: undefined,
  mariadb: undefined,
};

/** How long the lease of a process that was killed keeps others waiting; less than they wait. */
const LEASE_MS = 30_000;
const WAIT_MS = 60_000;

/** The longest time between two checks, which come at random. */
const LOOK_MS = 200;

const ROW = "name = 'migrating'";

/** Somebody else has taken the lease over. */
export class Overtaken extends Error {}

/**
 * Lets one process migrate at a time on MySQL and MariaDB. There `create table` commits, so no transaction can hold a lock
 * meanwhile; and a named lock counts for one server, where a cluster (Galera) has several that take writes. So the lock is a
 * row among the counters with the time when it may be taken over. It is committed at each change, since the nodes of a
 * cluster compare what they have changed when they commit: a row that is only locked stops no other node.
 *
 * A process whose statement takes longer than the lease is overtaken. Both then run the same statements, which may be
 * repeated and wait for each other, and `hold` lets one of them note that they were run.
 */
export class MigrationLease {
  readonly #database: Database;
  readonly #counters: string;
  /** What the row holds as long as the lease is this process's: its end in ms, by the server's clock. No other lease has it. */
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
    const deadline = performance.now() + WAIT_MS;
    for (;;) {
      const end = await tryToTake(database, counters);
      if (end !== undefined) return new MigrationLease(database, counters, end);
      if (performance.now() > deadline) {
        throw new SchemaError('Another process has been migrating for a minute. Try again when it has finished.');
      }
      await setTimeout(Math.random() * LOOK_MS);
    }
  }

  /**
   * Keeps the lease until the end of a transaction, and fails the commit of anybody who takes it meanwhile.
   *
   * @param connection the transaction's.
   * @throws Overtaken when the lease is another's.
   */
  async hold(connection: AttemptConnection): Promise<void> {
    // A write that changes nothing is no write to a cluster.
    const sql = `update ${this.#counters} set value = value + 1 where ${ROW} and value = ${this.#end}`;
    const { affectedRows } = await connection.command(sql);
    if (numberOf(affectedRows) === 0) throw new Overtaken();
    this.#end++;
  }

  /** If that fails, the lease ends by itself. */
  async release(): Promise<void> {
    const sql = `delete from ${this.#counters} where ${ROW} and value = ${this.#end}`;
    await this.#database.statement((connection) => connection.run(sql)).catch(() => undefined);
  }
}

/** @returns the end of the lease; undefined when somebody else has it. */
async function tryToTake(database: Database, counters: string): Promise<number | undefined> {
  const [clock] = await database.run((sql) =>
    sql.all<{ now: number | string }>(`select floor(${database.dialect.sql.now}) as now`),
  );
  const now = numberOf(clock?.now);
  const end = now + LEASE_MS;
  const { affectedRows } = await database.statement((sql) =>
    sql.run(`update ${counters} set value = ${end} where ${ROW} and value < ${now}`),
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
