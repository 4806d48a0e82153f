import { randomInt } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../src/index.js';
import { availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';
import { Child, workerBundle } from './child.js';
import { keyOf } from './protocol.js';
import { readTables, upTo } from './tables.js';

const KILLS = process.env['ADK_TEST_LONG'] ? 50 : 8;
const SESSION_ID = 'session';

interface Opened {
  database: TestDatabase;
  orm: MikroORM;
  acknowledged: string[];
}

const opened: Opened[] = [];
const children: Child[] = [];

beforeAll(async () => {
  await workerBundle.build();
  for (const name of availableDatabases()) {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    opened.push({ database, orm, acknowledged: [] });
    await migrate(orm);
    await new MikroOrmSessionService(orm.em).createSession(keyOf(SESSION_ID));
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

async function openedChild(): Promise<Child> {
  const child = new Child();
  children.push(child);
  for (const { database } of opened) await child.call('open', { name: database.name, url: database.url });
  return child;
}

// The process appends to all databases at once, so that one kill is one on each of them.
test(`a process that appends is killed ${KILLS} times: what it acknowledged is there once, and the state is what the events make of it`, async () => {
  let next = openedChild();
  for (let round = 1; round <= KILLS; round++) {
    const child = await next;
    if (round < KILLS) next = openedChild();

    const appending = child.call('appendForever', { sessionId: SESSION_ID, label: `life ${round}` }).catch(String);
    for (const { database } of opened) await child.untilAcknowledged(randomInt(1, 10), database.name);
    // A moment that no acknowledgement sets.
    await setTimeout(Math.random() * 10);
    await child.kill();
    expect(await appending).toBe('Error: The process has ended');

    for (const { database, orm, acknowledged } of opened) {
      const { name } = database;
      acknowledged.push(...child.acknowledged.flatMap((event) => (event.name === name ? [event.id] : [])));
      const stored = await readTables(orm.em, SESSION_ID);
      const count = stored.ids.length;
      expect({ name, ...stored }).toEqual({ name, ...stored, lastSeq: count, seqs: upTo(count), state: stored.folded });
      // Each life leaves at most one event that it did not come to acknowledge.
      const unacknowledged = stored.ids.filter((id) => !acknowledged.includes(id));
      expect({ name, ids: stored.ids.filter((id) => acknowledged.includes(id)) }).toEqual({ name, ids: acknowledged });
      expect(new Set(unacknowledged.map((id) => id.split('-')[0])).size).toBe(unacknowledged.length);
      expect(new Set(stored.ids).size).toBe(count);
    }
  }
  for (const { acknowledged } of opened) expect(acknowledged.length).toBeGreaterThanOrEqual(KILLS);
}, 600_000);
