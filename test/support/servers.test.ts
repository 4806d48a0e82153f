import { existsSync } from 'node:fs';
import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { InMemorySessionService, Runner } from '@google/adk';
import { DatabaseSessionService } from '@google/adk/sessions/database';
import { availableDatabases, createDatabase } from './servers.js';

test.each(availableDatabases())('%s: a new database answers, and is gone when dropped', async (name) => {
  const database = await createDatabase(name);
  const options = {
    ...database.options,
    entities: [],
    discovery: { warnWhenNoEntities: false },
    ensureDatabase: false,
  };

  const orm = await MikroORM.init(options);
  const rows = await (orm.em.getDriver().getConnection() as AbstractSqlConnection).execute('select 1 as one');
  expect(rows).toEqual([{ one: 1 }]);
  await orm.close(true);
  await database.drop();

  if (database.url.startsWith('sqlite:')) {
    expect(existsSync(database.url.slice('sqlite:'.length))).toBe(false);
  } else {
    const again = await MikroORM.init({ ...options, connect: false });
    await expect(again.isConnected()).resolves.toBe(false);
    await again.close(true);
  }
});

test('the ADK and its database service load in CommonJS tests', () => {
  expect([Runner, InMemorySessionService, DatabaseSessionService].map((type) => typeof type)).toEqual([
    'function',
    'function',
    'function',
  ]);
});
