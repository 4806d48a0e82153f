import type { EntityManager } from '@mikro-orm/core';
import type { Failure } from '../../model/failures.js';
import type { SessionKey } from '../../model/keys.js';
import type { StateEntries } from '../../model/state.js';
import type { Tables } from '../tables.js';
import type { SettingsCheck } from './settings.js';

/** Runs SQL with bound values, inside the transaction it was handed out for. */
export interface Sql {
  readonly isInTransaction: boolean;
  /** @returns the rows. */
  all<Row extends object>(text: string, values?: readonly unknown[]): Promise<Row[]>;
  /** For a statement that gives several results. @returns the rows of the first. */
  allOfFirst<Row extends object>(text: string, values?: readonly unknown[]): Promise<Row[]>;
  /** Runs two statements on one connection, the values going to the second. @returns the rows of the second. */
  allOfSecond<Row extends object>(texts: readonly [string, string], values?: readonly unknown[]): Promise<Row[]>;
  /** @returns how many rows the statement found to change, and the number that MySQL's `last_insert_id(…)` left. */
  run(text: string, values?: readonly unknown[]): Promise<{ affectedRows: number; insertId: number }>;
}

/** An event as it is stored. */
export interface StoredEvent {
  id: string;
  timestamp: number;
  json: string;
}

/** Which appends a session takes while somebody holds its lease (contract H2). */
export type LeaseRule =
  /** Those of the lease with this token, and only while it is the current one. */
  | { token: number }
  /** None but the holder's. */
  | 'unleased';

/** Events to append to a session, and the state that they leave. */
export interface AppendBatch {
  session: SessionKey;
  /** The session must still be the one that the handle stands for, not one made later under its id. */
  incarnation: string;
  /** The session's newest event must still have this number; undefined where any will do. */
  expectedSeq: number | undefined;
  /** Undefined where a lease does not matter. */
  lease: LeaseRule | undefined;
  events: readonly StoredEvent[];
  lastUpdateTime: number;
  state: StateEntries;
}

/** What the databases do differently. The statements that all of them share are in `session-store.ts`. */
export interface Dialect {
  /**
   * Called before each piece of work; sets the ORM's connection up, once. Left out where connections need nothing.
   * @throws SchemaError when the connection lacks what the tables need, with the line that mends it.
   */
  prepare?(em: EntityManager, sql: Sql): Promise<void>;

  /** The server's clock in ms, which leases are measured by: the clocks of its clients differ. */
  readonly now: string;

  /**
   * Ends a `select` by the holder of a session's lock. InnoDB's plain reads show what was there at the first one of the
   * transaction, a host's perhaps, before the lock was had.
   */
  readonly underLock: '' | ' for update';

  /** What went wrong, by the code of the driver's error; undefined where the code does not say. */
  failureOf(error: unknown): Failure | undefined;

  /** Whether the server has answered with this error, and not the driver: what it refuses has no effect. */
  isAnswer(error: unknown): boolean;

  /** How many connections MikroORM opens at most where its config has no `pool.max`. */
  readonly defaultPoolMax: number;

  /** Selects a JSON column as its text; a driver that parses JSON itself would leave `"5"` and `5` alike. */
  jsonText(column: string): string;

  /** Selects a double as text, for a driver that is not exact when it parses one (contract C3). */
  doubleText?(column: string): string;

  /**
   * Writes a value into the text of a statement, where the client's own way is not exact (contract C3) or depends on how
   * the connection is set (contract O7).
   */
  literal?(value: unknown): unknown;

  /** The settings of a connection that are refused. */
  readonly settings: SettingsCheck;

  /**
   * What follows `insert … values …` to make it overwrite.
   * @param keyColumns the primary key.
   * @param ownOnly overwrite only what the same event wrote, for an event that is appended again (contract A5).
   */
  onConflict(table: string, keyColumns: readonly string[], ownOnly: boolean): string;

  /**
   * Takes the session's lock and `count` numbers with it, in one statement that comes first in its transaction: on
   * SQLite a transaction that reads before it writes fails under load.
   * @param update the `update … set` part, which adds `count` to `last_seq`.
   * @returns the last of the numbers; undefined when `where` finds no session.
   */
  takeSeq(sql: Sql, update: SeqUpdate): Promise<number | undefined>;

  /**
   * Gives positions to events: an update with the values app name, user id, session id, number and position for each.
   * It must lock no more than these rows, by their key, or appends to the same sessions would wait for it.
   */
  setPositions(events: string, count: number): string;

  /** Selects a `mark` that changes with every write, by whomever, where that is cheaper than a look at the tables. */
  readonly changeMark?: string;

  /** Where the server can tell other connections of a commit (contract G2). */
  readonly push?: {
    /** What its notifications are called, for these tables. */
    channel(tables: Tables): string;
    /** Takes the channel. */
    readonly notify: string;
  };

  /**
   * Adds to a counter, which is 0 where it does not exist, and keeps it locked until the end of the transaction.
   * @returns what it is now.
   */
  increment(sql: Sql, counters: string, name: string, by: number): Promise<number>;

  /**
   * The longest piece of text to send in one statement, in characters; none where the server takes any. MySQL and
   * MariaDB refuse packets above `max_allowed_packet`, 16 MB by MariaDB's default.
   */
  readonly maxTextLength?: number;

  /**
   * Called before a value is sent that cannot be in parts. Left out where the server takes any.
   * A server that meets a packet too large closes the connection at once; when the rest of the packet is still on its
   * way then, its answer is lost, and a lost connection would be tried again.
   *
   * @throws EventTooLargeError when the server would refuse it.
   */
  refuseTooLarge?(sql: Sql, text: string): Promise<void>;

  /** Does a whole append in one statement, where the database can; otherwise it is a transaction of several. */
  appendInOneStatement?(tables: Tables): OneStatementAppend;
}

export interface OneStatementAppend {
  takes(batch: AppendBatch, isInTransaction: boolean): boolean;
  /** @returns the number of the last event; undefined when the session is missing or not as the batch expects it. */
  write(sql: Sql, batch: AppendBatch): Promise<number | undefined>;
}

export interface SeqUpdate {
  table: string;
  count: number;
  lastUpdateTime: number;
  where: string;
  values: readonly unknown[];
}
