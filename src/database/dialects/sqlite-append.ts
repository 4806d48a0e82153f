import { SCOPES, perScope } from '../../model/state.js';
import { numberOf } from '../sql/row-values.js';
import { STATE_KEYS, eventRow, insertIntoEvents, insertIntoState, stateTable, type Tables } from '../sql/tables.js';
import type { DialectAppends, DialectSql } from './dialect.js';
import { returningSql } from './returning.js';
import { addToLastSeq, appendCondition } from './session-row.js';

/** The most appends that share a commit: none of them is acknowledged before it. */
const MOST = 64;

/** Rows of one statement: SQLite binds at most 32,766 values. */
const MOST_ROWS = 3_500;

/**
 * Writes appends by several statements, in one transaction for all that wait for the connection, since a commit waits for the disk.
 */
export function sqliteAppends(tables: Tables, dialectSql: DialectSql): DialectAppends {
  const taking = new Map<string, string>();
  const insertEvents = `${insertIntoEvents(tables)} values ${eventRow()}`;
  const anotherEvent = `, ${eventRow()}`;
  const upserts = perScope((scope) => {
    const keys = STATE_KEYS[scope];
    const row = `(${keys.map(() => '?').join(', ')}, ?, ?)`;
    return {
      insert: `${insertIntoState(tables, scope)} values ${row}`,
      another: `, ${row}`,
      onConflict: returningSql.onConflict(stateTable(tables, scope), keys),
    };
  });
  return {
    most: MOST,

    shares: () => true,

    isStatement: () => false,

    async write(sql, batches) {
      const lastSeqs: (number | undefined)[] = [];
      for (const batch of batches) {
        const { session, incarnation, expectedSeq, expectedChange, lease, events, state } = batch;
        const key = [session.appName, session.userId, session.sessionId];
        const condition: unknown[] = [...key, incarnation];
        // As in `appendCondition`.
        if (expectedSeq !== undefined) condition.push(expectedSeq);
        if (expectedChange !== undefined) condition.push(expectedChange);
        if (lease && lease !== 'unleased') condition.push(lease.token);
        const variant = `${expectedSeq === undefined} ${expectedChange === undefined} ${lease && (lease === 'unleased' || 'leased')}`;
        let take = taking.get(variant);
        if (!take) {
          const { where } = appendCondition(batch, dialectSql);
          taking.set(variant, (take = `${addToLastSeq(tables.sessions, where)} returning last_seq`));
        }
        const [row] = await sql.all<{ last_seq: number }>(take, [events.length, batch.lastUpdateTime, ...condition]);
        const lastSeq = row && numberOf(row.last_seq);
        lastSeqs.push(lastSeq);
        if (lastSeq === undefined) continue;

        let seq = lastSeq - events.length;
        for (let start = 0; start < events.length; start += MOST_ROWS) {
          const packet = events.slice(start, start + MOST_ROWS);
          const values: unknown[] = [];
          for (const { id, timestamp, json, superseded = null, beginsTurn } of packet)
            values.push(...key, ++seq, id, timestamp, json, superseded, Number(beginsTurn));
          await sql.run(insertEvents + anotherEvent.repeat(packet.length - 1), values);
        }
        for (const scope of SCOPES) {
          const { insert, another, onConflict } = upserts[scope];
          for (let start = 0; start < state[scope].length; start += MOST_ROWS) {
            const packet = state[scope].slice(start, start + MOST_ROWS);
            const values: unknown[] = [];
            for (const { key: name, json, eventId } of packet)
              values.push(...key.slice(0, STATE_KEYS[scope].length - 1), name, json, eventId);
            await sql.run(`${insert}${another.repeat(packet.length - 1)} ${onConflict}`, values);
          }
        }
      }
      return lastSeqs;
    },
  };
}
