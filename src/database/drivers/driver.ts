/** What a statement is sent with. */
export interface StatementContext {
  /** Whether rows are asked for, or how many rows were changed. */
  wants: 'rows' | 'change';
  /** In a transaction an error may end it, so that the statement cannot be sent in another way. */
  isInTransaction: boolean;
  /** Whether connections of PostgreSQL may keep prepared statements. */
  mayPrepare: boolean;
  /** Of another program's table, whose values may have any type: they are what the driver makes of them. */
  isForeign: boolean;
}

export interface DriverResult {
  /** Empty if a change was asked for. */
  rows: object[];
  /** How many rows matched; 0 where rows were asked for. */
  affectedRows: unknown;
  /** What MySQL's `last_insert_id(…)` returned; undefined for 0. */
  insertId: unknown;
}

/** A statement with `?` for each of its values. */
export interface BoundStatement {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** One connection of a driver. Values are bound, whatever the host has set for its driver and the server. */
export interface Driver {
  /** @param text with `?` for each of the values. */
  send(text: string, values: readonly unknown[], context: StatementContext): Promise<DriverResult>;
  /**
   * Sends statements at once. After one that fails the server runs none of them. Left out where each is sent when the one before
   * it has been answered.
   */
  sendAll?(statements: readonly BoundStatement[], context: StatementContext): Promise<DriverResult[]>;
  /** Whether the connection reports how many rows an `update` has changed, and not how many it matched. */
  readonly reportsChangedRows: boolean;
  /**
   * Whether the last answer to `send` said that a transaction is open that can be committed. The answer with an error does not
   * say so on MySQL and MariaDB. Undefined if the driver does not show it.
   */
  readonly isInTransaction?: boolean | undefined;
}

/** How many statements a connection keeps. The package has fewer texts; only lists of different lengths are more. */
export const KEPT_STATEMENTS = 100;
