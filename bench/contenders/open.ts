import { DatabaseSessionService } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../entities/index.js';
import { migrate } from '../../src/index.js';
import { distribute } from '../../migrations/index.js';
import { Distance } from '../../test/support/distance.js';
import { citusLayout } from '../../test/support/harnesses/on-server.js';
import { createDatabase, type DatabaseName, type TestDatabase } from '../../test/support/servers.js';
import { CONTENDERS, type Contender, type ContenderName, type Contenders } from './contender.js';
import type { BareDriver } from './drivers/bare-driver.js';
import { openMariadb } from './drivers/mariadb.js';
import { openMysql } from './drivers/mysql.js';
import { openPostgresql } from './drivers/postgresql.js';
import { openSqlite } from './drivers/sqlite.js';
import { Floor } from './floor.js';
import { Ours, type Service } from './ours.js';
import { Peer } from './peer.js';

/**
 * Opens contenders on one kind of database, each in a new database of its own.
 *
 * @param rttMs how far away the server is, in ms for a question and its answer.
 */
export async function openContenders(
  name: DatabaseName,
  names: readonly ContenderName[] = CONTENDERS,
  rttMs = 0,
): Promise<Contenders> {
  const opened: Partial<Contenders> = {};
  try {
    for (const contender of names) opened[contender] = await openContender(name, contender, rttMs);
    return opened as Contenders;
  } catch (error) {
    await closeContenders(opened);
    throw error;
  }
}

export async function closeContenders(contenders: Partial<Contenders>): Promise<void> {
  for (const contender of Object.values(contenders)) await contender.close();
}

async function openContender(name: DatabaseName, contender: ContenderName, rttMs: number): Promise<Contender> {
  const created = await createDatabase(name);
  const database = rttMs > 0 ? await farAway(created, rttMs) : created;
  try {
    return await OPENERS[contender](database);
  } catch (error) {
    await database.drop();
    throw error;
  }
}

async function farAway(database: TestDatabase, rttMs: number): Promise<TestDatabase> {
  const distance = await Distance.to(database.url, rttMs);
  const drop = async () => {
    await distance.close();
    await database.drop();
  };
  return { ...database, url: distance.url, options: { ...database.options, clientUrl: distance.url }, drop };
}

const OPENERS: Record<ContenderName, (database: TestDatabase) => Promise<Contender>> = {
  async ours(database) {
    return openOurs(database, await migrated(database));
  },

  async peer(database) {
    const service = new DatabaseSessionService({ ...database.options });
    await service.init();
    // Also puts an SQLite file into WAL mode, which the peer does not do, so that all use the same kind of journal.
    const filler = await openBareDriver(database);
    return new Peer(service, filler, async () => {
      await filler.close();
      await ormOf(service)?.close(true);
      await database.drop();
    });
  },

  async floor(database) {
    const orm = await migrated(database);
    await orm.close(true);
    const driver = await openBareDriver(database);
    return new Floor(driver, database.name === 'postgresql', async () => {
      await driver.close();
      await database.drop();
    });
  },
};

async function openOurs(database: TestDatabase, orm: MikroORM, service?: Service): Promise<Ours> {
  const filler = await openBareDriver(database);
  const end = async () => {
    await filler.close();
    await orm.close(true);
    await database.drop();
  };
  return new Ours(orm, database, filler, end, service);
}

export async function migrated(database: TestDatabase): Promise<MikroORM> {
  const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
  await migrate(orm);
  const by = citusLayout(database.name);
  if (by === 'user' || by === 'schema') await distribute(orm, { by });
  return orm;
}

/** The peer has no way to close its connections. */
function ormOf(service: DatabaseSessionService): MikroORM | undefined {
  return (service as unknown as { orm?: MikroORM }).orm;
}

export async function openBareDriver({ name, url, options }: TestDatabase): Promise<BareDriver> {
  switch (name) {
    case 'sqlite':
    case 'better-sqlite':
      return openSqlite(options.dbName ?? '');
    case 'postgresql':
      return openPostgresql(url);
    case 'mysql':
      return openMysql(url);
    case 'mariadb':
      return openMariadb(url);
  }
}
