import type { SessionKey } from '../../model/keys.js';
import type { Dialect } from '../dialects/dialect.js';
import { rowLength } from '../sql/tables.js';

/** SQLite binds 32,766 values in a statement, a server 65,535. A row has nine at most. */
export const MOST_ROWS = 3_500;

/** Rows to insert for a session, in groups that the database takes in one statement. */
export function* packets<Row extends object>(
  { limits }: Dialect,
  session: SessionKey,
  rows: readonly Row[],
): Generator<Row[]> {
  let packet: Row[] = [];
  let length = 0;
  const most = limits?.maxTextLength;
  for (const row of rows) {
    const more = most === undefined ? 0 : rowLength(session, row);
    if (packet.length === MOST_ROWS || (packet.length > 0 && length + more > (most ?? Infinity))) {
      yield packet;
      packet = [];
      length = 0;
    }
    packet.push(row);
    length += more;
  }
  if (packet.length > 0) yield packet;
}
