import { driverCodeOf } from '../../model/errors.js';
import type { Failure } from '../../model/failures.js';
import { SCOPES, type Scope } from '../../model/state.js';
import {
  EVENT_COLUMNS,
  STATE_KEYS,
  ownerValues,
  placeholderRows,
  rowLength,
  sessionValues,
  stateTable,
  type Tables,
} from '../tables.js';
import { appendCondition } from './append-condition.js';
import type { AppendBatch, Dialect } from './dialect.js';
import { driverNumberOf, mysql, mysqlSettingList, mysqlSettings, MAX_TEXT_LENGTH } from './mysql.js';
import { refused, type Setting } from './settings.js';

const ORACLE: Setting = {
  name: 'sql_mode = ORACLE',
  because: 'the server does not understand the statement that appends',
  mend: 'Run: set sql_mode = default',
  isWrong: "find_in_set('ORACLE', @@sql_mode)",
};

const settings = mysqlSettings([
  ...mysqlSettingList('tx_isolation'),
  ORACLE,
  {
    name: 'sql_mode = EMPTY_STRING_IS_NULL',
    because: 'an empty text would come back as none',
    mend: 'Run: set sql_mode = default',
    isWrong: "find_in_set('EMPTY_STRING_IS_NULL', @@sql_mode)",
  },
]);

/** What mysql2, which knows the errors of MySQL, has no name for, or another. */
const FAILURES_BY_NUMBER: Readonly<Record<number, Failure>> = {
  1927: 'lostConnection',
  1969: 'statementTimeout',
  4151: 'authentication',
};

/** MySQL's, but for a block of statements that the server runs in one round trip. */
export const mariadb: Dialect = {
  ...mysql,

  failureOf: (error) => FAILURES_BY_NUMBER[driverNumberOf(error)] ?? mysql.failureOf(error),

  settings: {
    ...settings,
    // Where the mode is refused before it can be looked at.
    refusal: (error) => (driverCodeOf(error) === 'ER_PARSE_ERROR' ? refused(ORACLE) : settings.refusal(error)),
  },

  appendInOneStatement: (tables) => ({
    // The block begins and ends a transaction, which would end the host's.
    takes: (batch, isInTransaction) => !isInTransaction && textLength(batch) <= MAX_TEXT_LENGTH,

    async write(sql, batch) {
      const condition = appendCondition(batch, mariadb);
      const events = batch.events.map(({ id, timestamp, json }, i) => [
        ...sessionValues(batch.session),
        batch.events.length - 1 - i,
        id,
        timestamp,
        json,
      ]);
      const states = SCOPES.map((scope) =>
        batch.state[scope].map(({ key, json, eventId }) => [...ownerValues(batch.session, scope), key, json, eventId]),
      );
      const text = blockText(tables, condition.where, events.length, batch);
      const [row] = await sql.allOfFirst<{ last_seq: number | null }>(text, [
        batch.events.length,
        batch.lastUpdateTime,
        ...condition.values,
        ...events.flat(),
        ...states.flat(2),
      ]);
      return row?.last_seq ?? undefined;
    },
  }),
};

function textLength({ session, events, state }: AppendBatch): number {
  return [...events, ...SCOPES.flatMap((scope) => state[scope])].reduce((sum, row) => sum + rowLength(session, row), 0);
}

/**
 * What fails in a block doesn't end the transaction by itself, and the next append would be a part of it. With
 * `completion_type = 2` a plain `rollback` would end the connection before it has told why.
 */
function blockText(tables: Tables, where: string, events: number, { state }: AppendBatch): string {
  const upsert = (scope: Scope) => {
    const table = stateTable(tables, scope);
    const columns = [...STATE_KEYS[scope], 'value', 'event_id'];
    return `insert into ${table} (${columns.join(', ')}) values ${placeholderRows(state[scope].length, columns.length)}
      ${mysql.onConflict(table, STATE_KEYS[scope], false)};`;
  };
  return `begin not atomic
    declare exit handler for sqlexception begin rollback and no chain no release; resignal; end;
    start transaction;
    update ${tables.sessions} set last_seq = last_insert_id(last_seq + ?), last_update_time = ? where ${where};
    if row_count() = 0 then
      rollback and no chain no release;
      select null as last_seq;
    else
      insert into ${tables.events} (${EVENT_COLUMNS})
        values ${Array(events).fill('(?, ?, ?, last_insert_id() - ?, ?, ?, ?)').join(', ')};
      ${SCOPES.filter((scope) => state[scope].length > 0)
        .map(upsert)
        .join('\n')}
      commit and no chain no release;
      select last_insert_id() as last_seq;
    end if;
  end`;
}
