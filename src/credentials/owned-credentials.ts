import { encodedTable, ownerIn } from '../owned/encoded-rows.js';
import { ownedTable, type OwnedRows } from '../owned/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import { textOf } from '../database/sql/values.js';
import { ofCredential } from '../model/codec.js';
import { namesKey } from '../model/stored-texts.js';

/** Credentials, which are in no export. */
export const ownedCredentials: OwnedRows = {
  name: 'credentials',
  isCounted: true,
  nextApp: (sql, after) => nextApp(sql, after, 'credentials'),
  rows: ownedTable({ table: ({ tables }) => tables.credentials, key: ['credential_key'] }),
  texts: [
    encodedTable({
      of: ({ tables }) => ({
        table: tables.credentials,
        columns: ['app_name', 'user_id', 'credential_key'],
        content: 'data',
        selected: tables.select.data,
      }),
      contextOf: (row) => ofCredential(ownerIn(row), textOf(row['credential_key'])),
      // One that is not encrypted was not written by us, and is never written.
      isStorable: namesKey,
    }),
  ],
};
