import {
  CheckConstraintViolationException,
  ConnectionException,
  ConstraintViolationException,
  DatabaseObjectExistsException,
  DatabaseObjectNotFoundException,
  DeadlockException,
  DriverException,
  ForeignKeyConstraintViolationException,
  InvalidFieldNameException,
  LockWaitTimeoutException,
  NonUniqueFieldNameException,
  NotNullConstraintViolationException,
  ReadOnlyException,
  ServerException,
  SyntaxErrorException,
  TableExistsException,
  TableNotFoundException,
  UniqueConstraintViolationException,
} from '@mikro-orm/core';
import { driverCodeOf, driverMessageOf } from '../../model/errors.js';
import type { Failure } from '../../model/failures.js';
import { TimedOut } from './connection.js';
import type { Dialect } from '../dialects/dialect.js';

/** MikroORM's classes; subclasses come first. */
const CLASSES: readonly (readonly [new (previous: Error) => Error, Failure])[] = [
  [UniqueConstraintViolationException, 'duplicate'],
  [ForeignKeyConstraintViolationException, 'foreignKey'],
  [CheckConstraintViolationException, 'check'],
  [NotNullConstraintViolationException, 'notNull'],
  [ConstraintViolationException, 'constraint'],
  [TableExistsException, 'tableExists'],
  [DatabaseObjectExistsException, 'objectExists'],
  [TableNotFoundException, 'missingTable'],
  [DatabaseObjectNotFoundException, 'missingObject'],
  [InvalidFieldNameException, 'missingColumn'],
  [NonUniqueFieldNameException, 'ambiguousColumn'],
  [SyntaxErrorException, 'syntax'],
  [ReadOnlyException, 'readOnly'],
  [DeadlockException, 'deadlock'],
  [LockWaitTimeoutException, 'lockTimeout'],
  [ServerException, 'refused'],
  [ConnectionException, 'unreachable'],
  [DriverException, 'unknown'],
];

/** Codes of Node.js, which all drivers for servers pass on. */
const NETWORK: Readonly<Record<string, Failure>> = {
  ECONNREFUSED: 'unreachable',
  ENOTFOUND: 'unreachable',
  EAI_AGAIN: 'unreachable',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
  ECONNRESET: 'lostConnection',
  EPIPE: 'lostConnection',
  ETIMEDOUT: 'lostConnection',
};

/** Messages of failures for which drivers and their pools give no code. */
const MESSAGES: readonly (readonly [string, Failure])[] = [
  // knex, on any database: a host's transaction has lost its connection.
  ['Transaction query already complete', 'lostConnection'],
  // node-postgres, when the server goes away.
  ['Connection terminated', 'lostConnection'],
  ['is not queryable', 'lostConnection'],
  // node-postgres, when no connection could be made within connectionTimeoutMillis.
  ['timeout expired', 'unreachable'],
  // node-postgres, with query_timeout.
  ['Query read timeout', 'lostConnection'],
  ["Can't add new command when connection is in closed state", 'lostConnection'],
  ['Timeout acquiring a connection', 'poolTimeout'],
  ['timeout exceeded when trying to connect', 'poolTimeout'],
  ['Unable to acquire a connection', 'closed'],
  // kysely, node-postgres, mysql2 and better-sqlite3, when the host closes the ORM during a call.
  ['driver has already been destroyed', 'closed'],
  ['Cannot use a pool after calling end on the pool', 'closed'],
  ['Pool is closed', 'closed'],
  ['The database connection is not open', 'closed'],
  ['SASL: ', 'authentication'],
  // better-sqlite3: the folder is missing.
  ['Cannot open database', 'fileNotOpened'],
  // libSQL: the same.
  ['Unable to open connection to local database', 'fileNotOpened'],
];

/** What went wrong, by the driver's code first: MikroORM has no class for most failures of connections and servers. */
export function failureOf(error: unknown, dialect: Dialect): Failure {
  if (error instanceof TimedOut) return error.hadConnection ? 'timedOut' : 'poolTimeout';
  const code = driverCodeOf(error);
  const known = NETWORK[code ?? ''] ?? dialect.errors.failureOf(error);
  if (known) return known;
  const message = code === undefined ? driverMessageOf(error) : '';
  const [, byMessage] = MESSAGES.find(([text]) => message.includes(text)) ?? [];
  if (byMessage) return byMessage;
  const [, failure = 'unknown'] = CLASSES.find(([Class]) => error instanceof Class) ?? [];
  // If the error has a server's code, the server has answered, even if MikroORM has no class for the error.
  return failure === 'unknown' && dialect.errors.isAnswer(error) ? 'refused' : failure;
}

/** Whether a row with the same key is there already. */
export const isDuplicate = (error: unknown): boolean => error instanceof UniqueConstraintViolationException;
