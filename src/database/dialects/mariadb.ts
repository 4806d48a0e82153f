import type { Failure } from '../../model/failures.js';
import { SCOPES } from '../../model/state.js';
import { STATE_KEYS, insertIntoEvents, insertIntoState, stateTable } from '../sql/columns.js';
import type { Tables } from '../sql/tables.js';
import { optionalNumberOf } from '../sql/values.js';
import type { Statement } from '../drivers/driver.js';
import { driverNumberOf } from '../drivers/mysql-driver.js';
import type { AppendBatch, Dialect } from './dialect.js';
import {
  NEXT_SEQ,
  addToLastSeq,
  appendStatement,
  appendsByInsertId,
  eventRow,
  eventRows,
  stateRow,
  stateRows,
  textLength,
  type RowValues,
} from './session-rows.js';
import { mysql, mysqlSettings, MAX_TEXT_LENGTH } from './mysql.js';
import { wrongServer } from './server-version.js';
import type { Setting } from './settings.js';

const SETTINGS: readonly Setting[] = [
  ...mysqlSettings('tx_isolation'),
  {
    name: 'sql_mode = ORACLE',
    because: 'the server does not understand the statement that appends',
    advice: 'Run: set sql_mode = default',
    isWrong: "find_in_set('ORACLE', @@sql_mode)",
  },
  {
    name: 'sql_mode = EMPTY_STRING_IS_NULL',
    because: 'an empty text would come back as none',
    advice: 'Run: set sql_mode = default',
    isWrong: "find_in_set('EMPTY_STRING_IS_NULL', @@sql_mode)",
  },
];

/** Errors of MariaDB for which mysql2, which MikroORM 7 uses, has no name, or the name of an error of MySQL. */
const FAILURES_BY_NUMBER: Readonly<Record<number, Failure>> = {
  // Galera nodes also report this error when they lose their cluster, so the commit may be stored.
  1180: 'commitFailed',
  1927: 'lostConnection',
  1969: 'statementTimeout',
  4151: 'authentication',
};

/** As on MySQL, except that an append is an anonymous block, which takes one round trip. */
export const mariadb: Dialect = {
  ...mysql,

  errors: {
    ...mysql.errors,
    failureOf: (error) => FAILURES_BY_NUMBER[driverNumberOf(error)] ?? mysql.errors.failureOf(error),
  },

  connections: {
    ...mysql.connections,

    wrongServer: (version) => wrongServer(version, 'mariadb'),

    /**
     * A commit on one node of Galera is visible on another a moment later: a session that was just created would not be found, and
     * a delete would delete nothing. 1 is for reads and `begin`, 2 for updates and deletes, 4 for inserts. It is set for each
     * statement, since the connection is the host's.
     */
    cluster: {
      prefix: 'set statement wsrep_sync_wait = 7 for ',
      // A server that was built without Galera has no such variable.
      isPossible: `exists (select 1 from information_schema.session_variables
        where variable_name = 'wsrep_on' and variable_value = 'ON')`,
    },

    settings: SETTINGS,
  },

  sql: { ...mysql.sql, block: blockOf },

  operations: {
    ...mysql.operations,

    appends(tables) {
      const byRows = appendsByInsertId(mariadb, tables);
      const block = appendStatement(mariadb.sql, (condition, batch) => blockText(tables, condition, batch), rowCounts);
      return {
        ...byRows,
        isStatement(batch) {
          const rows = SCOPES.reduce((sum, scope) => sum + batch.state[scope].length, batch.events.length);
          return rows <= MAX_ROWS && textLength(blockValues(batch)) <= MAX_TEXT_LENGTH;
        },
        write: (sql, batches) =>
          // The block begins and commits a transaction, which would commit the one around it.
          sql.isInTransaction
            ? byRows.write(sql, batches)
            : Promise.all(
                batches.map(async (batch) => {
                  const [row] = await sql.all<{ last_seq: number | null }>(...block(batch, blockValues(batch)));
                  return optionalNumberOf(row?.last_seq);
                }),
              ),
      };
    },
  },
};

/** Without a handler: an error ends the block and leaves the transaction open, and the caller rolls back. */
function blockOf(statements: readonly Statement[]): string {
  const [{ prefix = '' } = {}] = statements.filter((each) => each.prefix);
  let text = `${prefix}begin not atomic\n`;
  for (const { text: own, wants, begins } of statements) {
    // In a block, `begin` would begin another one. The host's `onQuery` may end a text with `;`, or with a comment.
    text += `${begins ? 'start transaction' : own.replace(/;\s*$/, '')}${/--|#/.test(own) ? '\n' : ''};\n`;
    if (wants === 'change') text += 'select row_count() as affected_rows, last_insert_id() as insert_id;\n';
  }
  return `${text}end`;
}

/** A statement may have 65,535 values, and a row has nine. */
const MAX_ROWS = 7_000;

/** The text depends on the number of rows. */
const rowCounts = ({ events, state }: AppendBatch) =>
  ` ${events.length} ${SCOPES.map((scope) => state[scope].length).join(' ')}`;

/** The values of a block's rows, with the place of the row in their names. */
function blockValues({ session, events, state }: AppendBatch): RowValues {
  const values: Record<string, unknown> = {};
  const add = (rows: readonly RowValues[], of: string) => {
    for (const [i, row] of rows.entries())
      for (const [name, value] of Object.entries(row)) values[`${name}_${of}${i}`] = value;
  };
  // The numbers count back from the last one, which is 0.
  add(eventRows(session, 1 - events.length, events), 'event');
  for (const scope of SCOPES) add(stateRows(session, state[scope]), scope);
  return values;
}

/**
 * The handler rolls back: an error in a block leaves the transaction open, and the next append would be a part of it. With
 * `completion_type = 2` a plain `rollback` would close the connection before the error is sent.
 */
function blockText(tables: Tables, condition: string, { events, state }: AppendBatch): string {
  const upserts = SCOPES.filter((scope) => state[scope].length > 0).map(
    (
      scope,
    ) => `${insertIntoState(tables, scope)} values ${state[scope].map((_, i) => stateRow(scope, `_${scope}${i}`)).join(', ')}
      ${mysql.sql.onConflict(stateTable(tables, scope), STATE_KEYS[scope])};`,
  );
  const rows = events.map((_, i) => eventRow(mariadb.sql.now, `last_insert_id() + :seq_event${i}`, `_event${i}`));
  return `begin not atomic
    declare exit handler for sqlexception begin rollback and no chain no release; resignal; end;
    start transaction;
    ${addToLastSeq(tables, NEXT_SEQ)}${condition};
    if row_count() = 0 then
      rollback and no chain no release;
      select null as last_seq;
    else
      ${insertIntoEvents(tables)}
        values ${rows.join(', ')};
      ${upserts.join('\n')}
      commit and no chain no release;
      select last_insert_id() as last_seq;
    end if;
  end`;
}
