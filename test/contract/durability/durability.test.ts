import { readFileSync } from 'node:fs';
import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { MikroOrmSessionService, adkEntities, migrate } from '../../../src/index.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, createDatabase, databasesOf, type TestDatabase } from '../../support/servers.js';

/** docs/durability.md's rows of defaults: those that begin with a database, and their `name = value`. */
const TABLE = new Map(
  (/<!-- durability -->(.*?)<!-- \/durability -->/s.exec(readFileSync('docs/durability.md', 'utf8'))?.[1] ?? '')
    .split('\n')
    .map((line) => line.split('|').map((cell) => cell.trim()))
    .filter(([, database]) => database && !database.startsWith('-'))
    .map(([, database = '', settings = '']) => [
      database,
      [...settings.matchAll(/`(\w+) = (\w+)`/g)].map(([, name = '', value = '']) => ({ name, value })),
    ]),
);

const SYNCHRONOUS = ['off', 'normal', 'full', 'extra'];

let database: TestDatabase;
let orm: MikroORM;

const query = <Row extends object>(sql: string, values: readonly unknown[] = []) =>
  (orm.em.getConnection() as AbstractSqlConnection).execute<Row[]>(sql, [...values]);

const useService = () => new MikroOrmSessionService(orm.em).createSession({ appName: 'app', userId: 'ada' });

async function open(): Promise<void> {
  orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
}

async function synchronous(): Promise<string | undefined> {
  const [row] = await query<{ synchronous: number }>('pragma synchronous');
  return SYNCHRONOUS[row?.synchronous ?? -1];
}

afterEach(async () => {
  await orm.close(true);
  await database.drop();
});

test.each(availableDatabases())('O9 the settings of the README are those of %s and its connections', async (name) => {
  database = await createDatabase(name);
  await open();
  await migrate(orm);
  await useService();
  const { title, durability } = DATABASES[name];
  const settings = TABLE.get(title) ?? [];
  expect(settings).not.toEqual([]);
  for (const { name: setting, value } of settings) {
    expect({ setting, ...(await durability.defaultOf(query, setting)) }).toEqual({ setting, value, isKept: true });
  }
});

for (const name of databasesOf('sqlite'))
  describe(`on ${name}`, () => {
    test('O9 each commit waits for the disk, whoever has made the file and its mode', async () => {
      database = await createDatabase(name);
      await open();
      await migrate(orm);
      await orm.close(true);
      for (const mode of ['delete', 'wal']) {
        await open();
        await query(`pragma journal_mode = ${mode}`);
        await useService();
        expect(await query('pragma journal_mode')).toEqual([{ journal_mode: 'wal' }]);
        expect(await synchronous()).toBe('full');
        await orm.close(true);
      }
      await open();
    });

    test("O9 the README's line changes it, and the service leaves it so", async () => {
      database = await createDatabase(name);
      await open();
      await migrate(orm);
      await useService();
      const [, line = ''] =
        /execute\('(pragma synchronous = normal)'\)/.exec(readFileSync('docs/durability.md', 'utf8')) ?? [];
      await query(line);
      for (let calls = 0; calls < 3; calls++) await useService();
      expect(await synchronous()).toBe('normal');
    });

    test.each(['off', 'extra'])('O9 a host that has set %s before keeps it', async (mode) => {
      database = await createDatabase(name);
      await open();
      await migrate(orm);
      await query(`pragma synchronous = ${mode}`);
      await useService();
      expect(await synchronous()).toBe(mode);
    });
  });
