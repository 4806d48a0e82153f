import { driverCodeOf } from '../errors.js';
import type { Dialect, SeqUpdate, Sql } from './dialect.js';

/** Codes of both drivers for a connection that broke while a statement was under way. */
const LOST_CONNECTION = new Set([
  'PROTOCOL_CONNECTION_LOST',
  'ECONNRESET',
  'EPIPE',
  'ECONNREFUSED',
  'ER_SERVER_SHUTDOWN',
  'ER_CONNECTION_KILLED',
  'ER_SOCKET_UNEXPECTED_CLOSE',
  'ER_CMD_CONNECTION_CLOSED',
  'ER_CHECKREAD',
]);

/** No right to write, a replica, a read-only transaction. */
const READ_ONLY = new Set([
  'ER_TABLEACCESS_DENIED_ERROR',
  'ER_COLUMNACCESS_DENIED_ERROR',
  'ER_OPTION_PREVENTS_STATEMENT',
  'ER_READ_ONLY_MODE',
  'ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION',
]);

/** In characters, of which each takes four bytes at most: MariaDB's default packet has 16 MB. */
export const MAX_TEXT_LENGTH = 1_000_000;

/** What MySQL and MariaDB have in common. */
export const mysql: Dialect = {
  isPassing: (error) => LOST_CONNECTION.has(driverCodeOf(error) ?? ''),

  isTooLarge: (error) => driverCodeOf(error) === 'ER_NET_PACKET_TOO_LARGE',

  // In UTC, since a local time means two moments when summer ends. It stands still while a statement waits for a lock,
  // which makes leases shorter than asked for, never longer.
  now: "(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1000e0)",

  underLock: ' for update',

  jsonText: (column) => column,

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

  isReadOnly: (error) => READ_ONLY.has(driverCodeOf(error) ?? ''),

  async increment(sql, counters, name, by) {
    const { insertId } = await sql.run(
      `insert into ${counters} (name, value) values (?, last_insert_id(?))
       on duplicate key update value = last_insert_id(value + ?)`,
      [name, by, by],
    );
    return insertId;
  },

  maxTextLength: MAX_TEXT_LENGTH,
};
