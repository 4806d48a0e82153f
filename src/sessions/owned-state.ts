import type { Sql } from '../database/dialects/dialect.js';
import { encodedTable, ownerIn } from '../owned/encoded-rows.js';
import {
  ownedTable,
  sumOfBytes,
  type EncodedRows,
  type OwnedRows,
  type Owner,
  type ExportReader,
} from '../owned/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import { STATE_KEYS, originOf, stateTable } from '../database/sql/columns.js';
import { textOf } from '../database/sql/values.js';
import { ofState } from '../model/codec.js';
import { eachName } from '../model/pages.js';
import type { AppRecord, UserRecord } from '../model/records.js';
import type { Scope } from '../model/state.js';
import { stateRecords } from './session-records.js';
import { stateWriter } from './state-writer.js';

/** The values of one scope. */
export const textsOfState = (scope: Scope): EncodedRows =>
  encodedTable({
    ...(scope === 'app' && { areOfApp: true }),
    of: ({ tables }) => ({
      table: stateTable(tables, scope),
      columns: STATE_KEYS[scope],
      content: 'value',
      selected: tables.select.value,
      ...(scope === 'session' && { more: `, ${originOf(tables, 't')} as origin` }),
    }),
    contextOf: (row) => ofState(ownerIn(row), scope, textOf(row['state_key'])),
  });

/** State of users and apps. That of an app belongs to none of its users. */
export const ownedState: OwnedRows = {
  name: 'stateKeys',
  isCounted: true,
  nextApp: (sql, after) => nextApp(sql, after, 'userStates', 'appStates'),
  // The app's state does not belong to a user.
  sums: (sql, { userId }) => ({
    stateBytes: [
      [sumOfBytes(sql, 'value'), sql.tables.userStates],
      ...(userId === undefined ? [[sumOfBytes(sql, 'value'), sql.tables.appStates] as const] : []),
    ],
  }),
  rows: ownedTable({ table: ({ tables }) => tables.userStates, key: ['state_key'] }),
  texts: [textsOfState('user'), textsOfState('app')],
  records: { read: recordsOfState, writer: stateWriter },
};

async function* recordsOfState(
  { run }: ExportReader,
  { appName, userId }: Owner,
): AsyncGenerator<AppRecord | UserRecord> {
  const app = { appName, userId: '', sessionId: '' };
  if (userId === undefined) {
    const state = await run((sql) => stateRecords(sql, app, 'app'));
    if (state.length > 0) yield { type: 'app', appName, state };
  }
  for await (const user of eachName(userId, (after) => run((sql) => nextUserWithState(sql, appName, after)))) {
    const state = await run((sql) => stateRecords(sql, { ...app, userId: user }, 'user'));
    if (state.length > 0) yield { type: 'user', appName, userId: user, state };
  }
}

/** @returns the next user of an app by id that has `user:` state; undefined if there is none. */
async function nextUserWithState(sql: Sql, appName: string, after: string): Promise<string | undefined> {
  const [row] = await sql.all(
    `select user_id from ${sql.tables.userStates} where app_name = ? and user_id > ? order by user_id limit 1`,
    [appName, after],
  );
  return row && textOf(row['user_id']);
}
