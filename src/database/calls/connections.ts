import type { EntityManager } from '@mikro-orm/core';
import { supportedDialect, type DialectName } from '../../../entities/dialect-name.js';
import { SchemaError } from '../../model/errors.js';
import { isUncertain, passingOf, spoilsConnection, type Failure } from '../../model/failures.js';
import type { CommonOptions } from '../../model/options.js';
import type { Dialect, DistributedTables, Sql } from '../dialects/dialect.js';
import { resolveDialect } from '../dialects/resolve.js';
import { refuseSettings } from '../dialects/settings.js';
import type { Driver } from '../drivers/driver.js';
import { ormConnectionOf, type OrmConnection } from '../orm/orm-connection.js';
import { Aborted, AttemptConnection, Deadline, TimedOut } from './connection.js';
import type { Tables } from '../sql/tables.js';
import { Statements } from '../calls/sql.js';
import { refuseDriver, refuseServer } from './driver-check.js';
import { failureOf } from './failure-of.js';
import { isOwn } from './public-error.js';
import { sqlOf } from './sql.js';

/** What statements begin with, by the ORM's connection; see `clusterPrefix`. */
const prefixes = new WeakMap<object, string>();

/** Those whose settings were checked, with what is known of tables on them, by that of sessions: whether they are distributed. */
const checked = new WeakMap<Driver, ServerTables>();

interface ServerTables {
  mayBeDistributed: boolean;
  areDistributed: Map<string, boolean>;
  /** When that was asked. */
  since: number;
}

/** How often tables were distributed in this process. */
let distributions = 0;

/** Has each connection of this process ask again which tables are distributed. */
export function forgetDistribution(): void {
  distributions++;
}

/** The ORMs whose connection is set up, and those for which that is under way. */
const prepared = new WeakSet<object>();
const beingPrepared = new WeakMap<object, Promise<void>>();

/** See `timeoutMs` of the options. */
const DEFAULT_TIMEOUT_MS = 30_000;

export interface DatabaseOptions extends CommonOptions {
  /** A database, another program's for example, which is read only: its settings stay as they are. */
  isForeign?: boolean;
}

/** How a statement is sent. */
interface SentWith {
  isInTransaction?: boolean;
  prefix?: string;
  /** See `SqlContext`. */
  refuse?: () => void;
}

/** The same names again: the texts of statements are kept by their tables, and differ if these are distributed. */
function distributedTables(tables: Tables): Tables {
  const known = distributedCopies.get(tables) ?? { ...tables };
  distributedCopies.set(tables, known);
  return known;
}

const distributedCopies = new WeakMap<Tables, Tables>();

/** The connections of a host's ORM for the attempts of calls: set up and checked before the first statement of ours (contract O7). */
export class Connections {
  readonly orm: OrmConnection;
  readonly statements: Statements;
  readonly dialect: Dialect;
  readonly system: DialectName;
  /** Of an attempt. */
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
   * Runs an attempt on one connection of the host's pool. The connection goes back unless it cannot be trusted: then it is
   * destroyed, so that the server rolls back, and no later statement finds a transaction that was left open (contract O5).
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
        const isChecked = server && (!server.mayBeDistributed || this.#knowsTables(server));
        const prefix = isChecked ? prefixes.get(this.orm) : undefined;
        const working =
          prefix === undefined
            ? this.#checked(driver).then((found) => work(connection, found))
            : work(connection, prefix);
        // What runs in this process always ends, and could not be stopped.
        return await (destroy ? deadline.within(working) : working);
      } catch (error) {
        if (error instanceof TimedOut || error instanceof Aborted || this.spoils(error)) connection.spoil();
        throw error;
      } finally {
        // A statement of `work` that is run after the deadline fails: the connection is destroyed by then.
        await connection.end();
      }
    } finally {
      deadline.clear();
    }
  }

  spoils(error: unknown): boolean {
    return !isOwn(error) && spoilsConnection(this.failureOf(error));
  }

  /** @returns what statements begin with; see `clusterPrefix`. @throws SchemaError for a connection that is refused. */
  async #checked(driver: Driver): Promise<string> {
    const prefix = prefixes.get(this.orm) ?? (await this.#prefix(driver));
    await this.#check(driver, false);
    return prefix;
  }

  #knowsTables({ areDistributed, since }: ServerTables): boolean {
    return this.#options.isForeign === true || (since === distributions && areDistributed.has(this.#tables().sessions));
  }

  /** The statements on a connection that is in use, or in a host's transaction. */
  sql(driver: Driver, { isInTransaction = false, prefix = '', refuse }: SentWith): Sql {
    const { postgresql, isForeign = false } = this.#options;
    const { isInProcess } = this.orm;
    const mayPrepare = postgresql?.preparedStatements ?? true;
    const server = checked.get(driver);
    const distributed = server?.mayBeDistributed ? this.#distributed(server) : undefined;
    const dialect = distributed?.dialect ?? this.dialect;
    const tables = distributed ? () => distributedTables(this.#tables()) : this.#tables;
    return sqlOf(this.statements, driver, {
      ...{ isInTransaction, isInProcess, mayPrepare, isForeign, prefix, refuse, dialect, tables },
    });
  }

  /** The same on a connection of a host's, whose settings may be unchecked. @throws SchemaError for one that is refused. */
  async checkedSql(driver: Driver, sentWith: SentWith): Promise<Sql> {
    await this.#check(driver, true);
    return this.sql(driver, { ...sentWith, isInTransaction: true });
  }

  /** What statements begin with; the first call checks the driver and the server. Within the time of an attempt, since the server may be silent. */
  async #prefix(driver: Driver): Promise<string> {
    refuseDriver(driver);
    const sql = this.sql(driver, {});
    if (!this.#options.isForeign) await refuseServer(sql, this.dialect);
    const prefix = (await this.dialect.connections.clusterPrefix?.(sql)) ?? '';
    prefixes.set(this.orm, prefix);
    return prefix;
  }

  /** Once for each connection: what a host sets on it later is its own affair. @throws SchemaError. */
  async #check(driver: Driver, isInTransaction: boolean): Promise<void> {
    const { connections, distributed } = this.dialect;
    const sql = this.sql(driver, { isInTransaction });
    let server = checked.get(driver);
    if (!server) {
      const read = (text: string) => sql.all<object>(text);
      const mayBeDistributed = await refuseSettings(connections.settings, read, distributed?.isPossible);
      checked.set(driver, (server = { mayBeDistributed, areDistributed: new Map(), since: distributions }));
    }
    if (!distributed || !server.mayBeDistributed || this.#knowsTables(server)) return;
    const { sessions } = this.#tables();
    const found = await sql.all(distributed.find, [sessions]);
    if (server.since !== distributions) server.areDistributed.clear();
    server.since = distributions;
    server.areDistributed.set(sessions, found.length > 0);
  }

  /** @returns undefined if the tables are not distributed, as far as is known. */
  #distributed({ areDistributed }: ServerTables): DistributedTables | undefined {
    const isKnown = !this.#options.isForeign && areDistributed.get(this.#tables().sessions);
    return isKnown ? this.dialect.distributed : undefined;
  }

  /** @throws SchemaError when a setting of the next connection is refused; nothing when it cannot be checked. */
  async refuseSettings(): Promise<void> {
    await this.use(new Deadline(this), () => Promise.resolve()).catch((error: unknown) => {
      if (error instanceof SchemaError) throw error;
    });
  }

  /**
   * Opens the ORM's connection and sets it up, each once.
   *
   * @param isJoined in a host's transaction, which has SQLite's only connection: waiting for another one would never end.
   * @returns undefined if there is nothing to wait for.
   */
  prepare(isJoined: boolean): Promise<void> | undefined {
    const opening = this.orm.open();
    if (opening) return opening.then(() => this.prepare(isJoined));
    const { connections } = this.dialect;
    if (!connections.prepare || isJoined || this.#options.isForeign || prepared.has(this.orm)) return undefined;
    let preparing = beingPrepared.get(this.orm);
    if (!preparing) {
      preparing = this.use(new Deadline(this), async ({ driver }) =>
        connections.prepare?.(this.#em, this.sql(driver, {})),
      )
        .then(() => void prepared.add(this.orm))
        .finally(() => beingPrepared.delete(this.orm));
      beingPrepared.set(this.orm, preparing);
    }
    return preparing;
  }

  failureOf(error: unknown): Failure {
    return failureOf(error, this.dialect);
  }

  /** Whether trying again may help. A node that has lost its cluster refuses to wait for it by the error of a lock time-out, and at once. */
  passing(failure: Failure): ReturnType<typeof passingOf> {
    return failure === 'lockTimeout' && prefixes.get(this.orm) ? 'outage' : passingOf(failure);
  }

  /** Whether an error is one of this database's that may pass. What another server gives may have the same code. */
  isPassing(error: unknown): boolean {
    return this.statements.hasThrown(error) && this.passing(this.failureOf(error)) !== undefined;
  }

  /** Whether the state of the database or of the connection has caused an error, so that every other write would fail as well. */
  readonly failsAll = (error: unknown): boolean => {
    const failure = this.failureOf(error);
    return this.passing(failure) !== undefined || isUncertain(failure);
  };
}
