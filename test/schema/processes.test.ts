import { migrate } from '../../migrations/migrate.js';
import { availableDatabases } from '../support/servers.js';
import { LineProcess } from './line-process.js';
import {
  INITIAL,
  TABLES,
  appliedMigrations,
  emptyDatabase,
  openHost,
  pendingMigrations,
  tablesWith,
} from './support.js';

const PROCESSES = 8;

describe('F3 eight processes that migrate at once', () => {
  let processes: LineProcess[];

  beforeAll(() => {
    processes = Array.from({ length: PROCESSES }, () => new LineProcess('migrating-process.ts'));
  });

  afterAll(() => Promise.all(processes.map((process) => process.end())));

  const askAll = (line: string) => Promise.all(processes.map((process) => process.ask(line)));

  // The processes open a file with the driver that its URL names.
  test.each(availableDatabases().filter((name) => name !== 'better-sqlite'))(
    'leave one schema and no error on %s',
    async (name) => {
      const database = await emptyDatabase(name);
      for (let round = 1; round <= 3; round++) {
        expect(await askAll(database.url)).toEqual(Array(PROCESSES).fill('connected'));
        expect(await askAll('go')).toEqual(Array(PROCESSES).fill('migrated'));

        const orm = await openHost(database);
        expect(await tablesWith('adk_', orm, name)).toEqual(TABLES);
        expect(await appliedMigrations(orm)).toEqual([INITIAL]);
        expect(await pendingMigrations(orm)).toEqual([]);
        await orm.migrator.down({ to: 0 });
        // In the next round the table of migrations is there already, in the last one not.
        if (round === 2) await orm.em.getConnection().execute('drop table mikro_orm_migrations');
        await orm.close(true);
      }
    },
  );
});

test.each(availableDatabases())('migrate called eight times at once in one process, on %s', async (name) => {
  const orm = await openHost(await emptyDatabase(name), { place: { tablePrefix: 'bot_' } });
  await Promise.all(Array.from({ length: 8 }, () => migrate(orm)));
  expect(await appliedMigrations(orm)).toEqual([`${INITIAL}[bot_]`]);
});
