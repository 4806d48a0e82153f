import { MikroORM, defineEntity, p, type EntityManager, type Options } from '@mikro-orm/core';
import type { SqlEntityManager } from '@mikro-orm/postgresql';
import { setImmediate } from 'node:timers/promises';
import { AdkSession, adkEntities } from '../../../entities/index.js';
import { StatementBuffer, type Statements } from '../../../src/database/calls/sql.js';
import type { Dialect } from '../../../src/database/dialects/dialect.js';
import type { Driver } from '../../../src/database/drivers/driver.js';
import { driverOf } from '../../../src/database/drivers/driver-of.js';
import { hasEnded } from '../../../src/database/orm/host-transaction.js';
import type { Tables } from '../../../src/database/sql/tables.js';
import { MikroOrmSessionService, migrate } from '../../../src/index.js';
import { errorOf, saying } from '../../contract/tools.js';
import { createDatabase, type TestDatabase } from '../../support/servers.js';

const KEY = { appName: 'a', userId: 'u', sessionId: 's' };

describe('a result of an unexpected shape is an error', () => {
  test('numbers of a change: none is 0, and none is rounded', async () => {
    const context = {
      ...{ prefix: '', behind: undefined, dialect: {} as Dialect, tables: {} as Tables },
      ...{ isInTransaction: false, isInProcess: false, mayPrepare: false, isForeign: false },
    };
    const change = (result: object) => {
      const statements = { sendAll: async () => [result] } as unknown as Statements;
      return new StatementBuffer(statements, {} as Driver, context).sql.run('');
    };
    await expect(change({ affectedRows: 1, insertId: 7 })).resolves.toEqual({ affectedRows: 1, insertId: 7 });
    await expect(change({ affectedRows: 0, insertId: undefined })).resolves.toEqual({ affectedRows: 0, insertId: 0 });
    for (const insertId of ['7', 7n])
      await expect(change({ affectedRows: '1', insertId })).resolves.toEqual({ affectedRows: 1, insertId: 7 });
    for (const insertId of [2 ** 53, 2n ** 53n, Number.NaN, '', 'x', {}])
      await expect(change({ affectedRows: 1, insertId })).rejects.toThrow('where a number should be');
    await expect(change({ insertId: 7 })).rejects.toThrow('where a number should be');
  });
});

describe('O7 a statement that MySQL cannot run as a prepared one', () => {
  const context = { isInTransaction: false, mayPrepare: true, isForeign: false };

  /** A driver whose server answers prepared statements with an error, if there is one. */
  const refusing = (errors: (number | undefined)[]) => {
    const sent: unknown[][] = [];
    const driver = driverOf({
      config: {},
      execute: (
        { sql, values }: { sql: string; values: unknown[] },
        done: (error: unknown, rows?: object[]) => void,
      ) => {
        sent.push(['execute', sql, ...values]);
        const errno = errors.shift();
        done(errno === undefined ? null : Object.assign(new Error('refused'), { errno }), []);
      },
      query: ({ sql }: { sql: string }, done: (error: unknown, rows?: object[]) => void) => {
        sent.push(['query', sql]);
        done(null, []);
      },
      unprepare: ({ sql }: { sql: string }) => sent.push(['unprepare', sql]),
    })!;
    const send = () => driver.send({ text: 'select ?, ?', values: ['é', 1.5], wants: 'rows' }, context);
    return { sent, send };
  };
  const execute = ['execute', 'select ?, ?', 'é', 1.5];

  test.each([
    ['has forgotten it', 1243],
    ['has no room for it', 1461],
    ['would have to prepare it again', 1615],
    ['cannot prepare it', 1295],
  ])('since the server %s is sent as text, and prepared anew the next time', async (_, errno) => {
    const { sent, send } = refusing([errno]);
    await send();
    await send();
    const asText = ['query', "select _utf8mb4 x'c3a9', 1.5"];
    expect(sent).toEqual([execute, ['unprepare', 'select ?, ?'], asText, execute]);
  });

  test('for any other reason is not sent again', async () => {
    const { sent, send } = refusing([1213]);
    await expect(send()).rejects.toMatchObject({ errno: 1213 });
    expect(sent).toEqual([execute]);
  });
});

describe('on SQLite', () => {
  let database: TestDatabase;
  const orms: MikroORM[] = [];
  const open = async (entities: NonNullable<Options['entities']> = adkEntities()) => {
    const orm = await MikroORM.init({ ...database.options, entities });
    orms.push(orm);
    return orm;
  };

  beforeEach(async () => {
    database = await createDatabase('sqlite');
    await migrate(await open());
  });
  afterEach(async () => {
    for (const orm of orms.splice(0)) await orm.close(true);
    await database.drop();
  });

  test.each(['used', 'not used'])(
    'a service that was %s says so when its ORM is closed, and opens nothing',
    async (use) => {
      const orm = await open();
      await orm.em.getConnection().execute('select 1');
      const service = new MikroOrmSessionService(orm.em);
      if (use === 'used') await service.createSession(KEY);
      await orm.close(true);
      const error = await errorOf(service.getSession(KEY));
      expect(error).toMatchObject({ code: 'ADK_DATABASE', reason: 'ConnectionException' });
      expect(error.message).toContain('are closed');
      await expect(orm.isConnected()).resolves.toBe(false);
    },
  );

  test('O3 calls that wait for the connection when the ORM is closed say so, at once', async () => {
    const orm = await open();
    const service = new MikroOrmSessionService(orm.em, { timeoutMs: 1_000, retry: { forMs: 0 } });
    await service.createSession(KEY);
    const get = () => service.getSession(KEY);
    const early = [get(), get(), get(), get()];
    // The first of them has the connection.
    await setImmediate();
    const closed = orm.close(true);
    const outcomes = await Promise.allSettled([...early, get(), get()]);
    await closed;
    expect(outcomes.at(-1)).toMatchObject({ status: 'rejected' });
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected')
        expect(outcome.reason).toMatchObject({
          code: 'ADK_DATABASE',
          message: expect.stringContaining('are closed') as unknown,
        });
    }
  });

  test('an ORM that is connected again works', async () => {
    const orm = await open();
    const service = new MikroOrmSessionService(orm.em);
    await service.createSession(KEY);
    await orm.close(true);
    await orm.connect();
    await expect(service.getSession(KEY)).resolves.toBeDefined();
  });

  test('a transaction is known to have ended', async () => {
    const { em } = await open();
    for (const end of ['commit', 'rollback'] as const) {
      const fork: EntityManager = em.fork();
      await fork.begin();
      const transaction = fork.getTransactionContext<object>()!;
      expect(hasEnded(transaction)).toBe(false);
      await fork[end]();
      expect(hasEnded(transaction)).toBe(true);
    }
  });

  test('with a prefix, the exported entity and a relation of the host mean the entity of adkEntities', async () => {
    const Note = defineEntity({
      name: 'Note',
      tableName: 'notes',
      properties: {
        id: p.integer().primary().autoincrement(false),
        session: () =>
          p.manyToOne(AdkSession).joinColumns('app_name', 'user_id', 'session_id').createForeignKeyConstraint(false),
      },
    });
    const options = { tablePrefix: 'kb_' };
    const orm = await open([...adkEntities(options), Note]);
    await migrate(orm);
    const em = orm.em as SqlEntityManager;
    await em.execute('create table notes (id integer primary key, app_name text, user_id text, session_id text)');
    await em.execute("insert into notes values (1, 'a', 'u', 's')");
    const service = new MikroOrmSessionService(em);
    const session = await service.createSession(KEY);
    await service.appendEvent({ session, event: saying('x') });

    expect(await em.fork().find(AdkSession, {})).toMatchObject([{ id: 's', lastSeq: 1 }]);
    const [note] = await em.fork().find(Note, {}, { populate: ['session'] });
    expect(note).toMatchObject({ session: { lastSeq: 1 } });
  });
});
