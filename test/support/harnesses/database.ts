import type { MikroORM, Options } from '@mikro-orm/core';
import type { DialectName } from '../../../entities/dialect-name.js';

/** What tests know of a database and its driver: all in which they differ from others. */
export interface Database {
  /** Its key in `DATABASES`, its name in `ADK_TEST_DATABASES`, and that of its file in test/contract. */
  name: string;
  /**
   * On a `file` or a `server` all tests run. On an `embedded` one, which has another's dialect, the contract alone runs, and
   * the number of statements.
   */
  kind: 'file' | 'server' | 'embedded';
  dialect: DialectName;
  /** Its name in the docs. */
  title: string;
  /** Of the driver. */
  packageName: string;
  /** Loaded when it is needed, since a test file mostly needs one. */
  driver(): Promise<NonNullable<Options['driver']>>;
  /** Whether `databaseOptions` and the command line take this driver for a URL of the database. */
  isOfUrl: boolean;
  /** What a process needs beside the URL where many start at once. */
  processOptions?: Options;
  /** Whether it is there: with this MikroORM, and its server. */
  isAvailable(): boolean;
  /** Makes an empty database that nobody else uses, or a copy of what `template` has returned. */
  create(template?: string): Promise<NewDatabase>;
  /** @returns what `create` copies: the path of a file, the name of a database, or statements. */
  template(orm: MikroORM): Promise<string>;
  /** Options for `MikroORM.init` that lead nowhere, with a password or a path that nobody may see. */
  unreachable: { options: Options; secret: string };
  columns: Columns;
  connection: ConnectionSettings;
  schema: Schema;
  plan: Plan;
  statements: Statements;
  /** What of docs/durability.md it decides. */
  durability: {
    /** What a setting is without a configuration, and whether the service's connection has what the server gives to all. */
    defaultOf(query: Query, setting: string): Promise<{ value: string | undefined; isKept: boolean }>;
  };
  /** What a host may set for the driver. */
  driverOptions: { harmless: readonly DriverSetting[]; refused: readonly RefusedDriverSetting[] };
  /** The tables of other stores on it. */
  otherStores: OtherStores;
  /** Where it is one. */
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
  /** For another process, or for `ADK_DATABASE_URL`. */
  url: string;
  /** For `MikroORM.init`, with the entities added. */
  options: Options;
  drop(): Promise<void>;
}

/** How values are kept and read. */
interface Columns {
  /** Selects JSON as the text that was written. */
  json(column: string): string;
  /** Whether a column of JSON refuses text that is none. */
  refuseOtherThanJson: boolean;
  /** Makes a column of JSON take any text; undefined if it does. */
  takeAnyText?(table: string, column: string): string;
  /** Selects a double, as a number or as its text: mysql2 does not parse every one exactly. */
  double(column: string): string;
  /** The type of a number that the database gives; a primary key. */
  autoIncrement: string;
  /** The type of bytes. */
  bytes: string;
  /** Whether a large event is kept in parts. */
  keepLargeEventsInParts: boolean;
  /** The database's clock in ms, in other words than the package's. */
  now: string;
}

/** What may be set on a connection, by statements. */
interface ConnectionSettings {
  /** By the names of tests: modes under which everything works. */
  harmless: Readonly<Record<string, readonly string[]>>;
  /** Under these a call is refused. */
  refused: readonly RefusedSetting[];
  /** What makes it read-only, what ends that, and the driver's code of the error of a write. */
  readOnly: readonly [on: string, off: string, code: string];
  /** Makes it give up on a lock at once, or soon. */
  impatience: string;
  /** Whether MikroORM has a pool of connections for it, which gives up waiting for one. */
  hasPatientPool: boolean;
}

export interface RefusedSetting {
  /** What sets it. */
  set: string;
  /** What the error names. */
  named: RegExp;
  /** The advice in the error. */
  advice: RegExp;
  /** Whether the ORM cannot begin a host's transaction either. */
  hasNoTransactions?: boolean;
}

/** Its tables, as it and MikroORM see them. */
interface Schema {
  /** Selects type and name of every table, index and sequence of the database. */
  everything: string;
  /** Selects type and name of the tables. */
  tables: string;
  /** What makes a schema, as the database itself describes it. */
  describe(query: Query): Promise<unknown[]>;
  /** Whether a foreign key needs its table when it is made, not only when a row is written. */
  checksForeignKeys: boolean;
  /** Drops a schema, with what is in it; undefined if there are none. */
  dropSchema?(name: string): string;
  /** Whether MikroORM's generator reads schemas beside that of the connection. */
  readsOtherSchemas: boolean;
  /** What keeps two migrations from running at once: a transaction's lock, or a row with an end. */
  migrationLock: 'transaction' | 'row';
  /** The last statement that has it. */
  migrationUnlock: RegExp;
  dropIndex(index: string, table: string): string;
  /** Drop a foreign key and a primary key, and change a collation; none if that means a new table. */
  damageKeys: readonly string[];
  /** Begins the numbers of `adk_changes` anew, where emptying the table does not. */
  restartChanges?: string;
}

/** How a database says what it reads. */
interface Plan {
  /** Makes the planner know the tables. */
  analyze: string;
  /** The tables, or the lines that name them, that a statement reads from end to end; not the few rows of the counters. */
  scans(explain: (prefix: string) => Promise<object[]>): Promise<string[]>;
  /** The tables whose rows a statement sorts, and so reads all that match, whatever its limit; left out if plans have no names. */
  sorts?(explain: (prefix: string) => Promise<object[]>): Promise<string[]>;
  /** The lines that say that all events of a session are read by the index of their ids, of which the statement names none. */
  wholeSessions(explain: (prefix: string) => Promise<object[]>): Promise<string[]>;
}

/** What our statements are, in short: `insert events`. */
interface Statements {
  /** Of an append that writes to these scopes. */
  append(scopes: readonly string[]): string[];
  /** Of a poll of the log where nothing has happened since: what it has, and where it does without our tables. */
  poll: { text: string; hasTables: boolean };
  /** The first of an import of a session. */
  lock: string;
  /** Whether a transaction that writes keeps others from writing anything. */
  lockEverything: boolean;
}

/** What a host may set for its driver. */
export interface DriverSetting {
  name: string;
  /** Of the driver's connections. */
  connection?: object;
  /** Parsers of node-postgres, by the number of the type; they hold for the process. */
  parsers?: Readonly<Record<number, (text: string) => unknown>>;
  /** Whether MikroORM itself works with it: its migrator takes no bytes for a name. */
  spoilsMigrator?: boolean;
  /** Called with the driver's connection. */
  onConnection?: (raw: never) => void;
}

export interface RefusedDriverSetting extends DriverSetting {
  /** What the error names. */
  named: RegExp;
}

interface OtherStores {
  /** Whether ADK's own service gives rows of the same time in the order in which they were inserted. */
  keepOrderOfRows: boolean;
  /** Whether they take empty text where JSON should be. */
  takeEmptyText: boolean;
  /** Quotes names that are words of SQL. */
  quote: string;
  /** The types of adk-go's columns: keys, texts, JSON, bytes, booleans, times. */
  goTypes: readonly [key: string, text: string, json: string, bytes: string, boolean: string, time: string];
  /** A time in the minute of 1600000000, as Go's driver writes it; the seconds with their fraction. */
  goTime(seconds: string): string;
  /** The types of adk-python's columns: JSON, times. */
  pythonTypes: readonly [json: string, time: string];
  /** What the latter keep of 1600000000123.456 ms. */
  pythonTime: number;
}

/** A server, as an administrator and a network see it. */
export interface Server {
  /** The database that it gives to everybody who may log in. */
  adminDatabase: string;
  /** Selects the name of every database. */
  databases: string;
  /** Drops a database, though connections that a failed test left are open. */
  drop(database: string): string;
  /** The driver's option for how long it waits for a connection. */
  connectTimeout(ms: number): object;
  /** Whether the driver leaves errors of connections that end where nobody can handle them. */
  leavesErrorsUnhandled: boolean;
  /** Selects something while a connection to the database of the test waits for a lock. */
  waiting: string;
  connections: ServerConnections;
  /** The driver's codes of a login that is refused, a database that is unknown, and a right that is missing. */
  refusals: readonly [login: RegExp, database: string, right: string];
  /** What limits the time of a statement, an expression that takes longer and is '', and the driver's code of the error. */
  slow: readonly [limit: string, slow: string, code: string];
  /** The statements that make an account with rights on all tables or one, by default to read them, and those that take it away. */
  account(account: { name: string; password: string; database: string; table?: string; rights?: string }): {
    create: readonly string[];
    drop: readonly string[];
  };
  messages: Messages;
}

/** How an administrator sees and ends connections. */
interface ServerConnections {
  /** Selects the id of the own. */
  own: string;
  /** Selects the ids of those to a database. */
  ids: string;
  /** Selects what they are doing. */
  list: string;
  /** Selects something while a connection waits for a table that is being used. */
  waitingForTable(id: number): string;
  end(id: number): string;
  /** Selects how many prepared statements the server keeps for the connection, as `n`. */
  prepared: string;
  /** How many of ours there are at most: `KEPT_STATEMENTS`, or as many as a driver keeps that drops them by itself. */
  mostPrepared: number;
  /** Selects the limit of a packet, where the server has one. */
  maxPacket?: string;
}

/** What goes over the wire. */
interface Messages {
  /** By what a proxy finds an append on a connection that has made one before. */
  append: RegExp;
  /** A server's answer that a statement was refused, with the transaction as it was. */
  refusal(): Buffer;
  /** That of a statement that is a transaction of its own. */
  deadlock(): Buffer;
  /** That of a commit which has failed, or may have, where the connection stays. */
  commitFailed?(): Buffer;
  /** That of a server which crashes at a commit. */
  crash?(): Buffer;
}
