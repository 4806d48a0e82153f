import type { Session } from '@google/adk';
import { EventLog, MikroOrmSessionService, SessionLeases, SessionMaintenance } from '../../src/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { following, idsIn, read, upTo } from './log-tools.js';
import { Suite, type OwnContext } from './rule.js';
import { LONG_LEASE, eventOf, expectCode, idsOf, plain, range, until } from './tools.js';

export const deletionSuite = new Suite({ isOfDialect: true });

const OF_SESSION = 'app_name = ? and user_id = ? and session_id = ?';

const softly = ({ orm }: Pick<OwnContext, 'orm'>) => new MikroOrmSessionService(orm.em, { deletion: 'soft' });

const rowOf = async ({ query }: Pick<OwnContext, 'query'>, session: Session) => {
  const [row] = await query(`select * from adk_sessions where ${OF_SESSION}`, Object.values(keyOf(session)));
  return row;
};

/** A session of events e1 to e3 that is deleted softly. */
async function deleted(context: OwnContext, more: { sessionId?: string } = {}): Promise<Session> {
  const session = await context.create({ state: { kept: 1, 'user:u': 1 }, ...more });
  for (const n of upTo(3)) await context.append(session, { id: `e${n}`, timestamp: 10 * n, delta: { n } });
  await softly(context).deleteSession(keyOf(session));
  return session;
}

deletionSuite.own('K3', 'a deleted session is absent, and its rows are there', async (context) => {
  const { app, orm, service, another, append, query } = context;
  const other = await context.create();
  const session = await deleted(context);
  const key = keyOf(session);
  const now = Date.now();
  expect((await rowOf(context, session)) as { deleted_at: number }).toMatchObject({
    last_seq: 3,
    deleted_at: expect.anything(),
  });
  const [{ deleted_at: at }] = (await query(
    `select deleted_at from adk_sessions where ${OF_SESSION}`,
    Object.values(key),
  )) as [{ deleted_at: number }];
  expect(Math.abs(at - now)).toBeLessThan(600_000);
  expect(await query(`select 1 from adk_events where ${OF_SESSION}`, Object.values(key))).toHaveLength(3);

  expect(await another.getSession(key)).toBeUndefined();
  for (const userId of [undefined, 'alice']) {
    for (const page of [{}, { limit: 1 }, { order: 'desc' as const }]) {
      const listed = await another.listSessions({ appName: app, ...(userId && { userId }), ...page });
      expect(listed).toMatchObject({ totalItems: 1, sessions: [{ id: other.id }] });
    }
  }
  for (const handle of [session, plain(session)]) {
    await expectCode(append(handle), 'ADK_SESSION_NOT_FOUND');
    await expectCode(
      append(handle, {}, new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' })),
      'ADK_SESSION_NOT_FOUND',
    );
  }
  await expectCode(append(session, { id: 'e3' }), 'ADK_SESSION_NOT_FOUND');
  await expectCode(service.updateState({ ...key, set: { a: 1 } }), 'ADK_SESSION_NOT_FOUND');
  await expectCode(new SessionMaintenance(orm.em).repair(key), 'ADK_SESSION_NOT_FOUND');
  const leases = new SessionLeases(orm.em, LONG_LEASE);
  await expectCode(leases.acquire(key, { holder: 'me' }), 'ADK_SESSION_NOT_FOUND');
  expect(await leases.current(key)).toBeUndefined();
  const log = new EventLog(orm.em);
  expect(await read(log.since(0, { appName: app }))).toEqual([]);
  expect(await read(log.session(key).since(0))).toEqual([]);
  expect((await log.session(key).head()).seq).toBe(0);
  // Also for a service that deletes for good, which does not see it.
  for (const each of [softly(context), service]) await each.deleteSession(key);
  expect(await query(`select 1 from adk_events where ${OF_SESSION}`, Object.values(key))).toHaveLength(3);
  expect(await service.getUserState({ appName: app, userId: 'alice' })).toEqual({ 'user:u': 1 });
});

deletionSuite.own('K3', 'without the option the rows are deleted', async (context) => {
  const session = await context.create();
  await context.service.deleteSession(keyOf(session));
  expect(await rowOf(context, session)).toBeUndefined();
});

deletionSuite.own('K3', 'restoreSession brings a session back whole', async (context) => {
  const { app, orm, service, create, append, fresh } = context;
  const kept = await create({ sessionId: 'like it' });
  const before = await create();
  for (const n of upTo(3)) await append(before, { id: `e${n}`, timestamp: 10 * n, delta: { n } });
  const row = await rowOf(context, before);
  const stored = plain(await fresh(before));
  const handle = await fresh(before);
  await softly(context).deleteSession(keyOf(before));
  await service.restoreSession(keyOf(before));
  expect(await rowOf(context, before)).toEqual({
    ...row,
    last_change: expect.anything() as unknown,
    touched_at: expect.anything() as unknown,
  });
  expect(plain(await fresh(before))).toEqual(stored);
  // A handle from before is in step.
  await append(handle, { id: 'e4', timestamp: 40 }, new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' }));
  expect(idsOf(await fresh(before))).toEqual(['e1', 'e2', 'e3', 'e4']);
  expect(idsIn(await read(new EventLog(orm.em).since(0, { appName: app })))).toEqual(['e1', 'e2', 'e3', 'e4']);

  await service.restoreSession(keyOf(before));
  await service.restoreSession(keyOf(kept));
  expect(await rowOf(context, kept)).toMatchObject({ deleted_at: null });
  await expectCode(service.restoreSession({ ...keyOf(kept), sessionId: 'none' }), 'ADK_SESSION_NOT_FOUND');
  await expectCode(service.restoreSession({ ...keyOf(kept), sessionId: '' }), 'ADK_INVALID_KEY');
  await expectCode(service.restoreSession({ ...keyOf(kept), now: true } as never), 'ADK_INVALID_ARGUMENT');
});

deletionSuite.own('K3', 'a deletion ends the lease', async (context) => {
  const { orm, append, service } = context;
  const session = await context.create();
  const leases = new SessionLeases(orm.em, LONG_LEASE);
  const lease = await leases.acquire(keyOf(session), { holder: 'me' });
  const rejecting = new MikroOrmSessionService(orm.em, { deletion: 'soft', onUnleasedAppend: 'reject' });
  await expectCode(rejecting.deleteSession(keyOf(session)), 'ADK_LEASE_HELD');
  await softly(context).deleteSession(keyOf(session));
  await service.restoreSession(keyOf(session));
  await expectCode(append(session, {}, lease.sessionService), 'ADK_LEASE_LOST');
  const next = await leases.acquire(keyOf(session), { holder: 'you' });
  expect(next.token).toBeGreaterThan(lease.token);
  await append(session, {}, next.sessionService);
  await rejecting.deleteSession(keyOf(await context.create()));
});

deletionSuite.own('K3', 'a reader that watches continues after a restore, and sees no event twice', async (context) => {
  const { orm, append, service, create } = context;
  const session = await create();
  await append(session, { id: 'e1' });
  const log = new EventLog(orm.em, { pollIntervalMs: 2 });
  await following(
    (signal) => log.session(keyOf(session)).watch(0, {}, { signal }),
    async (seen) => {
      await until(() => seen.length === 1);
      await softly(context).deleteSession(keyOf(session));
      await service.restoreSession(keyOf(session));
      await append(session, { id: 'e2' });
      await until(() => seen.length === 2);
      expect(idsIn(seen)).toEqual(['e1', 'e2']);
    },
  );
});

deletionSuite.own('K3', 'creating the id of a deleted session again purges it', async (context) => {
  const { another, service, query, append, orm } = context;
  for (const call of ['createSession', 'getOrCreateSession'] as const) {
    const session = await deleted(context, { sessionId: call });
    const key = keyOf(session);
    const made = await service[call]({ ...key, state: { fresh: true } });
    expect(made).toMatchObject({ events: [], state: { fresh: true, 'user:u': 1 } });
    expect(await another.getSession(key)).toMatchObject({ events: [], state: { fresh: true } });
    expect(await query(`select 1 from adk_events where ${OF_SESSION}`, Object.values(key))).toEqual([]);
    await service.restoreSession(key);
    expect(await another.getSession(key)).toMatchObject({ events: [] });
    // A handle of the old session is behind.
    await expectCode(
      append(session, {}, new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' })),
      'ADK_STALE_SESSION',
    );
    await expectCode(service.createSession(key), 'ADK_SESSION_EXISTS');
  }
  const key = keyOf(await deleted(context, { sessionId: 'raced for' }));
  const made = await Promise.allSettled(range(8).map((i) => (i % 2 ? service : another).createSession(key)));
  expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  for (const each of made)
    if (each.status === 'rejected') expect(each.reason).toMatchObject({ code: 'ADK_SESSION_EXISTS' });
});

deletionSuite.own('K3', 'prune permanently deletes what was deleted long enough ago', async (context) => {
  const { app, orm, query, service } = context;
  const [old, recent] = [await deleted(context), await deleted(context)];
  await context.create();
  await query(
    `update adk_sessions set deleted_at = deleted_at - 5000000 where ${OF_SESSION}`,
    Object.values(keyOf(old)),
  );
  const maintenance = new SessionMaintenance(orm.em);
  expect(await maintenance.prune({ appName: app, deletedFor: 4_000_000 })).toMatchObject({
    done: { sessions: 1, events: 3 },
  });
  expect(await rowOf(context, old)).toBeUndefined();
  await expectCode(service.restoreSession(keyOf(old)), 'ADK_SESSION_NOT_FOUND');
  expect(await rowOf(context, recent)).toBeDefined();
  expect(await maintenance.prune({ appName: app, deletedFor: 0 })).toMatchObject({ done: { sessions: 1 } });
  expect(await query('select 1 from adk_sessions where app_name = ?', [app])).toHaveLength(1);
});

deletionSuite.own(
  'K7',
  'defaultNumRecentEvents counts if the caller names no number',
  async ({ orm, create, service }) => {
    const session = await create();
    await service.appendEvents({ session, events: upTo(5).map((n) => eventOf({ id: `e${n}`, timestamp: n })) });
    const bounded = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 2 });
    const ids = async (config?: object) =>
      idsOf((await bounded.getSession({ ...keyOf(session), ...(config && { config }) }))!);
    expect(await ids()).toEqual(['e4', 'e5']);
    expect(await ids({ afterTimestamp: 1 })).toEqual(['e4', 'e5']);
    expect(await ids({ numRecentEvents: null })).toEqual(['e4', 'e5']);
    expect(await ids({ numRecentEvents: 3 })).toEqual(['e3', 'e4', 'e5']);
    expect(await ids({ numRecentEvents: 0 })).toHaveLength(5);
    expect(idsOf(await bounded.getOrCreateSession(keyOf(session)))).toEqual(['e4', 'e5']);
    for (const defaultNumRecentEvents of [0, -1, 1.5]) {
      await expectCode(
        (async () => new MikroOrmSessionService(orm.em, { defaultNumRecentEvents }))(),
        'ADK_INVALID_ARGUMENT',
      );
    }
  },
);
