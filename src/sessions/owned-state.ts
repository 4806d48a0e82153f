import { encodedTable, ownerIn } from '../database/statements/encoded-rows.js';
import { ownedTable, type EncodedRows, type OwnedRows } from '../database/statements/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import { STATE_KEYS, originOf, stateTable, textOf } from '../database/sql/tables.js';
import { ofState } from '../model/codec.js';
import type { Scope } from '../model/state.js';

/** The values of one scope. */
export const encodedState = (scope: Scope): EncodedRows =>
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
  rows: ownedTable({ table: ({ tables }) => tables.userStates, key: ['state_key'] }),
  texts: [encodedState('user'), encodedState('app')],
};
