import { MikroORM } from '@mikro-orm/core';
import { Migrator } from '@mikro-orm/migrations';
import { adkEntities, migrate } from '../../../src/index.js';
import { adkMigrations } from '../../../migrations/index.js';
import { TABLES } from '../../contract/tools.js';
import { isChosen, serverUrl } from '../../support/run.js';
import { createDatabase, type TestDatabase } from '../../support/servers.js';

/** If the connection's settings would change what is stored, it is refused before a table is made. */
describe.each(['mysql', 'mariadb'] as const)('%s', (name) => {
  if (!serverUrl(name) || !isChosen(name)) {
    test.skip('is not available', () => undefined);
    return;
  }

  let database: TestDatabase;
  let orm: MikroORM;
  const execute = <Row>(sql: string) => orm.em.getConnection().execute(sql) as Promise<Row[]>;

  beforeEach(async () => {
    database = await createDatabase(name);
    orm = await MikroORM.init({
      ...database.options,
      pool: { min: 1, max: 1 },
      entities: adkEntities(),
      extensions: [Migrator],
      migrations: { migrationsList: adkMigrations(name), snapshot: false, silent: true },
    });
  });
  afterEach(async () => {
    await orm.close(true);
    await database.drop();
  });

  const tables = () =>
    execute(
      "select table_name as name from information_schema.tables where table_schema = database() and table_name like 'adk%'",
    );

  const refused = [
    ['set autocommit = 0', /autocommit = 0/],
    ['set completion_type = 1', /completion_type/],
    ['set completion_type = 2', /completion_type/],
    ['set sql_select_limit = 20', /sql_select_limit/],
    ['set foreign_key_checks = 0', /foreign_key_checks = 0/],
    ['set names latin1', /character_set_results/],
    ['set names binary', /character_set_results/],
  ] as const;

  test.each(refused)('O7 %s is refused by name', async (set, named) => {
    await execute(set);
    await expect(migrate(orm)).rejects.toMatchObject({ code: 'ADK_SCHEMA', message: expect.stringMatching(named) });
    await expect(orm.migrator.up()).rejects.toMatchObject({ message: expect.stringMatching(named) });
    // With completion_type = 2 the rollback ended the connection.
    expect(await tables().catch(tables)).toEqual([]);
  });

  test.each([
    "set sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    "set sql_mode = 'TRADITIONAL'",
    "set sql_mode = ''",
    ...(name === 'mysql' ? ['set sql_require_primary_key = 1'] : []),
  ])('O7 with %s the tables are made', async (set) => {
    // MikroORM's own table has a primary key as well.
    await execute(set);
    await migrate(orm);
    expect(await tables()).toHaveLength(TABLES.length);
  });

  if (name === 'mariadb') {
    test("O7 sql_mode = 'ORACLE' is refused by name", async () => {
      await execute("set sql_mode = 'ORACLE'");
      const message = expect.stringMatching(/sql_mode = ORACLE/);
      await expect(migrate(orm)).rejects.toMatchObject({ code: 'ADK_SCHEMA', message });
      expect(await tables()).toEqual([]);
    });
  }

  // Index entries of the other formats hold at most 767 bytes, and innodb_default_row_format is a setting of the whole server.
  test('F3 the row format is that which the keys need, whatever the default of the server', async () => {
    await migrate(orm);
    const rows = await execute<{ options: string }>(
      "select create_options as options from information_schema.tables where table_schema = database() and table_name like 'adk%'",
    );
    expect(rows.map(({ options }) => /row_format=dynamic/i.test(options))).toEqual(Array(TABLES.length).fill(true));
  });
});
