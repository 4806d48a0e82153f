import { SESSION_KEY, isSameSession, originOf } from '../database/sql/columns.js';
import { numberOf, textOf } from '../database/sql/values.js';
import { HAS_CONTENT, recordChange } from '../database/statements/changes.js';
import { encodedTable, ownerIn } from '../owned/encoded-rows.js';
import { ownedTable, type OwnedRows } from '../owned/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import { ofChange } from '../model/codec.js';

const rows = ownedTable({
  table: ({ tables }) => tables.changes,
  key: ['session_id', 'change_id'],
  only: ({ tables }) => `not exists (select 1 from ${tables.sessions} as s where ${isSameSession('s', 'e')})`,
});

/** Entries of the log other than events. Those of a session go with it, and these are what is left. */
export const ownedChanges: OwnedRows = {
  name: 'changes',
  nextApp: (sql, after) => nextApp(sql, after, 'changes'),
  rows: {
    ...rows,
    async erase(sql, selection, keys) {
      // State of the app that the user wrote becomes an entry of the app.
      const app = { appName: selection.appName, userId: '', sessionId: '', origin: '' };
      await recordChange(sql, { session: app, kind: 'state', seq: 0 });
      return rows.erase(sql, selection, keys);
    },
  },
  texts: [
    encodedTable({
      of: ({ tables }) => ({
        table: tables.changes,
        columns: [...SESSION_KEY, 'change_id'],
        content: 'data',
        selected: tables.select.data,
        where: `data is not null and ${HAS_CONTENT}`,
        more: `, kind, seq, ${originOf(tables, 't')} as origin`,
      }),
      contextOf: (row) => {
        const [id, seq] = [numberOf(row['change_id']), numberOf(row['seq'])];
        return ofChange(ownerIn(row), { id, kind: textOf(row['kind']), seq });
      },
    }),
  ],
};
