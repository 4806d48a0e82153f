import { now } from '../../model/clock.js';
import { driverCodeOf, driverMessageOf } from '../../model/errors.js';
import { IN_SESSION, SESSION_COLUMNS } from '../sql/columns.js';
import type { Tables } from '../sql/tables.js';
import { numberOf, textOf, named } from '../sql/values.js';
import type { Bound } from '../drivers/driver.js';
import type {
  AppendBatch,
  Dialect,
  DialectAppends,
  DialectOperations,
  DialectSql,
  DistributedTables,
} from './dialect.js';
import { MOST, columns, sessionArrays, lastSeqsOf, takeSeveral, waitsForSessionOnly } from './postgresql-append.js';
import { appendByReturning, insertsOf, lockBySelect, takeByReturning } from './session-rows.js';

/** Messages of errors that have only the code of an internal error: the first is from Citus, the others from its client library. */
const LOST_NODE = [
  'could not commit transaction for shard',
  'server closed the connection unexpectedly',
  'could not receive data from server',
  'could not send data to server',
  'connection not open',
];

/** Whether Citus lost its connection to a node. If that was during the node's `commit`, nobody knows whether it was done. */
export function hasLostNode(error: unknown): boolean {
  const message = driverMessageOf(error);
  return driverCodeOf(error) === 'XX000' && LOST_NODE.some((text) => message.includes(text));
}

export const HAS_CITUS = `to_regclass('pg_dist_partition') is not null`;

/**
 * For tables that Citus distributes. If each part of a statement names the same value of the distribution column, Citus sends the
 * whole statement to one node. Otherwise it divides the statement, sends results from node to node, and commits in two phases.
 */
export function onCitus(postgresql: Dialect): DistributedTables {
  const sql: Dialect['sql'] = {
    ...postgresql.sql,

    // Citus requires that an `update` has no volatile function. The node that the client is connected to evaluates this one.
    now: '(extract(epoch from statement_timestamp()) * 1000)::float8',

    // If the tables are distributed by schema, Citus evaluates `now` and sends a statement with `where … and ( is not null)`.
    nowOfSelect: postgresql.sql.now,

    pagesAlone: true,

    insertsValuesOnly: true,

    // Of conditions that are joined by `or` it compares each with each of its shards.
    amongSessions: (keys) => ({
      where: `(${SESSION_COLUMNS}) in (select * from unnest(?::text[], ?::text[], ?::text[]))`,
      values: columns(3, keys),
    }),
  };
  const dialect = (appends: DialectOperations['appends']): Dialect => ({
    ...postgresql,
    sql,

    operations: {
      ...postgresql.operations,
      appends,

      // What an `update` returns may not call a function, and whether a lease is held depends on the time.
      lockSession: (sql, session, lock) =>
        lockBySelect(sql, session, lock, lock.skipsLocked ? 'for update' : 'for no key update'),
    },
  });
  const byUser = dialect((tables) => appendsByUser(tables, sql));
  const bySchema = dialect((tables) => appendsOnOneNode(tables, sql));
  return {
    isPossible: HAS_CITUS,

    async dialectOf(sql, table) {
      const [row] = await sql.all<{ partmethod: unknown }>(
        'select partmethod::text as partmethod from pg_dist_partition where logicalrelid = to_regclass(?)',
        [table],
      );
      return row && (textOf(row.partmethod) === 'h' ? byUser : bySchema);
    },
  };
}

/** The most events and state keys of a batch that shares a transaction: a statement has at most 65,535 values. */
const MOST_SHARED = 64;

const shares = (batch: AppendBatch) =>
  waitsForSessionOnly(batch) && batch.events.length + batch.state.session.length <= MOST_SHARED;

/** The most appends that share a transaction if each has its own statements. */
const MOST_BY_USER = 8;

/** How many users' nodes are known, and for how long: if a shard has moved since, a shared transaction commits in two phases. */
const MOST_NODES = 10_000;
const NODE_MS = 60_000;

const NODE_OF_USER = `select groupid as node from pg_dist_placement
  where shardid = get_shard_id_for_distribution_column(to_regclass(?), cast(? as text))`;

/** If the rows of a user are on one node. Appends to users of one node share the transaction. */
function appendsByUser(tables: Tables, dialectSql: DialectSql): DialectAppends {
  const known = new Map<string, { node: number; until: number }>();
  const take = takenBy(tables, dialectSql);
  const nodeOf = ({ session }: AppendBatch) => {
    const user = known.get(session.userId);
    return user && user.until > now() ? user.node : undefined;
  };
  return {
    most: MOST_BY_USER,
    shares,
    areTogether: (one, other) => nodeOf(one) !== undefined && nodeOf(one) === nodeOf(other),
    skipsLocked: true,
    async write(sql, batches) {
      const unknown = batches.filter((batch) => shares(batch) && nodeOf(batch) === undefined);
      const queries = unknown.map(({ session }): Bound => [NODE_OF_USER, [tables.sessions, session.userId]]);
      const [lastSeqs, ...answers] = await Promise.all([
        appendByReturning(sql, batches, take(batches)),
        ...queries.map((query) => sql.all<{ node: number | string }>(...query)),
      ]);
      const until = now() + NODE_MS;
      if (known.size > MOST_NODES) known.clear();
      for (const [i, { session }] of unknown.entries()) {
        const [row] = answers[i] ?? [];
        if (row) known.set(session.userId, { node: numberOf(row.node), until });
      }
      return lastSeqs;
    },
  };
}

/** If the rows of all sessions are on one node. Appends to several sessions share the statements. */
function appendsOnOneNode(tables: Tables, dialectSql: DialectSql): DialectAppends {
  const together = takeSeveral(tables, dialectSql);
  const several = named(`${together.locked} ${together.take}`);
  const take = takenBy(tables, dialectSql);
  return {
    most: MOST,
    shares,
    skipsLocked: true,
    write: async (sql, batches) => {
      if (batches.length === 1) return appendByReturning(sql, batches, take(batches));
      const lastSeqs = lastSeqsOf(batches, await sql.all(...several(sessionArrays(batches))));
      for (const insert of insertsOf(sql, batches, lastSeqs)) sql.later(...insert);
      return lastSeqs;
    },
  };
}

/**
 * Chooses the statement that takes the numbers of a session: one of several is skipped if somebody has locked its row. Plain statements
 * append, in a transaction, since the parts of a `with` may not insert, and by `values`: an `insert … select` is a two-phase commit.
 */
function takenBy(tables: Tables, sql: DialectSql) {
  const isUnlocked = `(select session_id from ${tables.sessions} where ${IN_SESSION} for no key update skip locked)`;
  const alone = takeByReturning(tables, sql);
  const shared = takeByReturning(tables, sql, ` and session_id = ${isUnlocked}`);
  return (batches: readonly AppendBatch[]) => (batches.length > 1 ? shared : alone);
}
