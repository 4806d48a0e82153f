import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { MikroORM, defineEntity, p, type Options } from '@mikro-orm/core';
import { Migrator } from '@mikro-orm/migrations';
import { AdkEvent, AdkSession, adkEntities } from '../../../entities/index.js';
import { AdkMigrator, adkMigrations } from '../../../migrations/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, type TestDatabase } from '../../support/servers.js';
import {
  MIGRATIONS,
  TABLES,
  appliedMigrations,
  checkMigrations,
  createMigration,
  createSchema,
  dialectOf,
  dropSchema,
  emptyDatabase,
  emptyFolder,
  migrationOf,
  migrationsOf,
  everything,
  later,
  openHost,
  pendingMigrations,
  query,
  quietDriver,
  sessionRow,
  tablesWith,
} from './support.js';

const databases = availableDatabases();

const toSession = () =>
  p
    .manyToOne(AdkSession)
    .joinColumns('app_name', 'user_id', 'session_id')
    .foreignKeyName('ticket_session')
    .deleteRule('cascade');

/** A host's own entity that relates to a session. */
const Ticket = ticketWith(toSession);

/** The entity of docs/migrations.md for MikroORM 7 with its own migrator. */
const TicketWithoutAdkMigrator = ticketWith(() => {
  const relation = toSession();
  const ignore = relation.ignoreSchemaChanges as (...changes: string[]) => typeof relation;
  return isMikroOrm7 ? ignore.call(relation, 'type', 'collation') : relation;
});

function ticketWith(session: typeof toSession) {
  return defineEntity({ name: 'Ticket', properties: { id: p.integer().primary(), session } });
}

const Note = defineEntity({ name: 'Note', properties: { id: p.integer().primary() } });

/** The statements that the host's next `migration:create` would write. */
async function created(database: TestDatabase, options: Options): Promise<{ up: string[] }> {
  const orm = await MikroORM.init({
    ...database.options,
    extensions: [Migrator],
    ...options,
    migrations: { path: await emptyFolder(), snapshot: false },
  });
  try {
    return (await createMigration(orm)).diff;
  } finally {
    await orm.close(true);
  }
}

describe.each(databases)('a host on %s', (name) => {
  test('that relates to our tables lists its migration after ours, or migrates ours first', async () => {
    const database = await emptyDatabase(name);
    await migrate(await openHost(database));
    const { up } = await created(database, { entities: [...adkEntities(), Ticket], extensions: [AdkMigrator] });
    // Its name would sort first.
    const own = { name: 'Migration20200101000000_ticket', class: migrationOf({ up, down: ['drop table ticket'] }) };
    const ours = adkMigrations(dialectOf(name));
    const openWith = async (migrationsList: (typeof ours)[number][]) =>
      openHost(await emptyDatabase(name), {
        entities: [Ticket],
        extensions: [AdkMigrator],
        migrations: { migrationsList },
      });

    const after = await openWith([...ours, own]);
    await after.migrator.up();
    expect(await appliedMigrations(after)).toEqual([...MIGRATIONS, own.name]);

    // SQLite looks up the table of a foreign key only when a row is written.
    if (DATABASES[name].schema.checksForeignKeys)
      await expect((await openWith([own, ...ours])).migrator.up()).rejects.toThrow();
    const alone = await openWith([own]);
    await migrate(alone);
    await alone.migrator.up();
    expect(await appliedMigrations(alone)).toEqual([...MIGRATIONS, own.name]);
  });

  test('lists our migrations beside its own', async () => {
    const database = await emptyDatabase(name);
    await migrate(await openHost(database));
    const { up } = await created(database, { entities: [...adkEntities(), Ticket], extensions: [AdkMigrator] });
    const own = migrationOf({ up, down: ['drop table ticket'] });
    const fresh = await emptyDatabase(name);
    const orm = await openHost(fresh, {
      entities: [Ticket],
      extensions: [AdkMigrator],
      migrations: {
        migrationsList: [...adkMigrations(dialectOf(name)), { name: 'Migration20270101000000_ticket', class: own }],
      },
    });
    const before = await pendingMigrations(orm).then(() => everything(orm, name));

    await orm.migrator.up();
    expect(await appliedMigrations(orm)).toEqual([...MIGRATIONS, 'Migration20270101000000_ticket']);
    expect(await checkMigrations(orm)).toBe(false);

    const em = orm.em.fork();
    const session = em.create(AdkSession, sessionRow('alice'));
    em.create(Ticket, { id: 1, session });
    await em.flush();
    expect(await orm.em.fork().find(Ticket, { session: { userId: 'alice' } })).toHaveLength(1);
    await orm.em.fork().nativeDelete(AdkSession, { userId: 'alice' });
    expect(await orm.em.fork().count(Ticket)).toBe(0);

    await orm.migrator.down({ to: 0 });
    expect(await everything(orm, name)).toEqual(before);
  });

  test('keeps a folder of its own, and calls migrate for our tables', async () => {
    const folder = await emptyFolder();
    const file = path.join(folder, 'Migration20270101000000_note.cjs');
    await writeFile(
      file,
      `const { Migration } = require(${JSON.stringify(require.resolve('@mikro-orm/migrations'))});
       exports.Note = class extends Migration {
         up() { this.addSql('create table note (id integer)'); }
         down() { this.addSql('drop table note'); }
       };`,
    );
    const database = await emptyDatabase(name);
    const orm = await MikroORM.init({
      ...database.options,
      ...quietDriver,
      entities: adkEntities(),
      extensions: [AdkMigrator],
      migrations: { path: folder, snapshot: false, silent: true },
      // Jest turns import() in the test into require(), but not in MikroORM.
      dynamicImportProvider: (id) => import(id),
    });
    later(() => orm.close(true));

    await orm.migrator.up();
    expect(await tablesWith('adk_', orm, name)).toEqual([]);
    await migrate(orm);
    expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
    expect(await pendingMigrations(orm)).toEqual([]);

    // MikroORM 7 reverts nothing by itself: the last recorded migration is not in the folder.
    await orm.migrator.down({ migrations: [path.basename(file)] });
    expect(await tablesWith('note', orm, name)).toEqual([]);
    expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
    await migrate(orm);
    expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
  });

  test('has migration:create leave our tables out', async () => {
    const database = await emptyDatabase(name);
    const { up } = await created(database, { entities: [...adkEntities(), Ticket], extensions: [AdkMigrator] });
    expect(up.join('\n')).toMatch(/create table .ticket/);
    expect(up.join('\n')).not.toMatch(/(create|alter) table .adk_/);
  });

  test('generates our tables in its own migrations', async () => {
    const database = await emptyDatabase(name);
    const own = migrationOf(await created(database, { entities: [...adkEntities(), TicketWithoutAdkMigrator] }));
    const orm = await openHost(database, {
      entities: [TicketWithoutAdkMigrator],
      migrations: { migrationsList: [{ name: 'Migration20270101000000_all', class: own }] },
    });
    await orm.migrator.up();
    expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
    await orm.em.fork().insert(AdkSession, sessionRow('alice'));

    // Not needed here, but a start script that calls it does no harm.
    await migrate(orm);
    expect(await appliedMigrations(orm)).toEqual(['Migration20270101000000_all', ...MIGRATIONS]);
    expect(await orm.em.fork().count(AdkSession)).toBe(1);
    expect(await orm.schema.getUpdateSchemaSQL()).toBe('');
  });

  test('has tables sessions and events and entities Session and Event of its own', async () => {
    const Session = defineEntity({
      name: 'Session',
      tableName: 'sessions',
      properties: { id: p.integer().primary(), title: p.string() },
    });
    const Event = defineEntity({
      name: 'Event',
      tableName: 'events',
      properties: { id: p.integer().primary(), title: p.string() },
    });
    const database = await emptyDatabase(name);
    const orm = await openHost(database, { entities: [Session, Event] });
    await createSchema(orm);
    await dropSchema(orm);
    const host = await MikroORM.init({ ...database.options, entities: [Session, Event] });
    later(() => host.close(true));
    await createSchema(host);

    await migrate(orm);
    const em = orm.em.fork();
    em.create(Session, { id: 1, title: 'court' });
    em.create(Event, { id: 1, title: 'concert' });
    const session = em.create(AdkSession, sessionRow('alice'));
    em.create(AdkEvent, { session, seq: 1, id: 'e1', timestamp: 0.25, data: { author: 'user' } });
    await em.flush();

    expect(await orm.em.fork().find(Event, {})).toMatchObject([{ title: 'concert' }]);
    expect(await orm.em.fork().find(AdkEvent, {}, { populate: ['session'] })).toMatchObject([
      { seq: 1, data: { author: 'user' }, session: { userId: 'alice' } },
    ]);
    await orm.migrator.down({ to: 0 });
    expect(await host.em.fork().count(Session)).toBe(1);
  });
});

/** PostgreSQL's schema is inside the database; on MySQL and MariaDB it is a database beside it. */
const withSchemas = databases.filter((name) => DATABASES[name].schema.dropSchema);

for (const name of withSchemas) {
  const { dropSchema, readsOtherSchemas } = DATABASES[name].schema;
  describe(`a custom schema on ${name}`, () => {
    const schemaOf = (database: TestDatabase) => `${new URL(database.url).pathname.slice(1)}_kb`;
    const tablesIn = async (orm: MikroORM, schema: string) =>
      (
        await query<{ name: string }>(
          orm.em,
          'select table_name as name from information_schema.tables where table_schema = ?',
          [schema],
        )
      )
        .map((row) => row.name)
        .sort();

    test('F4 holds the tables, beside a set in the default one', async () => {
      const database = await emptyDatabase(name);
      const schema = schemaOf(database);
      const orm = await openHost(database, { location: { schema } });
      later(() => query(orm.em, dropSchema!(schema)));
      const plain = await openHost(database);

      await migrate(orm);
      await migrate(plain);
      await migrate(orm);
      expect(await tablesIn(orm, schema)).toEqual(TABLES.map((table) => `adk_${table}`));
      expect(await appliedMigrations(orm)).toEqual([...migrationsOf(`${schema}.adk_`), ...MIGRATIONS]);
      expect(await pendingMigrations(orm)).toEqual([]);

      await orm.em.fork().insert(AdkSession, sessionRow('alice'));
      expect(await plain.em.fork().count(AdkSession)).toBe(0);

      await orm.migrator.down({ to: 0 });
      expect(await tablesIn(orm, schema)).toEqual([]);
      expect(await tablesWith('adk_', plain, name)).toEqual(TABLES);
      expect(await plain.em.fork().count(AdkSession)).toBe(0);
    });

    test.each([true, false])('F2 migration:create leaves it and its tables alone, snapshot: %p', async (snapshot) => {
      const database = await emptyDatabase(name);
      const location = { schema: schemaOf(database), tablePrefix: 'bot_' };
      const migrations = { snapshot, path: await emptyFolder() };
      const orm = await openHost(database, { location, migrations, extensions: [AdkMigrator] });
      later(() => query(orm.em, dropSchema!(location.schema)));
      await orm.migrator.up();

      const withNote = await openHost(database, { location, migrations, extensions: [AdkMigrator], entities: [Note] });
      const { diff } = await createMigration(withNote);
      expect(diff.up.filter(Boolean)).toEqual([expect.stringMatching(/^create table .note/)]);
      expect(diff.down.filter(Boolean)).toEqual([expect.stringMatching(/^drop table if exists .note/)]);
      expect(await checkMigrations(withNote)).toBe(!snapshot);
    });

    test('F3 the schema generator finds no difference in it', async () => {
      const database = await emptyDatabase(name);
      const schema = schemaOf(database);
      const orm = await openHost(database, { location: { schema, tablePrefix: 'bot_' } });
      later(() => query(orm.em, dropSchema!(schema)));
      await migrate(orm);

      if (readsOtherSchemas) {
        expect(await orm.schema.getUpdateSchemaSQL()).toBe('');
      } else {
        // MikroORM reads only the database that it is connected to.
        const url = new URL(database.url);
        url.pathname = schema;
        const inside = await openHost(
          { ...database, options: { ...database.options, clientUrl: url.href } },
          { location: { tablePrefix: 'bot_' } },
        );
        expect(await inside.schema.getUpdateSchemaSQL()).toBe('');
      }
    });
  });
}

// MikroORM's own table of migrations doesn't work with this option on MySQL and MariaDB: it is created twice.
for (const name of databases.filter((database) => database === 'postgresql')) {
  test(`F4 the schema of the whole ORM is ours too, on ${name}`, async () => {
    const database = await emptyDatabase(name);
    const orm = await openHost(database, { schema: 'kb' });
    await migrate(orm);
    expect(await pendingMigrations(orm)).toEqual([]);
    expect(await query(orm.em, 'select name from kb.mikro_orm_migrations')).toEqual(
      MIGRATIONS.map((name) => ({ name })),
    );
    await orm.em.fork().insert(AdkSession, sessionRow('alice'));
    expect(await query(orm.em, 'select user_id from kb.adk_sessions')).toEqual([{ user_id: 'alice' }]);
    expect(await orm.schema.getUpdateSchemaSQL()).toBe('');
  });
}
