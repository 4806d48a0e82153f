import type { MikroORM } from '@mikro-orm/core';
import { existsSync } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { DATABASES, SERVERS, type ServerName } from '../../test/support/harnesses/databases.js';
import { citusLayout } from '../../test/support/harnesses/on-server.js';
import { serverUrl } from '../../test/support/run.js';
import { createDatabase, executeOnServer, type DatabaseName, type TestDatabase } from '../../test/support/servers.js';
import type { BareDriver, Row } from '../contenders/drivers/bare-driver.js';
import { migrated, openBareDriver } from '../contenders/open.js';
import { conversations, type Conversation, type Size } from './conversations.js';
import { Filler } from './filler.js';

/** Change this if other rows are filled, so that kept databases are filled again. */
const VERSION = 1;

/** A database with the sessions of a size. */
export interface Population {
  name: DatabaseName;
  size: Size;
  database: TestDatabase;
  orm: MikroORM;
  driver: BareDriver;
  filler: Filler;
  sessions: readonly Conversation[];
  /** How long filling took, in ms, even if that was in an earlier run. */
  fillMs: number;
  /** Ends the connections. Drops a database that is not kept. */
  close(): Promise<void>;
}

/** The row that marks a kept database as full. */
interface Marker {
  version: number;
  fillMs: number;
}

/**
 * Opens a database that is kept, in the folder or on the server. Fills it unless an earlier run has. On Citus it is not kept, since
 * each node has one.
 */
export async function keptPopulation(
  name: DatabaseName,
  size: Size,
  folder: string,
  onProgress: (doing: string) => void,
): Promise<Population> {
  if (citusLayout(name) !== undefined) return temporaryPopulation(name, size, onProgress);
  const found = await keptDatabase(name, `adk_growth_${size.events}_${size.sessions}`, folder);
  if (found.exists) {
    const population = await open(name, found.database, size, () => Promise.resolve());
    const marker = await markerOf(population.driver);
    if (marker?.version === VERSION) return { ...population, fillMs: marker.fillMs };
    // Filled by another version, or not completely.
    await population.close();
    await found.database.drop();
  }
  await found.create();
  const population = await open(name, found.database, size, () => Promise.resolve());
  return fill(population, onProgress);
}

/** Fills a database that is dropped when it is closed. */
export async function temporaryPopulation(
  name: DatabaseName,
  size: Size,
  onProgress: (doing: string) => void,
): Promise<Population> {
  const database = await createDatabase(name);
  return fill(await open(name, database, size, () => database.drop()), onProgress);
}

async function open(
  name: DatabaseName,
  database: TestDatabase,
  size: Size,
  end: () => Promise<void>,
): Promise<Population> {
  const orm = await migrated(database);
  const driver = await openBareDriver(database);
  return {
    name,
    size,
    database,
    orm,
    driver,
    filler: new Filler(name, driver),
    sessions: conversations(size, Date.now()),
    fillMs: 0,
    async close() {
      await driver.close();
      await orm.close(true);
      await end();
    },
  };
}

async function fill(population: Population, onProgress: (doing: string) => void): Promise<Population> {
  const { driver, filler, sessions, size } = population;
  const begin = performance.now();
  const longest = sessions.reduce((most, { length }) => Math.max(most, length), 0);
  await filler.begin(longest);
  await filler.fill(sessions, (events) =>
    onProgress(`filled ${events.toLocaleString('en-US')} of ${size.events.toLocaleString('en-US')} events`),
  );
  await filler.reopenLog();
  onProgress('analyzing the tables');
  await filler.analyze();
  const fillMs = performance.now() - begin;
  await setMarker(driver, { version: VERSION, fillMs });
  return { ...population, fillMs };
}

async function markerOf(driver: BareDriver): Promise<Marker | undefined> {
  try {
    const [row] = await rowsOf(driver, 'select text from growth_marker');
    return JSON.parse(String(row?.['text'])) as Marker;
  } catch {
    // The table does not exist yet.
    return undefined;
  }
}

async function setMarker(driver: BareDriver, marker: Marker): Promise<void> {
  await rowsOf(driver, 'create table growth_marker (text varchar(255) primary key)');
  await rowsOf(driver, 'insert into growth_marker (text) values (?)', [JSON.stringify(marker)]);
}

export function rowsOf(driver: BareDriver, text: string, values: readonly unknown[] = []): Promise<readonly Row[]> {
  return driver.run(
    (function* () {
      return (yield { text, values }).rows;
    })(),
  );
}

const SIZES: Record<ServerName, string> = {
  postgresql: 'select pg_database_size(current_database()) as bytes',
  mysql:
    'select sum(data_length + index_length) as bytes from information_schema.tables where table_schema = database()',
  mariadb:
    'select sum(data_length + index_length) as bytes from information_schema.tables where table_schema = database()',
};

const SIZE_ON_CITUS =
  "select sum(result::bigint) as bytes from run_command_on_all_nodes('select pg_database_size(current_database())')";

/** @returns the size of a database on the disk. */
export async function bytesOf({ name, database, driver }: Population): Promise<number> {
  if (!isServer(name)) return (await stat(database.options.dbName ?? '')).size;
  const size = citusLayout(name) === undefined ? SIZES[name] : SIZE_ON_CITUS;
  const [row] = await rowsOf(driver, size);
  return Number(row?.['bytes']);
}

interface Found {
  database: TestDatabase;
  exists: boolean;
  create(): Promise<void>;
}

async function keptDatabase(name: DatabaseName, databaseName: string, folder: string): Promise<Found> {
  const driver = await DATABASES[name].driver();
  if (!isServer(name)) {
    const file = path.join(folder, `${databaseName}.db`);
    const drop = async () => {
      for (const end of ['', '-wal', '-shm']) await rm(file + end, { force: true });
    };
    const database = { name, url: `sqlite:${file}`, options: { driver, dbName: file }, drop };
    return { database, exists: existsSync(file), create: drop };
  }
  const { databases, drop } = DATABASES[name].server;
  const url = new URL(serverUrl(name) ?? '');
  url.pathname = databaseName;
  const rows = await executeOnServer<{ name: string }>(name, databases);
  return {
    database: {
      name,
      url: url.href,
      options: { driver, clientUrl: url.href, pool: { min: 0, max: 10 } },
      drop: async () => {
        await executeOnServer(name, drop(databaseName));
      },
    },
    exists: rows.some((row) => row.name === databaseName),
    create: async () => {
      await executeOnServer(name, `create database ${databaseName}`);
    },
  };
}

function isServer(name: DatabaseName): name is ServerName {
  return SERVERS.some((server) => server === name);
}
