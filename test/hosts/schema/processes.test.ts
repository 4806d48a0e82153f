import type { MikroORM } from '@mikro-orm/core';
import { migrate } from '../../../migrations/migrate.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, databasesOfUrls, type DatabaseName, type TestDatabase } from '../../support/servers.js';
import { WorkerBundle } from '../../support/worker-bundle.js';
import { LineProcess } from './line-process.js';
import {
  MIGRATIONS,
  NEXT,
  TABLES,
  appliedMigrations,
  during,
  emptyDatabase,
  migrationsOf,
  openHost,
  pendingMigrations,
  query,
  tablesWith,
  withNext,
} from './support.js';

const PROCESSES = 8;

const bundle = new WorkerBundle('test/hosts/schema/migrating-process.ts');

beforeAll(() => bundle.build());

afterAll(() => bundle.remove());

describe('F3 eight processes that migrate at once', () => {
  let processes: LineProcess[];

  beforeAll(() => {
    processes = Array.from({ length: PROCESSES }, () => new LineProcess(bundle.path));
  });

  afterAll(() => Promise.all(processes.map((process) => process.end())));

  const askAll = (line: string) => Promise.all(processes.map((process) => process.ask(line)));

  // The processes choose the driver by the URL.
  test.each(databasesOfUrls())('leave one schema and no error on %s', async (name) => {
    const database = await emptyDatabase(name);
    for (let round = 1; round <= 3; round++) {
      expect(await askAll(database.url)).toEqual(Array(PROCESSES).fill('connected'));
      expect(await askAll('go')).toEqual(Array(PROCESSES).fill('migrated'));

      const orm = await openHost(database);
      expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
      expect(await pendingMigrations(orm)).toEqual([]);
      await orm.migrator.down({ to: 0 });
      // The second round finds the table of migrations, the last one does not.
      if (round === 2) await orm.em.getConnection().execute('drop table mikro_orm_migrations');
      await orm.close(true);
    }
  });
});

test.each(availableDatabases())('migrate called eight times at once in one process, on %s', async (name) => {
  const orm = await openHost(await emptyDatabase(name), { location: { tablePrefix: 'bot_' } });
  await Promise.all(Array.from({ length: 8 }, () => migrate(orm)));
  expect(await appliedMigrations(orm)).toEqual(migrationsOf('bot_'));
});

test.each(availableDatabases())(
  'F3 after a process was killed between the tables and their note, on %s',
  async (name) => {
    const orm = await openHost(await emptyDatabase(name));
    await orm.migrator.up();
    await query(orm.em, 'delete from mikro_orm_migrations');
    await migrate(orm);
    expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
  },
);

// Elsewhere the lock is a transaction's, and the server ends it with the connection.
const withLease = availableDatabases().filter((name) => DATABASES[name].schema.migrationLock === 'row');

(withLease.length > 0 ? describe.each(withLease) : describe.skip.each<DatabaseName>(['mysql']))(
  'F3 on %s the lock of migrations is a row with an end',
  (name) => {
    let database: TestDatabase;
    let orm: MikroORM;

    beforeEach(async () => {
      database = await emptyDatabase(name);
      orm = await openHost(database);
      await migrate(orm);
    });

    const ends = async () =>
      (await query<{ value: number | string }>(orm.em, 'select value from adk_counters')).map(({ value }) =>
        Number(value),
      );

    async function untilHeldBy(isHolder: (end: number) => boolean): Promise<void> {
      while (!(await ends()).some(isHolder));
    }

    /** Ends the lease, as time would. */
    const end = () => query(orm.em, 'update adk_counters set value = 1');

    test('a process that is killed keeps others waiting until then, and no longer', async () => {
      await query(orm.em, 'delete from mikro_orm_migrations');
      const killed = new LineProcess(bundle.path);
      await killed.ask(database.url);
      // Nobody can record a migration that was run.
      await during(database, 'select * from mikro_orm_migrations for update', async () => {
        void killed.ask('go');
        await untilHeldBy(() => true);
        await killed.kill();
      });
      const before = await ends();
      expect(before).toHaveLength(1);
      const migrating = migrate(orm);
      for (let looks = 0; looks < 100; looks++) expect(await ends()).toEqual(before);
      expect(await appliedMigrations(orm)).toEqual([]);

      await end();
      await migrating;
      expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
      expect(await ends()).toEqual([]);
    });

    test('of one that was overtaken and the one that overtook it, one notes what both have run', async () => {
      const slow = await openHost(database);
      await withNext([`alter table adk_sessions comment = 'next'`], async (migrateToNext) => {
        let both: Promise<unknown> | undefined;
        // Nobody can change the table.
        await during(database, 'select 1 from adk_sessions', async () => {
          const first = migrateToNext(slow);
          await untilHeldBy(() => true);
          await end();
          const second = migrateToNext(orm);
          await untilHeldBy((value) => value > 1);
          both = Promise.all([first, second]);
        });
        await both;
      });
      expect(await appliedMigrations(orm)).toEqual([...MIGRATIONS, NEXT]);
      expect(await ends()).toEqual([]);
    });
  },
);
