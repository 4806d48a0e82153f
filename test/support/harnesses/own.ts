import { MikroORM, type EntityManager, type Options } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { adkEntities, migrate, MikroOrmSessionService } from '../../../src/index.js';
import type { SessionKey } from '../../../src/model/keys.js';
import { createMigrated, templateOf } from '../migrated.js';
import type { FileDatabase, ServerDatabase } from './database.js';
import { harnessOf, isTested, type DatabaseName } from './databases.js';
import type { OwnHarness, OwnStore, StoredSession } from './harness.js';
import { CREATE_HOST_NOTES, HostNote } from './host-note.js';
import { libsql } from './libsql.js';
import { pglite } from './pglite.js';
import { sqlite } from './sqlite.js';
import { StatementLog } from './statement-log.js';

/** A database with our tables, for the contract. */
export function ownHarness(database: FileDatabase | ServerDatabase, name: DatabaseName): OwnHarness {
  return {
    ...database,
    isAvailable: () => isTested(name),
    hasConnections: true,
    async open() {
      const { options, drop } = await createMigrated(name);
      return openStore(options, { drop });
    },
  };
}

export const sqliteInMemory: OwnHarness = {
  ...sqlite,
  name: 'sqlite in memory',
  hasConnections: false,
  async open() {
    const template = await templateOf('sqlite');
    return openStore({ driver: await sqlite.driver(), dbName: ':memory:' }, { fill: (orm) => copyInto(orm, template) });
  },
};

/** Copies the tables of a file, with their rows, into a database in memory. */
async function copyInto(orm: MikroORM, file: string): Promise<void> {
  const connection = orm.em.getConnection();
  await connection.execute('attach ? as template', [file]);
  const made = (await connection.execute(
    "select type, name, sql from template.sqlite_master where sql is not null and name not like 'sqlite_%' order by rowid",
  )) as { type: string; name: string; sql: string }[];
  for (const { sql } of made) await connection.execute(sql);
  for (const { name } of made.filter(({ type }) => type === 'table')) {
    await connection.execute(`insert into main."${name}" select * from template."${name}"`);
  }
  await connection.execute('detach template');
}

export const libsqlHarness: OwnHarness = {
  ...libsql,
  isAvailable: () => isTested('libsql'),
  hasConnections: true,
  async open() {
    const { options, drop } = await libsql.create(await templateOf('sqlite'));
    return openStore(options, { drop });
  },
};

export const pgliteHarness: OwnHarness = {
  ...pglite,
  isAvailable: () => isTested('pglite'),
  hasConnections: false,
  async open() {
    const { options, drop } = await pglite.create(await templateOf('pglite'));
    const store = await openStore(options);
    return {
      ...store,
      async close() {
        await store.close();
        await drop();
      },
    };
  },
};

export const pgliteInMemory: OwnHarness = {
  ...pgliteHarness,
  name: 'pglite in memory',
  open: async () => openStore({ driver: await pglite.driver(), dbName: 'memory://' }, { fill: migrate }),
};

interface StoreOptions {
  /** Drops the database; undefined if it ends with its only connection. */
  drop?: () => Promise<void>;
  /** Makes the tables of this package, if the database does not have them. */
  fill?: (orm: MikroORM) => Promise<void>;
}

async function openStore(options: Options, { drop, fill }: StoreOptions = {}): Promise<OwnStore> {
  const opened: MikroORM[] = [];
  const connect = async (more: Options = {}) => {
    const orm = await MikroORM.init({ ...options, entities: [...adkEntities(), HostNote], ...more });
    opened.push(orm);
    return orm;
  };
  const close = async () => {
    for (const each of opened) await each.close(true);
    await drop?.();
  };
  const log = new StatementLog();
  const prepare = async () => {
    const orm = await connect({ loggerFactory: log.loggerFactory });
    await fill?.(orm);
    const peer = drop ? await connect() : orm;
    await connectionOf(peer.em).execute(CREATE_HOST_NOTES);
    return { orm, peer };
  };
  // After a failure nobody else could close the connections.
  const { orm, peer } = await prepare().catch(async (error: unknown) => {
    await close();
    throw error;
  });
  const query = <Row extends object>(
    sql: string,
    values: readonly unknown[] = [],
    em: EntityManager = peer.em.fork(),
  ) => connectionOf(em).execute<Row[]>(sql, [...values], 'all', em.getTransactionContext());

  return {
    orm,
    peer,
    query,
    connect,
    service: new MikroOrmSessionService(orm.em),
    another: new MikroOrmSessionService(peer.em),
    stored: (key) => readTables(peer, query, key),
    recorded: (work) => log.during(work),
    close,
  };
}

function connectionOf(em: EntityManager): AbstractSqlConnection {
  return em.getConnection() as AbstractSqlConnection;
}

const OF_SESSION = 'where app_name = ? and user_id = ? and session_id = ?';

/** Reads a session from the tables, with other statements than the service's. */
async function readTables(
  orm: MikroORM,
  query: OwnStore['query'],
  key: SessionKey,
): Promise<StoredSession | undefined> {
  const { json } = harnessOf(orm.em).columns;
  const { appName, userId, sessionId } = key;
  const session = [appName, userId, sessionId];
  const [row] = await query<{ last_update_time: number; first_seq: number; last_seq: number }>(
    `select last_update_time, first_seq, last_seq from adk_sessions ${OF_SESSION}`,
    session,
  );
  if (!row) return undefined;

  const events = await query<{ seq: number; data: string | null }>(
    `select seq, ${json('data')} as data from adk_events ${OF_SESSION} order by seq`,
    session,
  );
  const kept = row.last_seq - row.first_seq + 1;
  expect(events.map(({ seq }) => seq)).toEqual(Array.from({ length: kept }, (_, i) => row.first_seq + i));
  const parts = await query<{ seq: number; text: string }>(
    `select seq, text from adk_event_parts ${OF_SESSION} order by seq, part`,
    session,
  );
  const textOf = (seq: number) =>
    parts
      .filter((part) => part.seq === seq)
      .map(({ text }) => text)
      .join('');

  const state: Record<string, unknown> = {};
  const scopes = [
    ['adk_session_states', OF_SESSION, session, ''],
    ['adk_user_states', 'where app_name = ? and user_id = ?', [appName, userId], 'user:'],
    ['adk_app_states', 'where app_name = ?', [appName], 'app:'],
  ] as const;
  for (const [table, where, owner, prefix] of scopes) {
    const sql = `select state_key, ${json('value')} as value from ${table} ${where}`;
    for (const { state_key, value } of await query<{ state_key: string; value: string }>(sql, owner)) {
      Object.defineProperty(state, prefix + state_key, {
        value: JSON.parse(value),
        enumerable: true,
        configurable: true,
        writable: true,
      });
    }
  }
  return {
    state,
    events: events.map(({ seq, data }) => JSON.parse(data ?? textOf(seq))),
    lastUpdateTime: row.last_update_time,
  };
}
