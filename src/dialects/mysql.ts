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

/** MySQL and MariaDB. */
export const mysql: Dialect = {
  isPassing: (error) => LOST_CONNECTION.has(driverCodeOf(error) ?? ''),

  isTooLarge: (error) => driverCodeOf(error) === 'ER_NET_PACKET_TOO_LARGE',

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

  maxTextLength: 1_000_000,
};
