import { DriverException, type EntityManager } from '@mikro-orm/core';
import { supportedDialect, type DialectName } from '../../../entities/dialect-name.js';
import { InvalidArgumentError, SchemaError } from '../../model/errors.js';
import { isUncertain, passingOf, spoilsConnection, type Failure } from '../../model/failures.js';
import { isPromise, isRecord } from '../../model/json.js';
import type { CommonOptions } from '../../model/options.js';
import { processWide } from '../../model/process-wide.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import { resolveDialect } from '../dialects/resolve.js';
import { refuseConnection } from '../dialects/settings.js';
import type { Driver, Statement } from '../drivers/driver.js';
import { ormConnectionOf } from '../orm/orm-connection.js';
import type { OrmConnection } from '../orm/reserved-connection.js';
import { Aborted, AttemptConnection, Deadline, TimedOut, type SentWith } from './connection.js';
import type { Tables } from '../sql/tables.js';
import { perTables } from '../sql/values.js';
import { refuseDriver } from './driver-check.js';
import { failureOf } from './failure-of.js';
import { isOwn } from './public-error.js';
import { COMMAND, StatementBuffer, Statements, type SqlContext } from './sql.js';

/** The ORMs whose servers are a cluster. */
const clustered = processWide('clustered', () => new WeakSet<object>());

/** What was found out about a connection when its settings were checked. */
interface Checked {
  readonly mayBeDistributed: boolean;
  /** See `DialectConnections.cluster`. */
  readonly prefix: string;
}

/**
 * Connections whose settings were checked. Shared, since later the host, or the projection of another copy, may have changed them for
 * a transaction.
 */
const checked = processWide('checked connections', () => new WeakMap<Driver, Checked>());

/** What connections know about the distribution of tables. Each copy of this package asks for itself, since its dialects are its own. */
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
  readonly #tables: Tables;

  /** @param rollbackFailed is called with the error of a rollback. */
  constructor(
    em: EntityManager,
    options: DatabaseOptions,
    tables: Tables,
    readonly rollbackFailed: (error: unknown) => void,
  ) {
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
  async use<T>(deadline: Deadline, work: (connection: AttemptConnection) => Promise<T>): Promise<T> {
    try {
      const reserving = this.orm.reserve();
      // Awaited even if it is there, so that appends which begin in the same turn can join the batch of this one (contract E9).
      const reserved = await (isPromise(reserving) ? deadline.within(reserving, (late) => late.release()) : reserving);
      deadline.hasConnection = true;
      const { driver, destroy } = reserved;
      const connection = new AttemptConnection(this, reserved, deadline);
      try {
        const begin = ({ prefix }: Checked) => {
          connection.prefix = prefix;
          return work(connection);
        };
        const server = checked.get(driver);
        // Checked alone: in a block of MariaDB `sql_select_limit` has another value.
        const working =
          server && (!server.mayBeDistributed || this.#knowsTables(driver))
            ? begin(server)
            : this.#check(driver, this.sql(driver)).then(begin);
        // A database in this process always answers, and a statement on it cannot be stopped.
        return await (destroy ? deadline.within(working) : working);
      } catch (error) {
        if (error instanceof TimedOut || error instanceof Aborted || this.spoils(error)) connection.spoil();
        throw error;
      } finally {
        // If `work` sends a statement after the deadline, it fails, since the connection is destroyed by then.
        const ending = connection.end();
        if (ending) await ending;
      }
    } finally {
      deadline.clear();
    }
  }

  spoils(error: unknown): boolean {
    return !isOwn(error) && spoilsConnection(this.failureOf(error));
  }

  #knowsTables(driver: Driver): boolean {
    if (this.#options.isForeign) return true;
    const known = serverTables.get(driver);
    return known?.since === distributions.count && known.distributed.has(this.#tables.sessions);
  }

  /** For statements on a connection that is in use, or in a host's transaction. */
  sql(driver: Driver, sentWith: SentWith = {}): Sql {
    return this.buffer(driver, sentWith).sql;
  }

  /** The dialect of the tables on a connection, which is another one if they are distributed. */
  dialectOn(driver: Driver): Dialect {
    return this.#distributedOn(driver) ?? this.dialect;
  }

  #distributedOn(driver: Driver): Dialect | undefined {
    return this.#options.isForeign ? undefined : serverTables.get(driver)?.distributed.get(this.#tables.sessions);
  }

  /** The statements of a transaction, or of a call without one. @param beginning what begins the transaction. */
  buffer(
    driver: Driver,
    { isInTransaction = false, prefix = '', refuse, behind }: SentWith,
    beginning?: readonly string[],
  ): StatementBuffer {
    const { postgresql, isForeign = false } = this.#options;
    const { isInProcess } = this.orm;
    const mayPrepare = postgresql?.preparedStatements ?? true;
    const distributed = this.#distributedOn(driver);
    const dialect = distributed ?? this.dialect;
    const tables = distributed ? distributedTables({ tables: this.#tables }) : this.#tables;
    // Citus takes as long to plan a statement as to run it.
    const preparesAll = mayPrepare && distributed !== undefined;
    const settings = beginning && this.#settings();
    // Every call does this: docs/architecture.md says what new properties after a spread cost.
    const context: SqlContext = {
      isInTransaction,
      isInProcess,
      mayPrepare,
      preparesAll,
      isForeign,
      prefix,
      refuse,
      behind,
      dialect,
      tables,
      settings,
    };
    return new StatementBuffer(this.statements, driver, context, beginning);
  }

  get hasSettings(): boolean {
    const { postgresql, isForeign } = this.#options;
    return postgresql?.settings !== undefined && this.dialect.sql.set !== undefined && !isForeign;
  }

  /** @throws InvalidArgumentError if the host's function returns something else; what it throws otherwise. */
  #settings(): Statement | undefined {
    if (!this.hasSettings) return undefined;
    const settings: unknown = this.#options.postgresql?.settings?.();
    const values = isRecord(settings) ? Object.entries(settings).flat() : [undefined];
    // A mistake of the host must not show everybody's rows. An empty record is none.
    if (values.some((value) => typeof value !== 'string'))
      throw new InvalidArgumentError(
        "'settings' of postgresql returned no texts by name. Nothing was read or written.",
      );
    if (values.length === 0) return undefined;
    return { text: this.dialect.sql.set?.(values.length / 2) ?? '', values };
  }

  /** Sets the settings of the host in a transaction of MikroORM. */
  async set(driver: Driver): Promise<void> {
    const settings = this.#settings();
    if (settings) await this.statements.send(driver, settings, COMMAND);
  }

  /** For statements in a host's transaction; checks its connection's settings first. @throws SchemaError for one that is refused. */
  async checkedBuffer(driver: Driver, sentWith: SentWith): Promise<StatementBuffer> {
    await this.#check(driver, this.sql(driver, { isInTransaction: true }));
    return this.buffer(driver, { ...sentWith, isInTransaction: true });
  }

  /** Once for each connection; what a host sets on it later is not checked. @throws SchemaError. */
  async #check(driver: Driver, sql: Sql): Promise<Checked> {
    const { connections, distributed } = this.dialect;
    const { cluster } = connections;
    let server = checked.get(driver);
    if (!server) {
      refuseDriver(driver);
      const read = (text: string) => sql.all<object>(text);
      const isPossible = await refuseConnection(
        this.#options.isForeign ? { settings: connections.settings } : connections,
        read,
        (distributed ?? cluster)?.isPossible,
      );
      const prefix = isPossible && cluster ? cluster.prefix : '';
      checked.set(driver, (server = { mayBeDistributed: isPossible && distributed !== undefined, prefix }));
      if (prefix) clustered.add(this.orm);
    }
    if (!distributed || !server.mayBeDistributed || this.#knowsTables(driver)) return server;
    const { sessions } = this.#tables;
    const found = await distributed.dialectOf(sql, sessions);
    let known = serverTables.get(driver);
    if (known?.since !== distributions.count) known = { distributed: new Map(), since: distributions.count };
    known.distributed.set(sessions, found);
    serverTables.set(driver, known);
    return server;
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
    return failure === 'lockTimeout' && clustered.has(this.orm) ? 'outage' : passingOf(failure);
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
