import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { MikroORM } from '@mikro-orm/core';
import pg from 'pg';
import { adkEntities } from '../../../entities/index.js';
import { encryption, wrappedKeys } from '../../../src/codecs/index.js';
import { MikroOrmSessionService, SessionMaintenance, migrate } from '../../../src/index.js';
import { availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';
import { TABLES, errorOf, saying, textsOf } from '../tools.js';

// A dump is a file with all bytes of the contents: a copy of the database's file by SQLite, or the rows of a server's tables.

const APP = 'shop';
const secretOf = (userId: string) => `the secret of ${userId} is 0451`;
const keyOf = (userId: string) => ({ appName: APP, userId, sessionId: `of ${userId}` });

const isFile = ({ name }: TestDatabase) => name === 'sqlite' || name === 'better-sqlite';

/** The keys of the test: as a host's own store of wrapped keys, apart from the database. */
class Keys {
  readonly kept = new Map<string, Uint8Array>();
  readonly #master = createHash('sha256').update('master').digest();

  /** With no key in memory yet. */
  codec() {
    const masked = async (bytes: Uint8Array) => bytes.map((byte, i) => byte ^ (this.#master[i] ?? 0));
    return encryption({
      currentKey: ({ userId }) => (userId === '' ? 'app' : `user ${userId}`),
      key: wrappedKeys({
        wrap: masked,
        unwrap: masked,
        load: (id) => this.kept.get(id),
        save: (id, wrapped) => this.kept.get(id) ?? (this.kept.set(id, wrapped), wrapped),
      }),
    });
  }
}

const opened = ({ options }: Pick<TestDatabase, 'options'>) => MikroORM.init({ ...options, entities: adkEntities() });

/** The rows of a table, texts as they are stored. */
async function rowsOf(orm: MikroORM, { name, url }: TestDatabase, table: string): Promise<Record<string, unknown>[]> {
  if (name !== 'postgresql') return orm.em.getConnection().execute(`select * from adk_${table}`);
  const client = new pg.Client({ connectionString: url, types: { getTypeParser: () => String } });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(`select * from adk_${table}`)).rows;
  } finally {
    await client.end();
  }
}

async function dump(orm: MikroORM, database: TestDatabase, file: string): Promise<void> {
  if (isFile(database)) {
    await orm.em.getConnection().execute(`vacuum into '${file}'`, [], 'run');
    return;
  }
  const tables: [string, Record<string, unknown>[]][] = [];
  for (const table of TABLES) tables.unshift([table, await rowsOf(orm, database, table)]);
  await writeFile(file, JSON.stringify(tables));
}

/** @returns an ORM on a new database with the rows of the dump. */
async function restored(database: TestDatabase, file: string): Promise<MikroORM> {
  if (isFile(database)) return opened({ options: { ...database.options, dbName: file } });
  const orm = await opened(database);
  await migrate(orm);
  const tables = JSON.parse(await readFile(file, 'utf8')) as [string, Record<string, unknown>[]][];
  for (const [table, rows] of tables)
    for (const row of rows) {
      const columns = Object.keys(row);
      const text = `insert into adk_${table} (${columns.join(', ')}) values (${columns.map(() => '?').join(', ')})`;
      await orm.em.getConnection().execute(text, Object.values(row), 'run');
    }
  return orm;
}

test.each(availableDatabases())(
  'M3 an earlier dump shows nothing of a person whose data key is erased, on %s',
  async (name) => {
    const folder = await mkdtemp(path.join(tmpdir(), 'dump-'));
    const [source, target] = [await createDatabase(name), await createDatabase(name)];
    const keys = new Keys();
    const orm = await opened(source);
    let copy: MikroORM | undefined;
    try {
      await migrate(orm);
      const service = new MikroOrmSessionService(orm.em, { codec: keys.codec() });
      for (const userId of ['ada', 'bob']) {
        const secret = secretOf(userId);
        const session = await service.createSession({ ...keyOf(userId), state: { given: secret, 'user:own': secret } });
        const events = ['e1', 'e2'].map((id) => saying(secret, { id, actions: { stateDelta: { [id]: secret } } }));
        for (const event of events) await service.appendEvent({ session, event });
        await service.updateState({ ...keyOf(userId), set: { later: secret } });
        // A rewritten event leaves its former content in the log.
        await service.appendEvent({ session, event: saying(`${secret}!`, { id: 'e2' }) });
      }
      const file = path.join(folder, 'dump');
      await dump(orm, source, file);

      await new SessionMaintenance(orm.em).eraseUser({ userId: 'ada' });
      expect(keys.kept.delete('user ada')).toBe(true);

      const bytes = await readFile(file);
      expect(bytes.includes('of ada')).toBe(true);
      expect(bytes.includes('the secret')).toBe(false);
      expect(bytes.includes('is 0451')).toBe(false);

      copy = await restored(target, file);
      const reading = new MikroOrmSessionService(copy.em, { codec: keys.codec() });
      expect(await errorOf(reading.getSession(keyOf('ada')))).toMatchObject({
        code: 'ADK_DAMAGED_SESSION',
        events: [{ from: 1, to: 2, problem: 'unreadable' }],
        stateKeys: expect.arrayContaining(['e1', 'e2', 'given', 'later', 'user:own']),
      });
      const bob = await reading.getSession(keyOf('bob'));
      expect(bob && textsOf(bob)).toEqual([secretOf('bob'), `${secretOf('bob')}!`]);
      expect(bob?.state).toMatchObject({ given: secretOf('bob'), 'user:own': secretOf('bob'), later: secretOf('bob') });
      // Reading does not create a key.
      expect(keys.kept.has('user ada')).toBe(false);
      // What is taken out of the dump shows nothing either.
      const taken = await new SessionMaintenance(copy.em, { codec: keys.codec() }).repair(keyOf('ada'));
      expect(taken.events).toHaveLength(2);
      const contents = [...taken.events, ...taken.stateValues].map(({ content }) => content?.toString() ?? '');
      expect(contents.filter((content) => !content.includes('"key":"user ada"'))).toEqual([]);
    } finally {
      await copy?.close(true);
      await orm.close(true);
      for (const database of [source, target]) await database.drop();
      await rm(folder, { recursive: true });
    }
  },
);
