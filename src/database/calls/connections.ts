import { DriverException, type EntityManager } from '@mikro-orm/core';
import { supportedDialect, type DialectName } from '../../../entities/dialect-name.js';
import { SchemaError } from '../../model/errors.js';
import { isUncertain, passingOf, spoilsConnection, type Failure } from '../../model/failures.js';
import type { CommonOptions } from '../../model/options.js';
import { processWide } from '../../model/process-wide.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import { resolveDialect } from '../dialects/resolve.js';
import { refuseSettings } from '../dialects/settings.js';
import type { Driver } from '../drivers/driver.js';
import { ormConnectionOf } from '../orm/orm-connection.js';
import type { OrmConnection } from '../orm/reserved-connection.js';
import { Aborted, AttemptConnection, Deadline, TimedOut, type SentWith } from './connection.js';
import { perTables, type Tables } from '../sql/tables.js';
import { refuseDriver, refuseServer } from './driver-check.js';
import { failureOf } from './failure-of.js';
import { isOwn } from './public-error.js';
import { Pipeline, Statements } from './sql.js';

/** The prefix of statements, by the ORM's connection; see `clusterPrefix`. */
const prefixes = new WeakMap<object, string>();

/**
 * Connections whose settings were checked. Shared, since later the host, or the projection of another copy, may have changed them for
 * a transaction.
 */
const checked = processWide('checked connections', () => new WeakMap<Driver, { readonly mayBeDistributed: boolean }>());

/** What connections know about the distribution of tables. */
const serverTables = new WeakMap<Driver, ServerTables>();

interface ServerTables {
  /** The dialects of tables, by their name; undefined for tables that are not distributed. */
  distributed: Map<string, Dialect | undefined>;
  /** The count of `distributions` at that time. */
  since: number;
}

/** How often tables were distributed in this process. */
const distributions = processWide('distributions', () => ({ count: 0 }));

/** Makes each connection of this process ask again which tables are distributed. */
export function forgetDistribution(): void {
  distributions.count++;
}

/** The ORMs whose connection is set up, and those whose set-up is under way. */
const prepared = processWide('prepared', () => new WeakSet<object>());
const beingPrepared = processWide('being prepared', () => new WeakMap<object, Promise<void>>());

/** See `timeoutMs` of the options. */
const DEFAULT_TIMEOUT_MS = 30_000;

export interface DatabaseOptions extends CommonOptions {
  /** The database belongs to another program, and is only read: its settings are not changed. */
  isForeign?: boolean;
}

/** A copy of the names, since texts of statements are kept by their tables, and are different for distributed ones. */
const distributedTables = perTables(({ tables }: { tables: Tables }): Tables => ({ ...tables }));

/** Connections of a host's ORM for the attempts of calls, set up and checked before our first statement (contract O7). */
export class Connections {
  readonly orm: OrmConnection;
  readonly statements: Statements;
  readonly dialect: Dialect;
  readonly system: DialectName;
  /** Limits an attempt. */
  readonly timeoutMs: number;
  readonly #em: EntityManager;
  readonly #options: DatabaseOptions;
  readonly #tables: () => Tables;

  constructor(em: EntityManager, options: DatabaseOptions, tables: () => Tables) {
    this.system = supportedDialect(em.getPlatform());
    this.dialect = resolveDialect(em.getPlatform());
    this.orm = ormConnectionOf(em);
    this.statements = new Statements(em);
    this.#em = em;
    this.#options = options;
    this.timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#tables = tables;
  }

  /**
   * Runs an attempt on one connection of the host's pool. The connection goes back to the pool, unless its transaction may be open.
   * Then it is destroyed, so that the server rolls back and no later statement runs in that transaction (contract O5).
   *
   * @param deadline is cleared at the end.
   * @throws TimedOut, Aborted at the deadline.
   */
  async use<T>(deadline: Deadline, work: (connection: AttemptConnection, prefix: string) => Promise<T>): Promise<T> {
    try {
      const reserved = await deadline.within(this.orm.reserve(), (late) => late.release());
      const { driver, destroy } = reserved;
      const connection = new AttemptConnection(this, reserved, deadline);
      try {
        const server = checked.get(driver);
        const isChecked = server && (!server.mayBeDistributed || this.#knowsTables(driver));
        const prefix = isChecked ? prefixes.get(this.orm) : undefined;
        const working =
          prefix === undefined
            ? this.#checked(driver).then((found) => work(connection, found))
            : work(connection, prefix);
        // A database in this process always answers, and a statement on it cannot be stopped.
        return await (destroy ? deadline.within(working) : working);
      } catch (error) {
        if (error instanceof TimedOut || error instanceof Aborted || this.spoils(error)) connection.spoil();
        throw error;
      } finally {
        // If `work` sends a statement after the deadline, it fails, since the connection is destroyed by then.
        await connection.end();
      }
    } finally {
      deadline.clear();
    }
  }

  spoils(error: unknown): boolean {
    return !isOwn(error) && spoilsConnection(this.failureOf(error));
  }

  /** @returns the prefix of statements; see `clusterPrefix`. @throws SchemaError for a connection that is refused. */
  async #checked(driver: Driver): Promise<string> {
    const prefix = prefixes.get(this.orm) ?? (await this.#prefix(driver));
    await this.#check(driver, false);
    return prefix;
  }

  #knowsTables(driver: Driver): boolean {
    if (this.#options.isForeign) return true;
    const known = serverTables.get(driver);
    return known?.since === distributions.count && known.distributed.has(this.#tables().sessions);
  }

  /** For statements on a connection that is in use, or in a host's transaction. */
  sql(driver: Driver, sentWith: SentWith = {}): Sql {
    return this.pipeline(driver, sentWith).sql;
  }

  /** The statements of a transaction, or of a call without one. @param beginning what begins the transaction. */
  pipeline(
    driver: Driver,
    { isInTransaction = false, prefix = '', refuse, behind }: SentWith,
    beginning?: readonly string[],
  ): Pipeline {
    const { postgresql, isForeign = false } = this.#options;
    const { isInProcess } = this.orm;
    const mayPrepare = postgresql?.preparedStatements ?? true;
    const known = isForeign ? undefined : serverTables.get(driver);
    const distributed = known?.distributed.get(this.#tables().sessions);
    const dialect = distributed ?? this.dialect;
    const tables = distributed ? () => distributedTables({ tables: this.#tables() }) : this.#tables;
    // Citus takes as long to plan a statement as to run it.
    const preparesAll = mayPrepare && distributed !== undefined;
    const sent = { isInTransaction, isInProcess, mayPrepare, preparesAll, isForeign };
    const context = { ...sent, prefix, refuse, behind, dialect, tables };
    return new Pipeline(this.statements, driver, context, beginning);
  }

  /** For statements in a host's transaction; checks its connection's settings first. @throws SchemaError for one that is refused. */
  async checkedPipeline(driver: Driver, sentWith: SentWith): Promise<Pipeline> {
    await this.#check(driver, true);
    return this.pipeline(driver, { ...sentWith, isInTransaction: true });
  }

  /**
   * The prefix of statements; the first call checks the driver and the server. Limited by the time of an attempt, since the server
   * may not answer.
   */
  async #prefix(driver: Driver): Promise<string> {
    refuseDriver(driver);
    const sql = this.sql(driver);
    if (!this.#options.isForeign) await refuseServer(sql, this.dialect);
    const prefix = (await this.dialect.connections.clusterPrefix?.(sql)) ?? '';
    prefixes.set(this.orm, prefix);
    return prefix;
  }

  /** Once for each connection; what a host sets on it later is not checked. @throws SchemaError. */
  async #check(driver: Driver, isInTransaction: boolean): Promise<void> {
    const { connections, distributed } = this.dialect;
    const sql = this.sql(driver, { isInTransaction });
    let server = checked.get(driver);
    if (!server) {
      const read = (text: string) => sql.all<object>(text);
      const mayBeDistributed = await refuseSettings(connections.settings, read, distributed?.isPossible);
      checked.set(driver, (server = { mayBeDistributed }));
    }
    if (!distributed || !server.mayBeDistributed || this.#knowsTables(driver)) return;
    const { sessions } = this.#tables();
    const found = await distributed.dialectOf(sql, sessions);
    let known = serverTables.get(driver);
    if (known?.since !== distributions.count) known = { distributed: new Map(), since: distributions.count };
    known.distributed.set(sessions, found);
    serverTables.set(driver, known);
  }

  /** @throws SchemaError if a setting of the next connection is refused; nothing if it cannot be checked. */
  async refuseSettings(): Promise<void> {
    await this.use(new Deadline(this), () => Promise.resolve()).catch((error: unknown) => {
      if (error instanceof SchemaError) throw error;
    });
  }

  /**
   * Opens the ORM's connection and sets it up, each once.
   *
   * @param isJoined whether a host's transaction has SQLite's only connection: waiting for another one would never end.
   * @returns undefined if there is nothing to wait for.
   */
  prepare(isJoined: boolean): Promise<void> | undefined {
    const opening = this.orm.open();
    if (opening) return opening.then(() => this.prepare(isJoined));
    const { connections } = this.dialect;
    if (!connections.prepare || isJoined || this.#options.isForeign || prepared.has(this.orm)) return undefined;
    let preparing = beingPrepared.get(this.orm);
    if (!preparing) {
      preparing = this.use(new Deadline(this), async ({ driver }) => connections.prepare?.(this.#em, this.sql(driver)))
        .then(() => void prepared.add(this.orm))
        .finally(() => beingPrepared.delete(this.orm));
      beingPrepared.set(this.orm, preparing);
    }
    return preparing;
  }

  failureOf(error: unknown): Failure {
    return failureOf(error, this.dialect);
  }

  /** Whether a retry may help. A node of Galera that has lost its cluster fails at once with the error of a lock time-out. */
  passing(failure: Failure): ReturnType<typeof passingOf> {
    return failure === 'lockTimeout' && prefixes.get(this.orm) ? 'outage' : passingOf(failure);
  }

  /** Whether an error that the host's work throws comes from a database, since MikroORM converted it, and may pass. */
  isPassing(error: unknown): boolean {
    return error instanceof DriverException && this.passing(this.failureOf(error)) !== undefined;
  }

  /** Whether the state of the database or the connection has caused an error, so that every other write would fail, too. */
  readonly failsAll = (error: unknown): boolean => {
    const failure = this.failureOf(error);
    return this.passing(failure) !== undefined || isUncertain(failure);
  };
}
