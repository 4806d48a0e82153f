import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import { LlmAgent } from '@google/adk';
import { DeadlockException, MikroORM, type Options } from '@mikro-orm/core';
import {
  DatabaseError,
  EventLog,
  MikroOrmSessionService,
  SessionLeases,
  SessionNotFoundError,
  SessionProjection,
  adkEntities,
  adkServices,
  runTurn,
  type ErrorContext,
} from '../../src/index.js';
import { scriptedModel } from '../../src/testing/index.js';
import { keyOf, type OwnHarness } from '../support/harnesses/harness.js';
import { isMikroOrm7 } from '../support/mikro-orm.js';
import { following, OFTEN_MS, onPostgresql, read } from './log-tools.js';
import { onServers, onSqlite, Suite, withConnections } from './rule.js';
import {
  LONG_LEASE,
  TABLES,
  errorOf,
  eventOf,
  expectCode,
  faulty,
  idsOf,
  saying,
  takesLock,
  until,
  withAccount,
} from './tools.js';

/** Section O, as far as it is about errors. */
export const failureSuite = new Suite();

const SECRET = 'swordfish';
const KEY = { appName: 'a', userId: 'u', sessionId: 's' };

/** What `onError` is called with. */
class ReportedErrors {
  readonly calls: (ErrorContext & { error: unknown })[] = [];
  readonly onError = (error: unknown, context: ErrorContext): void => {
    this.calls.push({ error, ...context });
  };

  get operations(): string[] {
    return this.calls.map(({ operation }) => operation);
  }

  /** The calls since the last time it was asked. */
  take() {
    return this.calls.splice(0);
  }
}

/** In the message, or beside it on MikroORM 7. */
const sqlIn = (error: unknown) =>
  typeof error === 'object' && error !== null && 'sql' in error ? String(error.sql) : String(error);

const lost = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
const deadlock = () => new DeadlockException(new Error(`update adk_sessions … ${SECRET}`));
const ONCE = { retry: { attempts: 1 } };

/** The only connection of a server's pool, or of SQLite, whose pool has no more anyway. */
const oneConnection = ({ server }: OwnHarness): Options =>
  server ? { pool: { min: 0, max: 1, acquireTimeoutMillis: 20_000 } } : {};

failureSuite.own(
  'O8',
  'each call that fails reports to onError the driver’s own error, once, with its name and key',
  async ({ scratch }) => {
    const { orm, query } = await scratch();
    const reported = new ReportedErrors();
    const service = new MikroOrmSessionService(orm.em, { onError: reported.onError });
    const leases = new SessionLeases(orm.em, { ...LONG_LEASE, onError: reported.onError });
    const log = new EventLog(orm.em, { onError: reported.onError });
    const session = await service.createSession({ ...KEY, state: { a: 1 } });
    const lease = await leases.acquire(KEY, { holder: 'h' });
    const { appName, userId } = KEY;
    for (const table of TABLES) await query(`drop table adk_${table}`);

    const event = saying(SECRET);
    const calls: [string, object, () => Promise<unknown>][] = [
      ['createSession', KEY, () => service.createSession({ ...KEY, state: { a: SECRET } })],
      ['getSession', KEY, () => service.getSession(KEY)],
      ['getOrCreateSession', KEY, () => service.getOrCreateSession(KEY)],
      ['listSessions', { appName }, () => service.listSessions({ appName })],
      ['listSessions', { appName, userId }, () => service.listSessions({ appName, userId })],
      ['deleteSession', KEY, () => service.deleteSession(KEY)],
      ['appendEvent', KEY, () => service.appendEvent({ session, event })],
      ['appendEvents', KEY, () => service.appendEvents({ session, events: [event] })],
      ['getAppState', { appName }, () => service.getAppState({ appName })],
      ['getUserState', { appName, userId }, () => service.getUserState({ appName, userId })],
      ['updateState', { appName }, () => service.updateState({ appName, set: { 'app:a': SECRET } })],
      ['updateState', KEY, () => service.updateState({ ...KEY, remove: ['a'] })],
      ['acquire', KEY, () => leases.acquire(KEY, { holder: 'h' })],
      ['acquire', KEY, () => leases.run(KEY, { holder: 'h' }, async () => undefined)],
      ['current', KEY, () => leases.current(KEY)],
      ['release', KEY, () => lease.release()],
      ['head', {}, () => log.head()],
      ['since', { userId }, () => read(log.since(0, { userId }))],
      ['watch', { appName, sessionId: 's' }, () => read(log.watch(0, { appName, sessionId: 's' }))],
      ['head', KEY, () => log.session(KEY).head()],
      ['since', KEY, () => read(log.session(KEY).since(0))],
      ['watch', KEY, () => read(log.session(KEY).watch(0))],
    ];
    for (const [operation, key, call] of calls) {
      const error = await errorOf(call());
      expect([operation, error]).toMatchObject([operation, { code: 'ADK_SCHEMA' }]);
      expect(error.message).not.toMatch(/select|update|insert/);
      const calls = reported.take();
      expect(calls).toMatchObject([{ operation, key }]);
      expect(Object.keys(calls[0]!.key)).toEqual(Object.keys(key));
      // The statement, which no error that is thrown holds.
      expect(sqlIn(calls[0]!.error)).toMatch(/select|update|insert|delete/);
    }
  },
);

failureSuite.own('O8', 'only the last of several attempts is reported', async ({ orm, create }) => {
  const reported = new ReportedErrors();
  let failures = 2;
  const em = faulty(orm.em, { statement: (text) => takesLock(text) && failures-- > 0, error: deadlock });
  const service = new MikroOrmSessionService(em, { onError: reported.onError, retry: { attempts: 3, baseDelayMs: 1 } });
  const session = await create();
  await service.appendEvent({ session, event: saying('x') });
  expect(reported.calls).toEqual([]);

  failures = 3;
  const error = await errorOf(service.appendEvent({ session, event: saying('y') }));
  expect(error).toMatchObject({ code: 'ADK_DATABASE', reason: 'DeadlockException', outcome: 'none' });
  expect(reported.calls).toMatchObject([{ operation: 'appendEvent', key: keyOf(session) }]);
  expect(String(reported.calls[0]!.error)).toContain(SECRET);
});

failureSuite.own('O8', 'errors that do not come from the database are not reported', async ({ orm, create }) => {
  const reported = new ReportedErrors();
  const service = new MikroOrmSessionService(orm.em, { onError: reported.onError });
  const session = await create();
  await expectCode(service.createSession(keyOf(session)), 'ADK_SESSION_EXISTS');
  await service.deleteSession(keyOf(session));
  await expectCode(service.appendEvent({ session, event: saying('x') }), 'ADK_SESSION_NOT_FOUND');
  await expectCode(service.getUserState({ appName: '', userId: '' }), 'ADK_INVALID_KEY');
  expect(reported.calls).toEqual([]);
});

failureSuite.own('O8', 'an onError that throws or rejects changes nothing', async ({ orm, create }) => {
  const session = await create();
  const em = faulty(orm.em, { statement: takesLock });
  const bad: (() => unknown)[] = [
    () => {
      throw new Error('of the log');
    },
    () => Promise.reject(new Error('of the log')),
  ];
  // That the rejection ends no process, test/faults/processes/printing.test.ts sees in a process of its own.
  for (const onError of bad) {
    const service = new MikroOrmSessionService(em, { onError });
    await expectCode(service.appendEvent({ session, event: saying('x') }), 'ADK_DATABASE');
  }
});

failureSuite.own(
  'O8',
  'a catch-up that fails is reported, and the append succeeds',
  async ({ orm, create, append, fresh }) => {
    const reported = new ReportedErrors();
    const session = await create();
    const behind = await fresh(session);
    await append(session);
    const em = faulty(orm.em, { statement: (text) => text.includes('as kind, origin as state_key'), error: deadlock });
    const service = new MikroOrmSessionService(em, { onError: reported.onError, ...ONCE });
    await service.appendEvent({ session: behind, event: saying('x') });
    expect(reported.calls).toMatchObject([{ operation: 'catchUp', key: keyOf(session) }]);
    expect((await fresh(session)).events).toHaveLength(2);
  },
);

failureSuite.own(
  'O8',
  'a notification that fails is reported, and the append succeeds',
  async ({ orm, create, fresh }) => {
    const reported = new ReportedErrors();
    const session = await create();
    const em = faulty(orm.em, { statement: (text) => text.includes('pg_notify'), error: deadlock });
    const service = new MikroOrmSessionService(em, {
      onError: reported.onError,
      ...ONCE,
      postgresql: { notify: true },
    });
    await service.appendEvent({ session, event: saying('x') });
    expect(reported.operations).toEqual(['notify']);
    expect((await fresh(session)).events).toHaveLength(1);
  },
  onPostgresql,
);

failureSuite.own(
  'E5',
  'a notification that fails in a transaction of the host is reported, and the transaction is stored',
  async ({ scratch }) => {
    const { orm, query, service } = await scratch();
    const reported = new ReportedErrors();
    const key = { appName: 'app', userId: 'alice', sessionId: 's' };
    const session = await service.createSession(key);
    await query('create schema failing');
    const text = 'create function failing.pg_notify(text, text) returns void language plpgsql';
    await query(`${text} as $$ begin raise exception 'no room'; end $$`);
    const notifying = new MikroOrmSessionService(orm.em, {
      onError: reported.onError,
      postgresql: { notify: true },
    });
    await orm.em.transactional(async (tx) => {
      await query('set local search_path = failing, pg_catalog, public', [], tx);
      await notifying.withEntityManager(tx).appendEvent({ session, event: saying('x') });
    });
    expect(reported.operations).toEqual(['notify']);
    expect((await service.getSession(key))?.events).toHaveLength(1);
  },
  onPostgresql,
);

failureSuite.own(
  'O5',
  'a transaction that a subscriber keeps from its rollback ends before its connection is used again',
  async ({ harness, connect, query }) => {
    const { em } = await connect(oneConnection(harness));
    const mistake = new TypeError('a mistake of the host');
    const subscriber = { beforeTransactionRollback: () => Promise.reject(mistake) };
    em.getEventManager().registerSubscriber(subscriber);
    const projection = new SessionProjection(em, {
      name: 'left open',
      apply: () => Promise.resolve(),
      clear: async (tx) => {
        await query('select no_such_column', [], tx);
      },
    });
    await expect(projection.rebuild()).rejects.toThrow();
    expect(await em.getConnection().execute('select 1 as one')).toEqual([{ one: 1 }]);
  },
  onPostgresql,
);

failureSuite.own('O8', 'a renewal of a lease that fails is reported', async ({ orm, create }) => {
  const reported = new ReportedErrors();
  const session = await create();
  const em = faulty(orm.em, { statement: (text) => text.includes('set lease_expires = '), error: deadlock });
  const lease = await new SessionLeases(em, { onError: reported.onError, ttlMs: 300 }).acquire(keyOf(session), {
    holder: 'h',
  });
  await until(() => reported.calls.length > 0, 5);
  await lease.release();
  expect(reported.calls[0]).toMatchObject({ operation: 'renew', key: keyOf(session) });
});

failureSuite.own('O8', 'a poll of the log that fails while nobody waits is reported', async ({ scratch }) => {
  const { orm, service } = await scratch();
  const reported = new ReportedErrors();
  const session = await service.createSession(KEY);
  await service.appendEvent({ session, event: saying('x') });
  let isDown = false;
  const em = faulty(orm.em, { statement: (text) => isDown && !text.startsWith('pragma'), error: deadlock });
  // On SQLite a poll begins with a pragma, and ends there while nothing changes.
  const log = new EventLog(em, { onError: reported.onError, ...ONCE, pollIntervalMs: OFTEN_MS });
  const stop = new AbortController();
  for await (const { event } of log.session(keyOf(session)).watch(0, {}, { signal: stop.signal })) {
    expect(event).toBeDefined();
    isDown = true;
    await service.appendEvent({ session, event: saying('y') });
    await until(() => reported.calls.length > 0, 5);
    break;
  }
  expect(reported.calls[0]).toMatchObject({ operation: 'poll', key: keyOf(session) });
});

failureSuite.own(
  'O8',
  'a listener without a connection is reported once, however often it tries',
  async ({ orm, create, append }) => {
    const reported = new ReportedErrors();
    let tries = 0;
    const listen = () => {
      tries++;
      throw new Error('no connection');
    };
    const log = new EventLog(orm.em, { onError: reported.onError, postgresql: { listen }, pollIntervalMs: OFTEN_MS });
    const session = await create();
    await following(
      (signal) => log.session(keyOf(session)).watch(0, {}, { signal }),
      async (seen) => {
        await until(() => tries > 2, 5);
        await append(session);
        await until(() => seen.length === 1, 5);
      },
    );
    expect(reported.operations).toEqual(['listen']);
  },
  onPostgresql,
);

failureSuite.own(
  'O1',
  'a write whose answer is lost says that its outcome is not known, and one that never ran that nothing was written',
  async ({ orm, create, stored }) => {
    const session = await create();
    const answer = faulty(orm.em, { answer: takesLock, commit: true, error: lost });
    const error = await errorOf(
      new MikroOrmSessionService(answer, ONCE).appendEvent({ session, event: saying('x', { id: 'x' }) }),
    );
    expect(error).toMatchObject({ code: 'ADK_DATABASE', outcome: 'unknown', driverCode: 'ECONNRESET' });
    expect(error.message).toMatch(/^The connection to the database was lost \(ECONNRESET\)\. Whether .* not known/);
    expect(error.message).not.toContain('Nothing was written');
    expect(idsOf((await stored(keyOf(session)))!)).toEqual(['x']);

    const refused = faulty(orm.em, { statement: takesLock, error: deadlock });
    const other = await errorOf(
      new MikroOrmSessionService(refused, ONCE).appendEvent({ session, event: saying('y', { id: 'y' }) }),
    );
    expect(other).toMatchObject({ outcome: 'none', message: expect.stringContaining('Nothing was written.') });
    expect(idsOf((await stored(keyOf(session)))!)).toEqual(['x']);
  },
);

failureSuite.own(
  'O1',
  'a transaction whose commit was not sent has stored nothing',
  async ({ orm, create, stored }) => {
    const session = await create();
    const refused = faulty(orm.em, {
      statement: (text) => text.startsWith('insert') && text.includes('adk_app_states'),
      error: lost,
    });
    const event = saying('x', { actions: { ...saying('x').actions, stateDelta: { 'app:a': 1 } } });
    const error = await errorOf(new MikroOrmSessionService(refused, ONCE).appendEvent({ session, event }));
    expect(error).toMatchObject({ code: 'ADK_DATABASE', outcome: 'none', driverCode: 'ECONNRESET' });
    expect((await stored(keyOf(session)))!.events).toEqual([]);
  },
  ({ dialect }) => dialect === 'mysql',
);

failureSuite.own(
  'O1',
  'the outcome also stays unknown if a later attempt certainly did nothing',
  async ({ orm, create, stored }) => {
    for (const [i, later] of [deadlock, () => new Error('unexpected')].entries()) {
      for (let meetings = 1; ; meetings++) {
        const session = await create();
        // The first try is stored; the second finds its own event in the way, and fails when it looks closer.
        let isStored = false;
        const texts: string[] = [];
        const em = faulty(orm.em, {
          before: async (text) => void texts.push(text),
          answer: takesLock,
          commit: true,
          statement: (text) => isStored && text.startsWith('select'),
          error: () => {
            const error = isStored ? later() : lost();
            isStored = true;
            return error;
          },
        });
        const service = new MikroOrmSessionService(em, { retry: { attempts: 2, baseDelayMs: 1 } });
        const append = service.appendEvent({ session, event: saying('x', { id: `x${i}` }) });
        const outcome = await append.then(
          () => undefined,
          (reason: unknown) => reason,
        );
        if (outcome === undefined && meetings < 3) {
          // Now and then, in a run of all suites, the fault has met no append. What ran is printed until that is understood.
          process.stderr.write(`No fault: ${JSON.stringify({ isStored, texts })}\n`);
          continue;
        }
        expect(outcome).toMatchObject({ code: 'ADK_DATABASE', outcome: 'unknown' });
        expect(idsOf((await stored(keyOf(session)))!)).toEqual([`x${i}`]);
        break;
      }
    }
  },
  // Elsewhere a look at the tables would wait for the connection that the append has.
  onServers,
);

failureSuite.own('O1', 'a lease does not hide that an answer was lost', async ({ orm, create, query }) => {
  const takes = (text: string) => text.includes('lease_holder = ?');
  const session = await create();
  let isTaken = false;
  const em = faulty(orm.em, {
    answer: takes,
    statement: (text) => isTaken && takes(text),
    error: () => {
      const error = isTaken ? deadlock() : lost();
      isTaken = true;
      return error;
    },
  });
  const leases = new SessionLeases(em, { retry: { attempts: 2, baseDelayMs: 1 } });
  const error = await errorOf(leases.acquire(keyOf(session), { holder: 'h' }));
  expect(error).toMatchObject({ code: 'ADK_DATABASE', outcome: 'unknown' });
  const row = 'select lease_holder from adk_sessions where session_id = ?';
  expect(await query(row, [session.id])).toEqual([{ lease_holder: 'h' }]);
});

/** Fails on purpose, on an ORM of its own, and expects what the error says. */
async function expectFailure(
  call: Promise<unknown>,
  reason: string,
  code: string | undefined,
  words: RegExp,
): Promise<DatabaseError> {
  const error = await errorOf(call);
  expect(error).toBeInstanceOf(DatabaseError);
  expect(error).toMatchObject({ reason, driverCode: code, outcome: 'none' });
  expect(error.message).toMatch(words);
  expect(error.message).toContain('Nothing was written.');
  expect(error.message).not.toContain(SECRET);
  return error as DatabaseError;
}

failureSuite.own(
  'O1',
  'a deleteSession whose answer was lost spares the session that somebody has made since',
  async ({ harness, orm, connect, stored }) => {
    // In another process: in this one, the call would wait for the delete.
    const another = new MikroOrmSessionService((await connect()).em);
    // With `reject` the second try is a transaction, which keeps others from writing to a file of SQLite.
    const rules = harness.statements.lockEverything ? (['allow'] as const) : (['allow', 'reject'] as const);
    for (const [i, onUnleasedAppend] of rules.entries()) {
      const key = { ...KEY, sessionId: `anew ${i}` };
      await another.createSession(key);
      let isLost = false;
      const em = faulty(orm.em, {
        answer: (text) => text.startsWith('delete from'),
        commit: true,
        error: () => {
          isLost = true;
          return lost();
        },
        // At the first statement of the second try.
        before: async () => {
          if (!isLost) return;
          isLost = false;
          const anew = await another.createSession(key);
          await another.appendEvent({ session: anew, event: saying('x', { id: `x${i}` }) });
        },
      });
      const service = new MikroOrmSessionService(em, { onUnleasedAppend, retry: { attempts: 2, baseDelayMs: 1 } });
      await service.deleteSession(key);
      expect(idsOf((await stored(key))!)).toEqual([`x${i}`]);
    }
  },
  withConnections,
);

failureSuite.own(
  'O8',
  'what the host gets of an invalid URL has no password',
  async ({ harness, orm }) => {
    const { options, secret } = harness.unreachable;
    const clientUrl = options.clientUrl!.replace(':9/', ':99999/');
    const reported: unknown[] = [];
    const onError = (error: unknown) => reported.push(error);
    // Not closed: MikroORM reads the URL again then, and fails.
    const { em } = await MikroORM.init({
      ...{ clientUrl, connect: false, dbName: 'agents', entities: adkEntities() },
      driver: orm.config.get('driver'),
    });
    const service = new MikroOrmSessionService(em, { onError, retry: { attempts: 1 } });
    const errors = [await errorOf(service.createSession(KEY)), await errorOf(service.createSession(KEY))];
    expect(inspect(reported)).toContain('Invalid URL');
    expect(inspect([errors, reported], { depth: 9 })).not.toContain(secret);
  },
  onServers,
);

failureSuite.own('O1', 'a createSession that finds its own session writes before it answers', async (context) => {
  const { orm, recorded, stored } = context;
  const service = new MikroOrmSessionService(faulty(orm.em, { commit: true, error: lost }));
  const key = { ...KEY, sessionId: 'found again' };
  const statements = await recorded(() => service.createSession({ ...key, state: { a: 1 } }));
  const tried = statements.findLastIndex(({ text }) => /^insert into \S*adk_sessions/.test(text));
  expect(statements.slice(tried).filter(({ text }) => /^(update|insert into) \S*adk_counters/.test(text))).toHaveLength(
    1,
  );
  expect((await stored(key))?.state).toMatchObject({ a: 1 });
});

failureSuite.own(
  'A12',
  'a database that takes no writes says so',
  async ({ harness, orm, connect, query, create, stored }) => {
    const { em } = harness.hasConnections ? await connect(oneConnection(harness)) : orm;
    const service = new MikroOrmSessionService(em, ONCE);
    const session = await create();
    const handle = (await service.getSession(keyOf(session)))!;
    const [on, off, code] = harness.connection.readOnly;
    try {
      const words = /takes no writes.*read-only/;
      await query(on, [], em.fork());
      const append = service.appendEvent({ session: handle, event: saying(SECRET) });
      await expectFailure(append, 'ReadOnlyException', code, words);
      // The connection before was closed.
      await query(on, [], em.fork());
      const created = service.createSession({ ...keyOf(session), sessionId: 'other', state: { a: SECRET } });
      await expectFailure(created, 'ReadOnlyException', code, words);
    } finally {
      await query(off, [], em.fork());
    }
    expect((await stored(keyOf(session)))?.events).toEqual([]);
  },
);

failureSuite.own('O4', 'positions are assigned soon after writes are possible again', async ({ harness, scratch }) => {
  const store = await scratch();
  const { em } = harness.hasConnections ? await store.connect(oneConnection(harness)) : store.orm;
  const refused: unknown[] = [];
  const log = new EventLog(em, { pollIntervalMs: OFTEN_MS, onError: (error) => refused.push(error) });
  expect((await log.head()).position).toBe(0);
  const [on, off, code] = harness.connection.readOnly;
  const session = await store.service.createSession(KEY);
  await store.service.appendEvent({ session, event: saying('a') });
  await store.query(on, [], em.fork());
  try {
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await until(() => refused.length > 0);
        expect(seen).toEqual([]);
        await store.query(off, [], em.fork());
        // Far longer than a second, for a busy machine, and far shorter than the minute for which it was given up once.
        await until(() => seen.length === 1, 10, 20_000);
      },
    );
  } finally {
    await store.query(off, [], em.fork());
  }
  expect(refused).toMatchObject([{ code }]);
});

failureSuite.own(
  'A12',
  'a file that is full says so',
  async ({ scratch }) => {
    const { orm, service, query } = await scratch();
    const session = await service.createSession(KEY);
    await query('pragma max_page_count = 1', [], orm.em.fork());
    const append = service.appendEvent({ session, event: saying(SECRET.repeat(100_000)) });
    await expectFailure(append, 'ServerException', 'SQLITE_FULL', /no space left/);
  },
  onSqlite,
);

failureSuite.own(
  'A12',
  'a pool whose connections are all in use says so',
  async ({ harness, connect, create }) => {
    const min = harness.server ? 0 : 1;
    const orm = await connect({
      pool: { min, max: 1, acquireTimeoutMillis: 200 },
      ...(isMikroOrm7 && { driverOptions: { connectionTimeoutMillis: 200 } }),
    });
    const service = new MikroOrmSessionService(orm.em, { retry: { forMs: 300 } });
    const session = await create();
    const handle = (await service.getSession(keyOf(session)))!;
    // In another part of the program, which cannot be recognised here.
    const holding = orm.em.fork();
    await holding.begin();
    try {
      const append = service.appendEvent({ session: handle, event: saying(SECRET) });
      await expectFailure(append, 'ConnectionException', undefined, /No connection of the pool.*pool\.max/);
    } finally {
      await holding.rollback();
    }
  },
  ({ hasConnections, connection }) => hasConnections && connection.hasPatientPool,
);

failureSuite.own(
  'A12',
  'a server that is not there, a login that is refused, a database that is unknown and a right that is missing say so',
  async ({ harness, orm, connect, query }) => {
    const url = new URL(orm.config.get('clientUrl')!);
    const at = async (change: (url: URL) => void) => {
      const other = new URL(url);
      change(other);
      // MikroORM 7 connects with the first statement, and would create a database that is not there.
      const options = { clientUrl: other.href, pool: { min: 0, max: 1 }, connect: false, ensureDatabase: false };
      return new MikroOrmSessionService((await connect(options)).em, { retry: { attempts: 2, baseDelayMs: 1 } });
    };
    const create = (service: MikroOrmSessionService) => service.createSession({ ...KEY, state: { a: SECRET } });
    const [login, database, right] = harness.server!.refusals;

    const unreachable = await at((url) => (url.port = '9'));
    await expectFailure(create(unreachable), 'ConnectionException', 'ECONNREFUSED', /could not be reached.*port/);
    const nobody = await at((url) => ([url.username, url.password] = [`no_${SECRET}`, SECRET]));
    await expectFailure(
      create(nobody),
      'ConnectionException',
      expect.stringMatching(login),
      /refused the login.*user and password/,
    );
    const nowhere = await at((url) => (url.pathname = `no_${SECRET}`));
    await expectFailure(create(nowhere), 'ConnectionException', database, /no database of this name.*dbName/);

    const name = `adk_reader_${randomBytes(4).toString('hex')}`;
    const password = randomBytes(8).toString('hex');
    const reader = { name, password, database: url.pathname.slice(1), table: 'adk_sessions' };
    const { create: createReader, drop } = harness.server!.account(reader);
    for (const statement of createReader) await query(statement);
    try {
      const service = await at((url) => ([url.username, url.password] = [name, password]));
      await expectFailure(create(service), 'ServerException', right, /lacks a right.*insert/);
    } finally {
      for (const statement of drop) await query(statement);
    }
  },
  onServers,
);

failureSuite.own(
  'A12',
  'a row that a policy of row-level security refuses has words of its own',
  async ({ harness, scratch }) => {
    const store = await scratch();
    await withAccount(harness.server!, 'select, insert, update, delete', store, async ({ orm }) => {
      await store.query('alter table adk_sessions enable row level security');
      await store.query("create policy mine on adk_sessions using (true) with check (user_id = 'somebody else')");
      const create = new MikroOrmSessionService(orm.em).createSession({ appName: 'a', userId: 'u' });
      await expectFailure(create, 'ServerException', '42501', /policy of row-level security .* grants do not help/);
    });
  },
  ({ dialect, server }) => dialect === 'postgresql' && server !== undefined,
);

/** As the API server of newer ADKs answers: it compares names, since a plugin may bring its own copy of ADK. */
const statusOf = ({ name }: Error) =>
  new Map([
    ['SessionNotFoundError', 404],
    ['AlreadyExistsError', 409],
    ['StaleSessionError', 409],
    ['InputValidationError', 400],
  ]).get(name) ?? 500;

failureSuite.own(
  'A12',
  'errors that ADK has, too, have its names, by which its server answers 404 and 409',
  async ({ create, service, orm, another }) => {
    const session = await create();
    const key = keyOf(session);
    const strict = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
    const behind = (await strict.getSession(key))!;
    await another.appendEvent({ session, event: eventOf() });
    const missing = { ...session, id: 'missing', events: [] };
    const refused = [
      service.createSession(key),
      strict.appendEvent({ session: behind, event: eventOf() }),
      service.appendEvent({ session: missing, event: eventOf() }),
      service.readEvents({ ...key, sessionId: 'missing' }),
      service.createSession({ ...key, sessionId: 'a\0' }),
      service.readEvents(key, { limit: -1 }),
    ];
    const errors = await Promise.all(refused.map(errorOf));
    expect(errors.map(statusOf)).toEqual([409, 409, 404, 404, 400, 400]);
    // Also in what a log or ADK's `String(error)` shows.
    for (const error of errors) expect(String(error)).toMatch(new RegExp(`^${error.name}: `));
  },
);

failureSuite.own(
  'A12',
  'with settings every service and the Runner run under a policy of row-level security',
  async ({ harness, scratch }) => {
    const store = await scratch();
    await withAccount(harness.server!, 'select, insert, update, delete', store, async ({ orm }) => {
      const mine = `current_setting('app.user_id', true) in (user_id, '*')`;
      const tables: { name: string }[] = await store.query(
        "select table_name as name from information_schema.columns where column_name = 'user_id' and table_name like 'adk%'",
      );
      for (const { name } of tables) {
        await store.query(`alter table ${name} enable row level security`);
        await store.query(`create policy mine on ${name} using (${mine})`);
      }
      await store.query('alter table adk_projections enable row level security');
      await store.query("create policy everyone on adk_projections using (current_setting('app.user_id', true) = '*')");
      const user = new AsyncLocalStorage<string>();
      const settings = (): Record<string, string> =>
        user.getStore() === '' ? {} : { 'app.user_id': user.getStore()! };
      const services = adkServices(orm.em, { postgresql: { settings } });
      const { sessionService, artifactService, memoryService, leases, log, maintenance } = services;
      const of = (userId: string) => ({ appName: 'a', userId, sessionId: 's' });
      const file = { ...of('ada'), filename: 'f' };
      const run = async (userId: string) => {
        const agent = new LlmAgent({ name: 'agent', model: scriptedModel(['noted']) });
        const said = { role: 'user', parts: [{ text: `${userId} likes tea` }] };
        const events = runTurn(services, { agent, key: of(userId), newMessage: said });
        while (!(await events.next()).done);
        const session = await sessionService.getSession(of(userId));
        await memoryService.addSessionToMemory(session!);
      };
      // At once: no append may be written with another one's settings.
      await Promise.all(['ada', 'bob'].map((userId) => user.run(userId, () => run(userId))));
      await user.run('ada', () => artifactService.saveArtifact({ ...file, artifact: { text: SECRET } }));

      await user.run('bob', async () => {
        expect(await sessionService.getSession(of('ada'))).toBeUndefined();
        expect(await artifactService.loadArtifact(file)).toBeUndefined();
        expect((await memoryService.searchMemory({ appName: 'a', userId: 'ada', query: 'tea' })).memories).toEqual([]);
        await expect(leases.acquire(of('ada'), { holder: 'bob' })).rejects.toThrow(SessionNotFoundError);
        expect((await sessionService.listSessions({ appName: 'a' })).sessions).toMatchObject([{ userId: 'bob' }]);
        await expectFailure(sessionService.createSession(of('eve')), 'ServerException', '42501', /policy of row-level/);
      });
      await user.run('ada', async () => {
        expect((await sessionService.getSession(of('ada')))?.events).toHaveLength(2);
        expect(await artifactService.loadArtifact(file)).toEqual({ text: SECRET });
        expect((await memoryService.searchMemory({ appName: 'a', userId: 'ada', query: 'tea' })).memories).toHaveLength(
          1,
        );
      });
      await user.run('*', async () => {
        // In transactions of MikroORM.
        await memoryService.projection({ settleMs: 0 }).catchUp();
        expect(await SessionProjection.list(orm.em, { postgresql: { settings } })).toMatchObject([{ behind: 0 }]);
        expect(await log.head()).toMatchObject({ position: 4 });
        expect(await maintenance.stats()).toMatchObject({ sessions: 2 });
      });
      // Each watches as who began it, although the append of another wakes both.
      const follow = async (userId: string) => {
        const numbers: number[] = [];
        for await (const { seq } of log.session(of(userId)).watch(0)) if (numbers.push(seq) === 4) return numbers;
        return numbers;
      };
      const followed = ['ada', 'bob'].map((userId) => user.run(userId, () => follow(userId)));
      for (const userId of ['bob', 'ada']) await user.run(userId, () => run(userId));
      expect(await Promise.all(followed)).toEqual([
        [1, 2, 3, 4],
        [1, 2, 3, 4],
      ]);
      // Without settings, no policy grants rows, also on a connection that had some.
      await user.run('', async () => {
        expect(await sessionService.getSession(of('ada'))).toBeUndefined();
        expect((await sessionService.listSessions({ appName: 'a' })).sessions).toEqual([]);
      });
      // A forgotten user sees nobody's rows.
      await expect(sessionService.getSession(of('ada'))).rejects.toThrow(/'settings' of postgresql returned no texts/);
    });
  },
  ({ dialect, server }) => dialect === 'postgresql' && server !== undefined,
);

failureSuite.own(
  'A12',
  'a statement that takes too long says so',
  async ({ harness, connect, query, service }) => {
    const [limit, slow, code] = harness.server!.slow;
    const onQuery = (text: string) => text.replace('origin as state_key', `${slow} as state_key`);
    const { em } = await connect({ ...oneConnection(harness), onQuery });
    const reported = new ReportedErrors();
    const slowed = new MikroOrmSessionService(em, { onError: reported.onError });
    const key = { ...KEY, appName: `late ${randomBytes(4).toString('hex')}` };
    const session = await service.createSession(key);
    await query(limit, [], em.fork());
    await expectFailure(slowed.getSession(keyOf(session)), 'ServerException', code, /ran out of time/);
    expect(reported.operations).toEqual(['getSession']);
  },
  onServers,
);
