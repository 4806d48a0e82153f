import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { MikroORM } from '@mikro-orm/core';
import { AdkCounter, AdkSession } from '../../../entities/index.js';
import { AdkMigrator, adkMigrations } from '../../../migrations/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { MikroOrmSessionService } from '../../../src/sessions/session-service.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, executeOnServer } from '../../support/servers.js';
import {
  MIGRATIONS,
  TABLES,
  appliedMigrations,
  checkMigrations,
  createSchema,
  dialectOf,
  dropSchema,
  emptyDatabase,
  everything,
  later,
  openHost,
  pendingMigrations,
  query,
  sessionRow,
  tablesWith,
} from './support.js';

const refusal = (...parts: string[]): Error =>
  expect.objectContaining({
    message: expect.stringMatching(
      new RegExp(parts.map((part) => `(?=.*${part.replace(/[[\](){}.*]/g, '\\$&')})`).join(''), 's'),
    ),
  });

/** Both ways to our tables, on the same ORM. */
const WAYS: Record<string, (orm: MikroORM) => Promise<unknown>> = {
  'migrate(orm)': migrate,
  'migration:up': (orm) => orm.migrator.up(),
};

async function emptyFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'adk-snapshots-'));
  later(() => rm(folder, { recursive: true }));
  return folder;
}

for (const name of availableDatabases())
  describe.each(Object.entries(WAYS))(`F5 on ${name}, %s refuses`, (_way, make) => {
    const skipTables = [/^adk_/];

    test('a config whose next snapshot would make migration:create drop our tables', async () => {
      const database = await emptyDatabase(name);
      const snapshot = { snapshot: true, path: await emptyFolder() };
      const dropping = await openHost(database, { schemaGenerator: { skipTables }, migrations: snapshot });
      await expect(make(dropping)).rejects.toThrow(refusal('adk_sessions', 'extensions: [AdkMigrator]'));
      expect(await tablesWith('adk_', dropping, name)).toEqual([]);

      const keeping = { schemaGenerator: { skipTables }, migrations: snapshot, extensions: [AdkMigrator] };
      await make(await openHost(database, keeping));
      expect(await tablesWith('adk_', dropping, name)).toEqual(TABLES);
    });

    test("another program's table before anything is changed", async () => {
      const orm = await openHost(await emptyDatabase(name), { extensions: [AdkMigrator] });
      await pendingMigrations(orm);
      await query(orm.em, 'create table adk_user_states (app_name varchar(9))');
      await query(orm.em, `insert into adk_user_states values ('theirs')`);
      const before = await everything(orm, name);

      await expect(make(orm)).rejects.toThrow(refusal('adk_user_states', 'tablePrefix'));
      expect(await everything(orm, name)).toEqual(before);
      expect(await appliedMigrations(orm)).toEqual([]);
      expect(await query(orm.em, 'select * from adk_user_states')).toEqual([{ app_name: 'theirs' }]);
    });

    test('nothing if all is well', async () => {
      const orm = await openHost(await emptyDatabase(name), { extensions: [AdkMigrator] });
      await make(orm);
      await make(orm);
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
    });
  });

for (const name of availableDatabases())
  describe(`on ${name}`, () => {
    test('F5 migrations whose tables are no entities are refused', async () => {
      const migrationsList = adkMigrations(dialectOf(name), { tablePrefix: 'bot_' });
      const orm = await openHost(await emptyDatabase(name), {
        extensions: [AdkMigrator],
        migrations: { migrationsList },
      });
      await expect(orm.migrator.up()).rejects.toThrow(refusal('bot_sessions', '...adkEntities(options)'));
      expect(await tablesWith('bot_', orm, name)).toEqual([]);
    });

    test('F5 migrate refuses tables that are gone, and says how they are brought back', async () => {
      const orm = await openHost(await emptyDatabase(name), { extensions: [AdkMigrator] });
      await migrate(orm);
      await orm.em.fork().insert(AdkSession, sessionRow('alice'));
      await query(orm.em, 'drop table adk_counters');
      const noted = MIGRATIONS.map((migration) => `'${migration}'`).join(', ');

      await expect(migrate(orm)).rejects.toThrow(refusal('adk_counters is gone', 'backup', `name in (${noted})`));
      await query(orm.em, `delete from mikro_orm_migrations where name in (${noted})`);
      await migrate(orm);
      expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
      expect(await orm.em.fork().count(AdkSession)).toBe(1);
      expect(await orm.em.fork().count(AdkCounter)).toBe(0);
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
    });

    test('AdkMigrator leaves schema:create and schema:drop as they are', async () => {
      const orm = await openHost(await emptyDatabase(name), { extensions: [AdkMigrator] });
      await checkMigrations(orm).catch(() => undefined);
      await createSchema(orm);
      expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
      await dropSchema(orm);
      expect(await tablesWith('adk_', orm, name)).toEqual([]);
    });

    test("F4 schema: '*' is refused by name", async () => {
      const orm = await openHost(await emptyDatabase(name), {
        location: { schema: '*' },
        migrations: { migrationsList: [] },
      });
      expect(() => new MikroOrmSessionService(orm.em)).toThrow(refusal(`schema: '*'`, 'adkEntities'));
      await expect(migrate(orm)).rejects.toThrow(refusal(`schema: '*'`));
      if (DATABASES[name].schema.dropSchema) {
        expect(() => adkMigrations(dialectOf(name), { schema: '*' })).toThrow(refusal(`schema: '*'`));
      }
    });
  });

if (availableDatabases().includes('postgresql'))
  test('O7 a database of PostgreSQL that is not in UTF8 is refused by name', async () => {
    const database = await emptyDatabase('postgresql');
    const latin = `${String(database.options.dbName)}_latin`;
    await executeOnServer('postgresql', `create database ${latin} encoding 'LATIN1' locale 'C' template template0`);
    later(() => executeOnServer('postgresql', `drop database ${latin} with (force)`));
    const orm = await openHost({ ...database, options: { ...database.options, dbName: latin } });
    await expect(migrate(orm)).rejects.toThrow(refusal('server_encoding', 'UTF8'));
    expect(await tablesWith('adk_', orm, 'postgresql')).toEqual([]);
  });

if (availableDatabases().includes('postgresql'))
  describe('F5 on a server that only speaks the protocol of PostgreSQL', () => {
    /** Makes a `version()` that is found before the server's own. */
    async function yugabyte(): Promise<MikroORM> {
      const database = await emptyDatabase('postgresql');
      const orm = await openHost(database);
      await query(orm.em, 'create schema other');
      await query(
        orm.em,
        "create function other.version() returns text language sql as $$ select 'PostgreSQL 11.2-YB-2.18.1.0-b0 on x86_64' $$",
      );
      const [name] = await query<{ name: string }>(orm.em, 'select current_database() as name');
      await query(orm.em, `alter database "${name!.name}" set search_path = other, pg_catalog, public`);
      return openHost(database);
    }

    test.each(Object.entries(WAYS))('%s names it, and makes nothing', async (_way, make) => {
      const orm = await yugabyte();
      await expect(make(orm)).rejects.toThrow(refusal('YugabyteDB'));
      expect(await tablesWith('adk_', orm, 'postgresql')).toEqual([]);
    });

    test('so does the first call', async () => {
      const service = new MikroOrmSessionService((await yugabyte()).em);
      await expect(service.getSession({ appName: 'a', userId: 'u', sessionId: 's' })).rejects.toMatchObject({
        code: 'ADK_SCHEMA',
        message: expect.stringContaining('YugabyteDB') as unknown,
      });
    });
  });
