import { RequestContext, UniqueConstraintViolationException } from '@mikro-orm/core';
import { Database } from '../../src/database/calls/database.js';
import { EventLog, MikroOrmSessionService, SessionLeases, SessionMaintenance, migrate } from '../../src/index.js';
import { keyOf, type OwnStore } from '../support/harnesses/harness.js';
import { HostNote } from '../support/harnesses/host-note.js';
import { following, read } from './log-tools.js';
import { Suite, onServers, type OwnContext } from './rule.js';
import { LONG_LEASE, errorOf, expectCode, faulty, range, remember, saying, textsOf, until } from './tools.js';

/** What a call inside a host's transaction does that it does not join (E7), and handles that were used inside. */
export const transactionSuite = new Suite();

interface Given {
  orm: OwnStore['orm'];
  service: MikroOrmSessionService;
  session: Awaited<ReturnType<OwnContext['create']>>;
}

/** Every call that does not join the transaction around it. */
function callsOf({ orm, service, session }: Given): [string, () => Promise<unknown>][] {
  const key = keyOf(session);
  const leases = new SessionLeases(orm.em, LONG_LEASE);
  const log = new EventLog(orm.em);
  const maintenance = new SessionMaintenance(orm.em);
  return [
    ['createSession', () => service.createSession({ ...key, sessionId: 'new' })],
    ['getSession', () => service.getSession(key)],
    ['getOrCreateSession', () => service.getOrCreateSession({ ...key, sessionId: 'new' })],
    ['listSessions', () => service.listSessions(key)],
    ['findSessions', () => service.findSessions({ appName: key.appName })],
    ['describeSession', () => service.describeSession(key, { title: 'x' })],
    ['deleteSession', () => service.deleteSession(key)],
    ['restoreSession', () => service.restoreSession(key)],
    ['forkSession', () => service.forkSession(key, { as: 'new' })],
    ['rewindSession', () => service.rewindSession(key, { at: 0 })],
    ['appendEvent', () => service.appendEvent({ session, event: saying('x') })],
    ['appendEvents', () => service.appendEvents({ session, events: [saying('x')] })],
    ['updateState', () => service.updateState({ ...key, set: { a: 1 } })],
    ['updateState of the app', () => service.updateState({ ...key, set: { 'app:a': 1 } })],
    ['getAppState', () => service.getAppState(key)],
    ['getUserState', () => service.getUserState(key)],
    ['acquire', () => leases.acquire(key, { holder: 'h' })],
    ['current', () => leases.current(key)],
    ['head', () => log.head()],
    ['since', () => read(log.since(0))],
    ['watch', () => read(log.watch(0))],
    ['watch of a session', () => read(log.session(key).watch(0))],
    ['stats', () => maintenance.stats()],
    ['prune', () => maintenance.prune({ idleFor: 0 })],
    ['exportSessions', async () => maintenance.exportSessions()[Symbol.asyncIterator]().next()],
    ['migrate', () => migrate(orm)],
  ];
}

transactionSuite.own('T1', 'nothing of statements that travel together stays if one of them fails', async (context) => {
  const { orm, query, app } = context;
  const database = new Database(orm.em);
  const insert = `insert into ${database.tables.counters} (name, value) values (?, 1)`;
  const rows = () =>
    query<{ name: string }>('select name from adk_counters where name like ? order by name', [`${app}%`]);
  for (const names of [
    ['a', 'a', 'b'],
    ['c', 'd', 'c'],
  ]) {
    const written = database.transaction(async (sql) => {
      for (const name of names) sql.later(insert, [`${app} ${name}`]);
    });
    await expect(written).rejects.toThrow(UniqueConstraintViolationException);
    expect(await rows()).toEqual([]);
  }
  // Nor of those that were sent before.
  const late = database.transaction(async (sql) => {
    sql.later(insert, [`${app} e`]);
    expect(await sql.all('select 1 as one')).toMatchObject([{}]);
    for (let i = 0; i < 2; i++) sql.later(insert, [`${app} f`]);
  });
  await expect(late).rejects.toThrow(UniqueConstraintViolationException);
  expect(await rows()).toEqual([]);
  // The connection is as before.
  await database.transaction(async (sql) => sql.later(insert, [`${app} g`]));
  expect(await rows()).toHaveLength(1);
});

transactionSuite.own(
  'D1',
  'an id that exists is refused with much state, too',
  async ({ orm, service, create, app }) => {
    await create({ sessionId: 's' });
    // So much that some of it is sent before the rest is there.
    const state = Object.fromEntries(range(12).map((i) => [`k${i}`, 'x'.repeat(100_000)]));
    const request = { appName: app, userId: 'alice', sessionId: 's', state };
    await expectCode(service.createSession(request), 'ADK_SESSION_EXISTS');
    await orm.em.transactional((tx) =>
      expectCode(service.withEntityManager(tx).createSession(request), 'ADK_SESSION_EXISTS'),
    );
  },
);

async function expectRefused(calls: ReturnType<typeof callsOf>): Promise<void> {
  for (const [name, call] of calls) {
    const error = await errorOf(call());
    expect([name, error]).toMatchObject([name, { code: 'ADK_INSIDE_TRANSACTION' }]);
    expect(error.message).toContain('withEntityManager(tx)');
  }
}

transactionSuite.own(
  'E7',
  'inside a transaction each call that does not join it throws at once, and names withEntityManager',
  async ({ orm, service, create, fresh }) => {
    const session = await create({ state: { a: 0 } });
    const calls = callsOf({ orm, service, session });
    await orm.em.fork().transactional(async (tx) => {
      await expectRefused(calls);
      await tx.transactional(() => expectRefused(calls));
      // The transaction is as it was.
      await service.withEntityManager(tx).appendEvent({ session, event: saying('joined') });
    });
    const after = await fresh(session);
    expect(textsOf(after)).toEqual(['joined']);
    expect(after.state).toEqual({ a: 0 });
    await service.appendEvent({ session, event: saying('later') });
  },
);

transactionSuite.own(
  'E7',
  'a transaction that is rolled back leaves nothing of a service that was used inside',
  async ({ orm, service, create, append, stored }) => {
    const session = await create({ state: { a: 0 } });
    await append(session);
    const key = keyOf(session);
    const before = await stored(key);
    const unchanged = remember(session);
    const handle = (await service.getSession(key))!;
    const failing = orm.em.fork().transactional(async (tx) => {
      tx.persist(tx.create(HostNote, { id: 1, text: 'x' }));
      await tx.flush();
      await service.withEntityManager(tx).appendEvent({ session: handle, event: saying('joined') });
      // It would wait for itself: the transaction has locked the session.
      const event = saying('plain', { actions: { stateDelta: { a: 1 } } });
      await service.appendEvent({ session, event });
    });
    await expectCode(failing, 'ADK_INSIDE_TRANSACTION');
    unchanged();
    expect(await stored(key)).toEqual(before);
    expect(await orm.em.fork().count(HostNote)).toBe(0);
  },
);

transactionSuite.own(
  'E7',
  'so it is after em.begin() on the service’s EntityManager, and on that of the request',
  async ({ orm, create }) => {
    const session = await create();
    const key = keyOf(session);
    const em = orm.em.fork();
    const service = new MikroOrmSessionService(em);
    await em.begin();
    await expectCode(service.getSession(key), 'ADK_INSIDE_TRANSACTION');
    expect(await service.withEntityManager(em).getSession(key)).toBeDefined();
    await em.rollback();
    expect(await service.getSession(key)).toBeDefined();

    const ofRequest = new MikroOrmSessionService(orm.em);
    await RequestContext.create(orm.em, async () => {
      expect(await ofRequest.getSession(key)).toBeDefined();
      await orm.em.begin();
      await expectCode(ofRequest.getSession(key), 'ADK_INSIDE_TRANSACTION');
      await orm.em.commit();
      await ofRequest.appendEvent({ session, event: saying('x') });
    });
  },
);

/** What a test waits for, and what ends the wait. */
function gate(): { open: () => void; opened: Promise<void> } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { open, opened };
}

transactionSuite.own(
  'E7',
  'a transaction of another ORM does not matter, nor does one that has ended',
  async ({ orm, service, create, fresh, scratch }) => {
    const session = await create();
    const { orm: other } = await scratch();
    await other.em.fork().transactional(async () => {
      await service.appendEvent({ session, event: saying('beside') });
    });
    const { open, opened } = gate();
    let later: Promise<unknown> | undefined;
    await orm.em.fork().transactional(async () => {
      later = opened.then(() => service.appendEvent({ session, event: saying('after') }));
    });
    open();
    await later;
    expect(textsOf(await fresh(session))).toEqual(['beside', 'after']);
  },
);

transactionSuite.own(
  'E7',
  'what a nested transaction began is inside until the outer one has ended',
  async ({ orm, service, create, fresh }) => {
    const session = await create();
    const [nested, outer] = [gate(), gate()];
    const append = (text: string) => service.appendEvent({ session, event: saying(text) });
    let later: Promise<unknown> | undefined;
    await orm.em.fork().transactional(async (tx) => {
      let inside: Promise<unknown> | undefined;
      await tx.transactional(async () => {
        inside = nested.opened.then(() => expectCode(append('inside'), 'ADK_INSIDE_TRANSACTION'));
        later = outer.opened.then(() => append('after'));
      });
      nested.open();
      await inside;
    });
    outer.open();
    await later;
    expect(textsOf(await fresh(session))).toEqual(['after']);
  },
);

transactionSuite.own(
  'E7',
  'a subscriber that is notified of the commit may append',
  async ({ orm, connect, create, fresh }) => {
    const session = await create();
    const appended: unknown[] = [];
    const subscriber = {
      afterTransactionCommit: async () => {
        if (appended.length === 0) appended.push(await service.appendEvent({ session, event: saying('committed') }));
      },
    };
    const own = await connect({ subscribers: [subscriber] });
    const service = new MikroOrmSessionService(own.em);
    await own.em.fork().transactional(async (tx) => {
      tx.persist(tx.create(HostNote, { id: 2, text: 'x' }));
    });
    expect(appended).toHaveLength(1);
    expect(textsOf(await fresh(session))).toEqual(['committed']);
    expect(await orm.em.fork().nativeDelete(HostNote, {})).toBe(1);
  },
  ({ hasConnections }) => hasConnections,
);

transactionSuite.own(
  'E7',
  'a lease from before the transaction outlives it, and is released after it',
  async ({ orm, create, service }) => {
    const session = await create();
    const key = keyOf(session);
    const leases = new SessionLeases(orm.em, LONG_LEASE);
    const lease = await leases.acquire(key, { holder: 'h' });
    await orm.em.fork().transactional(async (tx) => {
      const append = { session, event: saying('x') };
      await expectCode(lease.sessionService.appendEvent(append), 'ADK_INSIDE_TRANSACTION');
      await expectCode(lease.release(), 'ADK_INSIDE_TRANSACTION');
      expect(lease.signal.aborted).toBe(false);
      await lease.sessionService.withEntityManager(tx).appendEvent(append);
    });
    expect(await leases.current(key)).toMatchObject({ holder: 'h' });
    await lease.release();
    expect(await leases.current(key)).toBeUndefined();
    expect(textsOf((await service.getSession(key))!)).toEqual(['x']);
  },
);

transactionSuite.own(
  'E7',
  'a watcher that was there before sees what a transaction commits',
  async ({ orm, service, create, app }) => {
    const session = await create();
    const log = new EventLog(orm.em, { pollIntervalMs: 10 });
    const head = await log.head();
    await following(
      (signal) => log.watch(head, { appName: app }, { signal }),
      async (seen) => {
        await orm.em.fork().transactional(async (tx) => {
          await service.withEntityManager(tx).appendEvent({ session, event: saying('a') });
        });
        await until(() => seen.length === 1);
      },
    );
  },
);

transactionSuite.own(
  'E7',
  'an EntityManager whose transaction has ended is named',
  async ({ orm, service, create, stored }) => {
    const session = await create();
    const { tx } = await orm.em.fork().transactional(async (tx) => ({ tx }));
    const late = service.withEntityManager(tx);
    const message = /transaction of the EntityManager .* has ended; nothing was read or written.*await each call/;
    await expectCode(late.appendEvent({ session, event: saying('late') }), 'ADK_INVALID_ARGUMENT', message);
    await expectCode(late.getSession(keyOf(session)), 'ADK_INVALID_ARGUMENT', message);
    expect((await stored(keyOf(session)))?.events).toEqual([]);
    expect(session.events).toEqual([]);
  },
);

transactionSuite.own(
  'E7',
  'a handle that an open transaction has appended to is refused at once beside it',
  async ({ orm, service, create, fresh }) => {
    const session = await create();
    // Not in the asynchronous context of the calls beside it, where only the handle shows it.
    const tx = orm.em.fork();
    await tx.begin();
    const joined = service.withEntityManager(tx);
    const event = saying('a');
    await joined.appendEvent({ session, event });
    const beside = service.appendEvent({ session, event: saying('beside') });
    await expectCode(
      beside,
      'ADK_INSIDE_TRANSACTION',
      /still open.*nothing was read or written.*withEntityManager\(tx\)/,
    );
    expect(session.events).toEqual([event]);
    // On both sides of a savepoint it is the same transaction.
    await joined.appendEvent({ session, event: saying('b') });
    await tx.transactional((inner) =>
      service.withEntityManager(inner).appendEvent({ session, event: saying('nested') }),
    );
    await joined.appendEvents({ session, events: [saying('c'), saying('d')] });
    await tx.commit();

    await service.appendEvent({ session, event: saying('after') });
    const texts = ['a', 'b', 'nested', 'c', 'd', 'after'];
    expect(textsOf(session)).toEqual(texts);
    expect(textsOf(await fresh(session))).toEqual(texts);
  },
);

transactionSuite.own(
  'E2',
  'a handle that was appended to in a transaction is behind when that was rolled back',
  async ({ orm, service, another, create, append, fresh, stored }) => {
    const rejecting = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
    const rolledBack = async (session: Parameters<typeof append>[0]) => {
      const failing = orm.em.fork().transactional(async (tx) => {
        const joined = service.withEntityManager(tx);
        await joined.appendEvent({ session, event: saying('gone', { actions: { stateDelta: { a: 'gone', b: 1 } } }) });
        throw new Error('rolled back');
      });
      await expect(failing).rejects.toThrow('rolled back');
    };
    for (const isOvertaken of [false, true]) {
      const session = await create({ state: { a: 0 } });
      await append(session, { delta: { a: 1 } });
      const key = keyOf(session);
      const refused = (await service.getSession(key))!;
      await rolledBack(session);
      await rolledBack(refused);
      // Then the numbers of the handle and of the session agree.
      if (isOvertaken) await another.appendEvent({ session: await fresh(session), event: saying('other') });

      const before = await stored(key);
      await expectCode(rejecting.appendEvent({ session: refused, event: saying('x') }), 'ADK_STALE_SESSION');
      expect(await stored(key)).toEqual(before);

      await service.appendEvent({ session, event: saying('next', { actions: { stateDelta: { c: 1 } } }) });
      const after = await fresh(session);
      expect(textsOf(after).slice(1)).toEqual([...(isOvertaken ? ['other'] : []), 'next']);
      expect(textsOf(session)).toEqual(textsOf(after));
      expect(session.state).toEqual({ a: 1, c: 1 });
      expect(after.state).toEqual({ a: 1, c: 1 });
    }
  },
);

transactionSuite.own(
  'E2',
  'so it is when only the savepoint was rolled back, and inside the next transaction',
  async ({ orm, service, create, fresh }) => {
    const session = await create();
    await orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      await joined.appendEvent({ session, event: saying('a') });
      const failing = tx.transactional(async (inner) => {
        await service.withEntityManager(inner).appendEvent({ session, event: saying('gone') });
        throw new Error('rolled back');
      });
      await expect(failing).rejects.toThrow('rolled back');
      await joined.appendEvent({ session, event: saying('b') });
    });
    expect(textsOf(session)).toEqual(['a', 'b']);

    const failing = orm.em.fork().transactional(async (tx) => {
      await service.withEntityManager(tx).appendEvent({ session, event: saying('gone') });
      throw new Error('rolled back');
    });
    await expect(failing).rejects.toThrow('rolled back');
    await orm.em.fork().transactional(async (tx) => {
      await service.withEntityManager(tx).appendEvent({ session, event: saying('c') });
    });
    expect(textsOf(session)).toEqual(['a', 'b', 'c']);
    expect(textsOf(await fresh(session))).toEqual(['a', 'b', 'c']);
  },
);

transactionSuite.own(
  'E2',
  'so it is when an append in a savepoint was refused in between',
  async ({ orm, service, another, create, append, fresh }) => {
    const strict = new MikroOrmSessionService(orm.em, { onRewrittenEvent: 'reject' });
    const session = await create();
    const { id } = await append(session);
    const failing = orm.em.fork().transactional(async (tx) => {
      await service.withEntityManager(tx).appendEvent({ session, event: saying('gone') });
      await tx.transactional(async (inner) => {
        const refused = strict.withEntityManager(inner).appendEvent({ session, event: saying('other', { id }) });
        await expectCode(refused, 'ADK_EVENT_CONFLICT');
      });
      throw new Error('rolled back');
    });
    await expect(failing).rejects.toThrow('rolled back');
    await another.appendEvent({ session: await fresh(session), event: saying('theirs') });
    await service.appendEvent({ session, event: saying('next') });
    expect(textsOf(session).slice(1)).toEqual(['theirs', 'next']);
    expect(textsOf(await fresh(session)).slice(1)).toEqual(['theirs', 'next']);
  },
);

for (const isJoined of [false, true]) {
  const waiting = isJoined ? 'an append in another transaction' : 'another append to it';
  transactionSuite.own(
    'E2',
    `so it is when ${waiting} was waiting for that transaction`,
    async ({ orm, service, create, append, fresh, harness, query, connect }) => {
      const session = await create();
      const first = await append(session);
      const observer = await connect();
      const [locked, waiting] = [gate(), gate()];
      const host = orm.em.fork().transactional(async (tx) => {
        const joined = service.withEntityManager(tx);
        await joined.describeSession(keyOf(session), { title: 'locked' });
        locked.open();
        await waiting.opened;
        await joined.appendEvent({ session, event: saying('gone') });
        throw new Error('rolled back');
      });
      await locked.opened;
      const appendNext = (by: MikroOrmSessionService) => by.appendEvent({ session, event: saying('next') });
      const appending = isJoined
        ? orm.em.fork().transactional((tx) => appendNext(service.withEntityManager(tx)))
        : appendNext(service);
      // InnoDB gives the same answer again to who asks within 100 ms.
      await until(async () => (await query(harness.server!.waiting, [], observer.em.fork())).length > 0, 150);
      waiting.open();
      await expect(host).rejects.toThrow('rolled back');
      await appending;
      expect(textsOf(session).slice(1)).toEqual(['next']);
      expect(session.events[0]).toBe(first);
      expect(textsOf(await fresh(session)).slice(1)).toEqual(['next']);
    },
    onServers,
  );
}

transactionSuite.own(
  'A3',
  'an event of a host’s transaction stays in a handle that another append is catching up',
  async ({ orm, service, another, create, append }) => {
    const session = await create();
    await append(session);
    await another.rewindSession(keyOf(session), { at: 0 });
    const [catchingUp, joined] = [gate(), gate()];
    const before = async () => {
      if ((await another.getSession(keyOf(session)))?.events.length === 0) return;
      catchingUp.open();
      await joined.opened;
    };
    const [first, second] = [saying('first'), saying('second')];
    const appending = new MikroOrmSessionService(faulty(orm.em, { before })).appendEvent({ session, event: first });
    await catchingUp.opened;
    await orm.em.fork().transactional(async (tx) => {
      await service.withEntityManager(tx).appendEvent({ session, event: second });
      joined.open();
      await appending;
      expect(session.events.map((event) => [first, second].indexOf(event))).toEqual([0, 1]);
    });
  },
  onServers,
);

transactionSuite.own(
  'E2',
  'a handle that was appended to in a transaction that is committed is not behind',
  async ({ orm, service, create, append, stored }) => {
    const rejecting = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
    const session = await create();
    const old = await append(session, { delta: { a: 1 } });
    await orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      await joined.appendEvent({ session, event: saying('new') });
      // Stored before, so it says nothing of the transaction.
      await joined.appendEvent({ session, event: old });
    });
    await rejecting.appendEvent({ session, event: saying('next') });
    expect((await stored(keyOf(session)))?.events).toHaveLength(3);
    expect(session.events).toHaveLength(3);
  },
);

transactionSuite.own(
  'E7',
  'an append that waits too long for a transaction of the host’s names withEntityManager',
  async ({ orm, service, create, fresh }) => {
    const session = await create();
    const handle = await fresh(session);
    const waiting = new MikroOrmSessionService(orm.em, { timeoutMs: 500, retry: { forMs: 0 } });
    const tx = orm.em.fork();
    await tx.begin();
    await service.withEntityManager(tx).appendEvent({ session, event: saying('a') });
    const late = waiting.appendEvent({ session: handle, event: saying('late') });
    await expectCode(late, 'ADK_DATABASE', /service\.withEntityManager\(tx\)/);
    await tx.rollback();
  },
  onServers,
);

transactionSuite.own(
  'E5',
  'disableTransactions is refused by name, and nothing is written',
  async ({ orm, connect, service, create, append, stored }) => {
    const session = await create();
    const old = await append(session);
    const before = await stored(keyOf(session));
    // The first one would be stored, and the second one is there already.
    const events = [saying('half', { actions: { stateDelta: { a: 1 } } }), saying('other', { id: old.id })];
    const disabled = new MikroOrmSessionService((await connect({ disableTransactions: true })).em, {
      onRewrittenEvent: 'reject',
    });
    const message = /'disableTransactions'.*nothing was written\. Take .* out of the config/;
    await expectCode(disabled.appendEvents({ session, events }), 'ADK_SCHEMA', message);
    await expectCode(disabled.getSession(keyOf(session)), 'ADK_SCHEMA', message);

    const rejecting = new MikroOrmSessionService(orm.em, { onRewrittenEvent: 'reject' });
    const fork = orm.em.fork({ disableTransactions: true });
    await fork.transactional(async (tx) => {
      const joined = rejecting.withEntityManager(tx);
      await expectCode(joined.appendEvents({ session, events }), 'ADK_SCHEMA', message);
    });
    expect(await stored(keyOf(session))).toEqual(before);

    // A transaction without savepoints of the host's has ours.
    await orm.em.fork().transactional(
      async (tx) => {
        await expectCode(rejecting.withEntityManager(tx).appendEvents({ session, events }), 'ADK_EVENT_CONFLICT');
      },
      { ignoreNestedTransactions: true },
    );
    expect(await stored(keyOf(session))).toEqual(before);
    await service.appendEvent({ session, event: saying('next') });
  },
  ({ hasConnections }) => hasConnections,
);
