/** How statements are sent. */
export interface StatementContext {
  /** In a transaction a failed statement cannot be sent again in another way, since an error may end the transaction. */
  isInTransaction: boolean;
  /** Whether a connection of PostgreSQL may keep prepared statements. */
  mayPrepare: boolean;
  /** For tables of another program, whose values may have any type: they are returned as the driver reads them. */
  isForeign: boolean;
  /** Whether statements that are sent at once are prepared, even in a transaction. */
  preparesAll?: boolean;
}

export interface DriverResult {
  /** Empty if the caller wants a change. */
  rows: object[];
  /** How many rows matched; 0 if the caller wants rows. */
  affectedRows: unknown;
  /** What MySQL's `last_insert_id(…)` returned; undefined for 0. */
  insertId: unknown;
}

/** A statement with `?` for each of its values. */
export type Bound = readonly [text: string, values: readonly unknown[]];

/** A statement that may be sent at once with others. */
export interface Statement {
  /** With `?` for each of the values, and no other: names of tables that have one are refused. */
  text: string;
  values: readonly unknown[];
  /** Rows, or the number of rows that matched. Absent if nobody needs its result. */
  wants?: 'rows' | 'change';
  /** See `DialectConnections.cluster`. */
  prefix?: string;
  /** Whether it begins a transaction, whatever the host's `onQuery` makes of its text. */
  begins?: boolean;
  /** Called just before it is sent, alone or with others. */
  sending?: (() => void) | undefined;
}

/**
 * One connection of a driver. It binds values, whatever the host has set for its driver and the server. A synchronous driver returns
 * its results without a promise, which would take as long as a short statement.
 */
export interface Driver {
  send(statement: Statement, context: StatementContext): DriverResult | Promise<DriverResult>;
  /** Sends statements at once. After one that fails the server runs none of them. Left out if the protocol cannot do this. */
  sendAll?(statements: readonly Statement[], context: StatementContext): DriverResult[] | Promise<DriverResult[]>;
  /** Sends statements as one text, which the server runs up to the first that fails. Left out if it returns one result only. */
  sendBlock?(text: string, statements: readonly Statement[]): Promise<DriverResult[]>;
  /** Whether the connection reports how many rows an `update` has changed, not how many it matched. Left out if it never does. */
  readonly reportsChangedRows?: boolean | undefined;
  /**
   * Whether the last answer said that a transaction is open and can be committed. On MySQL and MariaDB an error does not say it.
   * Undefined if the driver does not show it.
   */
  readonly isInTransaction?: boolean | undefined;
  /** Whether the last answer said that a transaction is open that can only be rolled back. Left out if no answer says so. */
  readonly hasFailed?: boolean;
}

/**
 * How many prepared statements a connection keeps. The package has fewer, except that lists of different lengths are different
 * statements.
 */
export const KEPT_STATEMENTS = 100;
