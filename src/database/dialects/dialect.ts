import type { EntityManager } from '@mikro-orm/core';
import type { Failure } from '../../model/failures.js';
import type { SessionKey } from '../../model/keys.js';
import type { StateEntries } from '../../model/state.js';
import type { StoredTexts } from '../../model/stored-texts.js';
import type { Statement } from '../drivers/driver.js';
import type { Tables } from '../sql/tables.js';
import type { Setting } from './settings.js';

/** Runs statements with bound values on the tables of one ORM and schema, in its transaction, if it has one. */
export interface Sql {
  readonly dialect: Dialect;
  readonly tables: Tables;
  readonly isInTransaction: boolean;
  /** Decodes and encodes the texts of rows. */
  readonly texts: StoredTexts;
  /**
   * In a host's transaction on InnoDB, the sessions that it has locked, and whether they had changed since it began to read: beside
   * the rows that it writes itself it still sees old rows of others. Undefined elsewhere.
   */
  readonly behind: Map<string, boolean> | undefined;
  /** @returns the rows. */
  all<Row extends object = Readonly<Record<string, unknown>>>(
    text: string,
    values?: readonly unknown[],
  ): Promise<Row[]>;
  /** @returns how many rows matched, and the number that MySQL's `last_insert_id(…)` returned. */
  run(text: string, values?: readonly unknown[]): Promise<{ affectedRows: number; insertId: number }>;
  /**
   * Runs a statement whose result nobody needs, before the next one that is awaited, or at the end. It travels with that; if it
   * fails, that fails, and so does the transaction.
   */
  later(text: string, values?: readonly unknown[]): void;
}

/** Runs statements, with the retries of the caller. */
export type SqlRunner = <T>(work: (sql: Sql) => Promise<T>) => Promise<T>;

/** An event as it is stored. */
export interface StoredEvent {
  id: string;
  timestamp: number;
  json: string;
  /** JSON of the keys of its delta that lost to an earlier event (contract A8); nearly always absent. */
  superseded?: string | undefined;
  /** See `beginsTurn`. */
  beginsTurn: boolean;
  /** When it was stored first, for a copy; null if unknown. Undefined for an append: its statement sets the time. */
  appendTime?: number | null;
}

/** What an append requires of the session's lease (contract H2). */
export type LeaseRule =
  /** The lease with this fencing token is held. */
  | { token: number }
  /** No lease is held. */
  | 'unleased';

/** Events to append to a session, and the state that they write. */
export interface AppendBatch {
  session: SessionKey;
  /** The `incarnation` that the handle has read; a session that was created later under the same id has another one. */
  incarnation: string;
  /** The number that the session's newest event must have; undefined for any. */
  expectedSeq: number | undefined;
  /** The id that the session's newest recorded change must have; undefined for any. */
  expectedChange: number | undefined;
  /** Undefined if the lease is not checked. */
  lease: LeaseRule | undefined;
  events: readonly StoredEvent[];
  lastUpdateTime: number;
  state: StateEntries;
}

/**
 * What differs between databases, in groups. `statements/` has the statements that all databases share. The docstring of an
 * optional member says when it is left out.
 */
export interface Dialect {
  readonly connections: DialectConnections;
  readonly errors: DialectErrors;
  readonly sql: DialectSql;
  readonly operations: DialectOperations;
  /** Left out if the server accepts statements of any length: then each value is sent in one piece. */
  readonly limits?: DialectLimits;
  /** Left out if the server cannot notify: then readers of the log in other processes find a commit when they poll. */
  readonly push?: DialectPush;
  /** Left out if a table is always on one server. */
  readonly distributed?: DistributedTables;
}

/** For a server that may spread the rows of a table over others. */
export interface DistributedTables {
  /**
   * An expression that is true if the server can do this. It is selected with the settings of a connection, so that other servers
   * get no extra query.
   */
  readonly isPossible: string;
  /**
   * @param table its quoted name.
   * @returns the statements for the tables, if this one is distributed.
   */
  dialectOf(sql: Sql, table: string): Promise<Dialect | undefined>;
}

interface DialectConnections {
  /**
   * Sets up the ORM's connection, before the first attempt outside a host's transaction. Left out if connections need no set-up.
   *
   * @throws SchemaError if the host's config does not allow it; the message says what to change in the config.
   */
  prepare?(em: EntityManager, sql: Sql): Promise<void>;

  /**
   * Called with the result of `version()`, by the first call on an ORM and by migrations. Left out if the database is in the
   * process.
   *
   * @returns why the server is refused, and what to use; undefined if it is the right one.
   */
  readonly wrongServer?: (version: string) => string | undefined;

  /**
   * The prefix of each statement outside a transaction and of each `begin` on a server of a cluster, so that they see what was
   * committed through another server, and an expression that is true on such a server. Left out if one server takes all writes.
   */
  readonly cluster?: { readonly prefix: string; readonly isPossible: string };

  /** The settings of a connection that are refused. */
  readonly settings: readonly Setting[];
}

interface DialectErrors {
  /** The failure, by the code of the driver's error; undefined for a code that is not known. */
  failureOf(error: unknown): Failure | undefined;

  /** Whether the error comes from the server, not from the driver: a statement that the server refuses has no effect. */
  isAnswer(error: unknown): boolean;
}

/** Pieces of statements. */
export interface DialectSql {
  /** The server's time in ms since 1970. Leases expire by it, since the clocks of the clients differ. */
  readonly now: string;

  /** `now` in the `select` of an `insert`, if it must be written differently there. */
  readonly nowOfSelect?: string;

  /**
   * The end of a `select` in a transaction that has locked the session's row. On InnoDB a plain `select` would show the rows as of
   * the transaction's first `select`, which may be the host's and older than the lock.
   */
  readonly underLock: '' | ' for update';

  /**
   * The end of a `select` that locks its rows and skips those that other transactions have locked. Left out if a write
   * locks the whole database: there the transaction has written first.
   */
  readonly skipLocked?: string;

  /**
   * A statement that locks a name, which is its value, until the end of the transaction: for those who share it, or for one alone. Left
   * out if reading rows with a lock waits for those that others have inserted, or if one transaction writes at a time.
   */
  readonly lockName?: (isShared: boolean) => string;

  /**
   * The pause between two transactions of maintenance, in ms, in which a waiting writer can get the database's lock. Left out if
   * the database wakes those who wait.
   */
  readonly turnMs?: number;

  /**
   * Makes one text of statements, which the server runs up to the first that fails. The rows of each that wants them are a result,
   * and for each that wants a change `affected_rows` and `insert_id`. Left out if statements are sent at once, or one by one.
   */
  readonly block?: (statements: readonly Statement[]) => string;

  /**
   * A statement before `begin` that makes the transaction lock rows only, not the gaps between them, into which other transactions
   * insert. Left out if no transaction locks gaps.
   */
  readonly lockRowsOnly?: string;

  /** A statement that sets as many settings, bound as names and values, for its transaction. Left out if there are none to set. */
  readonly set?: (count: number) => string;

  /**
   * A statement that fails if the server has rolled back the transaction after an error, or whose answer shows that it has
   * (`Driver.isInTransaction`). Left out if the `commit` fails then.
   */
  readonly checkOpen?: string;

  /**
   * Two statements between which the server stores nothing without a `commit`, even after it has rolled back. Left out if it then
   * only accepts a `rollback`.
   */
  readonly explicitCommit?: { on: string; off: string };

  /**
   * Makes a transaction see all rows as of its first statement: a statement before its `begin`, or the `begin` itself. Left out if
   * every transaction does.
   */
  readonly snapshot?: { setting?: string; begin?: string };

  /**
   * Selects the columns of the foreign keys that refer to tables, in the order of keys and columns: `schema_name` (null for that of the
   * tables), `table_name`, `key_id`, `name` (empty if the database keeps none), `rule` on deletion (as PostgreSQL's letter, or in
   * words), the table `target`, `column_name`, `target_column`, and `indexed`, 1 if an index begins with the key's columns. Its values
   * are the schema, or null for that of the connection, and the names of the tables.
   *
   * @param tables the number of names.
   */
  hostKeys(tables: number): string;

  /** A column as text: for JSON, which a driver may parse, and for numbers. */
  asText(column: string): string;

  /**
   * The condition that a text or JSON column contains a value (`?` or a name), byte for byte whatever its collation; not true for null.
   */
  contains(column: string, value: string): string;

  /**
   * Whether `select distinct` of an index column skips to the next value. If it reads all rows, leave this out: a recursive query
   * then looks up one value at a time. (MySQL and MariaDB cannot use an index for that.)
   */
  readonly skipsToNextName?: boolean;

  /** Whether a statement that selects a page cannot also look up its rows in other tables. */
  readonly pagesAlone?: boolean;

  /** Whether an `insert` of values cannot read another row for one of them. */
  readonly insertsValuesOnly?: boolean;

  /** A condition on rows of several sessions, by their `sessionValues`. Left out for one on each, joined by `or`. */
  readonly amongSessions?: (keys: readonly (readonly string[])[]) => { where: string; values: readonly unknown[] };

  /**
   * Makes a search of all sessions of an app read the table in the order of its primary key. InnoDB keeps rows in that order. For
   * its order the optimizer would choose another index and look each row up, which takes five times as long. Left out if the
   * planner decides well.
   */
  readonly inOrderOfKey?: (table: string) => string;

  /** The bytes of a text or JSON column in UTF-8 as hexadecimal digits, to read damaged content, or to compare without a collation. */
  hex(column: string): string;

  /** How many bytes of UTF-8 a text or JSON column has. */
  byteLength(column: string): string;

  /**
   * The end of an `insert … values …` into a table of state that overwrites a row with the same key.
   *
   * @param keyColumns the primary key.
   * @param options.ownOnly overwrites only a row that the same event wrote: for an event that is appended again (contract A5).
   */
  onConflict(table: string, keyColumns: readonly string[], options?: { ownOnly?: boolean }): string;

  /**
   * The end of an `insert … values …` that overwrites columns of a row with the same key.
   *
   * @param key the primary key.
   */
  onSameKey(key: string, columns: readonly string[]): string;

  /**
   * Joins a table of a session's events, with conditions on their numbers. Left out if the planner uses the primary key for these
   * conditions in a plain `join`.
   */
  readonly joinByNumber?: (table: string, alias: string, on: string) => string;

  /**
   * An `update` that assigns places in the log to events or changes that have none: a row may be another one than was read, and
   * hidden by an import. Its values are, for each, app name, user id, session id, its
   * number in the session, and the columns to set. It must lock only these rows: appends to the same sessions would wait for a
   * larger lock.
   */
  setPlaces(table: string, numberedBy: string, set: readonly string[], count: number): string;

  /** The start of a `delete` whose condition is on the columns of an index. */
  deleteThrough(table: string, index: string): string;

  /** Deletes at most as many rows as the last value says. @param key the columns of the primary key. */
  deleteSome(table: string, key: string, where: string): string;

  /**
   * Comes after a table, or its alias, in an `update` whose condition is on the columns of an index, where InnoDB otherwise scans a small
   * table and waits for rows that others have locked; and in a `select` that needs only columns of the index, where InnoDB otherwise
   * chooses the primary key, whose pages hold the contents of all rows. `primary` means the primary key.
   */
  fromIndex(index: string): string;

  /**
   * Selects a `counter` that changes with every write of any connection. Readers of the log query the tables only if it has
   * changed. Left out if it costs as much as querying the tables, which are then queried each time.
   */
  readonly changeCounter?: string;
}

/** Operations for which the databases need different statements. */
export interface DialectOperations {
  /**
   * Locks a session's row and reads it, in one statement: between two statements somebody could create the session, and it would be
   * read without its lock. On SQLite this is a write, since a transaction that reads first fails to write if another one has
   * written in between.
   *
   * @returns undefined if there is no such session.
   */
  lockSession<Row extends object>(sql: Sql, session: SessionKey, lock: SessionLock): Promise<Row | undefined>;

  /**
   * Adds to a counter, and locks its row until the end of the transaction. A counter without a row is 0.
   *
   * @returns the new value.
   */
  increment(sql: Sql, name: string, by: number): Promise<number>;

  /**
   * Inserts the row of an artifact with version 0, or adds one to its version, and locks the row until the end of the transaction.
   *
   * @param artifact the values of `ARTIFACT_NAMES`.
   * @returns the version.
   */
  nextVersion(sql: Sql, artifact: Readonly<Record<'app' | 'user' | 'session' | 'file', string>>): Promise<number>;

  appends(tables: Tables): DialectAppends;
}

export interface SessionLock {
  /** What to read. */
  columns: string;
  /** Skips a row that somebody else has locked, if the database can; otherwise waits for it. */
  skipsLocked?: boolean;
}

export interface DialectAppends {
  /** The most batches of different sessions that it writes at once; 1 if each is written by itself. */
  readonly most: number;

  /**
   * Whether a batch may be written with others: not if it may wait for a lock, since the others would wait, too. Left out if each
   * may.
   */
  shares?(batch: AppendBatch): boolean;

  /** Whether two batches that may be written with others are written with each other. Left out if all are. */
  readonly areTogether?: (one: AppendBatch, other: AppendBatch) => boolean;

  /** Whether a batch, or several shared ones, are one statement, which needs no transaction around it. Left out if none is. */
  isStatement?(batch: AppendBatch): boolean;

  /** Whether batches that are written together skip sessions that somebody has locked. */
  readonly skipsLocked?: boolean;

  /**
   * Writes batches under their sessions' locks. A statement for several batches skips sessions that somebody has locked.
   *
   * @returns for each batch the number of its last event; undefined if the session is missing, is not as the batch expects, or was
   *   skipped.
   * @throws the database's error for any of them: a unique violation if an event is stored already. Then none is written, once the
   *   transaction around it is rolled back.
   */
  write(sql: Sql, batches: readonly AppendBatch[]): Promise<readonly (number | undefined)[]>;
}

/** For MySQL and MariaDB, which refuse packets above `max_allowed_packet`, 16 MB by MariaDB's default. */
interface DialectLimits {
  /** The longest piece of text to send in one statement, in characters. */
  readonly maxTextLength: number;

  /**
   * Called before values are sent that cannot be split, with all of a row that may be large. If a packet is too large, the server
   * sends an error and closes the connection. A client that is still sending does not get the error, and would retry as after a
   * lost connection.
   *
   * @param what the error says is too large.
   * @throws ValueTooLargeError if the server would refuse it.
   */
  refuseTooLarge(sql: Sql, what: string, ...values: readonly (string | Uint8Array | null | undefined)[]): Promise<void>;
}

/** How the server notifies other connections of a commit (contract G2). */
interface DialectPush {
  /** The name of the channel for these tables. */
  channel(tables: Tables): string;
  /** The statement that notifies; its value is the channel. */
  readonly notify: string;
}
