import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { State } from '@google/adk';
import { AdkSession } from '../../../entities/index.js';
import { adkMigrations } from '../../../migrations/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { isTemporary, prefixed } from '../../../src/model/state.js';
import { StatementLog } from '../../support/harnesses/statement-log.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, availableServers, databasesOf, executeOnServer } from '../../support/servers.js';
import {
  MIGRATIONS,
  NEXT,
  TABLES,
  appliedMigrations,
  dialectOf,
  during,
  emptyDatabase,
  everything,
  migrationsOf,
  openHost,
  pendingMigrations,
  query,
  sessionRow,
  tablesWith,
  withNext,
} from './support.js';

/** The number of key columns in all tables. */
const KEY_COLUMNS = 51;

const databases = availableDatabases();

for (const name of databases)
  describe(`migrations on ${name}`, () => {
    test('F3 down removes exactly what up made', async () => {
      const orm = await openHost(await emptyDatabase(name));
      expect(await pendingMigrations(orm)).toMatchObject(MIGRATIONS.map((name) => ({ name })));
      const before = await everything(orm, name);

      await orm.migrator.up();
      expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
      await orm.migrator.down({ to: 0 });

      expect(await everything(orm, name)).toEqual(before);
      expect(await appliedMigrations(orm)).toEqual([]);
    });

    test('F2 migrate makes the tables once, and leaves nothing for migration:up', async () => {
      const orm = await openHost(await emptyDatabase(name));
      await migrate(orm);
      await orm.em.fork().insert(AdkSession, sessionRow('alice'));

      await migrate(orm);
      expect(await pendingMigrations(orm)).toEqual([]);
      expect(await orm.migrator.up()).toEqual([]);

      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
      expect(await orm.em.fork().count(AdkSession)).toBe(1);
    });

    test('F2 migrate finds nothing to do after migration:up', async () => {
      const orm = await openHost(await emptyDatabase(name));
      await orm.migrator.up();
      await migrate(orm);
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
    });

    test('F2 migrate works on a pool of one connection', async () => {
      const orm = await openHost(await emptyDatabase(name), { pool: { min: 1, max: 1 } });
      await migrate(orm);
      expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
    });

    test('F2 a migrate that fails leaves no lock behind and can be repeated', async () => {
      const database = await emptyDatabase(name);
      const orm = await openHost(database);
      // Foreign keys cannot refer to a view.
      await query(orm.em, 'create view adk_sessions as select 1 as one');
      await expect(migrate(orm)).rejects.toThrow();
      await query(orm.em, 'drop view adk_sessions');

      await migrate(await openHost(database));
      expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
    });

    test("F5 migrate refuses another program's table of the same name", async () => {
      const orm = await openHost(await emptyDatabase(name));
      await query(orm.em, 'create table adk_user_states (id integer)');
      await expect(migrate(orm)).rejects.toMatchObject({
        code: 'ADK_SCHEMA',
        message: expect.stringContaining('adk_user_states'),
      });
    });

    test('F4 sets of tables with different prefixes live in one database', async () => {
      const longest = 'bot_'.padEnd(31, 'x') + '_';
      const database = await emptyDatabase(name);
      const ours = await openHost(database);
      const theirs = await openHost(database, { location: { tablePrefix: longest } });
      await migrate(ours);
      await migrate(theirs);
      expect(await tablesWith('adk_', ours, name)).toEqual(TABLES);
      expect(await tablesWith(longest, theirs, name)).toEqual(TABLES);
      expect(await appliedMigrations(ours)).toEqual([...MIGRATIONS, ...migrationsOf(longest)]);

      await theirs.migrator.down({ to: 0 });
      expect(await tablesWith('adk_', ours, name)).toEqual(TABLES);
      expect(await tablesWith(longest, theirs, name)).toEqual([]);
    });

    test('F3 what down leaves is migrated again, and so are tables whose note somebody has deleted', async () => {
      const orm = await openHost(await emptyDatabase(name));
      await migrate(orm);
      const made = await everything(orm, name);
      await orm.em.fork().insert(AdkSession, sessionRow('alice'));
      await orm.migrator.down();
      await migrate(orm);
      expect(await everything(orm, name)).toEqual(made);
      expect(await orm.em.fork().count(AdkSession)).toBe(0);

      await orm.em.fork().insert(AdkSession, sessionRow('bob'));
      await query(orm.em, 'delete from mikro_orm_migrations');
      await migrate(orm);
      expect(await everything(orm, name)).toEqual(made);
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
      expect(await orm.em.fork().find(AdkSession, {})).toMatchObject([sessionRow('bob')]);
      expect(await orm.schema.getUpdateSchemaSQL()).toBe('');
    });

    test.each([{}, { tablePrefix: 'bot_' }])(
      'F3 the schema generator finds no difference after up %j',
      async (location) => {
        const orm = await openHost(await emptyDatabase(name), { location });
        await migrate(orm);
        expect(await orm.schema.getUpdateSchemaSQL()).toBe('');
      },
    );

    test('D6 keys that differ in case, accent or trailing space are different rows', async () => {
      const orm = await openHost(await emptyDatabase(name));
      await migrate(orm);
      const users = ['alice', 'Alice', 'alice ', 'alicé', 'alice\u0301'];
      await orm.em.fork().insertMany(AdkSession, users.map(sessionRow));
      for (const userId of users) {
        expect(await orm.em.fork().find(AdkSession, { userId })).toMatchObject([{ userId }]);
      }
    });

    test('every file of the folder is in the list', async () => {
      const dialect = dialectOf(name);
      const files = await readdir(path.join('migrations', dialect));
      const names = files.filter((file) => file.endsWith('.ts')).map((file) => file.replace('.ts', ''));
      expect(adkMigrations(dialect).map((migration) => migration.name)).toEqual(names.sort());
    });
  });

for (const name of availableServers())
  describe(`on ${name}`, () => {
    test('F2 a connection that ends under migrate is replaced, and its place in the pool is free', async () => {
      jest.spyOn(console, 'log').mockImplementation();
      const database = await emptyDatabase(name);
      const orm = await openHost(database, { pool: { min: 0, max: 1 } });
      await migrate(orm);
      const { own, waitingForTable, end } = DATABASES[name].server.connections;

      await withNext(['alter table adk_sessions add column trace varchar(64) null'], async (migrateToNext) => {
        await during(database, 'select 1 from adk_sessions', async () => {
          const [session] = await query<{ id: number }>(orm.em, own);
          const migrated = migrateToNext(orm).then(
            () => 'migrated',
            () => 'refused',
          );
          while ((await executeOnServer(name, waitingForTable(session!.id))).length === 0);
          await executeOnServer(name, end(session!.id));
          expect(await migrated).toBe('refused');
        });
        await migrateToNext(orm);
      });
      expect(await appliedMigrations(orm)).toEqual([...MIGRATIONS, NEXT]);
      expect(await query(orm.em, 'select trace from adk_sessions')).toEqual([]);
      jest.restoreAllMocks();
    }, 60_000);

    test('F2 the lock of migrate is held until its commit, or another process would not see what is done', async () => {
      const log = new StatementLog();
      const options = { loggerFactory: log.loggerFactory, debug: ['query' as const] };
      const orm = await openHost(await emptyDatabase(name), options);
      const texts = (await log.during(() => migrate(orm))).map(({ text }) => text);
      const release = DATABASES[name].schema.migrationUnlock;
      expect(texts.filter((text) => text === 'commit' || release.test(text)).at(-1)).toMatch(release);
    });

    test('F2 migrate does not open an ORM again that is closed', async () => {
      const orm = await openHost(await emptyDatabase(name));
      await migrate(orm);
      await orm.close(true);
      await expect(migrate(orm)).rejects.toThrow('Unable to acquire a connection');
    });
  });

for (const name of databasesOf('sqlite'))
  describe(`on ${name}`, () => {
    test('F4 a schema is refused', () => {
      expect(() => adkMigrations('sqlite', { schema: 'kb' })).toThrow(
        expect.objectContaining({ code: 'ADK_SCHEMA', message: expect.stringContaining('tablePrefix') }),
      );
    });

    test('F2 migrate works in memory', async () => {
      const database = await emptyDatabase(name);
      const orm = await openHost({ ...database, options: { ...database.options, dbName: ':memory:' } });
      await migrate(orm);
      expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
    });

    test('E6 migrate leaves the file in WAL mode', async () => {
      const orm = await openHost(await emptyDatabase(name));
      await migrate(orm);
      expect(await query(orm.em, 'pragma journal_mode')).toEqual([{ journal_mode: 'wal' }]);
    });
  });

for (const name of databasesOf('mysql', 'mariadb'))
  describe(`on ${name}`, () => {
    const other = name === 'mysql' ? 'mariadb' : 'mysql';

    test('D6 every key column has a binary collation without padding', async () => {
      const database = await emptyDatabase(name);
      const orm = await openHost(database);
      await query(orm.em, `alter database character set latin1 collate latin1_swedish_ci`);
      await migrate(orm);
      const rows = await query<{ location: string; collation: string; charset: string }>(
        orm.em,
        `select concat(table_name, '.', column_name) as location, collation_name as collation,
        character_set_name as charset from information_schema.columns
        where table_schema = database() and table_name like 'adk\\_%' and collation_name is not null`,
      );
      const keys = rows.filter((row) =>
        /\.(app_name|user_id|session_id|event_id|state_key|filename|memory_id|credential_key)$/.test(row.location),
      );
      expect(keys).toHaveLength(KEY_COLUMNS);
      const expected = name === 'mysql' ? 'utf8mb4_0900_bin' : 'utf8mb4_nopad_bin';
      expect(keys.filter((row) => row.collation !== expected)).toEqual([]);
      expect(rows.filter((row) => row.charset !== 'utf8mb4')).toEqual([]);
      const padding = await query(
        orm.em,
        name === 'mysql'
          ? `select pad_attribute as padding from information_schema.collations where collation_name = '${expected}'`
          : `select 'NO PAD' as padding from dual where 'a' collate ${expected} <> 'a '`,
      );
      expect(padding).toEqual([{ padding: 'NO PAD' }]);
    });

    (databases.includes(other) ? test : test.skip)(`the ${other} driver is refused`, async () => {
      const database = await emptyDatabase(name);
      const { options } = await emptyDatabase(other);
      const orm = await openHost({
        ...database,
        name: other,
        options: { ...database.options, driver: options.driver! },
      });
      const refusal = expect.stringContaining(`use @mikro-orm/${name} `);
      const printed = [jest.spyOn(console, 'log'), jest.spyOn(console, 'warn'), jest.spyOn(console, 'error')];
      await expect(migrate(orm)).rejects.toMatchObject({ code: 'ADK_SCHEMA', message: refusal });
      // knex would report the connection that the refused statement ended.
      expect(printed.flatMap(({ mock }) => mock.calls)).toEqual([]);
      printed.forEach((each) => each.mockRestore());
      await expect(orm.migrator.up()).rejects.toThrow(expect.objectContaining({ message: refusal }));
      expect(await tablesWith('adk_', orm, name)).toEqual([]);
    });
  });

for (const name of databasesOf('postgresql'))
  describe(`on ${name}`, () => {
    test('D6 every key column has the collation "C"', async () => {
      const orm = await openHost(await emptyDatabase(name));
      await migrate(orm);
      const rows = await query<{ collation: string }>(
        orm.em,
        `select collation_name as collation from information_schema.columns where table_name like 'adk\\_%'
        and column_name in ('app_name', 'user_id', 'session_id', 'event_id', 'state_key', 'filename', 'memory_id', 'credential_key')`,
      );
      expect(rows.map((row) => row.collation)).toEqual(Array(KEY_COLUMNS).fill('C'));
    });
  });

// F3 compares the entities with the tables.
test('F7 wherever a table has app_name and user_id, its keys hold both', async () => {
  const orm = await openHost(await emptyDatabase('sqlite'));
  const checked: string[] = [];
  for (const { tableName, primaryKeys, uniques, relations, properties } of orm.getMetadata()) {
    const columnsOf = (names: string[]) => names.flatMap((name) => properties[name]!.fieldNames);
    if (!columnsOf(Object.keys(properties)).includes('user_id')) continue;
    const keys = [
      columnsOf(primaryKeys),
      ...uniques.map((unique) => columnsOf([unique.properties].flat() as string[])),
      ...relations.map(({ fieldNames }) => fieldNames),
    ];
    for (const key of keys)
      expect({ tableName, key: key.slice(0, 2) }).toEqual({ tableName, key: ['app_name', 'user_id'] });
    checked.push(tableName.replace(/^adk_/, ''));
  }
  const ofNoUser = ['app_states', 'counters', 'projections', 'retry_tokens'];
  expect(checked.sort()).toEqual(TABLES.filter((table) => !ofNoUser.includes(table)));
});

test('migrate asks for @mikro-orm/migrations if it is missing', async () => {
  const orm = await openHost(await emptyDatabase('sqlite'));
  await jest.isolateModulesAsync(async () => {
    jest.doMock('@mikro-orm/migrations', () => {
      throw Object.assign(new Error("Cannot find package '@mikro-orm/migrations'"), { code: 'ERR_MODULE_NOT_FOUND' });
    });
    const isolated = await import('../../../migrations/migrate.js');
    await expect(isolated.migrate(orm)).rejects.toMatchObject({
      code: 'ADK_SCHEMA',
      message: expect.stringContaining('not installed. Run: npm install @mikro-orm/migrations@'),
    });
  });
  jest.dontMock('@mikro-orm/migrations');
});

test('migrate says that all packages of MikroORM need one version if @mikro-orm/migrations has another', async () => {
  const orm = await openHost(await emptyDatabase('sqlite'));
  await jest.isolateModulesAsync(async () => {
    jest.doMock('@mikro-orm/migrations', () => {
      throw new SyntaxError("The requested module '@mikro-orm/core' does not provide an export named 'MetadataError'");
    });
    const isolated = await import('../../../migrations/migrate.js');
    await expect(isolated.migrate(orm)).rejects.toMatchObject({
      code: 'ADK_SCHEMA',
      message: expect.stringMatching(/beside MikroORM [67]\..* need the same version\. Run: npm install/),
    });
  });
  jest.dontMock('@mikro-orm/migrations');
});

test('the mikro-orm command does not have to load ADK', async () => {
  await jest.isolateModulesAsync(async () => {
    jest.doMock('@google/adk', () => {
      throw new Error('ADK is loaded');
    });
    await import('../../../migrations/index.js');
  });
  jest.dontMock('@google/adk');
  expect([prefixed('app', ''), prefixed('user', '')]).toEqual([State.APP_PREFIX, State.USER_PREFIX]);
  expect(isTemporary(State.TEMP_PREFIX)).toBe(true);
});
