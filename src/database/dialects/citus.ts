import { driverCodeOf, driverMessageOf } from '../../model/errors.js';
import { SCOPES, perScope } from '../../model/state.js';
import { numberOf, textOf } from '../sql/row-values.js';
import { SESSION_COLUMNS, SESSION_WHERE, perTables, sessionValues, type Tables } from '../sql/tables.js';
import type { BoundStatement } from '../drivers/driver.js';
import type {
  AppendBatch,
  Dialect,
  DialectAppends,
  DialectOperations,
  DialectSql,
  DistributedTables,
  Sql,
} from './dialect.js';
import { MOST, columns, givenSessions, lastSeqsOf, takeSeveral, waitsForSessionOnly } from './postgresql-append.js';
import {
  addToLastSeq,
  appendCondition,
  eventRows,
  insertTexts,
  stateRows,
  statementsFor,
  type RowValues,
} from './session-rows.js';

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

    pagesAlone: true,

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

      async nextChange(sql, session) {
        const { count, read } = changeTexts(sql);
        const [row] = await sql.all<{ last_change: number | string }>(
          session.isNew ? read : count,
          sessionValues(session),
        );
        return numberOf(row?.last_change);
      },

      appends,
    },
  });
  const byUser = dialect((tables) => appendsInTransaction(tables, sql));
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

const BEGIN: BoundStatement = { text: 'begin', values: [] };
const COMMIT: BoundStatement = { text: 'commit', values: [] };

/**
 * Appends by a transaction of plain statements, since the parts of a `with` may not insert. The client waits for two answers
 * only: for the number, and for all that comes after it. Citus passes on one statement after another.
 */
function appendsInTransaction(tables: Tables, dialectSql: DialectSql): DialectAppends {
  return {
    most: 1,
    commits: true,
    write: (sql, batches) => Promise.all(batches.map((batch) => append(sql, batch, tables, dialectSql))),
  };
}

/** The most events and state keys of a batch that shares a transaction: a statement has at most 65,535 values. */
const MOST_SHARED = 64;

/** The same if the rows of all sessions are on one node. Appends to several sessions share the transaction. */
function appendsOnOneNode(tables: Tables, dialectSql: DialectSql): DialectAppends {
  const alone = appendsInTransaction(tables, dialectSql);
  const { locked, take } = takeSeveral(tables, dialectSql);
  return {
    ...alone,
    most: MOST,
    shares: (batch) => waitsForSessionOnly(batch) && batch.events.length + batch.state.session.length <= MOST_SHARED,
    isStatement: () => true,
    write: (sql, batches) =>
      batches.length > 1 ? appendSeveral(sql, batches, `${locked} ${take}`) : alone.write(sql, batches),
  };
}

async function appendSeveral(sql: Sql, batches: readonly AppendBatch[], take: string) {
  const [, taken = []] = await sql.together([BEGIN, { text: take, values: givenSessions(batches) }]);
  const lastSeqs = lastSeqsOf(batches, taken);
  await sql.together([...insertsOf(sql, batches, lastSeqs), COMMIT]);
  return lastSeqs;
}

async function append(
  sql: Sql,
  batch: AppendBatch,
  tables: Tables,
  dialectSql: DialectSql,
): Promise<number | undefined> {
  const [begin, commit] = sql.isInTransaction ? [[], []] : [[BEGIN], [COMMIT]];
  const { where, values } = appendCondition(batch, dialectSql);
  const text = `${addToLastSeq(tables)}${where} returning last_seq`;
  const take = { text, values: [batch.events.length, batch.lastUpdateTime, ...values] };
  const row = (await sql.together([...begin, take])).at(-1)?.[0];
  const lastSeq = row && 'last_seq' in row ? numberOf(row.last_seq) : undefined;
  await sql.together([...insertsOf(sql, [batch], [lastSeq]), ...commit]);
  return lastSeq;
}

/** The statements that write rows of batches. They insert by `values`: an `insert … select` is a two-phase commit. */
function insertsOf(sql: Sql, batches: readonly AppendBatch[], lastSeqs: readonly (number | undefined)[]) {
  const { dialect } = sql;
  const inserts = insertTexts(sql);
  const events: RowValues[] = [];
  const state = perScope((): RowValues[] => []);
  for (const [i, batch] of batches.entries()) {
    const lastSeq = lastSeqs[i];
    if (lastSeq === undefined) continue;
    events.push(...eventRows(batch.session, lastSeq - batch.events.length + 1, batch.events));
    for (const scope of SCOPES) state[scope].push(...stateRows(batch.session, scope, batch.state[scope]));
  }
  return [
    ...statementsFor(dialect, inserts.events, events),
    ...SCOPES.flatMap((scope) => statementsFor(dialect, inserts.state[scope], state[scope])),
  ];
}

const changeTexts = perTables(({ tables: { sessions } }: Sql) => ({
  count: `update ${sessions} set last_change = last_change + 1 where ${SESSION_WHERE} returning last_change`,
  read: `select last_change from ${sessions} where ${SESSION_WHERE}`,
}));
