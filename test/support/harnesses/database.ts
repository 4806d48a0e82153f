import type { MikroORM, Options } from '@mikro-orm/core';
import type { DialectName } from '../../../entities/dialect-name.js';

/** A database and its driver, with everything in which they differ from others. */
export interface Database {
  /** Its key in `DATABASES`, its name in `ADK_TEST_DATABASES`, and that of its file in test/contract. */
  name: string;
  /**
   * All tests run on a `file` or a `server`. On an `embedded` one, which has the dialect of another, only the contract and the count
   * of statements run.
   */
  kind: 'file' | 'server' | 'embedded';
  dialect: DialectName;
  /** Its name in the docs. */
  title: string;
  /** The package of the driver. */
  packageName: string;
  /** Loads the driver on demand: most test files need only one. */
  driver(): Promise<NonNullable<Options['driver']>>;
  /** Whether `databaseOptions` and the command line use this driver for a URL of the database. */
  isOfUrl: boolean;
  /** Options for processes that start at the same time as many others. */
  processOptions?: Options;
  /** Whether its driver exists for this MikroORM, and its server is running. */
  isAvailable(): boolean;
  /** Creates an empty database that nobody else uses, or a copy of a template. */
  create(template?: string): Promise<NewDatabase>;
  /** @returns the template for `create`: the path of a file, the name of a database, or statements. */
  template(orm: MikroORM): Promise<string>;
  /** Options for `MikroORM.init` that lead nowhere, with a password or a path that nobody may see. */
  unreachable: { options: Options; secret: string };
  columns: Columns;
  connection: ConnectionSettings;
  schema: Schema;
  plan: Plan;
  statements: Statements;
  /** The facts about it in docs/durability.md. */
  durability: {
    /** The server's default of a setting, and whether the service's connection keeps the configured value. */
    defaultOf(query: Query, setting: string): Promise<{ value: string | undefined; isKept: boolean }>;
  };
  /** Options that a host may set for the driver. */
  driverOptions: { harmless: readonly DriverSetting[]; refused: readonly RefusedDriverSetting[] };
  /** The tables of other stores on it. */
  otherStores: OtherStores;
  /** Only for a server. */
  server?: Server;
}

export interface FileDatabase extends Database {
  kind: 'file';
}

export interface ServerDatabase extends Database {
  kind: 'server';
  server: Server;
}

export interface EmbeddedDatabase extends Database {
  kind: 'embedded';
}

/** Runs a statement on the test's database. */
export type Query = <Row extends object>(sql: string, values?: readonly unknown[]) => Promise<Row[]>;

export interface NewDatabase {
  /** The URL for another process, or for `ADK_DATABASE_URL`. */
  url: string;
  /** Options for `MikroORM.init`, which needs entities as well. */
  options: Options;
  drop(): Promise<void>;
}

/** How values are kept and read. */
interface Columns {
  /** Selects JSON as the text that was written. */
  json(column: string): string;
  /** Whether a column of JSON refuses other text. */
  refuseOtherThanJson: boolean;
  /** Makes a column of JSON accept any text; undefined if it does already. */
  takeAnyText?(table: string, column: string): string;
  /** Selects a double as a number or as text: mysql2 does not parse all of them exactly. */
  double(column: string): string;
  /** The type of a primary key that the database numbers. */
  autoIncrement: string;
  /** The type of bytes. */
  bytes: string;
  /** Whether large events are stored in parts. */
  keepLargeEventsInParts: boolean;
  /** The database's clock in ms, by another expression than the package's. */
  now: string;
}

/** Settings of a connection. */
interface ConnectionSettings {
  /** Settings under which everything works, by the names of tests. */
  harmless: Readonly<Record<string, readonly string[]>>;
  /** Settings under which a call is refused. */
  refused: readonly RefusedSetting[];
  /** The statements that make it read-only and writable, and the driver's code when a write is refused. */
  readOnly: readonly [on: string, off: string, code: string];
  /** The statement after which it hardly waits for a lock. */
  impatience: string;
  /** Whether it has a pool of connections, and the wait for one of them ends. */
  hasPatientPool: boolean;
}

export interface RefusedSetting {
  /** The statement that sets it. */
  set: string;
  /** The name in the error. */
  named: RegExp;
  /** The advice in the error. */
  advice: RegExp;
  /** Whether the ORM cannot begin a host's transaction either. */
  hasNoTransactions?: boolean;
}

/** How it and MikroORM describe its tables. */
interface Schema {
  /** Selects type and name of every table, index and sequence of the database. */
  everything: string;
  /** Selects type and name of the tables. */
  tables: string;
  /** Selects everything of the schema, as the database itself describes it. */
  describe(query: Query): Promise<unknown[]>;
  /** Whether a foreign key needs its table when it is created, and not only when a row is written. */
  checksForeignKeys: boolean;
  /** Drops a schema, with what is in it; undefined if there are none. */
  dropSchema?(name: string): string;
  /** Whether MikroORM's generator reads other schemas than the connection's. */
  readsOtherSchemas: boolean;
  /** What keeps two migrations from running at once: a transaction's lock, or a row with an end. */
  migrationLock: 'transaction' | 'row';
  /** The statement that ends the lock. */
  migrationUnlock: RegExp;
  dropIndex(index: string, table: string): string;
  /** Drop a foreign key and a primary key, and change a collation; empty if that needs a new table. */
  damageKeys: readonly string[];
  /** Restarts the numbers of `adk_changes`, if emptying the table does not. */
  restartChanges?: string;
}

/** How a database explains what it reads. */
interface Plan {
  /** Updates the planner's statistics. */
  analyze: string;
  /** The tables, or the lines that name them, that a statement reads completely, except the counters. */
  scans(explain: (prefix: string) => Promise<object[]>): Promise<string[]>;
  /** The tables whose rows a statement sorts, for which it reads all that match; absent if plans have no names. */
  sorts?(explain: (prefix: string) => Promise<object[]>): Promise<string[]>;
  /** The lines that say that all events of a session are read by the index of ids, though the statement names no id. */
  wholeSessions(explain: (prefix: string) => Promise<object[]>): Promise<string[]>;
}

/** Our statements, in short form: `insert events`. */
interface Statements {
  /** The statements of an append that writes to these scopes. */
  append(scopes: readonly string[]): string[];
  /** The statement of a poll of the log if nothing has happened, and whether it reads our tables. */
  poll: { text: string; hasTables: boolean };
  /** The first statement of the import of a session. */
  lock: string;
  /** Whether a transaction that writes blocks all other writers. */
  lockEverything: boolean;
}

/** An option that a host may set for its driver. */
export interface DriverSetting {
  name: string;
  /** Options of the driver's connections. */
  connection?: object;
  /** Parsers of node-postgres, by the number of the type. They apply to the whole process. */
  parsers?: Readonly<Record<number, (text: string) => unknown>>;
  /** Whether MikroORM's own migrator fails with it, for example because it gets bytes instead of a name. */
  spoilsMigrator?: boolean;
  /** Called with the driver's connection. */
  onConnection?: (raw: never) => void;
}

export interface RefusedDriverSetting extends DriverSetting {
  /** The name in the error. */
  named: RegExp;
}

interface OtherStores {
  /** Whether ADK's own service returns rows with equal times in the order in which they were inserted. */
  keepOrderOfRows: boolean;
  /** Whether their columns of JSON accept an empty text. */
  takeEmptyText: boolean;
  /** Quotes names that are words of SQL. */
  quote: string;
  /** The types of adk-go's columns: keys, texts, JSON, bytes, booleans, times. */
  goTypes: readonly [key: string, text: string, json: string, bytes: string, boolean: string, time: string];
  /** A time in the minute of 1600000000, as Go's driver writes it; the seconds with their fraction. */
  goTime(seconds: string): string;
  /** The types of adk-python's columns: JSON, times. */
  pythonTypes: readonly [json: string, time: string];
  /** The value that the latter stores for 1600000000123.456 ms. */
  pythonTime: number;
}

/** A server, as its administrator and a network see it. */
export interface Server {
  /** The database to which every account may connect. */
  adminDatabase: string;
  /** Selects the name of every database. */
  databases: string;
  /** Drops a database even if a failed test has left connections open. */
  drop(database: string): string;
  /** The driver's option for how long it waits for a connection. */
  connectTimeout(ms: number): object;
  /** Whether nobody can handle the errors that the driver throws for closed connections. */
  leavesErrorsUnhandled: boolean;
  /** Selects something while a connection to the database of the test waits for a lock. */
  waiting: string;
  connections: ServerConnections;
  /** The driver's codes of a login that is refused, a database that is unknown, and a right that is missing. */
  refusals: readonly [login: RegExp, database: string, right: string];
  /** The statement that limits the time of others, a slow expression whose value is '', and the driver's code of the error. */
  slow: readonly [limit: string, slow: string, code: string];
  /** Statements that create an account with rights on all tables or one, by default to read, and those that drop it. */
  account(account: { name: string; password: string; database: string; table?: string; rights?: string }): {
    create: readonly string[];
    drop: readonly string[];
  };
  messages: Messages;
}

/** How an administrator sees and ends connections. */
interface ServerConnections {
  /** Selects the id of this connection. */
  own: string;
  /** Selects the ids of the connections to a database. */
  ids: string;
  /** Selects what the connections are doing. */
  list: string;
  /** Selects something while a connection waits for a table that is being used. */
  waitingForTable(id: number): string;
  end(id: number): string;
  /** Selects how many prepared statements the server keeps for the connection, as `n`. */
  prepared: string;
  /** How many of our prepared statements there are at most: `KEPT_STATEMENTS`, or the driver's own limit. */
  mostPrepared: number;
  /** Selects the limit of a packet, if the server has one. */
  maxPacket?: string;
}

/** Messages between client and server. */
interface Messages {
  /** How a proxy recognises an append on a connection that has already made one. */
  append: RegExp;
  /** The server's answer to a refused statement. The transaction continues. */
  refusal(): Buffer;
  /** The answer to a deadlock of a statement that is its own transaction. */
  deadlock(): Buffer;
  /** The answer to a commit that has failed, or may have, if the connection stays. */
  commitFailed?(): Buffer;
  /** The answer of a server that crashes during a commit. */
  crash?(): Buffer;
}
