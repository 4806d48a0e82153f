import { lockStoredSession, storedSession } from '../../src/database/statements/stored-session.js';
import { randomUUID } from 'node:crypto';
import type { Session } from '@google/adk';
import { DeadlockException, LockMode } from '@mikro-orm/core';
import { AdkSession } from '../../entities/index.js';
import { EventLog, MikroOrmSessionService, SessionMaintenance, type SessionKey } from '../../src/index.js';
import { insertSession, lockSession, restoreRow } from '../../src/database/statements/sessions.js';
import { Database } from '../../src/database/calls/database.js';
import type { Sql } from '../../src/database/dialects/dialect.js';
import { CONCURRENCY_RULES } from '../../packages/session-contract/src/concurrency-rules.js';
import { keyOf } from '../support/harnesses/harness.js';
import { createDatabase } from '../support/servers.js';
import { isMikroOrm7 } from '../support/mikro-orm.js';
import { HostNote } from '../support/harnesses/host-note.js';
import { StatementLog, type RecordedStatement } from '../support/harnesses/statement-log.js';
import { read } from './log-tools.js';
import { Suite, onServers, onSqlite, withConnections, type OwnContext } from './rule.js';
import {
  count,
  errorOf,
  eventOf,
  expectCode,
  faulty,
  idsOf,
  plain,
  range,
  remember,
  saying,
  takesLock,
  textsOf,
  until,
} from './tools.js';

export const concurrencySuite = new Suite();
concurrencySuite.publish(CONCURRENCY_RULES);

concurrencySuite.own(
  'E1',
  'events of any number of writers are numbered without gaps',
  async ({ app, service, another, create, fresh, query }) => {
    const session = await create();
    const handles = [session, ...(await Promise.all(range(5).map(() => fresh(session))))];
    await Promise.all(
      handles.flatMap((handle, i) =>
        range(6).map((j) => (i % 2 ? service : another).appendEvent({ session: handle, event: saying(`${i} ${j}`) })),
      ),
    );
    const rows = await query<{ seq: number }>('select seq from adk_events where app_name = ? order by seq', [app]);
    expect(rows.map(({ seq }) => seq)).toEqual(range(36).map((i) => i + 1));
    expect(await query('select last_seq from adk_sessions where app_name = ?', [app])).toEqual([{ last_seq: 36 }]);
    // Each writer's own order is kept.
    const texts = textsOf(await fresh(session));
    for (const i of range(6))
      expect(texts.filter((text) => text?.startsWith(`${i} `))).toEqual(range(6).map((j) => `${i} ${j}`));
  },
);

concurrencySuite.own('E1', 'an append that fails takes no number', async ({ app, orm, create, query, append }) => {
  const session = await create();
  await append(session);
  const faults = { answer: takesLock, error: () => new Error('no') };
  const rolledBack = orm.em.fork().transactional(async (tx) => {
    const service = new MikroOrmSessionService(orm.em).withEntityManager(faulty(tx, faults));
    await service.appendEvent({ session: plain(session), event: saying('x') });
    throw new Error('the host fails');
  });
  await expect(rolledBack).rejects.toThrow();
  await expectCode(append(session, { output: 1n }), 'ADK_UNSERIALIZABLE_VALUE');
  await append(session);
  expect(await query('select seq from adk_events where app_name = ? order by seq', [app])).toEqual([
    { seq: 1 },
    { seq: 2 },
  ]);
});

/** What locks a session by its key: writes one by one and outside of events, maintenance, and an import. */
const LOCKS: readonly ((sql: Sql, key: SessionKey) => Promise<unknown>)[] = [
  lockSession,
  restoreRow,
  lockStoredSession,
  (sql, key) => lockStoredSession(sql, key, { skipsLocked: true }),
];

concurrencySuite.own(
  'E1',
  'a session that is created while it is being locked is locked, or is not found',
  async ({ scratch }) => {
    const { orm, connect } = await scratch();
    const [ours, theirs] = [orm, await connect()].map(({ em }) => new Database(em));
    const found: boolean[] = [];
    for (const [i, lock] of LOCKS.entries()) {
      const key = { appName: 'app', userId: 'alice', sessionId: `s${i}` };
      const head = { incarnation: randomUUID(), origin: '', firstSeq: 1, lastSeq: 0, lastUpdateTime: 1 };
      let isCreated = false;
      /** Between the first statement and the next one somebody else creates the session. */
      const thenCreate = async <T>(first: Promise<T>): Promise<T> => {
        const result = await first;
        if (!isCreated) await theirs!.transaction((sql) => insertSession(sql, key, head));
        isCreated = true;
        return result;
      };
      await ours!.transaction(
        async (sql) => {
          const locked = await lock(
            {
              ...sql,
              all: (text, values) => thenCreate(sql.all(text, values)),
              run: (text, values) => thenCreate(sql.run(text, values)),
            },
            key,
          );
          found.push(locked !== undefined);
          // Passes over a row that is locked.
          const free = await theirs!.transaction((other) => lockStoredSession(other, key, { skipsLocked: true }));
          expect([i, free === undefined]).toEqual([i, locked !== undefined]);
        },
        // Otherwise InnoDB would lock the gap where the session was, and the creation would wait.
        { locksRowsOnly: true },
      );
      expect(isCreated).toBe(true);
    }
    expect(found).toEqual([false, false, false, false]);
  },
  onServers,
);

concurrencySuite.own(
  'E1',
  'nobody creates a session while it is being locked',
  async ({ scratch }) => {
    const { orm, connect, query, service } = await scratch();
    const other = (await connect()).em.fork();
    await service.getSession({ appName: 'app', userId: 'alice', sessionId: 's' });
    const database = new Database(orm.em);
    await query('pragma busy_timeout = 0', [], other);
    for (const [i, lock] of LOCKS.entries()) {
      const key = { appName: 'app', userId: 'alice', sessionId: `s${i}` };
      await database.transaction(async (sql) => {
        expect(await lock(sql, key)).toBeUndefined();
        const create = `insert into adk_sessions (app_name, user_id, session_id, incarnation, origin, create_time, last_update_time)
          values (?, ?, ?, 'x', 'x', 1, 1)`;
        await expect(query(create, [key.appName, key.userId, key.sessionId], other)).rejects.toMatchObject({
          message: expect.stringMatching(/locked/),
        });
        expect(await storedSession(sql, key)).toBeUndefined();
      });
    }
  },
  (harness) => onSqlite(harness) && withConnections(harness),
);

concurrencySuite.own(
  'E2',
  'reject throws StaleSessionError, and writes nothing',
  async ({ orm, create, append, fresh, stored }) => {
    const strict = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
    const session = await create();
    const behind = await fresh(session);
    await append(session, { delta: { a: 1 } });
    const before = await stored(keyOf(session));
    const unchanged = remember(behind);
    await expectCode(
      strict.appendEvent({ session: behind, event: saying('x', { actions: { stateDelta: { a: 2 } } }) }),
      'ADK_STALE_SESSION',
    );
    unchanged();
    expect(await stored(keyOf(session))).toEqual(before);

    // In step it appends, also again and in parallel.
    await Promise.all(range(3).map((i) => strict.appendEvent({ session, event: saying(String(i)) })));
    const read = await fresh(session);
    await strict.appendEvent({ session: read, event: saying('last') });
    expect(textsOf(await fresh(session))).toEqual([undefined, '0', '1', '2', 'last']);
  },
);

concurrencySuite.own('E2', 'with reject a retry of the own event is not stale', async ({ orm, create, fresh }) => {
  const strict = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
  const session = await create();
  const behind = await fresh(session);
  const event = saying('x');
  await strict.appendEvent({ session, event });
  await strict.appendEvent({ session: behind, event });
  expect(textsOf(behind)).toEqual(['x']);
  expect(textsOf(await fresh(session))).toEqual(['x']);
});

for (const events of [0, 1]) {
  concurrencySuite.own(
    'E2',
    `a handle of a session that was created again with ${events} events is behind`,
    async (context) => {
      const { orm, service, create, append, fresh } = context;
      const old = await create({ sessionId: 's', state: { old: 1, both: 1 } });
      for (const i of range(events))
        await append(old, { id: `e${i}`, content: { parts: [{ text: 'old' }] }, delta: { gone: 1 } });
      const twin = await fresh(old);
      await service.deleteSession(keyOf(old));
      const anew = await create({ sessionId: 's', state: { both: 2 } });
      for (const i of range(events))
        await append(anew, { id: `e${i}`, content: { parts: [{ text: 'new' }] }, delta: { made: 2 } });

      const strict = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
      const unchanged = remember(old);
      await expectCode(strict.appendEvent({ session: old, event: saying('x') }), 'ADK_STALE_SESSION');
      unchanged();

      twin.state['temp:kept'] = 1;
      await append(twin, { content: { parts: [{ text: 'mine' }] } });
      const read = plain(await fresh(twin));
      expect(plain(twin)).toEqual({ ...read, state: { ...read.state, 'temp:kept': 1 } });
      expect(textsOf(twin)).toEqual([...range(events).map(() => 'new'), 'mine']);
    },
  );
}

/** What runs between the statement that takes the session's lock and the commit; on PostgreSQL that may be one statement. */
function critical(statements: RecordedStatement[]): string[] {
  const texts = statements.map(({ text }) => text);
  const locking = texts.findIndex(takesLock);
  const commit = texts.indexOf('commit');
  expect(locking).toBeGreaterThanOrEqual(0);
  return texts.slice(locking, commit < 0 ? locking + 1 : commit);
}

concurrencySuite.own(
  'E3',
  'the work under the lock does not grow, and reads no history',
  async ({ recorded, service, create, append, fresh }) => {
    const sectionAfter = async (n: number, missed: number) => {
      const session = await create();
      await service.appendEvents({ session, events: range(n).map((i) => saying(String(i))) });
      const handle = await fresh(session);
      // From the same service, whose statements are recorded.
      const behind = (await service.getSession(keyOf(handle)))!;
      for (const i of range(missed)) await append(session, { id: `missed ${i}` });
      const statements = await recorded(() =>
        service.appendEvent({
          session: behind,
          event: saying('x', { actions: { stateDelta: { a: 1, 'app:a': 1, 'user:a': 1 } } }),
        }),
      );
      return critical(statements);
    };
    const short = await sectionAfter(1, 0);
    expect(short.length).toBeLessThanOrEqual(5);
    for (const text of short) expect(text).not.toMatch(/^select .* adk_events|from .?adk_events/i);
    expect(await sectionAfter(300, 0)).toEqual(short);
    // This handle is behind, too: it reads what it missed after the lock was released.
    expect(await sectionAfter(300, 30)).toEqual(short);
  },
);

concurrencySuite.own(
  'E3',
  'a handle that is behind reads only what it missed',
  async ({ recorded, service, create, append, query }) => {
    const session = await create();
    await service.appendEvents({ session, events: range(200).map((i) => saying(String(i))) });
    const behind = (await service.getSession(keyOf(session)))!;
    await append(session, { id: 'missed' });
    const statements = await recorded(() => service.appendEvent({ session: behind, event: saying('x') }));
    const reads = statements.filter(({ text }) => text.startsWith('select') && text.includes('adk_events'));
    expect(reads).toHaveLength(1);
    const [{ text, values }] = reads as [RecordedStatement];
    const rows = await query<{ kind: string; seq: number }>(text, values);
    expect(
      rows
        .filter(({ kind }) => kind === 'event')
        .map(({ seq }) => String(seq))
        .sort(),
    ).toEqual(['201', '202']);
    expect(behind.events).toHaveLength(202);
  },
);

concurrencySuite.own(
  'E3',
  'a handle that appends an old event again reads no event of the session',
  async ({ recorded, service, create, query }) => {
    const session = await create();
    await service.appendEvents({ session, events: range(30).map((i) => saying(String(i), { id: `e${i}` })) });
    const others = session.events.filter(({ id }) => id !== 'e2');
    const event = saying('again', { id: 'e2', actions: { stateDelta: { again: 1 } } });
    const statements = await recorded(() => service.appendEvent({ session, event }));
    for (const { text, values } of statements.filter(({ text }) => /^select .*union all/s.test(text))) {
      const rows = await query<{ kind: string; name?: string }>(text, values);
      // Only the stored one that it replaces.
      expect(rows.filter(({ kind, name }) => kind === 'event' && name !== 'e2')).toEqual([]);
    }
    expect(statements.filter(({ text }) => /^select .*adk_changes/s.test(text))).toEqual([]);
    expect(session.state).toEqual({ again: 1 });
    expect(session.events[2]).toBe(event);
    expect(session.events.filter(({ id }) => id !== 'e2').every((other, i) => other === others[i])).toBe(true);
  },
);

/** A service on a pool of one connection, whose statements are recorded. */
async function watched({ connect }: OwnContext) {
  const log = new StatementLog();
  const orm = await connect({ loggerFactory: log.loggerFactory, pool: { min: 1, max: 1 } });
  const service = new MikroOrmSessionService(orm.em, { retry: { attempts: 100, maxDelayMs: 50 } });
  let attempts = 0;
  log.listen(({ text }) => {
    if (takesLock(text)) attempts++;
  });
  return { orm, service, attempts: () => attempts };
}

concurrencySuite.own(
  'E4',
  'a lock time-out is retried',
  async (context) => {
    const { harness, peer, create, fresh } = context;
    const { orm, service, attempts } = await watched(context);
    const session = await create();
    // The first use sets the connection up, and would undo the impatience.
    const handle = (await service.getSession(keyOf(session)))!;
    await orm.em.getConnection().execute(harness.connection.impatience);

    const appending: Promise<unknown>[] = [];
    await peer.em.fork().transactional(async (em) => {
      const row = await em.nativeUpdate(AdkSession, { appName: session.appName }, { lastSeq: 0 });
      expect(row).toBe(1);
      const append = service.appendEvent({
        session: handle,
        event: saying('x', { actions: { stateDelta: { a: 1 } } }),
      });
      appending.push(append);
      // It fails if the wait does not end.
      await Promise.race([until(() => attempts() >= 2), append]);
    });
    await Promise.all(appending);
    expect(textsOf(await fresh(session))).toEqual(['x']);
    expect((await fresh(session)).state).toEqual({ a: 1 });
  },
  // libSQL leaves the statement that met the lock open, and refuses to commit beside it.
  (harness) => withConnections(harness) && harness.name !== 'libsql',
);

function isDeadlock(error: unknown): true {
  if (error instanceof DeadlockException) return true;
  throw error;
}

concurrencySuite.own(
  'E4',
  'a deadlock is retried',
  async (context) => {
    const { harness, peer, query, connect, create, fresh } = context;
    const { service, attempts } = await watched(context);
    const session = await create({ state: { 'app:k': 1 } });
    const observer = await connect();

    /** Two transactions that wait for each other; fails when it is the host's that the server ends. */
    const meet = async (id: string) => {
      const handle = (await service.getSession(keyOf(session)))!;
      const event = saying(id, { id, actions: { stateDelta: { a: 1, 'app:k': 2 } } });
      const appending: Promise<unknown>[] = [];
      const host = peer.em.fork().transactional(async (em) => {
        // So much work that InnoDB ends the append.
        await em.insertMany(
          HostNote,
          range(500).map((id) => ({ id, text: 'x' })),
        );
        await query(
          "update adk_app_states set event_id = 'host' where app_name = ? and state_key = 'k'",
          [session.appName],
          em,
        );
        appending.push(service.appendEvent({ session: handle, event }));
        // InnoDB gives the same answer again to who asks within 100 ms.
        const isWaiting = async () => (await query(harness.server!.waiting, [], observer.em.fork())).length > 0;
        await until(isWaiting, 150);
        await em.findOneOrFail(
          AdkSession,
          { appName: session.appName, userId: session.userId, id: session.id },
          { lockMode: LockMode.PESSIMISTIC_WRITE },
        );
      });
      await host.finally(() => Promise.all(appending));
    };
    // PostgreSQL ends the transaction that looks first while both wait. On a busy machine that may be the host's.
    let meetings = 1;
    while (await meet(`x${meetings}`).then(() => false, isDeadlock)) meetings++;

    await peer.em.fork().nativeDelete(HostNote, {});
    expect(attempts()).toBeGreaterThan(meetings);
    const read = await fresh(session);
    expect(textsOf(read)).toEqual(range(meetings).map((i) => `x${i + 1}`));
    expect(read.state).toEqual({ a: 1, 'app:k': 2 });
  },
  onServers,
);

concurrencySuite.own(
  'E4',
  'it gives up after the given number of attempts, and changes nothing',
  async ({ orm, create, stored }) => {
    const session = await create();
    const before = await stored(keyOf(session));
    const unchanged = remember(session);
    for (const attempts of [4, 14]) {
      let tries = 0;
      const deadlock = {
        statement: (text: string) => takesLock(text) && ++tries > 0,
        error: () => new DeadlockException(new Error('secret')),
      };
      const retry = { attempts, baseDelayMs: 1, maxDelayMs: 1 };
      const service = new MikroOrmSessionService(faulty(orm.em, deadlock), { retry });
      const error = await errorOf(service.appendEvent({ session, event: saying('x') }));
      expect(error).toMatchObject({
        code: 'ADK_DATABASE',
        reason: 'DeadlockException',
        message: expect.not.stringContaining('secret'),
      });
      expect(tries).toBe(attempts);
      unchanged();
      expect(await stored(keyOf(session))).toEqual(before);
    }
  },
);

concurrencySuite.own('E4', 'a failure that will not pass is not retried', async ({ orm, create }) => {
  let tries = 0;
  const failure = {
    statement: (text: string) => takesLock(text) && ++tries > 0,
    error: () => new Error('no'),
  };
  const service = new MikroOrmSessionService(faulty(orm.em, failure));
  const session = await create();
  await expectCode(service.appendEvent({ session, event: saying('x') }), 'ADK_DATABASE');
  expect(tries).toBe(1);
});

concurrencySuite.own(
  'E5',
  'rows of the host and an append commit together',
  async ({ orm, service, create, fresh }) => {
    const session = await create();
    await orm.em.fork().transactional(async (tx) => {
      await service
        .withEntityManager(tx)
        .appendEvent({ session, event: saying('x', { actions: { stateDelta: { a: 1, 'app:a': 1 } } }) });
      tx.persist(tx.create(HostNote, { id: 1, text: 'x' }));
    });
    expect(textsOf(await fresh(session))).toEqual(['x']);
    expect((await fresh(session)).state).toEqual({ a: 1, 'app:a': 1 });
    expect(await orm.em.fork().nativeDelete(HostNote, {})).toBe(1);
  },
);

concurrencySuite.own(
  'E5',
  'rows of the host and everything the service wrote roll back together',
  async ({ orm, app, service, create, append, stored }) => {
    const session = await create({ state: { a: 1 } });
    await append(session);
    const before = await stored(keyOf(session));
    const handle = (await service.getSession(keyOf(session)))!;
    const failing = orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      tx.persist(tx.create(HostNote, { id: 1, text: 'x' }));
      await tx.flush();
      await joined.appendEvent({
        session: handle,
        event: saying('x', { actions: { stateDelta: { a: 2, 'user:a': 2 } } }),
      });
      await joined.createSession({ appName: app, userId: 'alice', sessionId: 'other', state: { 'app:a': 1 } });
      await joined.updateState({ appName: app, set: { 'app:b': 1 } });
      expect((await joined.getSession(keyOf(session)))?.events).toHaveLength(2);
      expect((await joined.listSessions({ appName: app })).totalItems).toBe(2);
      await joined.deleteSession(keyOf(session));
      expect(await joined.getSession(keyOf(session))).toBeUndefined();
      throw new Error('the host fails');
    });
    await expect(failing).rejects.toThrow('the host fails');
    expect(await stored(keyOf(session))).toEqual(before);
    expect((await service.listSessions({ appName: app })).totalItems).toBe(1);
    expect(await orm.em.fork().count(HostNote)).toBe(0);
  },
);

concurrencySuite.own(
  'E5',
  'a transaction of the host that has read already does not hide what is appended meanwhile',
  async ({ orm, service, create, append, fresh, another }) => {
    const session = await create();
    await append(session);
    const handle = (await service.getSession(keyOf(session)))!;
    await orm.em.fork().transactional(async (tx) => {
      // From here on InnoDB's plain reads show this moment.
      await tx.find(AdkSession, { appName: session.appName });
      const other = (await another.getSession(keyOf(session)))!;
      for (const id of ['meanwhile', 'twice']) await another.appendEvent({ session: other, event: saying(id, { id }) });
      // One of them is there, which is the way that is not plain.
      const events = ['twice', 'last'].map((id) => saying(id, { id }));
      await service.withEntityManager(tx).appendEvents({ session: handle, events });
    });
    expect((await fresh(session)).events.slice(1).map(({ id }) => id)).toEqual(['meanwhile', 'twice', 'last']);
  },
  onServers,
);

concurrencySuite.own(
  'E5',
  'a call that fails leaves the host’s transaction usable',
  async ({ orm, app, service, create, append, fresh }) => {
    const session = await create({ sessionId: 's' });
    const old = await append(session, { id: 'old', delta: { n: 1 } });
    await orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      tx.persist(tx.create(HostNote, { id: 1, text: 'x' }));
      await tx.flush();
      await expectCode(
        joined.createSession({ appName: app, userId: 'alice', sessionId: 's', state: { 'app:a': 1 } }),
        'ADK_SESSION_EXISTS',
      );
      await expectCode(
        joined.appendEvent({ session: { ...session, id: 'never' }, event: saying('x') }),
        'ADK_SESSION_NOT_FOUND',
      );
      // An event that is stored already meets the database's unique constraint first.
      await joined.appendEvent({ session, event: plain(old) });
      await joined.getOrCreateSession({ appName: app, userId: 'alice', sessionId: 's' });
      await joined.appendEvent({ session, event: saying('new') });
    });
    expect(idsOf(await fresh(session))).toEqual(['old', session.events[1]?.id]);
    expect((await fresh(session)).state).toEqual({ n: 1 });
    expect(await orm.em.fork().nativeDelete(HostNote, {})).toBe(1);
  },
);

concurrencySuite.own('E5', 'inside a host’s transaction nothing is retried', async ({ orm, service, create }) => {
  const session = await create();
  let tries = 0;
  const failing = orm.em.fork().transactional(async (tx) => {
    const deadlock = {
      statement: (text: string) => takesLock(text) && ++tries > 0,
      error: () => new DeadlockException(new Error('x')),
    };
    await service.withEntityManager(faulty(tx, deadlock)).appendEvent({ session, event: saying('x') });
  });
  await expect(failing).rejects.toMatchObject({ code: 'ADK_DATABASE' });
  expect(tries).toBe(1);
});

concurrencySuite.own(
  'E5',
  "the host's EntityManager and its ORM are left as they are",
  async ({ orm, create, append }) => {
    const em = orm.em.fork();
    const service = new MikroOrmSessionService(em);
    em.persist(em.create(HostNote, { id: 7, text: 'not flushed' }));
    const session = await create();
    await service.appendEvent({ session, event: saying('x') });
    await append(session);
    expect(await orm.em.fork().count(HostNote)).toBe(0);
    expect(em.getUnitOfWork().getPersistStack().size).toBe(1);
    expect(em.getUnitOfWork().getIdentityMap().keys()).toHaveLength(1);
    expect(em.isInTransaction()).toBe(false);
    expect(await orm.isConnected()).toBe(true);
  },
);

concurrencySuite.own(
  'E5',
  'inside a transaction of another ORM the service keeps to its own',
  async ({ connect, create, recorded, service, fresh }) => {
    const session = await create();
    const other = await connect();
    // Global EntityManagers of one name find each other's transactions.
    const statements = await recorded(() =>
      other.em.transactional(() => service.appendEvent({ session, event: saying('x') })),
    );
    expect(statements.length).toBeGreaterThan(0);
    expect(textsOf(await fresh(session))).toEqual(['x']);
  },
  withConnections,
);

concurrencySuite.own(
  'E5',
  'a global filter of the host does not hide sessions',
  async ({ connect, create, fresh }) => {
    const orm = await connect({
      filters: { none: { cond: { appName: 'nobody' }, entity: ['AdkSession'], default: true } },
    });
    const service = new MikroOrmSessionService(orm.em);
    const session = await create();
    await service.appendEvent({ session, event: saying('x') });
    expect(textsOf((await service.getSession(keyOf(session)))!)).toEqual(['x']);
    expect(textsOf(await fresh(session))).toEqual(['x']);
  },
  withConnections,
);

concurrencySuite.own(
  'E6',
  'several connections write to one file, and no append fails for the lock',
  async ({ connect, create, fresh }) => {
    const session = await create();
    const services = [];
    for (const _ of range(3)) services.push(new MikroOrmSessionService((await connect()).em));
    await Promise.all(
      services.map(async (service, i) => {
        const shared = (await service.getSession(keyOf(session)))!;
        const own = await service.createSession({ appName: session.appName, userId: 'alice' });
        await count(service, own, 15);
        for (const j of range(15)) {
          await service.appendEvent({
            session: shared,
            event: saying('x', { actions: { stateDelta: { [`app:${i} ${j}`]: 1 } } }),
          });
        }
      }),
    );
    const read = await fresh(session);
    expect(read.events).toHaveLength(45);
    expect(Object.keys(read.state)).toHaveLength(45);
  },
  (harness) => onSqlite(harness) && withConnections(harness),
);

concurrencySuite.own(
  'E6',
  'a connection has WAL, a busy timeout and foreign keys from its first use',
  async ({ connect, harness }) => {
    const { options, drop } = await createDatabase('sqlite');
    const orm = await connect({ dbName: options.dbName! });
    const execute = <T>(sql: string) => orm.em.getConnection().execute(sql) as Promise<T>;
    expect(await execute('pragma journal_mode')).toEqual([{ journal_mode: 'delete' }]);
    await execute('pragma busy_timeout = 0');
    await errorOf(new MikroOrmSessionService(orm.em).getSession({ appName: 'a', userId: 'u', sessionId: 's' }));
    expect(await execute('pragma journal_mode')).toEqual([{ journal_mode: 'wal' }]);
    const [{ timeout }] = await execute<[{ timeout: number }]>('pragma busy_timeout');
    // Other drivers than sqlite3 would stop the process while they wait; there the host's statements wait as the host has set.
    expect(timeout).toBe(isMikroOrm7 || harness.name !== 'sqlite' ? 0 : 10_000);
    expect(await execute('pragma foreign_keys')).toEqual([{ foreign_keys: 1 }]);
    await orm.close(true);
    await drop();
  },
  (harness) => onSqlite(harness) && withConnections(harness),
);

concurrencySuite.own(
  'E6',
  'a connection on which a statement met a lock serves the next try, and the calls after it',
  async ({ scratch }) => {
    const { orm, peer, service, query } = await scratch();
    const session = await service.createSession({ appName: 'a', userId: 'u', sessionId: 's' });
    const holding = peer.em.fork();
    let tries = 0;
    const before = async (text: string) => {
      if (takesLock(text) && ++tries === 3) await holding.commit();
    };
    const waiting = new MikroOrmSessionService(faulty(orm.em, { before }));
    // The first call sets the connection up.
    await waiting.getSession(keyOf(session));
    await query('pragma busy_timeout = 0', [], orm.em.fork());
    await holding.begin();
    await query('update adk_sessions set last_seq = last_seq', [], holding);
    await waiting.appendEvent({ session, event: saying('x', { id: 'x' }) });
    expect(tries).toBe(3);
    // It sees what others commit.
    const theirs = new MikroOrmSessionService(peer.em);
    const handle = (await theirs.getSession(keyOf(session)))!;
    await theirs.appendEvent({ session: handle, event: saying('y', { id: 'y' }) });
    await waiting.appendEvent({ session, event: saying('z', { id: 'z' }) });
    expect(idsOf((await theirs.getSession(keyOf(session)))!)).toEqual(['x', 'y', 'z']);
  },
  (harness) => onSqlite(harness) && withConnections(harness),
);

concurrencySuite.own(
  'E6',
  'a write waits for a lock without stopping the process, and the host’s own timeout stays',
  async ({ scratch }) => {
    const { orm, peer, service, query } = await scratch();
    const session = await service.createSession({ appName: 'a', userId: 'u', sessionId: 's' });
    const handle = (await service.getSession(keyOf(session)))!;
    const onOwn = (sql: string) => query<{ timeout: number }>(sql, [], orm.em.fork());
    let isTried = false;
    const watched = faulty(orm.em, { before: async (text) => void (isTried ||= takesLock(text)) });
    // To wait for a lock is no try that fails.
    const waiting = new MikroOrmSessionService(watched, { retry: { attempts: 1 } });
    // The first call sets the connection up.
    await waiting.getSession(keyOf(session));
    const timeout = 15_000;
    await onOwn(`pragma busy_timeout = ${timeout}`);

    // Another part of the process, which runs only while nothing blocks the event loop.
    const holding = peer.em.fork();
    await holding.begin();
    await query('update adk_sessions set last_seq = last_seq', [], holding);
    const start = performance.now();
    const append = waiting.appendEvent({ session: handle, event: saying('x') });
    await until(() => isTried);
    await holding.commit();
    await append;
    expect(performance.now() - start).toBeLessThan(timeout);
    expect(await onOwn('pragma busy_timeout')).toEqual([{ timeout }]);
    // Outside a transaction as well.
    await service.deleteSession(keyOf(session));
    expect(await onOwn('pragma busy_timeout')).toEqual([{ timeout }]);
  },
  (harness) => onSqlite(harness) && withConnections(harness),
);

concurrencySuite.own(
  'E6',
  'every write transaction writes first',
  async ({ recorded, service, create, append, fresh }) => {
    const session = await create();
    const event = await append(session, { delta: { a: 1 } });
    const behind = (await service.getSession(keyOf(session)))!;
    await append(session, { delta: { b: 1 } });
    const statements = await recorded(async () => {
      await create({ state: { a: 1 } });
      await append(session, { delta: { a: 1 } });
      await append(session, { id: event.id, delta: { a: 2 } });
      await append(behind, { delta: { a: 3 } });
      await service.updateState({
        ...keyOf(session),
        set: { a: 1, 'app:b': 1 },
        remove: ['c'],
      });
      await service.deleteSession(keyOf(await fresh(session)));
    });
    const texts = statements.map(({ text }) => text);
    const firsts = texts.flatMap((text, i) => (text === 'begin' ? [texts[i + 1]?.split(' ')[0]] : []));
    expect(firsts.length).toBeGreaterThanOrEqual(4);
    expect(firsts.filter((word) => word === 'select')).toEqual([]);
  },
  onSqlite,
);

concurrencySuite.own(
  'E6',
  'a pool that opens other connections, which would lack what the first has, is refused with the line that fixes it',
  async ({ connect }) => {
    for (const pool of [{ min: 0 }, { max: 5 }]) {
      const { em } = await connect({ pool });
      await expectCode(
        new MikroOrmSessionService(em).getSession({ appName: 'a', userId: 'u', sessionId: 's' }),
        'ADK_SCHEMA',
        /Leave 'pool' out/,
      );
    }
  },
  (harness) => onSqlite(harness) && withConnections(harness),
);

concurrencySuite.own(
  'E6',
  'a connection without foreign keys is refused, with the line that fixes it',
  async ({ connect }) => {
    const orm = await connect();
    await orm.em.getConnection().execute('pragma foreign_keys = off');
    const service = new MikroOrmSessionService(orm.em);
    await expectCode(
      service.getSession({ appName: 'a', userId: 'u', sessionId: 's' }),
      'ADK_SCHEMA',
      /pragma foreign_keys = on/,
    );
  },
  (harness) => onSqlite(harness) && withConnections(harness),
);

const CALLS: Record<string, (context: OwnContext, session: Session) => () => Promise<unknown>> = {
  appends:
    ({ service }, session) =>
    () =>
      service.appendEvent({ session, event: eventOf({}) }),
  reads:
    ({ service }, session) =>
    () =>
      service.getSession(keyOf(session)),
  'reads of the log':
    ({ orm, app }) =>
    () =>
      read(new EventLog(orm.em).since(0, { appName: app, limit: 1 })),
  'changes of state':
    ({ service }, session) =>
    () =>
      service.updateState({ ...keyOf(session), set: { a: 1 } }),
};

for (const [what, callOf] of Object.entries(CALLS)) {
  concurrencySuite.own('O3', `${what} one after the other let timers run`, async (context) => {
    const call = callOf(context, await context.create());
    let hasFired = false;
    setTimeout(() => (hasFired = true), 1);
    // Enough for a second and more.
    for (let i = 0; i < 3_000 && !hasFired; i++) await call();
    expect(hasFired).toBe(true);
  });
}

concurrencySuite.own('O3', 'a signal that a timer fires ends an import and a prune', async ({ app, scratch }) => {
  const store = await scratch();
  const maintenance = new SessionMaintenance(store.orm.em);
  const aborted = () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 1);
    return controller.signal;
  };
  const records = range(2_000).map((i) => ({
    ...{ type: 'session', appName: app, userId: 'alice', sessionId: `s${i}`, createTime: 1, lastUpdateTime: 1 },
    ...{ firstSeq: 1, lastSeq: 0, state: [], created: {} },
  }));
  const imported = await maintenance.importSessions(records, { signal: aborted() });
  expect(imported.done.sessions).toBeLessThan(2_000);
  for (const i of range(200)) await store.service.createSession({ appName: app, userId: 'bob', sessionId: `s${i}` });
  const all = { appName: app, idleFor: 0, batchSize: 1, pauseMs: 0 };
  expect(await maintenance.prune({ ...all, signal: aborted() })).toMatchObject({ more: true });
});

concurrencySuite.own(
  'L1',
  'imports that replace the same session at once all succeed',
  async ({ app, orm, create, append }) => {
    const session = await create();
    await append(session, {});
    const maintenance = new SessionMaintenance(orm.em);
    const records = await read(maintenance.exportSessions({ appName: app }));
    // On PostgreSQL each of them waits for a row that another one then deletes, and inserts it again.
    const replaced = range(8).map(() => maintenance.importSessions(records, { onExisting: 'replace', force: true }));
    for (const result of await Promise.all(replaced))
      expect(result).toMatchObject({ done: { sessions: 1, events: 1 } });
  },
);

concurrencySuite.own(
  'L1',
  'an import ends if a deletion of its session has begun',
  async ({ app, orm, create, append, query }) => {
    const session = await create();
    for (const _ of range(3)) await append(session, {});
    const maintenance = new SessionMaintenance(orm.em);
    const records = await read(maintenance.exportSessions({ appName: app }));
    async function* interrupted() {
      yield* records.slice(0, -1);
      // As the first transaction of a deletion does.
      await query(`update adk_sessions set status = 'ending' where app_name = ? and session_id = 'imported'`, [app]);
      yield* records.slice(-1);
    }
    const named = (async function* () {
      for await (const record of interrupted()) yield { ...(record as object), sessionId: 'imported' };
    })();
    await expectCode(maintenance.importSessions(named, { batchSize: 1 }), 'ADK_SESSION_EXISTS');
    expect(
      await query(`select status from adk_sessions where app_name = ? and session_id = 'imported'`, [app]),
    ).toEqual([{ status: 'ending' }]);
  },
);
