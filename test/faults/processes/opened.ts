import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { migrate } from '../../../src/index.js';
import { availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';
import { Child, workerBundle } from './child.js';

interface Opened {
  database: TestDatabase;
  orm: MikroORM;
}

/** Opens a database of each kind before the tests of a file. Closes them after the processes that the tests started. */
export function openDatabases(): { opened: Opened[]; openedChild: () => Promise<Child> } {
  const opened: Opened[] = [];
  const children: Child[] = [];

  beforeAll(async () => {
    await workerBundle.build();
    for (const name of availableDatabases()) {
      const database = await createDatabase(name);
      const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
      opened.push({ database, orm });
      await migrate(orm);
    }
  });

  afterAll(async () => {
    await Promise.all(children.map((child) => child.end()));
    await workerBundle.remove();
    for (const { database, orm } of opened) {
      await orm.close(true);
      await database.drop();
    }
  });

  const openedChild = async () => {
    const child = new Child();
    children.push(child);
    for (const { database } of opened) await child.call('open', { name: database.name, url: database.url });
    return child;
  };
  return { opened, openedChild };
}
