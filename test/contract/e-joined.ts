import type { Event, Session } from '@google/adk';
import { IsolationLevel, RequestContext, type EntityManager, type MikroORM } from '@mikro-orm/core';
import { randomBytes } from 'node:crypto';
import { adkEntities } from '../../entities/index.js';
import { TRAITS } from '../../entities/dialect-name.js';
import { Database } from '../../src/database/calls/database.js';
import { ormConnectionOf } from '../../src/database/orm/orm-connection.js';
import {
  EventLog,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  SessionProjection,
  migrate,
  type SessionKey,
} from '../../src/index.js';
import { Suite, onInnodb, onServers, withConnections, type OwnContext, type Rule } from './rule.js';
import { secondCopy } from '../support/second-copy.js';
import { HostNote } from '../support/harnesses/host-note.js';
import { keyOf } from '../support/harnesses/harness.js';
import { read } from './log-tools.js';
import { LONG_LEASE, deadlock, errorOf, eventOf, expectCode, idsOf, late, range, reversing, saying } from './tools.js';

/** Calls that join one transaction, and the tables that a service has (E5). */
export const joinedSuite = new Suite();

/** What the calls of a pair are made with: the same for both. */
interface Given {
  appName: string;
  userId: string;
  sessionId: string;
  handles: readonly Session[];
  service: MikroOrmSessionService;
  /** With other options, in the same transaction. */
  another: MikroOrmSessionService;
}

type Call = (given: Given) => Promise<unknown>;

const event = (id: string, delta: Record<string, unknown> = {}) =>
  eventOf({ id, timestamp: 1, actions: { ...eventOf().actions, stateDelta: delta } });

const DELTA = { a: 'appended', 'user:a': 'appended', 'app:a': 'appended' };

const SUCCEEDING: Readonly<Record<string, Call>> = {
  append: ({ service, handles: [session] }) => service.appendEvent({ session: session!, event: event('x', DELTA) }),
  appends: ({ service, handles: [, session] }) =>
    service.appendEvents({ session: session!, events: range(3).map((n) => event(`y${n}`, { n })) }),
  create: ({ service, appName, userId }) =>
    service.createSession({ appName, userId, sessionId: 'new', state: { a: 1, 'app:b': 'created' } }),
  getOrCreate: ({ service, appName, userId }) =>
    service.getOrCreateSession({ appName, userId, sessionId: 'got', state: { a: 1 } }),
  get: ({ service, appName, userId, sessionId }) => service.getSession({ appName, userId, sessionId }),
  list: ({ service, appName }) => service.listSessions({ appName }),
  update: ({ service, appName, userId, sessionId }) =>
    service.updateState({ appName, userId, sessionId, set: { a: 'set', 'user:a': 'set' }, remove: ['b'] }),
  delete: ({ service, appName, userId, sessionId }) => service.deleteSession({ appName, userId, sessionId }),
  fork: ({ service, appName, userId, sessionId }) =>
    service.forkSession({ appName, userId, sessionId }, { at: 2, as: 'fork' }),
  rewind: ({ service, appName, userId, sessionId }) => service.rewindSession({ appName, userId, sessionId }, { at: 1 }),
};

const FAILING: Readonly<Record<string, Call>> = {
  append: ({ service, handles: [session] }) =>
    service.appendEvent({ session: { ...session!, id: 'absent' }, event: event('f', DELTA) }),
  // The first one is written before the second one is refused.
  appends: ({ another, handles: [session] }) =>
    another.appendEvents({ session: session!, events: [event('f', DELTA), event('e1', { a: 'again' })] }),
  create: ({ another, appName, userId, sessionId }) =>
    another.createSession({ appName, userId, sessionId, state: { 'app:a': 'created' } }),
  getOrCreate: ({ another, appName, userId }) =>
    another.getOrCreateSession({ appName, userId, sessionId: 'damaged', state: { 'app:a': 'created' } }),
  get: ({ another, appName, userId }) => another.getSession({ appName, userId, sessionId: 'damaged' }),
  update: ({ service, appName, userId }) =>
    service.updateState({ appName, userId, sessionId: 'absent', set: { a: 'set', 'user:a': 'set', 'app:a': 'set' } }),
  fork: ({ another, appName, userId, sessionId }) =>
    another.forkSession({ appName, userId, sessionId }, { at: 1, as: 'damaged' }),
  rewind: ({ service, appName, userId }) => service.rewindSession({ appName, userId, sessionId: 'damaged' }, { at: 1 }),
};

/** Rows for a pair, in the transaction of the pair. */
async function prepare(tx: EntityManager, appName: string, { query, orm }: OwnContext): Promise<Given> {
  const service = new MikroOrmSessionService(orm.em).withEntityManager(tx);
  const another = new MikroOrmSessionService(orm.em, { onRewrittenEvent: 'reject' }).withEntityManager(tx);
  const [userId, sessionId] = ['alice', 's'];
  const session = await service.createSession({ appName, userId, sessionId, state: { a: 0, b: 0 } });
  await service.appendEvents({ session, events: range(3).map((n) => event(`e${n + 1}`, { a: n })) });
  const damaged = await service.createSession({ appName, userId, sessionId: 'damaged' });
  await service.appendEvents({ session: damaged, events: [event('d1'), event('d2')] });
  await query(`delete from adk_events where app_name = ? and session_id = ? and seq = 1`, [appName, 'damaged'], tx);
  const key = { appName, userId, sessionId };
  const handles = [(await service.getSession(key))!, (await service.getSession(key))!];
  return { appName, userId, sessionId, handles, service, another };
}

const outcomeOf = (result: PromiseSettledResult<unknown>) =>
  result.status === 'rejected' ? (result.reason as { code?: string }).code : shown(result.value);

/** What a call returned, without times. */
const shown = (value: unknown) => {
  const { id, events, state, sessions } = (value ?? {}) as Partial<Session & { sessions: Session[] }>;
  const of = (session: Partial<Session>) => ({ id: session.id, events: session.events?.map((each) => each.id), state });
  return [of({ ...(id !== undefined && { id }), ...(events && { events }) }), sessions?.map((each) => each.id), state];
};

/** All rows of an app, without times and random values. */
async function tablesOf({ query }: OwnContext, appName: string): Promise<object[][]> {
  const rows: object[][] = [];
  for (const text of [
    'session_id, first_seq, last_seq from adk_sessions where app_name = ? order by session_id',
    'session_id, seq, event_id from adk_events where app_name = ? order by session_id, seq',
    'session_id, state_key, value, event_id from adk_session_states where app_name = ? order by session_id, state_key',
    'user_id, state_key, value, event_id from adk_user_states where app_name = ? order by state_key',
    'state_key, value, event_id from adk_app_states where app_name = ? order by state_key',
    'session_id, kind, seq, event_seq, data from adk_changes where app_name = ? order by session_id, kind, seq',
  ])
    rows.push(await query(`select ${text}`, [appName]));
  return rows;
}

/** Runs work and counts the statements of ours that are under way at once on a connection of a host's transaction. */
async function mostAtOnce(orm: MikroORM, work: () => Promise<void>): Promise<number> {
  const connection = ormConnectionOf(orm.em);
  const ofTransaction = connection.ofTransaction.bind(connection);
  let [running, most] = [0, 0];
  connection.ofTransaction = async (transaction) => {
    const driver = await ofTransaction(transaction);
    return {
      reportsChangedRows: driver.reportsChangedRows,
      send: async (...statement) => {
        most = Math.max(most, ++running);
        try {
          return await driver.send(...statement);
        } finally {
          running--;
        }
      },
    };
  };
  try {
    await work();
  } finally {
    connection.ofTransaction = ofTransaction;
  }
  return most;
}

for (const [name, fails] of Object.entries(FAILING)) {
  joinedSuite.own(
    'E5',
    `calls that start together in one transaction, with a failing ${name}, have the same results as one after the other`,
    async (context) => {
      const { orm, app } = context;
      const pairs = Object.entries(SUCCEEDING).flatMap(([other, succeeds]) => [
        { label: `${name}, ${other}`, calls: [fails, succeeds] },
        { label: `${other}, ${name}`, calls: [succeeds, fails] },
      ]);
      const outcomes: { label: string; together: unknown[]; inTurn: unknown[] }[] = [];
      const most = await mostAtOnce(orm, () =>
        orm.em.fork().transactional(async (tx) => {
          for (const [i, { label, calls }] of pairs.entries()) {
            const together = await prepare(tx, `${app} together ${i}`, context);
            const inTurn = await prepare(tx, `${app} in turn ${i}`, context);
            const settled = await Promise.allSettled(calls.map((call) => call(together)));
            const expected: PromiseSettledResult<unknown>[] = [];
            for (const call of calls) expected.push(...(await Promise.allSettled([call(inTurn)])));
            outcomes.push({ label, together: settled.map(outcomeOf), inTurn: expected.map(outcomeOf) });
          }
        }),
      );
      for (const { label, together, inTurn } of outcomes) {
        expect([label, together]).toEqual([label, inTurn]);
        // A session that was deleted before can be created.
        if (label !== 'delete, create') expect(together).toContainEqual(expect.any(String));
      }
      for (const [i, { label }] of pairs.entries()) {
        const together = await tablesOf(context, `${app} together ${i}`);
        expect([label, together]).toEqual([label, await tablesOf(context, `${app} in turn ${i}`)]);
      }
      expect(most).toBe(1);
    },
  );
}

joinedSuite.own(
  'E5',
  'calls of two services, and in a host’s savepoint, also run one after the other',
  async ({ orm, app, create, fresh, query }) => {
    const session = await create({ sessionId: 's' });
    const services = [new MikroOrmSessionService(orm.em), new MikroOrmSessionService(orm.em.fork())];
    const most = await mostAtOnce(orm, () =>
      orm.em.fork().transactional(async (tx) => {
        await tx.transactional(async (inner) => {
          const results = await Promise.allSettled(
            [tx, inner].flatMap((em) =>
              services.flatMap((service) => {
                const joined = service.withEntityManager(em);
                return [
                  joined.appendEvent({ session, event: saying('x') }),
                  joined.createSession({ appName: app, userId: 'alice', sessionId: 's' }),
                  joined.updateState({ ...keyOf(session), set: { a: 1 } }),
                ];
              }),
            ),
          );
          expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(4);
        });
      }),
    );
    expect(most).toBe(1);
    expect((await fresh(session)).events).toHaveLength(4);
    expect(session.events).toHaveLength(4);
    const seqs = await query<{ seq: number }>('select seq from adk_events where app_name = ? order by seq', [app]);
    expect(seqs.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
  },
);

joinedSuite.own(
  'E5',
  'a call that a codec makes inside another call does not wait for it',
  async ({ orm, app, create }) => {
    const session = await create({ state: { 'user:key': 'k' } });
    const inside: { service?: MikroOrmSessionService } = {};
    // The key of a tenant may be among the state.
    const codec = late(reversing, async () => inside.service?.getUserState({ appName: app, userId: session.userId }));
    await orm.em.fork().transactional(async (tx) => {
      inside.service = new MikroOrmSessionService(orm.em).withEntityManager(tx);
      const encoding = new MikroOrmSessionService(orm.em, { codec }).withEntityManager(tx);
      await Promise.all(range(3).map((n) => encoding.appendEvent({ session, event: saying('x', { id: `${n}` }) })));
    });
    delete inside.service;
    const reading = new MikroOrmSessionService(orm.em, { codec });
    expect(idsOf((await reading.getSession(keyOf(session)))!)).toEqual(['0', '1', '2']);
  },
);

joinedSuite.own(
  'E5',
  'what is still under way when the transaction ends is written with it as a whole, or not at all',
  async ({ orm, service, create, stored, fresh }) => {
    for (const end of ['commit', 'rollback'] as const) {
      const sessions = await Promise.all(range(8).map(() => create()));
      const before = await Promise.all(sessions.map((session) => stored(keyOf(session))));
      const pending: Promise<unknown>[] = [];
      const ended = orm.em.fork().transactional(async (tx) => {
        const joined = service.withEntityManager(tx);
        await joined.listSessions({ appName: sessions[0]!.appName });
        for (const session of sessions) {
          const events = range(3).map((n) => saying(`${n}`, { actions: { ...eventOf().actions, stateDelta: { n } } }));
          const call = joined.appendEvents({ session, events });
          call.catch(() => undefined);
          pending.push(call);
        }
        if (end === 'rollback') throw new Error('rolled back');
        await pending[0];
      });
      const results = Promise.allSettled(pending);
      await (end === 'commit' ? ended : expect(ended).rejects.toThrow('rolled back'));
      for (const [i, result] of (await results).entries()) {
        const after = (await stored(keyOf(sessions[i]!)))!;
        const isWhole = after.events.length === 3 && after.state['n'] === 2;
        if (end === 'rollback' || result.status === 'rejected') expect(after).toEqual(before[i]);
        else expect(isWhole).toBe(true);
        if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'ADK_INVALID_ARGUMENT' });
        // Its numbers are those of its rows.
        await service.appendEvent({ session: await fresh(sessions[i]!), event: saying('next') });
      }
    }
  },
);

joinedSuite.own(
  'E5',
  'after Promise.all with a call that fails, a rollback leaves nothing of the other calls',
  async ({ orm, app, service, create, stored }) => {
    const session = await create({ sessionId: 's' });
    const before = await stored(keyOf(session));
    const calls: Promise<unknown>[] = [];
    const failing = orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      calls.push(joined.createSession({ appName: app, userId: 'alice', sessionId: 's' }));
      for (const n of range(5)) calls.push(joined.appendEvents({ session, events: [saying(`${n}`), saying('and')] }));
      calls.push(joined.createSession({ appName: app, userId: 'alice', sessionId: 'other' }));
      await Promise.all(calls);
    });
    await expectCode(failing, 'ADK_SESSION_EXISTS');
    await Promise.allSettled(calls);
    expect(await stored(keyOf(session))).toEqual(before);
    expect((await service.listSessions({ appName: app })).sessions).toHaveLength(1);
  },
);

joinedSuite.own(
  'E5',
  'after em.commit() the EntityManager joins nothing, and nothing is written beside it',
  async ({ orm, service, create, stored }) => {
    const session = await create();
    const em = orm.em.fork();
    await em.begin();
    const joined = service.withEntityManager(em);
    await joined.appendEvent({ session, event: saying('inside') });
    await em.commit();
    await expectCode(joined.appendEvent({ session, event: saying('late') }), 'ADK_INVALID_ARGUMENT', /has ended/);
    const never = service.withEntityManager(orm.em.fork());
    await expectCode(never.appendEvent({ session, event: saying('never') }), 'ADK_SCHEMA', /em\.transactional/);
    expect((await stored(keyOf(session)))?.events).toHaveLength(1);
  },
);

/** A place with the same tables in another schema, for as long as the work takes. */
async function withSchema(
  { connect, query }: Pick<OwnContext, 'connect' | 'query'>,
  dialect: string,
  work: (schema: string) => Promise<void>,
): Promise<void> {
  const schema = `tenant_${randomBytes(5).toString('hex')}`;
  // With its own record of migrations: in that of the harness all have been run.
  await migrate(await connect({ entities: adkEntities({ schema }), migrations: { tableName: schema } }));
  try {
    await work(schema);
  } finally {
    await query(`drop table ${schema}`);
    await query(`drop schema ${schema}${dialect === 'postgresql' ? ' cascade' : ''}`);
  }
}

joinedSuite.own(
  'E5',
  'a service uses the tables of the EntityManager that it was made with, whatever the context',
  async (context) => {
    const { orm, app, harness, query, create, service } = context;
    await withSchema(context, harness.dialect, async (schema) => {
      const session = await create({ sessionId: 'own' });
      const key = keyOf(session);
      const countIn = async (table: string) =>
        (await query(`select session_id from ${table} where app_name = ?`, [app])).length;
      const counts = async () => [await countIn('adk_sessions'), await countIn(`${schema}.adk_sessions`)];
      expect(await counts()).toEqual([1, 0]);

      await RequestContext.create(orm.em.fork({ schema }), async () => {
        // As providers of a request's scope make them.
        const inRequest = new MikroOrmSessionService(orm.em);
        await inRequest.createSession({ ...key, sessionId: 'in request' });
        expect(await counts()).toEqual([2, 0]);
        await service.appendEvent({ session, event: saying('x') });
        const leases = new SessionLeases(orm.em, LONG_LEASE);
        const lease = await leases.acquire(key, { holder: 'h' });
        await lease.sessionService.appendEvent({ session, event: saying('leased') });
        await lease.release();
        expect(await read(new EventLog(orm.em).since(0, { appName: app }))).toHaveLength(2);
        expect((await new SessionMaintenance(orm.em).stats({ appName: app })).sessions).toBe(2);
        const applied: unknown[] = [];
        const projection = new SessionProjection(orm.em, {
          name: `tenant ${app}`,
          filter: { appName: app },
          apply: async (entries, tx) => {
            applied.push(...entries);
            await service.withEntityManager(tx).updateState({ ...key, set: { applied: applied.length } });
            expect(tx.schema).toBeUndefined();
          },
          clear: async () => undefined,
        });
        await projection.catchUp();
        expect(applied.length).toBeGreaterThan(2);
      });

      const tenant = new MikroOrmSessionService(orm.em.fork({ schema }));
      await tenant.createSession({ ...key, sessionId: 'of tenant' });
      await orm.em.fork().transactional(async (tx) => {
        tx.persist(tx.create(HostNote, { id: 21, text: 'x' }));
        const other = /other tables.*Nothing was read or written.*schema/;
        expect(() => tenant.withEntityManager(tx)).toThrow(other);
        expect(() => tenant.withEntityManager(tx)).toThrow(expect.objectContaining({ code: 'ADK_INVALID_ARGUMENT' }));
      });
      await orm.em.fork({ schema }).transactional(async (tx) => {
        expect(() => service.withEntityManager(tx)).toThrow(/other tables/);
        await tenant.withEntityManager(tx).createSession({ ...key, sessionId: 'joined' });
      });
      expect(await counts()).toEqual([2, 2]);
      expect(await orm.em.fork().nativeDelete(HostNote, { id: 21 })).toBe(1);
    });
  },
  (harness) => onServers(harness) && TRAITS[harness.dialect].hasSchemas,
);

joinedSuite.own('E5', 'a transaction of another ORM is refused by name', async ({ orm, service, create, scratch }) => {
  const session = await create();
  const { orm: other } = await scratch();
  await other.em.fork().transactional(async (tx) => {
    expect(() => service.withEntityManager(tx)).toThrow(/another MikroORM/);
  });
  const events: Event[] = session.events;
  await orm.em.fork().transactional(async (tx) => {
    await service.withEntityManager(tx).appendEvent({ session, event: saying('x') });
  });
  expect(events).toHaveLength(1);
});

joinedSuite.own(
  'E5',
  'a session that a transaction has locked is read as it is, however old its snapshot',
  async ({ orm, another, peer, create, append, stored, service }) => {
    const damages: unknown[] = [];
    const noting = new MikroOrmSessionService(orm.em, { onDamage: (error) => void damages.push(error) });
    const soft = new MikroOrmSessionService(peer.em, { deletion: 'soft' });
    const made = async () => {
      const session = await create({ state: { a: 0 } });
      for (const n of range(3)) await append(session, { delta: { a: n } });
      return keyOf(session);
    };
    const theirs = async (key: SessionKey) =>
      another.appendEvent({ session: (await another.getSession(key))!, event: event('theirs', { theirs: 1 }) });
    const ours = async (joined: MikroOrmSessionService, session: Session) =>
      joined.appendEvent({ session, event: event('ours', { ours: 1 }) });
    /** Works in a transaction after others have done what it cannot see. @returns the session afterwards. */
    const late = async (
      key: SessionKey,
      meanwhile: (key: SessionKey) => Promise<unknown>,
      work: (joined: MikroOrmSessionService, handle: Session | undefined) => Promise<Session>,
    ) => {
      const handle = await orm.em.fork().transactional(
        async (tx) => {
          const joined = noting.withEntityManager(tx);
          const read = await joined.getSession(key);
          await meanwhile(key);
          return work(joined, read);
        },
        { isolationLevel: IsolationLevel.REPEATABLE_READ },
      );
      const now = (await another.getSession(key))!;
      // The next append reads nothing again: the handle must have all of it from the transaction.
      await service.appendEvent({ session: handle, event: saying('next') });
      expect(handle.state).toEqual(now.state);
      return now;
    };

    const update = (key: SessionKey) => another.updateState({ ...key, set: { theirs: 1 } });
    for (const change of [
      theirs,
      update,
      (key: SessionKey) => another.rewindSession(key, { at: 1 }),
      (key: SessionKey) => another.deleteSession(key).then(() => another.createSession(key)),
    ])
      for (const config of [{}, { numRecentEvents: 1 }, { numRecentEvents: 2, afterTimestamp: 0.5 }]) {
        const key = await made();
        const now = await late(key, change, async (joined) => {
          await joined.updateState({ ...key, set: { ours: 1 } });
          const { events } = (await joined.getSession(key))!;
          expect((await joined.readEvents(key)).events.map(({ event }) => event)).toEqual(events);
          return (await joined.getSession({ ...key, config }))!;
        });
        expect(now.state).toMatchObject({ ours: 1 });
      }

    const appended = await made();
    await late(appended, theirs, async (joined, handle) => {
      await ours(joined, handle!);
      expect(await joined.getSession(appended)).toEqual(handle);
      return handle!;
    });

    for (const remove of [another, soft])
      for (const call of [
        (joined: MikroOrmSessionService, key: SessionKey) => joined.createSession({ ...key, state: { b: 1 } }),
        async (joined: MikroOrmSessionService, { sessionId: as, ...key }: SessionKey) => {
          const from = await joined.createSession({ ...key, state: { b: 1 } });
          return joined.forkSession(keyOf(from), { as });
        },
      ]) {
        const now = await late(
          await made(),
          (key) => remove.deleteSession(key),
          async (joined, read) => {
            const handle = await call(joined, keyOf(read!));
            expect(await joined.getSession(keyOf(read!))).toEqual(handle);
            return handle;
          },
        );
        expect(now).toMatchObject({ state: { b: 1 }, events: [] });
      }

    const turns = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 1 });
    const fill = async (key: SessionKey) => {
      await another.createSession({ ...key, state: { b: 1 } });
      const user = { author: 'user' };
      const asks = { content: { role: 'model', parts: [{ functionCall: { id: 'c', name: 'f', args: {} } }] } };
      const events = [
        saying('q', user),
        eventOf({ ...asks, longRunningToolIds: ['c'] }),
        saying('q', user),
        saying('a'),
      ];
      const session = (await another.getSession(key))!;
      await another.appendEvents({ session, events: [...events, saying('q', user), saying('a'.repeat(600_000))] });
    };
    for (const reading of [service, turns]) {
      const fresh = { ...(await made()), sessionId: randomBytes(8).toString('hex') };
      const read: Event[][] = [];
      await orm.em.fork().transactional(
        async (tx) => {
          await service.withEntityManager(tx).getSession(fresh);
          await fill(fresh);
          const joined = reading.withEntityManager(tx);
          read.push((await joined.getOrCreateSession(fresh)).events);
          expect((await joined.readEvents(fresh)).events).toHaveLength(6);
          const later = { ...fresh, config: { afterTimestamp: 1 } };
          expect((await service.withEntityManager(tx).getSession(later))?.events).toHaveLength(6);
        },
        { isolationLevel: IsolationLevel.REPEATABLE_READ },
      );
      expect(read).toEqual([(await reading.getSession(fresh))!.events]);
    }

    const key = await made();
    const rewound = late(key, update, async (joined, handle) => {
      await ours(joined, handle!);
      return joined.rewindSession(key, { at: 2 });
    });
    await expectCode(rewound, 'ADK_STALE_SESSION');
    expect((await stored(key))?.state).toMatchObject({ theirs: 1 });
    expect(damages).toEqual([]);
  },
  onInnodb,
);

joinedSuite.own(
  'E5',
  'a transaction that has read before overwrites nothing that it cannot see',
  async ({ orm, another, create, append, stored, service }) => {
    const damages: unknown[] = [];
    const noting = new MikroOrmSessionService(orm.em, { onDamage: (error) => void damages.push(error) });
    const reading = async (
      session: Session,
      meanwhile: () => Promise<unknown>,
      call: (joined: MikroOrmSessionService, handle: Session) => Promise<unknown>,
    ) => {
      const outcome: { error?: { code: string } } = {};
      await orm.em.fork().transactional(
        async (tx) => {
          const joined = noting.withEntityManager(tx);
          const handle = (await joined.getSession(keyOf(session)))!;
          await meanwhile();
          const [result] = await Promise.allSettled([call(joined, handle)]);
          if (result.status === 'rejected') outcome.error = result.reason as { code: string };
        },
        { isolationLevel: IsolationLevel.REPEATABLE_READ },
      );
      return outcome.error?.code;
    };
    const made = async () => {
      const session = await create({ state: { a: 0 } });
      for (const n of range(3)) await append(session, { delta: { a: n } });
      return session;
    };
    const refusal = expect.stringMatching(/^ADK_(STALE_SESSION|DATABASE)$/);

    for (const call of [
      (joined: MikroOrmSessionService, session: Session) => joined.rewindSession(keyOf(session), { at: 1 }),
      (joined: MikroOrmSessionService, session: Session) => joined.forkSession(keyOf(session)),
    ]) {
      const session = await made();
      const key = keyOf(session);
      const update = () => another.updateState({ ...key, set: { a: 'theirs', b: 'theirs' } });
      expect(await reading(session, update, call)).toEqual(refusal);
      expect((await stored(key))?.state).toEqual({ a: 'theirs', b: 'theirs' });
      const theirs = async () => another.appendEvent({ session: (await another.getSession(key))!, event: saying('x') });
      expect(await reading(session, theirs, call)).toEqual(refusal);
      expect((await stored(key))?.events).toHaveLength(4);
      // Without a change in between it is done.
      expect(await reading(session, async () => undefined, call)).toBeUndefined();
    }

    const session = await made();
    const key = keyOf(session);
    const rewind = () => another.rewindSession(key, { at: 1 });
    const code = await reading(session, rewind, (joined) => joined.deleteSession(key));
    expect(await stored(key)).toEqual(code === undefined ? undefined : expect.anything());

    const behind = await made();
    const theirs = async () =>
      another.appendEvent({ session: (await another.getSession(keyOf(behind)))!, event: saying('theirs') });
    const handles: Session[] = [];
    const appended = await reading(behind, theirs, (joined, handle) => {
      handles.push(handle);
      return joined.appendEvent({ session: handle, event: saying('ours') });
    });
    if (appended === undefined) {
      await service.appendEvent({ session: handles[0]!, event: saying('next') });
      expect(handles[0]!.events).toEqual((await another.getSession(keyOf(behind)))!.events);
    }

    // A session with fewer events than the transaction sees lacks none of them.
    for (const meanwhile of [
      (key: SessionKey) => another.rewindSession(key, { at: 1 }),
      (key: SessionKey) => another.deleteSession(key).then(() => another.createSession(key)),
    ]) {
      const fewer = await made();
      const joinedAppend = (joined: MikroOrmSessionService, handle: Session) =>
        joined.appendEvent({ session: handle, event: saying('ours', { id: 'ours' }) });
      const refused = await reading(fewer, () => meanwhile(keyOf(fewer)), joinedAppend);
      if (refused === undefined) expect(idsOf((await stored(keyOf(fewer)))!).at(-1)).toBe('ours');
    }
    expect(damages).toEqual([]);

    const asked = await made();
    const parts = [{ functionCall: { id: 'c', name: 'approve', args: {} } }];
    const asks = () => eventOf({ author: 'agent', content: { role: 'model', parts }, longRunningToolIds: ['c'] });
    const ask = async () => another.appendEvent({ session: (await another.getSession(keyOf(asked)))!, event: asks() });
    const response = { functionResponse: { id: 'c', name: 'approve', response: {} } };
    const answers = () => eventOf({ author: 'user', content: { role: 'user', parts: [response] } });
    const waiting = async () => (await service.findOpenCalls({ appName: asked.appName, userId: asked.userId })).calls;
    const answered = await reading(asked, ask, (joined, session) => joined.appendEvent({ session, event: answers() }));
    expect(await waiting()).toHaveLength(answered === undefined ? 0 : 1);
    // The call that it sees was taken back; it asks and answers another one with the same id.
    if (answered === undefined) await ask();
    const again = await reading(
      asked,
      () => another.rewindSession(keyOf(asked), { at: 1 }),
      (joined, session) => joined.appendEvents({ session, events: [asks(), answers()] }),
    );
    if (again === undefined) expect(await waiting()).toEqual([]);
  },
  onServers,
);

joinedSuite.own(
  'E5',
  'calls of two copies of the package that join one transaction store what they acknowledge, and no more',
  async ({ orm, app, stored }) => {
    const copies = [new MikroOrmSessionService(orm.em), new (secondCopy().MikroOrmSessionService)(orm.em)];
    const keys = range(16).map((n) => ({ appName: app, userId: 'copies', sessionId: `s${n}` }));
    for (const key of keys) await copies[0]!.createSession(key);
    const acknowledged: string[][] = keys.map(() => []);
    await orm.em.fork().transactional(async (tx) => {
      const joined = copies.map((copy) => copy.withEntityManager(tx));
      const handles = await Promise.all(keys.map((key) => joined[0]!.getSession(key)));
      await Promise.allSettled(
        range(64).map(async (n) => {
          const place = n % keys.length;
          const session = { ...handles[place]!, events: [] };
          // Every third one is refused: its savepoint is rolled back.
          if (n % 3 === 0) session.id = 'absent';
          await joined[Math.floor(n / keys.length) % 2]!.appendEvent({ session, event: saying('x', { id: `e${n}` }) });
          acknowledged[place]!.push(`e${n}`);
        }),
      );
    });
    expect(acknowledged.flat()).toHaveLength(42);
    for (const [n, key] of keys.entries()) {
      const { events } = (await stored(key))!;
      expect(events.map(({ id }) => id).sort()).toEqual(acknowledged[n]!.sort());
    }
  },
);

joinedSuite.own(
  'E5',
  'a write to a session that changed after the snapshot says that the transaction must begin again',
  async ({ harness, connect, service, create, stored }) => {
    const orm = await connect();
    const session = await create();
    const key = keyOf(session);
    const joining = new MikroOrmSessionService(orm.em);
    let hasAppended = false;
    const append = (isolationLevel: IsolationLevel) =>
      orm.em.fork().transactional(
        async (tx) => {
          if (harness.dialect === 'mariadb')
            await tx
              .getConnection()
              .execute('set innodb_snapshot_isolation = on', [], 'run', tx.getTransactionContext());
          const handle = (await joining.withEntityManager(tx).getSession(key))!;
          if (!hasAppended) await service.appendEvent({ session, event: saying('theirs', { id: 'theirs' }) });
          hasAppended = true;
          await joining.withEntityManager(tx).appendEvent({ session: handle, event: saying('ours', { id: 'ours' }) });
        },
        { isolationLevel },
      );
    const refused = await errorOf(append(IsolationLevel.REPEATABLE_READ));
    expect(refused).toMatchObject({ code: 'ADK_DATABASE', outcome: 'none', reason: 'DeadlockException' });
    expect(refused.message).toMatch(/since its snapshot was taken .* Begin a transaction of your own again/);
    expect((await stored(key))!.events.map(({ id }) => id)).toEqual(['theirs']);
    await append(IsolationLevel.REPEATABLE_READ);
    expect((await stored(key))!.events.map(({ id }) => id)).toEqual(['theirs', 'ours']);
  },
  ({ dialect, server }) => server !== undefined && (dialect === 'mariadb' || dialect === 'postgresql'),
);

joinedSuite.own(
  'E7',
  'an append with another copy of the package sees that an open transaction has appended to its handle',
  async ({ orm, create }) => {
    const session = await create();
    // Limits how long the test takes if it fails.
    const other = new (secondCopy().MikroOrmSessionService)(orm.em, { timeoutMs: 5_000, retry: { attempts: 1 } });
    const transaction = orm.em.fork();
    await transaction.begin();
    const joined = new MikroOrmSessionService(orm.em).withEntityManager(transaction);
    await joined.appendEvent({ session, event: saying('may be rolled back') });
    // An error of its own classes.
    const refused = await errorOf(other.appendEvent({ session, event: saying('late') }));
    await transaction.rollback();
    expect(refused).toMatchObject({ code: 'ADK_INSIDE_TRANSACTION' });
    await other.appendEvent({ session, event: saying('stays') });
    expect((await other.getSession(keyOf(session)))!.events).toEqual(session.events);
  },
);

const TRANSACTIONS: Readonly<
  Record<string, (em: EntityManager, work: (tx: EntityManager) => Promise<void>) => Promise<void>>
> = {
  'em.transactional': (em, work) => em.transactional(work),
  'em.commit': async (em, work) => {
    await em.begin();
    await work(em);
    try {
      await em.commit();
    } catch (error) {
      await em.rollback();
      throw error;
    }
  },
};

const CAUGHT: Readonly<
  Record<
    string,
    { fail: (store: OwnContext, tx: EntityManager, other: EntityManager) => Promise<unknown>; where?: Rule['where'] }
  >
> = {
  'an error': { fail: ({ query }, tx) => query('insert into host_notes (id) values (null)', [], tx) },
  'a deadlock': { fail: deadlock, where: onInnodb },
};

for (const [name, transaction] of Object.entries(TRANSACTIONS)) {
  for (const [what, { fail, where }] of Object.entries(CAUGHT)) {
    joinedSuite.own(
      'E5',
      `${name} of a host that catches ${what} stores all that was written by calls, or fails`,
      async (context) => {
        const { orm, peer, service, create, stored, query } = context;
        const caught = { code: 'ADK_DATABASE', outcome: 'none', message: expect.stringMatching(/caught/) };
        for (const isCalledAfter of [false, true]) {
          const session = await create();
          const other = peer.em.fork();
          const calls: Promise<unknown>[] = [];
          const ended = transaction(orm.em.fork(), async (tx) => {
            const joined = service.withEntityManager(tx);
            await joined.appendEvent({ session, event: saying('before') });
            await fail(context, tx, other).catch(() => undefined);
            if (isCalledAfter) calls.push(joined.appendEvent({ session, event: saying('after') }));
            await Promise.allSettled(calls);
          });
          const [outcome] = await Promise.allSettled([ended]);
          const isDone = outcome.status === 'fulfilled';
          for (const { status, reason } of [outcome, ...(await Promise.allSettled(calls))] as PromiseRejectedResult[]) {
            expect(status).toBe(isDone ? 'fulfilled' : 'rejected');
            if (!isDone) expect(reason).toMatchObject(caught);
          }
          expect((await stored(keyOf(session)))!.events).toHaveLength(isDone ? 1 + calls.length : 0);
          // The connection is as it was.
          await service.appendEvent({ session: (await service.getSession(keyOf(session)))!, event: saying('next') });
          await query('delete from host_notes');
        }
      },
      where,
    );
  }
}

joinedSuite.own(
  'E5',
  'a commit of ours that would store nothing is an error',
  async ({ orm }) => {
    const database = new Database(orm.em);
    const work = () =>
      database.transaction(async (sql) => {
        await sql.all('select 1');
        await sql.run('rollback');
        await sql.run('update host_notes set id = 1 where id = 0');
      });
    await expectCode(database.call({ operation: 'test', key: {} }, work), 'ADK_DATABASE');
  },
  // PGlite does not show whether a transaction is open.
  withConnections,
);
