import { MikroORM, type EntityManager } from '@mikro-orm/core';
import type { SqlEntityManager } from '@mikro-orm/postgresql';
import { readFile } from 'node:fs/promises';
import { AdkMigrator, adkMigrations } from '../../../migrations/index.js';
import { MikroOrmSessionService, SessionMaintenance, SessionProjection, adkEntities } from '../../../src/index.js';
import { saying } from '../../contract/tools.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { availableDatabases, createDatabase } from '../../support/servers.js';

const KEY = { appName: 'app', userId: 'u', sessionId: 's' };

/** The members in the table "What is replaced" of docs/architecture.md. */
async function listed(): Promise<string[]> {
  const text = await readFile('docs/architecture.md', 'utf8');
  const section = text.split('\n## ').find((part) => part.startsWith('What is replaced')) ?? '';
  return [...section.matchAll(/^\| `([\w.]+)` \|/gm)].map(([, member = '']) => member);
}

interface HostConnection {
  getNativeClient?(): Promise<object>;
  getClient?(): object;
  getKnex?(): { client: object & { logger: object; pool: object } };
}

/** The host's objects, by the names that the table gives them. */
async function objectsOf(em: EntityManager): Promise<Record<string, object>> {
  const connection = em.getConnection() as object as HostConnection;
  const { config } = em;
  const client = connection.getKnex?.().client;
  const pool = client?.pool ?? (await connection.getNativeClient?.().catch(() => undefined));
  const platform = em.getPlatform();
  return {
    ...{ em, config, connection, platform, driver: em.getDriver(), logger: config.getLogger() },
    ...{ schemaHelper: platform.getSchemaHelper()!, exceptionConverter: platform.getExceptionConverter() },
    ...{ options: config.getAll(), schemaGenerator: config.get('schemaGenerator'), eventManager: em.getEventManager() },
    ...(client ? { client, 'client.logger': client.logger } : { kysely: connection.getClient!() }),
    ...(pool && { pool }),
  };
}

/** The methods of an object, and of its classes, by their names. */
function methodsOf(object: object): Map<string, unknown> {
  const methods = new Map<string, unknown>();
  for (let at: unknown = object; at && at !== Object.prototype; at = Object.getPrototypeOf(at))
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(at)))
      if (typeof value === 'function' && !methods.has(name)) methods.set(name, value);
  return methods;
}

/** @returns a function that finds the members that are not what they were. */
async function watched(em: EntityManager): Promise<() => string[]> {
  const before = Object.entries(await objectsOf(em)).map(([name, object]) => ({
    name,
    object,
    was: methodsOf(object),
  }));
  return () =>
    before.flatMap(({ name, object, was }) => {
      const is = methodsOf(object);
      return [...was].filter(([member, method]) => is.get(member) !== method).map(([member]) => `${name}.${member}`);
    });
}

/** The members that our entities have replaced before anybody could watch. */
function ownMembers(object: object): string[] {
  const inherited = methodsOf(Object.getPrototypeOf(object) as object);
  return Object.keys(object).filter((name) => inherited.has(name));
}

test('the table has at most six members, and names for each a test that exists', async () => {
  const text = await readFile('docs/architecture.md', 'utf8');
  expect((await listed()).length).toBeLessThanOrEqual(6);
  const rows = text.split('\n').filter((line) => /^\| `(connection|pool|client|schemaHelper)\./.test(line));
  for (const row of rows) {
    const [, file = '', name = ''] = /`(test\/[^`]+)`: ([^|]+) \|$/.exec(row) ?? [];
    expect(await readFile(file, 'utf8')).toContain(name);
  }
});

test.each(availableDatabases())(
  'on %s, whatever is used, no other member of the host’s objects changes',
  async (name) => {
    const database = await createDatabase(name);
    const during = new Set<string>();
    let changed = (): string[] => [];
    const noteChanged = () => {
      for (const member of changed()) during.add(member);
    };
    const orm = await MikroORM.init({
      ...database.options,
      entities: adkEntities(),
      extensions: [AdkMigrator],
      migrations: {
        migrationsList: adkMigrations(DATABASES[name].dialect),
        ...{ snapshot: false, silent: true, transactional: name !== 'mysql' && name !== 'mariadb' },
      },
      debug: ['query'],
      // Called for each statement.
      logger: noteChanged,
    });
    const { em } = orm;
    try {
      await em.getConnection().execute('select 1');
      const transaction = await em.getConnection().begin();
      const wasTransaction = methodsOf(transaction as object);
      changed = await watched(em);

      const migrator = orm.config.getExtension<AdkMigratorLike>('@mikro-orm/migrator')!;
      const joined = em.fork();
      joined.setTransactionContext(transaction);
      await em.getConnection().commit(transaction);
      expect(() => new MikroOrmSessionService(em).withEntityManager(joined)).not.toThrow();
      expect([...methodsOf(transaction as object)]).toEqual([...wasTransaction]);

      await migrator.up();
      const service = new MikroOrmSessionService(em);
      const session = await service.createSession(KEY);
      await Promise.all([1, 2, 3].map((n) => service.appendEvent({ session, event: saying(`${n}`) })));
      await em.fork().transactional(async (tx) => {
        await service.withEntityManager(tx).appendEvent({ session, event: saying('joined') });
        await tx.transactional((inner) => service.withEntityManager(inner).updateState({ ...KEY, set: { a: 1 } }));
      });
      const apply = async (_: unknown, tx: EntityManager) => {
        await (tx as SqlEntityManager).execute('select 1');
      };
      await new SessionProjection(em, { name: 'p', apply, clear: async () => undefined }).catchUp();
      await new SessionMaintenance(em).trim({ appName: 'app', keepLast: 1 });
      await expect(service.getSession({ ...KEY, sessionId: '' })).rejects.toThrow();
      await migrator.down();
      noteChanged();

      const replaced = [
        ...during,
        ...ownMembers(em.getPlatform().getSchemaHelper()!).map((own) => `schemaHelper.${own}`),
      ];
      expect(replaced).toContain('connection.begin');
      expect(await listed()).toEqual(expect.arrayContaining(replaced));
    } finally {
      await orm.close(true);
      await database.drop();
    }
  },
);

interface AdkMigratorLike {
  up(): Promise<unknown>;
  down(): Promise<unknown>;
}
