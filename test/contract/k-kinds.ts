import { createHash } from 'node:crypto';
import { encryption } from '../../src/codecs/index.js';
import { CallInParts } from '../../src/database/calls/call-in-parts.js';
import { Database } from '../../src/database/calls/database.js';
import type { Sql } from '../../src/database/dialects/dialect.js';
import { encodedTable, ownerIn } from '../../src/owned/encoded-rows.js';
import { ownedTable, type OwnedRows } from '../../src/owned/owned-rows.js';
import { DeletionRun } from '../../src/maintenance/deletion-run.js';
import { eraseUser } from '../../src/maintenance/erase-user.js';
import { prune } from '../../src/maintenance/prune.js';
import { reencode } from '../../src/maintenance/reencode.js';
import { ofCredential } from '../../src/model/codec.js';
import type { HostRecord } from '../../src/model/records.js';
import { exportRecords } from '../../src/transfer/export.js';
import { Import } from '../../src/transfer/import.js';
import { OWNED_ROWS } from '../../src/transfer/owned-kinds.js';
import { Suite, type OwnContext } from './rule.js';

/** A kind of rows that is not of this package: what maintenance does with it, it does with any. */
export const kindSuite = new Suite({ isOfDialect: true });

const table = () => 'adk_scratch_notes';

const notes: OwnedRows = {
  name: 'notes',
  isCounted: true,
  async nextApp(sql: Sql, after: string) {
    const [row] = await sql.all<{ name: string | null }>(
      `select min(app_name) as name from ${table()} where app_name > ?`,
      [after],
    );
    return row?.name ?? undefined;
  },
  rows: ownedTable({
    table,
    key: ['chapter', 'note'],
    expired: ({ dialect }) => `expires <= ${dialect.sql.now}`,
  }),
  texts: [
    encodedTable({
      of: () => ({
        table: table(),
        columns: ['app_name', 'user_id', 'chapter', 'note'],
        content: 'data',
        selected: 'data',
      }),
      contextOf: (row) => ofCredential(ownerIn(row), String(row['note'])),
    }),
  ],
  records: {
    async *read({ run }, { appName, userId = '' }) {
      const rows = await run((sql) =>
        sql.all(`select note from ${table()} where app_name = ? and user_id = ? order by note`, [appName, userId]),
      );
      yield { type: 'owned', appName, userId, entity: 'Note', row: { notes: rows.map(({ note }) => note) } };
    },
    writer: ({ write, count }) => ({
      types: ['owned'],
      check: (record) => async () => {
        const { appName, userId, row } = record as HostRecord;
        await write((sql) =>
          sql.run(`insert into ${table()} (app_name, user_id, chapter, note, data) values (?, ?, '', ?, '')`, [
            ...[appName, userId, String(row['notes'])],
          ]),
        );
        count('skipped', 1);
      },
    }),
  },
};

const kinds = [...OWNED_ROWS, notes];

/** A store that has four notes of ada, one of which has expired, and one of bob. */
async function withNotes({ scratch }: OwnContext) {
  const store = await scratch();
  await store.query(`create table ${table()} (app_name varchar(50) not null, user_id varchar(50) not null,
    chapter varchar(50) not null, note varchar(50) not null, expires double precision, data text not null,
    primary key (app_name, user_id, chapter, note))`);
  for (const [appName, userId, chapter, note, expires] of [
    ['a', 'ada', 'x', '1', 5],
    ['a', 'ada', 'x', '2', null],
    ['a', 'ada', 'y', '2', null],
    ['b', 'ada', 'x', '1', 1e15],
    ['b', 'bob', 'x', '1', null],
  ])
    await store.query(
      `insert into ${table()} (app_name, user_id, chapter, note, expires, data) values (?, ?, ?, ?, ?, '"said"')`,
      [appName, userId, chapter, note, expires],
    );
  const left = async () => {
    const rows = await store.query<Record<string, string>>(
      `select app_name, user_id, chapter, note from ${table()} order by app_name, user_id, chapter, note`,
    );
    return rows.map((row) => Object.values(row).join(' '));
  };
  return { ...store, left, database: new Database(store.orm.em) };
}

const ALL = ['a ada x 1', 'a ada x 2', 'a ada y 2', 'b ada x 1', 'b bob x 1'];

kindSuite.own('K1', 'prune deletes expired rows of any kind', async (context) => {
  const { database, left } = await withNotes(context);
  const pruned = (dryRun: boolean) => {
    const options = { idleFor: 0, dryRun };
    return prune(new DeletionRun(database, 'prune', options, ['memories']), options, kinds);
  };
  expect(await pruned(true)).toMatchObject({ done: { notes: 1 } });
  expect(await left()).toEqual(ALL);
  expect(await pruned(false)).toMatchObject({ done: { notes: 1 } });
  expect(await left()).toEqual(ALL.slice(1));
});

kindSuite.own('K1', 'eraseUser deletes rows of any kind in batches, and those of nobody else', async (context) => {
  const { database, left } = await withNotes(context);
  const erased = (more: object) => {
    const options = { userId: 'ada', batchSize: 2, ...more };
    return eraseUser(new DeletionRun(database, 'eraseUser', options, []), options, kinds);
  };
  expect(await erased({ dryRun: true })).toMatchObject({ done: { notes: 4 } });
  expect(await left()).toEqual(ALL);
  expect(await erased({ appName: 'a', maxBatches: 1 })).toMatchObject({ done: { notes: 2 }, more: true });
  expect(await erased({})).toMatchObject({ done: { notes: 2 }, more: false });
  expect(await left()).toEqual(ALL.slice(4));
});

kindSuite.own('M3', 'reencode encodes rows of any kind', async (context) => {
  const { database, query, orm } = await withNotes(context);
  const codec = encryption({ currentKey: 'k', key: (id) => createHash('sha256').update(id).digest() });
  const encrypted = new Database(orm.em, { codec });
  expect(await reencode(database, {}, kinds)).toMatchObject({ done: { texts: 0 } });
  expect(await reencode(encrypted, { userId: 'ada' }, kinds)).toMatchObject({ done: { texts: 4 } });
  expect(await reencode(encrypted, {}, kinds)).toMatchObject({ done: { texts: 1, unreadable: 0 } });
  const rows = await query<{ data: string }>(`select data from ${table()}`);
  expect(rows.filter(({ data }) => data.includes('said'))).toEqual([]);
});

kindSuite.own('L1', 'an export has rows of any kind', async (context) => {
  const { database } = await withNotes(context);
  const records: unknown[] = [];
  const call = { operation: 'exportSessions', key: {} };
  for await (const record of exportRecords(database, call, { userId: 'ada' }, kinds)) records.push(record);
  const note = { type: 'owned', userId: 'ada', entity: 'Note' };
  expect(records).toEqual([
    { ...note, appName: 'a', row: { notes: ['1', '2', '2'] } },
    { ...note, appName: 'b', row: { notes: ['1'] } },
  ]);
});

kindSuite.own('L1', 'an import writes rows of any kind', async (context) => {
  const { database, left } = await withNotes(context);
  const imported = async (isDryRun: boolean) => {
    const call = new CallInParts(database, { operation: 'importSessions', key: {} });
    const target = new Import(call, { isDryRun }, kinds);
    await target.add({ type: 'owned', appName: 'c', userId: 'eve', entity: 'Note', row: { notes: ['7'] } });
    await target.end();
    return target.result;
  };
  expect(await imported(true)).toMatchObject({ done: { records: 1 }, skipped: 1, batches: 1 });
  expect(await left()).toEqual(ALL);
  expect(await imported(false)).toMatchObject({ done: { records: 1 }, skipped: 1, batches: 1 });
  expect(await left()).toEqual([...ALL, 'c eve  7']);
});

kindSuite.own('L1', 'an export has each app once, in the order of its bytes', async ({ scratch }) => {
  const { orm, service } = await scratch();
  // In UTF-16 the second one would be the first.
  const [first, second] = ['\uffe0', '\u{1f600}'];
  await service.createSession({ appName: first, userId: 'ada', sessionId: 's' });
  await service.updateState({ appName: second, set: { 'app:a': 1 } });
  const call = { operation: 'exportSessions', key: {} };
  const apps: string[] = [];
  for await (const { appName } of exportRecords(new Database(orm.em), call, {}, OWNED_ROWS)) apps.push(appName);
  expect(apps).toEqual([first, second]);
});
