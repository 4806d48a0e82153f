import { SETTINGS } from './setting-words.js';

interface FailureKind {
  /** The name of MikroORM's class, as text, since a minifier renames classes. */
  reason: string;
  /** What happened. */
  what: string;
  /** What the operator can do. */
  advice: string;
  /**
   * Whether a retry may succeed. `conflict`: another transaction is in the way, for milliseconds. `outage`: the server is gone,
   * starting, or accepts no writes, for as long as a failover takes.
   */
  passing?: 'conflict' | 'outage';
  /**
   * Whether the connection must be closed: it is lost, its transaction may be open, or it leads to a server that accepts no writes,
   * and a new connection may lead to another server.
   */
  spoilsConnection?: true;
  /** Whether the statement may have taken effect, since the failure is not the server's answer. */
  isUncertain?: true;
}

const IN_TRANSACTION = 'inside em.transactional use service.withEntityManager(tx)';
const SERVER_LOG = "Look at the server's log.";
const OTHER_ROWS =
  'Look for rows, constraints or triggers of another program in the tables of adk-mikro-orm, and for rows that were changed by hand.';
const OTHER_TABLES = 'Look for tables or columns that another program has added or changed under these names.';

/** The failures of databases, with the words of a `DatabaseError`. docs/errors.md lists them. */
export const FAILURES = {
  lostConnection: {
    reason: 'ConnectionException',
    what: 'The connection to the database was lost',
    advice:
      "Look at the server's log, and at what may close connections between here and there: a proxy, a firewall, an idle time-out.",
    passing: 'outage',
    spoilsConnection: true,
    isUncertain: true,
  },
  unreachable: {
    reason: 'ConnectionException',
    what: 'The database could not be reached',
    advice: `Look at host and port ${SETTINGS.config}, and whether the server is running.`,
    passing: 'outage',
    spoilsConnection: true,
  },
  poolTimeout: {
    reason: 'ConnectionException',
    what: 'No connection of the pool became free in time',
    advice: `Look for transactions that stay open, and raise ${SETTINGS.pool}; ${IN_TRANSACTION}.`,
    passing: 'outage',
  },
  timedOut: {
    reason: 'ConnectionException',
    what: "The database did not answer within 'timeoutMs'",
    advice: `Look for transactions that keep rows locked, at the server's load, and at the network; ${IN_TRANSACTION}; raise 'timeoutMs' if the work takes that long.`,
    passing: 'outage',
    spoilsConnection: true,
    isUncertain: true,
  },
  fileNotOpened: {
    reason: 'ConnectionException',
    what: 'The database file could not be opened',
    advice: `Look at the path of the file ${SETTINGS.config}, and at the rights on its folder.`,
  },
  closed: {
    reason: 'ConnectionException',
    what: 'The connections of MikroORM are closed, or were closed during the call',
    advice: 'Close the ORM after the last call has ended.',
    spoilsConnection: true,
  },
  tooManyConnections: {
    reason: 'ConnectionException',
    what: 'The server has no connection left',
    advice: "The pools ('pool.max') of all processes together must stay below the server's limit (max_connections).",
    passing: 'outage',
    spoilsConnection: true,
  },
  authentication: {
    reason: 'ConnectionException',
    what: 'The server refused the login',
    advice: `Look at user and password ${SETTINGS.config}, and at the hosts from which the account may log in.`,
  },
  unknownDatabase: {
    reason: 'ConnectionException',
    what: 'The server has no database of this name',
    advice: `Look at ${SETTINGS.database}, or create the database.`,
  },
  notAllowed: {
    reason: 'ServerException',
    what: 'The account lacks a right',
    advice: 'It needs select, insert, update and delete on the tables of adk-mikro-orm, and use of their schema.',
  },
  refusedByPolicy: {
    reason: 'ServerException',
    what: 'A policy of row-level security does not let the account write the row',
    advice:
      'Let the policies on the tables of adk-mikro-orm allow the rows of every app and user that the account serves, or give it BYPASSRLS; grants do not help.',
  },
  readOnly: {
    reason: 'ReadOnlyException',
    what: 'The database takes no writes: the server or the transaction is read-only',
    advice: 'Connect to the primary server, or wait for the end of a failover.',
    passing: 'outage',
    spoilsConnection: true,
  },
  refusedByGroup: {
    reason: 'ReadOnlyException',
    what: 'The group replication of the server refused the write, as it does while the group changes its primary',
    advice:
      'If it stays so, set group_replication_enforce_update_everywhere_checks to OFF, and check that the tables of adk-mikro-orm are InnoDB and have their primary keys.',
    passing: 'outage',
    spoilsConnection: true,
  },
  readOnlyFile: {
    reason: 'ReadOnlyException',
    what: 'The database takes no writes: its file is read-only',
    advice: 'Look at the rights on the file and its folder.',
  },
  diskFull: {
    reason: 'ServerException',
    what: 'The database has no space left',
    advice: "Look at the server's disk, at quotas, and at the largest size that the database or the file may have.",
  },
  deadlock: {
    reason: 'DeadlockException',
    what: 'The transaction met a deadlock on every attempt',
    advice:
      "Begin a transaction of your own again. Look for transactions that lock rows of adk-mikro-orm and stay open. If the load is expected, raise 'retry.attempts'.",
    passing: 'conflict',
  },
  changedSinceSnapshot: {
    reason: 'DeadlockException',
    what: 'Another transaction has changed what this one reads or writes, since its snapshot was taken',
    advice:
      'Begin a transaction of your own again, from its first read. If that happens often, let it write before it reads, or use READ COMMITTED.',
    passing: 'conflict',
  },
  rolledBack: {
    reason: 'ServerException',
    what: 'The server had rolled back the transaction: one of its statements failed, and the error was caught',
    advice:
      'Let such an error end the transaction, or run the statement in a nested one, tx.transactional(…). After a deadlock begin the whole transaction again.',
    spoilsConnection: true,
  },
  lockTimeout: {
    reason: 'LockWaitTimeoutException',
    what: 'Another transaction held a lock for too long',
    advice: `Look for transactions that stay open, of this program or another; ${IN_TRANSACTION}.`,
    passing: 'conflict',
  },
  commitRolledBack: {
    reason: 'DeadlockException',
    what: "The server rolled back the commit because it conflicted with another server's, or left its group, which may have committed it",
    advice:
      "Look at the server's log, and send the writes to one session to one server. If the load is expected, raise 'retry.attempts'.",
    passing: 'conflict',
    isUncertain: true,
  },
  commitFailed: {
    reason: 'ServerException',
    what: 'The server failed to commit, or could not find out whether it had',
    advice: "Look at the server's log: the node may have lost its cluster, or the disk may be full.",
    passing: 'outage',
    spoilsConnection: true,
    isUncertain: true,
  },
  statementTimeout: {
    reason: 'ServerException',
    what: 'The server cancelled the statement: it ran out of time, or somebody cancelled it',
    advice:
      "Look at the server's load, and at its limits for a statement (statement_timeout, max_execution_time, max_statement_time).",
  },
  tooLarge: {
    reason: 'ServerException',
    what: 'A value is larger than the server takes in one packet',
    advice: 'Raise max_allowed_packet on the server, or keep large content in an artifact.',
  },
  damagedFile: {
    reason: 'ServerException',
    what: 'The database found its own files damaged',
    advice: "Look at the server's log and at the disk, and keep a copy of the files before you repair anything.",
  },
  inputOutput: {
    reason: 'ServerException',
    what: 'The disk failed while the database read or wrote',
    advice: 'Look at the disk and at the log of the operating system.',
    spoilsConnection: true,
    isUncertain: true,
  },
  duplicate: {
    reason: 'UniqueConstraintViolationException',
    what: 'A row with the same key exists, which should not be possible',
    advice: OTHER_ROWS,
  },
  foreignKey: {
    reason: 'ForeignKeyConstraintViolationException',
    what: 'A foreign key refused the change: the row that it refers to is missing, or other rows still refer to it',
    advice: OTHER_ROWS,
  },
  check: {
    reason: 'CheckConstraintViolationException',
    what: 'A check on a table refused the row',
    advice: OTHER_ROWS,
  },
  notNull: {
    reason: 'NotNullConstraintViolationException',
    what: 'A column that must have a value got none',
    advice: OTHER_TABLES,
  },
  constraint: {
    reason: 'ConstraintViolationException',
    what: 'A constraint on a table refused the row',
    advice: OTHER_ROWS,
  },
  tableExists: {
    reason: 'TableExistsException',
    what: 'A table of this name exists already',
    advice: OTHER_TABLES,
  },
  objectExists: {
    reason: 'DatabaseObjectExistsException',
    what: 'A database object of this name exists already',
    advice: OTHER_TABLES,
  },
  missingTable: { reason: 'TableNotFoundException', what: 'A table is missing', advice: OTHER_TABLES },
  missingColumn: { reason: 'InvalidFieldNameException', what: 'A column is missing', advice: OTHER_TABLES },
  missingObject: {
    reason: 'DatabaseObjectNotFoundException',
    what: 'A database object that the statement names is missing',
    advice: OTHER_TABLES,
  },
  ambiguousColumn: {
    reason: 'NonUniqueFieldNameException',
    what: 'A column name is ambiguous',
    advice: OTHER_TABLES,
  },
  syntax: {
    reason: 'SyntaxErrorException',
    what: 'The server did not understand a statement',
    advice:
      "Check that the driver is the server's (the one for MariaDB is not MySQL's), and that this version of the server is supported.",
  },
  refused: {
    reason: 'ServerException',
    what: 'The database refused a statement',
    advice: SERVER_LOG,
    spoilsConnection: true,
  },
  unknown: {
    reason: 'DriverException',
    what: 'The database or its driver failed',
    advice: `${SERVER_LOG} The driver's own error goes to 'onError'.`,
    spoilsConnection: true,
    isUncertain: true,
  },
} as const satisfies Record<string, FailureKind>;

export type Failure = keyof typeof FAILURES;

const KINDS: Readonly<Record<Failure, FailureKind>> = FAILURES;

/** @returns undefined if a retry would fail, too. */
export const passingOf = (failure: Failure): FailureKind['passing'] => KINDS[failure].passing;

export const spoilsConnection = (failure: Failure): boolean => KINDS[failure].spoilsConnection ?? false;

export const isUncertain = (failure: Failure): boolean => KINDS[failure].isUncertain ?? false;
