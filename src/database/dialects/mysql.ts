import { raw } from '@mikro-orm/core';
import { EventTooLargeError, driverCodeOf } from '../../model/errors.js';
import type { Failure } from '../../model/failures.js';
import type { Dialect, SeqUpdate, Sql } from './dialect.js';
import { settingsCheck, type Setting, type SettingsCheck } from './settings.js';

/** By the names that both drivers have for the numbers of both servers. */
const FAILURES_BY_CODE: Readonly<Record<string, Failure>> = {
  PROTOCOL_CONNECTION_LOST: 'lostConnection',
  PROTOCOL_SEQUENCE_TIMEOUT: 'lostConnection',
  ER_SERVER_SHUTDOWN: 'lostConnection',
  ER_CONNECTION_KILLED: 'lostConnection',
  ER_CLIENT_INTERACTION_TIMEOUT: 'lostConnection',
  ER_SOCKET_UNEXPECTED_CLOSE: 'lostConnection',
  ER_SOCKET_TIMEOUT: 'lostConnection',
  ER_CMD_CONNECTION_CLOSED: 'lostConnection',
  ER_CHECKREAD: 'lostConnection',
  ER_CONNECTION_TIMEOUT: 'unreachable',
  ER_CON_COUNT_ERROR: 'tooManyConnections',
  ER_TOO_MANY_USER_CONNECTIONS: 'tooManyConnections',
  ER_USER_LIMIT_REACHED: 'tooManyConnections',
  ER_ACCESS_DENIED_ERROR: 'authentication',
  ER_ACCESS_DENIED_NO_PASSWORD_ERROR: 'authentication',
  ER_NOT_SUPPORTED_AUTH_MODE: 'authentication',
  ER_HOST_NOT_PRIVILEGED: 'authentication',
  ER_ACCOUNT_HAS_BEEN_LOCKED: 'authentication',
  ER_BAD_DB_ERROR: 'unknownDatabase',
  ER_NO_DB_ERROR: 'unknownDatabase',
  ER_DBACCESS_DENIED_ERROR: 'notAllowed',
  ER_TABLEACCESS_DENIED_ERROR: 'notAllowed',
  ER_COLUMNACCESS_DENIED_ERROR: 'notAllowed',
  ER_SPECIFIC_ACCESS_DENIED_ERROR: 'notAllowed',
  // A replica, a read-only transaction, a server that was told so.
  ER_OPTION_PREVENTS_STATEMENT: 'readOnly',
  ER_READ_ONLY_MODE: 'readOnly',
  ER_OPEN_AS_READONLY: 'readOnly',
  ER_INNODB_READ_ONLY: 'readOnly',
  ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION: 'readOnly',
  ER_DISK_FULL: 'diskFull',
  ER_RECORD_FILE_FULL: 'diskFull',
  ER_LOCK_DEADLOCK: 'deadlock',
  ER_LOCK_WAIT_TIMEOUT: 'lockTimeout',
  ER_LOCK_NOWAIT: 'lockTimeout',
  ER_QUERY_INTERRUPTED: 'statementTimeout',
  ER_QUERY_TIMEOUT: 'statementTimeout',
  ER_STATEMENT_TIMEOUT: 'statementTimeout',
  ER_NET_PACKET_TOO_LARGE: 'tooLarge',
  ER_CRASHED_ON_USAGE: 'damagedFile',
  ER_NOT_KEYFILE: 'damagedFile',
  ER_ERROR_ON_READ: 'inputOutput',
  ER_ERROR_ON_WRITE: 'inputOutput',
  ER_ERROR_DURING_COMMIT: 'unknown',
};

export function driverNumberOf(error: unknown): number {
  return typeof error === 'object' && error !== null && 'errno' in error ? Number(error.errno) : Number.NaN;
}

/**
 * In UTF-16 code units, of which each takes three bytes of UTF-8 at most, and each of these two hexadecimal digits: 3 MB,
 * where the smallest default of `max_allowed_packet` that servers have had since MySQL 5.7 is 4 MB.
 */
export const MAX_TEXT_LENGTH = 500_000;

const UTF8MB4 =
  "Leave 'charset' out of 'driverOptions.connection', or set it to utf8mb4, and leave 'set names' out of hooks and init_connect.";

const readUncommitted = (variable: string): Setting => ({
  name: 'transaction isolation level READ UNCOMMITTED',
  because: 'events would be read that are never committed',
  mend: 'Run: set session transaction isolation level read committed',
  isWrong: `@@${variable} = 'READ-UNCOMMITTED'`,
});

/** What both servers refuse. */
const SETTINGS: readonly Setting[] = [
  {
    name: 'autocommit = 0',
    because: 'writes would not be committed and reads would show an old state',
    mend: 'Run: set autocommit = 1',
    isWrong: '@@autocommit = 0',
  },
  {
    name: 'completion_type',
    because: 'a commit would begin the next transaction or end the connection',
    mend: "Run: set completion_type = 'NO_CHAIN'",
    isWrong: "@@completion_type <> 'NO_CHAIN'",
  },
  {
    name: 'sql_select_limit',
    because: 'rows would be missing from what is read',
    mend: 'Run: set sql_select_limit = default',
    isWrong: '@@sql_select_limit < 18446744073709551615',
  },
  {
    name: 'foreign_key_checks = 0',
    because: 'a deleted session would leave its events behind',
    mend: 'Run: set foreign_key_checks = 1',
    isWrong: '@@foreign_key_checks = 0',
  },
  {
    name: 'unique_checks = 0',
    because: 'an event could be stored twice',
    mend: 'Run: set unique_checks = 1',
    isWrong: '@@unique_checks = 0',
  },
  {
    name: 'sql_safe_updates = 1',
    because: 'the event log could not give out positions',
    mend: 'Run: set sql_safe_updates = 0',
    isWrong: '@@sql_safe_updates = 1',
  },
  {
    name: 'character_set_results',
    because: 'text would come back changed unless it were utf8mb4',
    mend: UTF8MB4,
    isWrong: "not (@@character_set_results <=> 'utf8mb4')",
  },
  {
    // The mariadb driver reads what comes back by this one.
    name: 'character_set_client',
    because: 'text would come back changed unless it were utf8mb4',
    mend: UTF8MB4,
    isWrong: "@@character_set_client <> 'utf8mb4'",
  },
  {
    name: 'character_set_connection = binary',
    because: 'text would come back as bytes',
    mend: UTF8MB4,
    isWrong: "@@character_set_connection = 'binary'",
  },
];

/** Of `exp(…)`: it fails from 710 on, and the error names the number. */
const FIRST_CODE = 1_000;

/** Not with `cast` or a division, whose errors are warnings in some of the servers' modes. */
export function mysqlSettings(settings: readonly Setting[]): SettingsCheck {
  const checks = settings.map(({ isWrong }, i) => `exp(${FIRST_CODE + i} * (${isWrong}))`);
  return settingsCheck(`if(${checks.join(' * ')}, ?, null)`, 'ER_DATA_OUT_OF_RANGE', (message) => {
    const [, code] = /out of range in 'exp\(\(?(\d+)/.exec(message) ?? [];
    return code === undefined ? undefined : settings[Number(code) - FIRST_CODE];
  });
}

/** @param isolationLevel what the variable is called, for which the servers have different names. */
export const mysqlSettingList = (isolationLevel: string): Setting[] => [...SETTINGS, readUncommitted(isolationLevel)];

/** What MySQL and MariaDB have in common. */
export const mysql: Dialect = {
  failureOf: (error) => FAILURES_BY_CODE[driverCodeOf(error) ?? ''],

  // Numbers of the servers; those of clients are 2,000 to 2,999, and 45,000 upwards.
  isAnswer(error) {
    const number = driverNumberOf(error);
    return (number >= 1_000 && number < 2_000) || (number >= 3_000 && number < 45_000);
  },

  defaultPoolMax: 10,

  // In UTC, since a local time means two moments when summer ends. It stands still while a statement waits for a lock,
  // which makes leases shorter than asked for, never longer.
  now: "(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1000e0)",

  underLock: ' for update',

  jsonText: (column) => column,

  /**
   * Text as its bytes: in quotes, the server's modes and the connection's character set would decide where it ends and
   * what it says. ASCII alone, which no character set changes.
   */
  literal: (value) => (typeof value === 'string' ? raw(`_utf8mb4 x'${Buffer.from(value).toString('hex')}'`) : value),

  settings: mysqlSettings(mysqlSettingList('transaction_isolation')),

  /** mysql2 adds digit to digit and so misses the last one now and then: 902895004.4580133 ends in 2. */
  doubleText: (column) => `cast(${column} as char)`,

  onConflict: (_table, _keyColumns, ownOnly) =>
    ownOnly
      ? // From left to right: event_id stays as it is, so it can be compared.
        'on duplicate key update value = if(event_id = values(event_id), values(value), value)'
      : 'on duplicate key update value = values(value), event_id = values(event_id)',

  /** Neither server returns rows from an update; `last_insert_id(…)` brings the number back with the same statement. */
  async takeSeq(sql: Sql, { table, count, lastUpdateTime, where, values }: SeqUpdate) {
    const { affectedRows, insertId } = await sql.run(
      `update ${table} set last_seq = last_insert_id(last_seq + ?), last_update_time = ? where ${where}`,
      [count, lastUpdateTime, ...values],
    );
    return affectedRows === 0 ? undefined : insertId;
  },

  // In this order and by this index, or a server that finds the table small reads all of it, and locks what is between
  // the rows as well, where appends belong. With `union`, since the servers write lists of values differently.
  setPositions: (events, count) =>
    `update (
       select ? as app_name, ? as user_id, ? as session_id, ? as seq, ? as position
       ${'union all select ?, ?, ?, ?, ? '.repeat(count - 1)}) as given
     straight_join ${events} as e force index (primary)
       on e.app_name = given.app_name and e.user_id = given.user_id and e.session_id = given.session_id
       and e.seq = given.seq
     set e.position = given.position`,

  async increment(sql, counters, name, by) {
    const { insertId } = await sql.run(
      `insert into ${counters} (name, value) values (?, last_insert_id(?))
       on duplicate key update value = last_insert_id(value + ?)`,
      [name, by, by],
    );
    return insertId;
  },

  maxTextLength: MAX_TEXT_LENGTH,

  async refuseTooLarge(sql, text) {
    if (text.length <= MAX_TEXT_LENGTH) return;
    const [server] = await sql.all<{ bytes: number | string }>('select @@max_allowed_packet as bytes');
    // Two hexadecimal digits for each byte, as `literal` writes it.
    if (2 * Buffer.byteLength(text) > Number(server?.bytes)) throw new EventTooLargeError();
  },
};
