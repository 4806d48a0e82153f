import { mkdir, symlink } from 'node:fs/promises';
import path from 'node:path';
import { createEvent } from '@google/adk';
import { MikroORM, defineEntity, p, type Options } from '@mikro-orm/core';
import { AdkEvent, AdkSession, adkEntities } from '../../../entities/index.js';
import { AdkMigrator, adkMigrations } from '../../../migrations/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { MikroOrmSessionService, SessionMaintenance } from '../../../src/index.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { availableDatabases, databasesOf, type TestDatabase } from '../../support/servers.js';
import {
  MIGRATIONS,
  appliedMigrations,
  checkMigrations,
  createMigration,
  emptyDatabase,
  emptyFolder,
  later,
  migrationOf,
  openHost,
  query,
  quietDriver,
  sessionRow,
  updateSchema,
} from './support.js';

/** The code of docs/migrations.md for MikroORM 7 without `AdkMigrator`. */
function comparedAsOurs<Builder extends { ignoreSchemaChanges(...changes: never[]): unknown }>(relation: Builder) {
  const changes = ['type', 'collation'];
  return isMikroOrm7 ? (Reflect.apply(relation.ignoreSchemaChanges, relation, changes) as Builder) : relation;
}

/** A host's entities that refer to our tables, and entities that refer to those. `next` makes a later version. */
function hostEntities({ next = false } = {}) {
  const text = () => (next ? p.string().default('') : p.string().nullable());
  const Ticket = defineEntity({
    name: 'Ticket',
    properties: {
      id: p.integer().primary(),
      title: text(),
      session: () =>
        comparedAsOurs(
          p
            .manyToOne(AdkSession)
            .joinColumns('app_name', 'user_id', 'session_id')
            .foreignKeyName('ticket_session')
            .deleteRule('cascade'),
        ),
    },
  });
  const Note = defineEntity({
    name: 'Note',
    properties: { id: p.integer().primary(), text: text(), ticket: () => p.manyToOne(Ticket).deleteRule('cascade') },
  });
  const Mark = defineEntity({
    name: 'Mark',
    properties: {
      id: p.integer().primary(),
      event: () =>
        comparedAsOurs(
          p.manyToOne(AdkEvent).joinColumns('app_name', 'user_id', 'session_id', 'seq').deleteRule('cascade'),
        ),
      note: () => p.manyToOne(Note).deleteRule('cascade'),
    },
  });
  return [Ticket, Note, Mark];
}

async function writeRows({ em }: MikroORM): Promise<void> {
  await em.fork().insert(AdkSession, sessionRow('ada'));
  for (const sql of [
    `insert into adk_events (app_name, user_id, session_id, seq, event_id, timestamp)
      values ('app', 'ada', 'session', 1, 'e', 1)`,
    "insert into ticket (id, app_name, user_id, session_id, title) values (1, 'app', 'ada', 'session', 'Refund')",
    "insert into note (id, text, ticket_id) values (1, 'Called', 1)",
    "insert into mark (id, app_name, user_id, session_id, seq, note_id) values (1, 'app', 'ada', 'session', 1, 1)",
  ])
    await query(em, sql);
}

const ALL_ROWS = [{ title: 'Refund', text: 'Called', event_id: 'e' }];

const readRows = ({ em }: MikroORM) =>
  query(
    em,
    `select t.title, n.text, e.event_id from mark m join note n on n.id = m.note_id join ticket t on t.id = n.ticket_id
      join adk_events e on e.session_id = m.session_id and e.seq = m.seq`,
  );

describe.each(availableDatabases())('K1 sessions that a key of the host keeps, on %s', (name) => {
  test('are skipped and counted by prune and eraseUser, and the others go', async () => {
    const database = await emptyDatabase(name);
    const Ticket = defineEntity({
      name: 'Ticket',
      properties: {
        id: p.integer().primary(),
        session: () => comparedAsOurs(p.manyToOne(AdkSession).joinColumns('app_name', 'user_id', 'session_id')),
      },
    });
    const told: unknown[] = [];
    const orm = await openHost(database, { entities: [Ticket] });
    await updateSchema(orm);
    const service = new MikroOrmSessionService(orm.em);
    for (const sessionId of ['1', '2', 'kept', 'large', '3']) {
      const session = await service.createSession({ appName: 'app', userId: 'ada', sessionId });
      const count = sessionId === 'large' ? 20 : 1;
      const events = Array.from({ length: count }, (_, i) => createEvent({ author: 'agent', timestamp: i + 1 }));
      await service.appendEvents({ session, events });
    }
    await query(orm.em, "insert into ticket (id, app_name, user_id, session_id) values (1, 'app', 'ada', 'kept')");
    const maintenance = new SessionMaintenance(orm.em, { onError: (error) => told.push(error) });
    const pruned = await maintenance.prune({ idleFor: 0, batchSize: 10 });
    expect(pruned).toMatchObject({ sessions: 4, skipped: 1, more: false });
    expect(told).not.toEqual([]);
    expect((await service.getSession({ appName: 'app', userId: 'ada', sessionId: 'kept' }))?.events).toHaveLength(1);
    await expect(maintenance.eraseUser({ userId: 'ada' })).rejects.toMatchObject({ code: 'ADK_USER_NOT_ERASED' });
    await query(orm.em, 'delete from ticket');
    expect(await maintenance.eraseUser({ userId: 'ada' })).toMatchObject({ sessions: 1, skipped: 0 });
  });
});

describe.each(availableDatabases())('F3 the rows of a host that refers to ours, on %s', (name) => {
  test.each([undefined, { safe: true }])('stay when it updates the schema at each start, with %j', async (options) => {
    const database = await emptyDatabase(name);
    const start = async (version = {}) => {
      const orm = await openHost(database, { entities: hostEntities(version) });
      const difference = await orm.schema.getUpdateSchemaSQL(options);
      await updateSchema(orm, options);
      return { orm, difference };
    };
    const { orm } = await start();
    await writeRows(orm);

    expect((await start()).difference).toBe('');
    expect((await start()).difference).toBe('');
    expect(await readRows(orm)).toEqual(ALL_ROWS);

    // Changes two tables at once.
    expect((await start({ next: true })).difference).not.toBe('');
    expect((await start({ next: true })).difference).toBe('');
    expect(await readRows(orm)).toEqual(ALL_ROWS);
  });

  test.each([true, false])('stay when AdkMigrator writes and runs a folder, snapshot: %p', async (snapshot) => {
    const database = await emptyDatabase(name);
    const folder = await emptyFolder();
    const open = async (version = {}) => {
      const orm = await MikroORM.init({
        ...database.options,
        ...quietDriver,
        entities: [...adkEntities(), ...hostEntities(version)],
        extensions: [AdkMigrator],
        migrations: { path: folder, emit: 'cjs', snapshot, silent: true },
        // See recipes.test.ts.
        dynamicImportProvider: (id) => import(id),
      });
      later(() => orm.close(true));
      return orm;
    };
    const expectNothingToDo = async (version = {}) => {
      const orm = await open(version);
      expect((await createMigration(orm, 'needless')).diff.up).toEqual([]);
      expect(await checkMigrations(orm)).toBe(false);
      expect(await orm.migrator.up()).toEqual([]);
    };
    // The files that MikroORM writes import packages from here.
    await mkdir(path.join(folder, 'node_modules'));
    const scope = path.join(path.dirname(require.resolve('@mikro-orm/core/package.json')), '..');
    await symlink(scope, path.join(folder, 'node_modules/@mikro-orm'), 'junction');

    const first = await open();
    await migrate(first);
    await createMigration(first, 'first');
    await first.migrator.up();
    await writeRows(first);
    await expectNothingToDo();
    await expectNothingToDo();
    expect(await readRows(first)).toEqual(ALL_ROWS);

    const next = await open({ next: true });
    expect((await createMigration(next, 'next')).diff.up).not.toEqual([]);
    expect(await checkMigrations(next)).toBe(!snapshot);
    expect(await next.migrator.up()).toHaveLength(1);
    expect(await readRows(first)).toEqual(ALL_ROWS);
    await expectNothingToDo({ next: true });
    await expectNothingToDo({ next: true });
    expect(await readRows(first)).toEqual(ALL_ROWS);
  });
});

for (const name of databasesOf('sqlite'))
  describe(`F3 migrations of a host's own by AdkMigrator, on ${name}`, () => {
    /** SQLite changes a column by rebuilding its table. */
    const REBUILD = [
      'pragma foreign_keys = off',
      'create table ticket_anew as select * from ticket',
      'drop table ticket',
      'alter table ticket_anew rename to ticket',
      'create unique index ticket_id on ticket (id)',
      'pragma foreign_keys = on',
    ];

    async function withRows(options: Options = {}): Promise<TestDatabase> {
      const database = await emptyDatabase(name);
      const orm = await openHost(database, { ...options, entities: hostEntities() });
      await migrate(orm);
      await updateSchema(orm);
      await writeRows(orm);
      return database;
    }

    const open = (database: TestDatabase, own: Parameters<typeof migrationOf>[0], options: Options = {}) =>
      openHost(database, {
        ...options,
        entities: hostEntities(),
        extensions: [AdkMigrator],
        migrations: {
          migrationsList: [
            ...adkMigrations('sqlite'),
            { name: 'Migration20270101000000_own', class: migrationOf(own) },
          ],
          ...options.migrations,
        },
      });

    test('leave a method of the host’s on the connection where it is', async () => {
      const orm = await open(await withRows(), { up: ['select 1'] });
      const connection = orm.em.getConnection();
      const transactional = jest.spyOn(connection, 'transactional');
      await orm.migrator.up();
      expect(transactional).toHaveBeenCalled();
      expect(connection.transactional).toBe(transactional);
    });

    test.each([true, false])('keep rows up and down, allOrNothing: %p', async (allOrNothing) => {
      const orm = await open(await withRows(), { up: REBUILD, down: REBUILD }, { migrations: { allOrNothing } });
      await orm.migrator.up();
      expect(await readRows(orm)).toEqual(ALL_ROWS);
      await orm.migrator.down();
      expect(await readRows(orm)).toEqual(ALL_ROWS);
      expect(await query(orm.em, 'pragma foreign_keys')).toEqual([{ foreign_keys: 1 }]);
    });

    test.each([true, false])(
      'are rolled back when rows would refer to none, allOrNothing: %p',
      async (allOrNothing) => {
        const deleting = { up: ['delete from ticket'] };
        const orm = await open(await withRows(), deleting, { migrations: { allOrNothing } });
        await expect(orm.migrator.up()).rejects.toThrow(
          'After the migrations 1 rows would refer to rows that no longer',
        );
        expect(await readRows(orm)).toEqual(ALL_ROWS);
        expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);

        // Cascades again, since MikroORM's own connection has its foreign keys back.
        await query(orm.em, 'delete from ticket');
        expect(await query(orm.em, 'select * from mark')).toEqual([]);
      },
    );

    test('run where rows have referred to none before', async () => {
      const orm = await open(await withRows(), { up: ['delete from mark', 'delete from note'] });
      await query(orm.em, 'pragma foreign_keys = off');
      await query(orm.em, 'delete from adk_sessions');
      await orm.migrator.up();
      expect(await query(orm.em, 'select id from ticket')).toEqual([{ id: 1 }]);
    });

    // MikroORM 7 has only one connection.
    (isMikroOrm7 ? test.skip : test)('are refused on a connection that has foreign keys', async () => {
      const orm = await open(await withRows(), { up: REBUILD }, { pool: { min: 0, max: 2 } });
      const connection = orm.em.getConnection();
      const execute = connection.execute.bind(connection);
      await Promise.all([1, 2].map(() => execute('pragma foreign_keys = on')));
      const other = orm.em.fork();
      jest.spyOn(connection, 'execute').mockImplementation(async (...args) => {
        const result: unknown = await execute(...args);
        if (args[0] === 'pragma foreign_keys = off' && !other.isInTransaction()) await other.begin();
        return result;
      });
      await expect(orm.migrator.up()).rejects.toThrow('Foreign keys are on in the transaction');
      await other.rollback();
      expect(await readRows(orm)).toEqual(ALL_ROWS);
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
    });
  });
