import type { EntityManager, Transaction } from '@mikro-orm/core';
import type { Migration, MigrationStorage } from '@mikro-orm/migrations';
import type { DialectName } from '../entities/dialect-name.js';
import { Deadline, type AttemptConnection } from '../src/database/calls/connection.js';
import { tablesOf } from '../src/database/sql/tables.js';
import { Database } from '../src/database/calls/database.js';
import { now } from '../src/model/clock.js';
import { driverCodeOf } from '../src/model/errors.js';
import { passingOf } from '../src/model/failures.js';
import { pause } from '../src/model/signals.js';
import type { AdkMigration } from './adk-migrations.js';
import { executedNames } from './executed-names.js';
import { MigrationLease, Overtaken, TRANSACTION_LOCKS } from './lock.js';

/** How often conflicts between the nodes of a cluster are retried. */
const ATTEMPTS = 10;

/** @returns a migration with its statements, not yet executed. @throws SchemaError if they would do harm. */
export async function readyToRun(
  { class: Class }: AdkMigration,
  em: EntityManager,
  transaction?: Transaction,
): Promise<Migration> {
  const migration = new Class(em.getDriver() as ConstructorParameters<typeof Migration>[0], em.config);
  migration.setTransactionContext(transaction);
  await migration.up();
  return migration;
}

/** Runs the migrations that a database still needs, in one process at a time. */
export class PendingMigrations {
  readonly #em: EntityManager;
  /** See `TRANSACTION_LOCKS`; undefined where a lease is taken. */
  readonly #lock: readonly string[] | undefined;
  readonly #storage: MigrationStorage;
  readonly #all: readonly AdkMigration[];

  /**
   * @param storage MikroORM's list of executed migrations.
   * @param all the migrations, the oldest first.
   */
  constructor(em: EntityManager, dialect: DialectName, storage: MigrationStorage, all: readonly AdkMigration[]) {
    this.#em = em;
    this.#lock = TRANSACTION_LOCKS[dialect];
    this.#storage = storage;
    this.#all = all;
  }

  /** Creates MikroORM's table of migrations, except on MySQL and MariaDB, where `run` does. */
  async prepare(): Promise<void> {
    if (this.#lock) await this.#ensureNotes();
  }

  async list(transaction?: Transaction): Promise<AdkMigration[]> {
    const executed = new Set(await executedNames(this.#em, transaction));
    return this.#all.filter(({ name }) => !executed.has(name));
  }

  /** Retries if another process creates the schema or the table at the same time. */
  async #ensureNotes(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await patiently(() => this.#storage.ensureTable());
        return;
      } catch (error) {
        // The schema and the table may each cost one more attempt.
        if (attempt > 2) throw error;
      }
    }
  }

  /** @throws SchemaError if another process has been migrating for a minute. */
  async run(): Promise<void> {
    if (this.#lock) await this.#runInTransaction(this.#lock);
    else await this.#runUnderLease();
  }

  async #runInTransaction(lock: readonly string[]): Promise<void> {
    await patiently(() =>
      this.#onConnection((connection) =>
        connection.transaction(async (_, pipeline) => {
          for (const sql of lock) pipeline.later(sql);
          await pipeline.flush();
          const transaction: unknown = connection.context;
          for (const migration of await this.list(transaction)) {
            await this.#execute(migration, transaction);
            await this.#note(migration, transaction);
          }
        }),
      ),
    );
  }

  async #runUnderLease(): Promise<void> {
    const database = new Database(this.#em);
    const { counters } = tablesOf(this.#em);
    for (let attempt = 1; ; attempt++) {
      try {
        const [next] = await this.list();
        if (!next) return;
        // The first migration creates the table with the lease, so it runs without one. Its statements may run twice at once.
        if (next === this.#all[0]) {
          await this.#onConnection((connection) => this.#execute(next, connection.context));
        }
        const lease = await MigrationLease.take(database, counters);
        try {
          // Before this process has a connection, since this needs one, too. MikroORM creates its table without `if not exists`: if two
          // servers of a group do that at once, none can apply the other's transaction, and all leave the group.
          await this.#ensureNotes();
          const migrations = await this.list();
          await this.#onConnection((connection) => this.#runAll(migrations, lease, connection));
        } finally {
          await lease.release();
        }
      } catch (error) {
        const isPassing = error instanceof Overtaken || passingOf(database.failureOf(error)) === 'conflict';
        if (!isPassing || attempt === ATTEMPTS) throw error;
      }
    }
  }

  async #runAll(
    migrations: readonly AdkMigration[],
    lease: MigrationLease,
    connection: AttemptConnection,
  ): Promise<void> {
    const context: unknown = connection.context;
    for (const migration of migrations) {
      await this.#execute(migration, context);
      await connection.transaction(async (sql) => {
        await lease.hold(sql);
        await this.#note(migration, context);
      });
    }
  }

  async #execute(pending: AdkMigration, context: Transaction): Promise<void> {
    const migration = await readyToRun(pending, this.#em, context);
    for (const sql of migration.getQueries()) await migration.execute(sql);
  }

  /** Adds a migration to MikroORM's list of executed ones. */
  async #note({ name }: AdkMigration, transaction: Transaction): Promise<void> {
    this.#storage.setMasterMigration(transaction);
    try {
      // The type of MikroORM 6 requires `context`, that of MikroORM 7 does not have it.
      const entry = { name, context: null };
      await this.#storage.logMigration(entry);
    } finally {
      this.#storage.unsetMasterMigration();
    }
  }

  async #onConnection(work: (connection: AttemptConnection) => Promise<void>): Promise<void> {
    const { connections } = new Database(this.#em);
    await connections.use(new Deadline({ timeoutMs: 0 }), async (connection) => {
      try {
        await work(connection);
      } catch (error) {
        // Closes the connection, which ends its transaction.
        connection.spoil();
        throw error;
      }
    });
  }
}

/** Tries for a minute while another process locks the SQLite file: `busy_timeout` is shorter, and SQLite sometimes ignores it. */
export async function patiently<T>(work: () => Promise<T>): Promise<T> {
  const deadline = now() + 60_000;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!driverCodeOf(error)?.startsWith('SQLITE_BUSY') || now() > deadline) throw error;
    }
    await pause(Math.random() * 100);
  }
}
