import type { SessionKey } from '../../model/keys.js';
import type { Dialect } from '../dialects/dialect.js';
import { rowLength } from '../tables.js';

/** Rows to insert for a session, in groups that the server takes in one statement. */
export function* packets<Row extends object>(
  { limits }: Dialect,
  session: SessionKey,
  rows: readonly Row[],
): Generator<Row[]> {
  let packet: Row[] = [];
  let length = 0;
  const most = limits?.maxTextLength ?? Infinity;
  for (const row of rows) {
    const more = rowLength(session, row);
    if (packet.length > 0 && length + more > most) {
      yield packet;
      packet = [];
      length = 0;
    }
    packet.push(row);
    length += more;
  }
  if (packet.length > 0) yield packet;
}
