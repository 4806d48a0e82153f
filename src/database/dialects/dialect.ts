import type { EntityManager } from '@mikro-orm/core';
import type { Failure } from '../../model/failures.js';
import type { SessionKey } from '../../model/keys.js';
import type { StateEntries } from '../../model/state.js';
import type { BoundStatement } from '../drivers/driver.js';
import type { Tables } from '../sql/tables.js';
import type { ServerSetting } from './server-settings.js';
import type { Setting } from './settings.js';

/** Runs statements with bound values on the tables of one ORM and schema, in the transaction that it was made for, if any. */
export interface Sql {
  readonly dialect: Dialect;
  readonly tables: Tables;
  readonly isInTransaction: boolean;
  /** Whether the transaction is a host's, which may have read before. */
  readonly isJoined: boolean;
  /** @returns the rows. */
  all<Row extends object>(text: string, values?: readonly unknown[]): Promise<Row[]>;
  /** @returns how many rows matched, and the number that MySQL's `last_insert_id(…)` returned. */
  run(text: string, values?: readonly unknown[]): Promise<{ affectedRows: number; insertId: number }>;
  /** Runs statements at once, if the driver can. After one that fails none is run. @returns the rows of each. */
  together(statements: readonly BoundStatement[]): Promise<readonly object[][]>;
}

/** Runs statements, with the retries of the caller. */
export type Run = <T>(work: (sql: Sql) => Promise<T>) => Promise<T>;

/** An event as it is stored. */
export interface StoredEvent {
  id: string;
  timestamp: number;
  json: string;
  /** JSON of the keys of its delta that lost to an earlier event (contract A8); absent for nearly all. */
  superseded?: string | undefined;
  /** See `beginsTurn`. */
  beginsTurn: boolean;
}

/** What an append requires of the session's lease (contract H2). */
export type LeaseRule =
  /** The lease with this fencing token is held. */
  | { token: number }
  /** No lease is held. */
  | 'unleased';

/** Events to append to a session, and the state that they leave. */
export interface AppendBatch {
  session: SessionKey;
  /** The `incarnation` that the handle has read; a session that was created later under the same id has another one. */
  incarnation: string;
  /** The number that the session's newest event must have; undefined when it may have any. */
  expectedSeq: number | undefined;
  /** Undefined when the lease is not checked. */
  lease: LeaseRule | undefined;
  events: readonly StoredEvent[];
  lastUpdateTime: number;
  state: StateEntries;
}

/**
 * What differs from database to database, in groups. `statements/` has those that all databases share. The
 * docstring of an optional member says what happens if it is left out.
 */
export interface Dialect {
  readonly connections: DialectConnections;
  readonly errors: DialectErrors;
  readonly sql: DialectSql;
  readonly operations: DialectOperations;
  readonly repairs: DialectRepairs;
  /** Left out where the server accepts statements of any length: each value is sent in one piece. */
  readonly limits?: DialectLimits;
  /** Left out where the server cannot notify: readers of the log in other processes find a commit when they poll. */
  readonly push?: DialectPush;
  /** Left out if a table is always on one server. */
  readonly distributed?: DistributedTables;
}

/** For a server that may spread the rows of a table over others. */
export interface DistributedTables {
  /** Whether the server can; selected with the settings of a connection, so that others are asked nothing more. */
  readonly isPossible: string;
  /** Selects a row if a table is distributed; its value is the table's quoted name. */
  readonly find: string;
  /** The statements on tables that are. */
  readonly dialect: Dialect;
}

/** How connections must be set up. */
interface DialectConnections {
  /**
   * Sets up the ORM's connection, before the first attempt outside a host's transaction. Left out if connections need no
   * set-up.
   *
   * @throws SchemaError when the host's config does not allow it; the message says what to change in the config.
   */
  prepare?(em: EntityManager, sql: Sql): Promise<void>;

  /**
   * Called with what `version()` returns, by the first call on an ORM and by migrations. Left out where the database is in
   * the process.
   *
   * @returns why the server is refused, and what to use; undefined if it is the right one.
   */
  readonly wrongServer?: (version: string) => string | undefined;

  /**
   * Asks the server, once for an ORM, what has to come before each statement outside a transaction and before each `begin`,
   * so that they see what was committed through another server. Left out if one server takes all writes.
   */
  clusterPrefix?(sql: Sql): Promise<string>;

  /** The settings of a connection that are refused. */
  readonly settings: readonly Setting[];

  /** How many connections MikroORM opens at most if its config has no `pool.max`. */
  readonly defaultPoolMax: number;

  /** What `doctor` of the command line checks. The first one is the server's version. */
  readonly serverSettings: readonly ServerSetting[];
}

/** What a driver's error means. */
interface DialectErrors {
  /** What went wrong, by the code of the driver's error; undefined if the code does not show it. */
  failureOf(error: unknown): Failure | undefined;

  /** Whether the server has sent this error, and not the driver: a statement that the server refuses has no effect. */
  isAnswer(error: unknown): boolean;
}

/** Pieces of statements. */
export interface DialectSql {
  /** The server's time in ms since 1970. Leases expire by it, since the clocks of the clients differ. */
  readonly now: string;

  /**
   * The end of a `select` in a transaction that has locked the session's row. On InnoDB a plain `select` would show the
   * rows as they were at the first `select` of the transaction, which may be the host's and older than the lock.
   */
  readonly underLock: '' | ' for update';

  /**
   * The end of a `select` that locks its rows and skips those that other transactions have locked. Left out if a write
   * locks the whole database: there the transaction has written first.
   */
  readonly skipLocked?: string;

  /**
   * How long to leave the database alone between two transactions of maintenance, in ms, so that a writer that waits for its
   * lock gets it. Left out if those who wait are woken.
   */
  readonly turnMs?: number;

  /**
   * A statement before the `begin` of a transaction that is to lock rows and not the gaps between them, into which other
   * transactions insert. Left out if no transaction locks gaps.
   */
  readonly lockRowsOnly?: string;

  /**
   * A statement that fails where the server has rolled back the transaction since one of its statements failed, or whose answer shows
   * it (`Driver.isInTransaction`). Left out where the `commit` fails then.
   */
  readonly checkOpen?: string;

  /**
   * Statements between which the server stores nothing but by a `commit`, also after it has rolled back. Left out if it then accepts
   * nothing but a `rollback`.
   */
  readonly explicitCommit?: { on: string; off: string };

  /**
   * What makes a transaction see all rows as they are at its first statement: a statement before its `begin`, or the `begin`
   * itself. Left out if each transaction does.
   */
  readonly snapshot?: { setting?: string; begin?: string };

  /**
   * Selects `table_name`, `column_name` and `type` of the columns of tables that a connection finds without a schema; takes
   * the names of the tables as `sql` in parentheses.
   */
  columns(tables: string): string;

  /**
   * Selects what tables are made of as `kind`, `table_name`, `name` and `detail`: a `column` with its collation, an `index`
   * with its columns behind `unique ` or nothing, a `foreign key` with what it does when the other row is deleted. Its values
   * are the schema, null for that of the connection, and the names of the tables, three times.
   *
   * @param tables how many names.
   */
  catalog(tables: number): string;

  /** Orders rows of any table as they were inserted. Left out if there is no such order. */
  readonly insertionOrder?: string;

  /** A column as text: JSON, which a driver may parse, and numbers. */
  asText(column: string): string;

  /** A condition: a text or JSON column contains a value, byte for byte whatever its collation; not true for null. */
  contains(column: string): string;

  /**
   * Whether `select distinct` of a column of an index skips to its next value. Left out if it reads all rows: a recursive
   * query searches the index for each, which MySQL and MariaDB cannot by a value of another row.
   */
  readonly skipsToNextName?: boolean;

  /** Whether the rows of a page cannot be looked up in other tables by the same statement. */
  readonly pagesAlone?: boolean;

  /** A condition on rows of several sessions, by their `sessionValues`. Left out for one on each, joined by `or`. */
  readonly amongSessions?: (keys: readonly (readonly string[])[]) => { where: string; values: readonly unknown[] };

  /**
   * The table of sessions, read in the order of its primary key, for a search of all sessions of an app. InnoDB keeps rows in
   * that order: through another index it looks each of them up, which takes five times as long, and the optimizer chooses
   * that for its order. Left out where the planner decides well.
   */
  readonly inOrderOfKey?: (table: string) => string;

  /** The bytes of a text or JSON column as hexadecimal digits, to read content that is damaged. */
  hex(column: string): string;

  /** How many bytes of UTF-8 a text or JSON column has. */
  byteLength(column: string): string;

  /**
   * The end of an `insert … values …` into a table of state that overwrites a row with the same key.
   *
   * @param keyColumns the primary key.
   * @param options.ownOnly overwrites only a row that the same event wrote, for an event that is appended again (contract A5).
   */
  onConflict(table: string, keyColumns: readonly string[], options?: { ownOnly?: boolean }): string;

  /**
   * The end of an `insert … values …` that overwrites columns of a row with the same key.
   *
   * @param key the primary key.
   */
  onSameKey(key: string, columns: readonly string[]): string;

  /**
   * Joins a table of a session's events to what precedes it, with conditions on their numbers. Left out for a plain `join`, where the
   * planner searches the primary key by them.
   */
  readonly joinByNumber?: (table: string, alias: string, on: string) => string;

  /**
   * An `update` that gives places in the log to events or changes; its values are app name, user id, session id, what numbers them
   * in their session, and the columns to set, of each. It may lock these rows only: appends to the same sessions would wait for a
   * larger lock.
   */
  setPlaces(table: string, numberedBy: string, set: readonly string[], count: number): string;

  /**
   * Begins an `update` whose condition is on the columns of an index; `primary` means the primary key. InnoDB would scan
   * a table that is small, and wait for rows that others have locked.
   */
  updateThrough(table: string, index: string): string;

  /** The same for a `delete`. */
  deleteThrough(table: string, index: string): string;

  /**
   * Comes after a table's alias in a `select` that needs only columns of this index. InnoDB would choose the primary key, whose
   * pages hold the contents of all rows.
   */
  fromIndex(index: string): string;

  /**
   * Selects a `counter` that changes with every write of any connection; readers of the log query the tables when it has
   * changed. Left out if it costs as much as querying the tables: they are queried each time.
   */
  readonly changeCounter?: string;
}

/** Operations for which the databases need different statements. */
export interface DialectOperations {
  /**
   * Locks a session's row and reads it, in one statement: between two, somebody could create a session that was not there,
   * and it would be read without its lock. On SQLite it is a write: a
   * transaction that reads first fails when it writes and another one has written in between.
   *
   * @returns undefined when `where` finds no session.
   */
  lockSession<Row extends object>(sql: Sql, lock: SessionLock): Promise<Row | undefined>;

  /**
   * Adds to a counter, and locks its row until the end of the transaction. A counter that has no row is 0.
   *
   * @returns the new value.
   */
  increment(sql: Sql, counters: string, name: string, by: number): Promise<number>;

  /**
   * Makes the row of an artifact, with version 0, or adds one to its version, and locks the row until the end of the transaction.
   *
   * @param key the values of `ARTIFACT_COLUMNS`.
   * @param now the dialect's `sql.now`.
   * @returns the version.
   */
  nextVersion(sql: Sql, artifacts: string, key: readonly string[], now: string): Promise<number>;

  /**
   * Counts a change of a session, whose row the caller has locked. Left out if an `insert` may read the count.
   *
   * @param session.isNew whether it was created with a first count.
   */
  nextChange?(sql: Sql, session: SessionKey & { isNew: boolean }): Promise<number>;

  /** How the database appends. */
  appends(tables: Tables): DialectAppends;
}

export interface SessionLock {
  table: string;
  /** What to read. */
  columns: string;
  where: string;
  values: readonly unknown[];
  /** A row that somebody else has locked is not found, where the database can pass over it; otherwise it is waited for. */
  skipsLocked?: boolean;
}

export interface DialectAppends {
  /** How many batches of different sessions it writes at once at most; 1 if each is written by itself. */
  readonly most: number;

  /** Whether a batch may be among others: it waits for no lock that would keep them waiting. */
  shares(batch: AppendBatch): boolean;

  /** Whether a batch, or several that share, are one statement, which needs no transaction around it. */
  isStatement(batch: AppendBatch): boolean;

  /** Whether `write` begins a transaction and commits it. The caller rolls back if it throws. */
  readonly commits?: boolean;

  /**
   * Writes batches under their sessions' locks. A statement of several skips the sessions that somebody has locked.
   *
   * @returns for each the number of its last event; undefined if the session is missing or not as the batch expects it, or was skipped.
   * @throws the database's error of any of them, a unique violation if an event is stored already. None is written then, once the
   *   transaction around it is rolled back.
   */
  write(sql: Sql, batches: readonly AppendBatch[]): Promise<readonly (number | undefined)[]>;
}

/** Pieces of the statements that `doctor` prints, with which a host restores indexes, keys and collations. All names are quoted. */
export interface DialectRepairs {
  dropIndex(index: IndexName): string;
  /** Left out if a table that exists gets no keys, and columns have no collation of their own. */
  readonly alterations?: {
    /** What follows `alter table …` to restore a column; `type` includes its collation. */
    column(name: string, type: string, isNullable: boolean): string;
    /** What follows `drop` before the name of a foreign key. */
    readonly foreignKey: 'constraint' | 'foreign key';
  };
}

interface IndexName {
  table: string;
  name: string;
  /** Behind the name of its schema, if it has one. */
  qualifiedName: string;
  isUnique: boolean;
}

/** For MySQL and MariaDB, which refuse packets above `max_allowed_packet`, 16 MB by MariaDB's default. */
interface DialectLimits {
  /** The longest piece of text to send in one statement, in characters. */
  readonly maxTextLength: number;

  /**
   * Called before a value is sent that cannot be split. A server that receives a packet that is too large sends an error
   * and closes the connection. While the client is still sending it does not get the error, and would retry as after a
   * lost connection.
   *
   * @throws EventTooLargeError when the server would refuse it.
   */
  refuseTooLarge(sql: Sql, text: string): Promise<void>;
}

/** How the server notifies other connections of a commit (contract G2). */
interface DialectPush {
  /** The name of the channel for these tables. */
  channel(tables: Tables): string;
  /** The statement that notifies; its value is the channel. */
  readonly notify: string;
}
