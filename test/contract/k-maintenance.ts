import type { Session } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import {
  EventLog,
  MikroOrmArtifactService,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  type MaintenanceResult,
} from '../../src/index.js';
import { keyOf, type OwnStore } from '../support/harnesses/harness.js';
import { FoldedLog } from '../support/folded-log.js';
import { expectSame, folded, resultOf, tablesOf } from '../support/fold.js';
import { NEVER_MS, idsIn, onMysql, read, upTo } from './log-tools.js';
import { damaged, damagings, five } from './i-damage.js';
import { Suite, oncePerDialect, onServers, withConnections, type OwnContext } from './rule.js';
import { LONG_LEASE, errorOf, expectCode, faulty, idsOf, range, saying } from './tools.js';

export const maintenanceSuite = new Suite({ isOfDialect: true });

const OF_SESSION = 'app_name = ? and user_id = ? and session_id = ?';
const DAY = 24 * 3_600_000;

const TABLES = ['sessions', 'events', 'event_parts', 'session_states', 'user_states'];

const maintain = ({ orm }: Pick<OwnStore, 'orm'>, em: EntityManager = orm.em) => new SessionMaintenance(em);

type Making = Pick<OwnContext, 'create' | 'service' | 'app'>;

/** A session of events e1, e2 … at 10, 20 …: the last of them long ago. */
async function old({ create, service }: Making, events = 3, request: Parameters<OwnContext['create']>[0] = {}) {
  const session = await create({ state: { kept: 1 }, ...request });
  if (events > 0) {
    await service.appendEvents({
      session,
      events: upTo(events).map((n) =>
        saying(`e${n}`, { id: `e${n}`, timestamp: 10 * n, actions: { stateDelta: { n } } }),
      ),
    });
  }
  return session;
}

/** A session whose last event is of now. */
async function used(context: Making, request: Parameters<OwnContext['create']>[0] = {}) {
  const session = await context.create(request);
  await context.service.appendEvent({ session, event: saying('now') });
  return session;
}

/** How many rows each table has, of an app or where else. */
async function rowsOf({ query }: Pick<OwnStore, 'query'>, where: string, values: readonly unknown[]) {
  const counts: Record<string, number> = {};
  for (const table of TABLES) {
    if (/session_id/.test(where) && table === 'user_states') continue;
    const rows = await query(`select 1 from adk_${table} where ${where}`, values);
    counts[table] = rows.length;
  }
  return counts;
}

const idsLeft = async ({ query, app }: Pick<OwnContext, 'query' | 'app'>) => {
  const rows = await query<{ session_id: string }>(
    'select session_id from adk_sessions where app_name = ? order by session_id',
    [app],
  );
  return rows.map((row) => row.session_id);
};

maintenanceSuite.own('K1', 'prune deletes idle sessions whole, and no others', async (context) => {
  const { app, service, stored } = context;
  for (const [id, userId] of [
    ['a', 'alice'],
    ['b', 'bob'],
  ] as const)
    await old(context, 3, { sessionId: `old ${id}`, userId });
  const kept = await used(context, { sessionId: 'used', state: { 'user:theme': 'dark', 'app:x': 1 } });
  const elsewhere = await service.createSession({ appName: `${app} too`, userId: 'alice', sessionId: 'old' });
  await service.appendEvent({ session: elsewhere, event: saying('x', { timestamp: 5 }) });

  const result = await maintain(context).prune({ appName: app, idleFor: DAY });
  expect(result).toMatchObject({ done: { sessions: 2, events: 6 }, batches: 1, skipped: 0, more: false });
  expect(await idsLeft(context)).toEqual(['used']);
  expect(await stored(keyOf(kept))).toMatchObject({
    state: { 'user:theme': 'dark', 'app:x': 1 },
    events: { length: 1 },
  });
  expect(await rowsOf(context, 'app_name = ?', [app])).toEqual({
    sessions: 1,
    events: 1,
    event_parts: 0,
    session_states: 0,
    user_states: 1,
  });
  expect(await stored(keyOf(elsewhere))).toBeDefined();
  await service.deleteSession(keyOf(elsewhere));
});

maintenanceSuite.own('K1', 'prune goes through all apps, or takes one user of them', async ({ scratch }) => {
  const store = await scratch();
  const { service, query } = store;
  for (const appName of ['app 1', 'app 2', 'app 3']) {
    for (const userId of ['alice', 'bob']) {
      const session = await service.createSession({ appName, userId, sessionId: 's' });
      await service.appendEvent({ session, event: saying('x', { timestamp: 1 }) });
    }
  }
  const left = async () =>
    (
      await query<{ app_name: string; user_id: string }>('select app_name, user_id from adk_sessions order by 1, 2')
    ).map((row) => `${row.app_name} ${row.user_id}`);
  const ofBob = { done: { sessions: 3, events: 3 }, batches: 3, skipped: 0, more: false };
  expect(await maintain(store).prune({ userId: 'bob', idleFor: DAY })).toMatchObject(ofBob);
  expect(await left()).toEqual(['app 1 alice', 'app 2 alice', 'app 3 alice']);
  expect(await maintain(store).prune({ idleFor: DAY })).toMatchObject(ofBob);
  expect(await left()).toEqual([]);
});

maintenanceSuite.own(
  'K1',
  'prune selects by age, by deletion time, and by all conditions together',
  async (context) => {
    const { app, query } = context;
    const at = async (id: string, createdAgo: number, deletedAgo?: number) => {
      const session = id.startsWith('old')
        ? await old(context, 1, { sessionId: id })
        : await used(context, { sessionId: id });
      await query(`update adk_sessions set create_time = ?, deleted_at = ?, status = ? where ${OF_SESSION}`, [
        Date.now() - createdAgo,
        deletedAgo === undefined ? null : Date.now() - deletedAgo,
        deletedAgo === undefined ? 'active' : 'deleted',
        ...Object.values(keyOf(session)),
      ]);
    };
    await at('1 new', 0);
    await at('2 aged', 9 * DAY);
    await at('3 aged, deleted', 9 * DAY, DAY / 2);
    await at('4 aged, deleted long ago', 9 * DAY, 5 * DAY);
    await at('5 deleted long ago', 0, 5 * DAY);
    await at('old 6', 9 * DAY);
    const prune = async (options: object) => {
      const dry = await maintain(context).prune({ appName: app, ...options, dryRun: true });
      const { sessions, events } = dry.done;
      const ofUser = await maintain(context).prune({ appName: app, userId: 'alice', ...options, dryRun: true });
      expect(ofUser).toMatchObject({ done: { sessions, events } });
      expect(await maintain(context).prune({ appName: app, ...options })).toEqual(dry);
      return idsLeft(context);
    };
    expect(await prune({ idleFor: 3 * DAY, sessionsOlderThan: 99 * DAY })).toHaveLength(6);
    expect(await prune({ idleFor: 3 * DAY, sessionsOlderThan: 3 * DAY })).not.toContain('old 6');
    expect(await prune({ deletedFor: 3 * DAY, sessionsOlderThan: 3 * DAY })).toEqual([
      '1 new',
      '2 aged',
      '3 aged, deleted',
      '5 deleted long ago',
    ]);
    expect(await prune({ deletedFor: 3 * DAY })).toEqual(['1 new', '2 aged', '3 aged, deleted']);
    expect(await prune({ sessionsOlderThan: 3 * DAY })).toEqual(['1 new']);
  },
);

maintenanceSuite.own('K1', 'prune leaves an idle session that somebody has handled since', async (context) => {
  const { app, orm, service, query } = context;
  const soft = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
  const handle: Record<string, (session: Session) => Promise<unknown>> = {
    described: (session) => service.describeSession(keyOf(session), { title: 'Invoices' }),
    restored: async (session) => {
      await soft.deleteSession(keyOf(session));
      await soft.restoreSession(keyOf(session));
    },
    'rewound to an event': (session) => service.rewindSession(keyOf(session), { at: 1 }),
    'rewound to its beginning': (session) => service.rewindSession(keyOf(session), { at: 0 }),
    'rewritten event': (session) =>
      service.appendEvent({ session, event: saying('again', { id: 'e1', timestamp: 10 }) }),
    'state set': (session) => service.updateState({ ...keyOf(session), set: { kept: 2 } }),
  };
  const times = `create_time = 5, last_update_time = 5`;
  for (const [sessionId, change] of Object.entries(handle)) {
    const session = await old(context, 3, { sessionId });
    await query(`update adk_sessions set ${times} where ${OF_SESSION}`, Object.values(keyOf(session)));
    await change(session);
    await query(`update adk_sessions set ${times} where ${OF_SESSION}`, Object.values(keyOf(session)));
  }
  const maintenance = maintain(context);
  const trimmed = await old(context, 3, { sessionId: 'trimmed' });
  await maintenance.trim({ ...keyOf(trimmed), keepLast: 1 });

  for (const userId of [undefined, 'alice']) {
    const owner = { appName: app, ...(userId && { userId }) };
    expect(await maintenance.prune({ ...owner, idleFor: DAY, dryRun: true })).toMatchObject({ done: { sessions: 1 } });
  }
  expect(await maintenance.prune({ appName: app, idleFor: DAY })).toMatchObject({ done: { sessions: 1 }, skipped: 0 });
  expect(await idsLeft(context)).toEqual(Object.keys(handle));
  // By the database's clock, and only until they have been idle again.
  const aged = 'update adk_sessions set touched_at = touched_at - ? where app_name = ?';
  await query(aged, [2 * DAY, app]);
  expect(await maintenance.prune({ appName: app, idleFor: DAY })).toMatchObject({ done: { sessions: 6 } });
});

maintenanceSuite.own('K1', 'prune without a time, or with unknown options, is refused', async (context) => {
  const { app } = context;
  await old(context);
  const maintenance = maintain(context);
  await expectCode(
    maintenance.prune({ appName: app }),
    'ADK_INVALID_ARGUMENT',
    /idleFor, sessionsOlderThan or deletedFor/,
  );
  for (const call of [
    () => maintenance.prune({ idleFor: -1 }),
    () => maintenance.prune({ idleFor: 1, batchSize: 0 }),
    () => maintenance.prune({ idleFor: 1, app } as never),
    () => maintenance.trim({ appName: app }),
    () => maintenance.trim({ appName: app, keepLast: 1, eventsOlderThan: 1 }),
    () => maintenance.trim({ appName: app, sessionId: 's', keepLast: 1 }),
    () => maintenance.stats({ groupBy: 'user' } as never),
    async () => new SessionMaintenance(context.orm.em, { retries: 1 } as never),
  ]) {
    await expectCode((async () => call())(), 'ADK_INVALID_ARGUMENT');
  }
  await expectCode(maintenance.prune({ appName: '', idleFor: 0 }), 'ADK_INVALID_KEY');
  // Without a user everybody would go.
  for (const userId of ['', undefined, null]) {
    await expectCode(maintenance.eraseUser({ appName: app, userId } as never), 'ADK_INVALID_KEY');
    const code = userId === undefined ? 'ADK_INVALID_ARGUMENT' : 'ADK_INVALID_KEY';
    await expectCode(maintenance.prune({ userId, idleFor: 0 } as never), code);
  }
  expect(await idsLeft(context)).toHaveLength(1);
});

maintenanceSuite.own('K1', 'batches are bounded, reported and continued', async (context) => {
  const { app } = context;
  for (const i of range(10)) await old(context, 3, { sessionId: `s${i}` });
  const reported: MaintenanceResult[] = [];
  const prune = (more: object = {}) =>
    // Four rows each: two sessions fit into a batch.
    maintain(context).prune({
      appName: app,
      idleFor: DAY,
      batchSize: 8,
      onProgress: (each) => reported.push(each),
      ...more,
    });
  const first = await prune({ maxBatches: 3 });
  expect(first).toMatchObject({ done: { sessions: 6, events: 18 }, batches: 3, skipped: 0, more: true });
  expect(reported).toMatchObject([1, 2, 3].map((n) => ({ done: { sessions: 2 * n, events: 6 * n }, batches: n })));
  expect(await idsLeft(context)).toHaveLength(4);

  // The signal is heard in the wait, and before anything is done.
  const stop = new AbortController();
  const pausing = prune({ signal: stop.signal, pauseMs: NEVER_MS, onProgress: () => stop.abort() });
  expect(await pausing).toMatchObject({ done: { sessions: 2, events: 6 }, batches: 1, skipped: 0, more: true });
  expect(await prune({ signal: stop.signal })).toMatchObject({
    done: { sessions: 0, events: 0 },
    batches: 0,
    skipped: 0,
    more: true,
  });
  expect(await idsLeft(context)).toHaveLength(2);

  expect(await prune({ maxBatches: 1 })).toMatchObject({ done: { sessions: 2 }, more: false });
  expect(await idsLeft(context)).toEqual([]);
});

maintenanceSuite.own('K1', 'a call whose signal has fired reads no app after the first', async (context) => {
  const { orm, app, service } = context;
  let sent = 0;
  const before = async () => {
    sent++;
  };
  const maintenance = maintain(context, faulty(orm.em, { before }));
  const signal = AbortSignal.abort();
  const sentFor = async (call: () => Promise<MaintenanceResult>) => {
    sent = 0;
    expect(await call()).toMatchObject({ done: { sessions: 0 }, batches: 0, more: true });
    return sent;
  };
  const calls = [
    () => maintenance.prune({ idleFor: 0, signal }),
    () => maintenance.eraseUser({ userId: 'nobody', signal }),
    () => maintenance.trim({ keepLast: 0, signal }),
  ];
  const create = (name: string) => service.createSession({ appName: `${app} ${name}`, userId: 'nobody' });
  await create('a');
  const counts: number[] = [];
  // The first call on a connection sends more.
  for (const _ of range(2)) for (const [i, call] of calls.entries()) counts[i] = await sentFor(call);
  for (const i of range(5)) await create(`b${i}`);
  for (const [i, call] of calls.entries()) expect(await sentFor(call)).toBe(counts[i]);
});

maintenanceSuite.own('K1', 'dryRun counts what would be done, and writes nothing', async (context) => {
  const { app, recorded } = context;
  for (const i of range(5)) await old(context, 2 * i, { sessionId: `s${i}`, state: { 'user:a': 1 } });
  const maintenance = maintain(context);
  const calls = [
    (more: object) => maintenance.trim({ appName: app, keepLast: 3, batchSize: 4, ...more }),
    (more: object) => maintenance.prune({ appName: app, idleFor: DAY, userId: 'alice', ...more }),
    (more: object) => maintenance.eraseUser({ appName: app, userId: 'alice', ...more }),
  ];
  for (const call of calls) {
    const reported: MaintenanceResult[] = [];
    let dry: unknown;
    const statements = await recorded(async () => {
      dry = await call({ dryRun: true, onProgress: (each: MaintenanceResult) => reported.push(each) });
    });
    // The lease beside it is renewed meanwhile, if the machine is slow.
    expect(statements.filter(({ text }) => !/^(select|pragma|update \S+ set lease_expires)/.test(text))).toEqual([]);
    expect(await call({})).toMatchObject(
      JSON.parse(JSON.stringify(dry, ['done', 'sessions', 'events', 'skipped', 'more'])) as object,
    );
  }
});

maintenanceSuite.own('K1', 'a session with a held lease is skipped, unless the call includes it', async (context) => {
  const { app, orm, query } = context;
  const leases = new SessionLeases(orm.em, LONG_LEASE);
  const sessions = [];
  for (const id of ['held', 'free', 'lapsed']) {
    const session = await old(context, 3, { sessionId: id });
    sessions.push(session);
    if (id !== 'free') await leases.acquire(keyOf(session), { holder: id });
  }
  // By the database's clock, whatever this process thinks.
  await query(`update adk_sessions set lease_expires = 1000 where ${OF_SESSION}`, Object.values(keyOf(sessions[2]!)));
  const maintenance = maintain(context);
  expect(await maintenance.trim({ appName: app, keepLast: 2 })).toMatchObject({
    done: { sessions: 2, events: 2 },
    skipped: 1,
  });
  expect(await maintenance.trim({ ...keyOf(sessions[0]!), keepLast: 2 })).toMatchObject({
    done: { sessions: 0 },
    skipped: 1,
  });
  expect(await maintenance.prune({ appName: app, idleFor: DAY, dryRun: true })).toMatchObject({
    done: { sessions: 2 },
    skipped: 1,
  });
  expect(await maintenance.prune({ appName: app, idleFor: DAY })).toMatchObject({
    done: { sessions: 2 },
    skipped: 1,
    more: false,
  });
  const person = { appName: app, userId: 'alice' };
  expect(await maintenance.eraseUser({ ...person, dryRun: true })).toMatchObject({ done: { sessions: 0 }, skipped: 1 });
  await context.service.updateState({ ...person, set: { 'user:a': 1 } });
  const artifacts = new MikroOrmArtifactService(orm.em);
  for (const [sessionId, filename] of [
    ['held', 'in use'],
    ['held', 'user:f'],
    ['gone', 'f'],
  ] as const)
    await artifacts.saveArtifact({ ...person, sessionId, filename, artifact: { text: 'x' } });
  expect(await maintenance.eraseUser({ ...person, dryRun: true })).toMatchObject({ done: { artifacts: 2 } });
  expect(await errorOf(maintenance.eraseUser(person))).toMatchObject({
    code: 'ADK_USER_NOT_ERASED',
    result: { done: { sessions: 0, stateKeys: 1, artifacts: 2 }, skipped: 1 },
  });
  // Whoever has the lease reads them.
  expect(await artifacts.listArtifactKeys({ ...person, sessionId: 'held' })).toEqual(['in use']);
  expect(await context.service.getUserState(person)).toEqual({});
  expect(await idsLeft(context)).toEqual(['held']);
  expect(await maintenance.prune({ appName: app, idleFor: DAY, includeLeased: true })).toMatchObject({
    done: { sessions: 1 },
    skipped: 0,
  });
  expect(await idsLeft(context)).toEqual([]);
});

/** Maintenance with something that comes between its look at the sessions and its transaction. */
function interrupted({ orm }: Pick<OwnStore, 'orm'>, change: () => Promise<unknown>): SessionMaintenance {
  let isDone = false;
  const before = async (text: string) => {
    if (isDone || text !== 'begin') return;
    isDone = true;
    await change();
  };
  return new SessionMaintenance(faulty(orm.em, { before }));
}

maintenanceSuite.own(
  'K1',
  'a session that changes before it is locked is checked again',
  async (context) => {
    const { app, another, peer } = context;
    const changes: Record<string, [(session: Session) => Promise<unknown>, skipped: number]> = {
      'another event': [(session) => another.appendEvent({ session, event: saying('back') }), 0],
      'a lease': [(session) => new SessionLeases(peer.em, LONG_LEASE).acquire(keyOf(session), { holder: 'me' }), 1],
      // The one with a lease is there still.
      'a deletion': [(session) => another.deleteSession(keyOf(session)), 1],
    };
    for (const [title, [change, skipped]] of Object.entries(changes)) {
      const session = await old(context, 3, { sessionId: title });
      const result = await interrupted(context, () => change(session)).prune({
        appName: app,
        userId: 'alice',
        idleFor: DAY,
      });
      expect(result).toMatchObject({ done: { sessions: 0, events: 0 }, batches: 1, skipped, more: false });
    }
    expect(await idsLeft(context)).toEqual(['a lease', 'another event']);
  },
  withConnections,
);

maintenanceSuite.own(
  'K1',
  'a trim skips a session that was created again before it is locked, and not one that was rewound',
  async (context) => {
    const { another, service } = context;
    const record = { done: { sessions: 0, events: 0 }, skipped: 1 };
    const session = await old(context, 5);
    const again = async () => {
      await another.deleteSession(keyOf(session));
      const created = await another.createSession(keyOf(session));
      await another.appendEvents({ session: created, events: upTo(5).map((n) => saying(`${n}`)) });
    };
    const trimmed = (change: () => Promise<unknown>) =>
      interrupted(context, change).trim({ ...keyOf(session), keepLast: 2 });
    expect(await trimmed(again)).toMatchObject(record);
    expect(await service.getSession(keyOf(session))).toMatchObject({ events: { length: 5 } });
    expect(await trimmed(() => another.rewindSession(keyOf(session), { at: 4 }))).toMatchObject({
      done: { sessions: 1, events: 2 },
      skipped: 0,
    });
  },
  withConnections,
);

maintenanceSuite.own(
  'K1',
  'a locked session is left for the next call, and appends to others continue beside a batch',
  async (context) => {
    const { app, orm, peer, another, query } = context;
    for (const i of range(5)) await old(context, 20, { sessionId: `s${i}`, state: { a: 1, b: 2 } });
    // Their rows are in between, and behind.
    const users: Session[] = [];
    for (const id of ['s', 's0a', 's2', 's3a', 's4 ', 't']) {
      if (id !== 's2') users.push(await context.create({ sessionId: id, state: { a: 1 } }));
    }
    const update = `update adk_sessions set last_seq = last_seq where ${OF_SESSION}`;
    let isOpen = false;
    let seen = 0;
    // Not in the context of the transaction below, where MikroORM would take the other ORM's `EntityManager` for this one.
    const em = faulty(orm.em, {
      before: async (text) => {
        // In the middle of the transaction, before its last deletion.
        if (isOpen || !text.startsWith('select') || !text.includes('skip locked')) return;
        if (++seen < 5) return;
        isOpen = true;
        for (const session of users)
          await another.appendEvent({ session, event: saying('x', { actions: { stateDelta: { n: 1 } } }) });
        await another.createSession({ appName: app, userId: 'alice', sessionId: 's9' });
        await another.createSession({ appName: app, userId: 'alice', sessionId: 's3b', state: { a: 1 } });
      },
    });
    const maintenance = new SessionMaintenance(em);
    const locking = peer.em.fork();
    await locking.begin();
    await query(update, [app, 'alice', 's2'], locking);
    const result = await maintenance.prune({ appName: app, userId: 'alice', idleFor: DAY });
    await locking.commit();
    expect(isOpen).toBe(true);
    expect(result).toMatchObject({ done: { sessions: 4, events: 80 }, batches: 1, skipped: 1, more: false });
    expect(await idsLeft(context)).toEqual(['s', 's0a', 's2', 's3a', 's3b', 's4 ', 's9', 't']);
    expect(await maintain({ orm }).prune({ appName: app, idleFor: DAY })).toMatchObject({
      done: { sessions: 1 },
      skipped: 0,
    });
  },
  (harness) => onServers(harness) && withConnections(harness),
);

maintenanceSuite.own(
  'K1',
  'appends to other sessions continue beside a trim',
  async (context) => {
    const { app, orm, another } = context;
    for (const i of range(3)) await old(context, 20, { sessionId: `s${i}` });
    const users: Session[] = [];
    for (const id of ['s0a', 's1a', 's2a']) users.push(await context.create({ sessionId: id }));
    let isOpen = false;
    const em = faulty(orm.em, {
      before: async (text) => {
        // After the deletions of the second session, before the third.
        if (isOpen || !text.startsWith('select') || !text.includes('skip locked') || ++seen < 3) return;
        isOpen = true;
        for (const session of users) await another.appendEvent({ session, event: saying('x') });
      },
    });
    let seen = 0;
    const result = await new SessionMaintenance(em).trim({ appName: app, keepLast: 0 });
    expect([isOpen, result]).toMatchObject([
      true,
      { done: { sessions: 3, events: 60 }, batches: 1, skipped: 0, more: false },
    ]);
  },
  (harness) => onServers(harness) && withConnections(harness),
);

maintenanceSuite.own(
  'K1',
  'a session of more events than a batch is deleted in several, and is not seen meanwhile',
  async (context) => {
    const { app, service, another, stored, append, fresh } = context;
    const session = await old(context, 50, { sessionId: 'long' });
    await old(context, 1, { sessionId: 'short' });
    await used(context, { sessionId: 'used' });
    const handle = await fresh(session);
    const prune = (more: object = {}) =>
      maintain(context).prune({ appName: app, idleFor: DAY, batchSize: 20, ...more });
    expect(await prune({ dryRun: true })).toMatchObject({ done: { sessions: 2, events: 51 } });
    expect(await prune({ maxBatches: 3 })).toMatchObject({ done: { sessions: 1, events: 21 }, batches: 3, more: true });
    expect(await another.getSession(keyOf(session))).toBeUndefined();
    expect((await service.listSessions({ appName: app })).sessions.map(({ id }) => id)).toEqual(['used']);
    await expectCode(append(handle, {}, another), 'ADK_SESSION_NOT_FOUND');
    await expectCode(append(session), 'ADK_SESSION_NOT_FOUND');
    await expectCode(service.updateState({ ...keyOf(session), set: { a: 1 } }), 'ADK_SESSION_NOT_FOUND');
    await expectCode(
      new SessionLeases(context.orm.em, LONG_LEASE).acquire(keyOf(session), { holder: 'me' }),
      'ADK_SESSION_NOT_FOUND',
    );
    expect(await read(new EventLog(context.orm.em).since(0, { appName: app }))).toHaveLength(1);

    expect(await prune()).toMatchObject({ done: { sessions: 1, events: 30 }, more: false });
    expect(await rowsOf(context, 'app_name = ?', [app])).toMatchObject({ sessions: 1, events: 1, session_states: 0 });
    expect(await stored(keyOf(session))).toBeUndefined();
  },
);

maintenanceSuite.own(
  'K1',
  'eraseUser leaves nothing of a person, and everything of others',
  async ({ app, scratch }) => {
    // The apps of all other tests would be walked through, too.
    const { service, query, orm, another } = await scratch();
    const create: OwnContext['create'] = (request) =>
      service.createSession({ appName: app, userId: 'ada', ...request });
    const person = `ada of ${app}`;
    const apps = [app, `${app} too`];
    const log = new EventLog(orm.em);
    const start = await log.head();
    for (const appName of apps) {
      for (const userId of [person, 'bob']) {
        for (const sessionId of ['s1', 's2']) {
          await old({ app: appName, create, service }, 4, {
            appName,
            userId,
            sessionId,
            state: { 'user:name': userId, 'app:x': 1 },
          });
        }
      }
    }
    // State without a session, and a soft-deleted session.
    await service.updateState({
      appName: `${app} state`,
      userId: person,
      set: { 'user:a': 1, 'user:b': 2, 'user:c': 3 },
    });
    await query(
      `update adk_sessions set status = 'deleted', deleted_at = 5 where app_name = ? and user_id = ? and session_id = 's2'`,
      [app, person],
    );
    const head = await log.head();
    const one = await maintain({ orm }).eraseUser({ userId: person, appName: `${app} too` });
    expect(one).toMatchObject({ done: { sessions: 2, events: 8, stateKeys: 1 }, batches: 3, skipped: 0, more: false });
    const erase = () => maintain({ orm }).eraseUser({ userId: person, batchSize: 2, maxBatches: 3 });
    let rounds = 0;
    for (let last = await erase(); last.more || last.done.sessions + last.done.stateKeys > 0; last = await erase())
      rounds++;
    expect(rounds).toBeGreaterThan(2);

    for (const table of [...TABLES]) {
      expect(await query(`select 1 from adk_${table} where user_id = ?`, [person])).toEqual([]);
    }
    for (const appName of apps) {
      expect(await another.getSession({ appName, userId: 'bob', sessionId: 's1' })).toMatchObject({
        state: { 'user:name': 'bob', 'app:x': 1 },
        events: { length: 4 },
      });
    }
    // A reader that is behind sees the others' events, and no damage.
    const entries = await read(log.since(start));
    expect(entries).toHaveLength(16);
    expect(entries.filter(({ userId, error }) => userId !== 'bob' || error)).toEqual([]);
    expect((await log.head()).position).toBe(head.position);
  },
  oncePerDialect,
);

// K2

/** A session of ten events of which the newest four are kept. */
async function trimmed(context: OwnContext, keepLast = 4): Promise<Session> {
  const session = await old(context, 10);
  const result = await maintain(context).trim({ ...keyOf(session), keepLast });
  expect(result).toMatchObject({ done: { sessions: 1, events: 10 - keepLast }, batches: 1, skipped: 0, more: false });
  return session;
}

const E = (...numbers: number[]) => numbers.map((n) => `e${n}`);

maintenanceSuite.own(
  'K1',
  'eraseUser removes log entries of a person whose rows somebody deleted',
  async ({ scratch }) => {
    const store = await scratch();
    const key = { appName: 'app', userId: 'ada', sessionId: 'gone' };
    await store.service.createSession({ ...key, state: { secret: 'a', 'user:name': 'Ada' } });
    await store.service.updateState({ ...key, set: { secret: 1 } });
    await store.query("delete from adk_sessions where user_id = 'ada'");
    await store.query("delete from adk_user_states where user_id = 'ada'");
    await maintain(store).eraseUser({ userId: 'ada' });
    expect(await store.query("select * from adk_changes where user_id = 'ada'")).toEqual([]);
  },
);

maintenanceSuite.own('K2', 'a trimmed session has its newest events, its state and its numbers', async (context) => {
  const { fresh, query, append, stored } = context;
  const session = await trimmed(context);
  const rows = () =>
    query<{ seq: number }>(
      `select seq from adk_events where ${OF_SESSION} order by seq`,
      Object.values(keyOf(session)),
    );
  expect((await rows()).map(({ seq }) => seq)).toEqual([7, 8, 9, 10]);
  const read = await fresh(session);
  expect(idsOf(read)).toEqual(E(7, 8, 9, 10));
  expect(read).toMatchObject({ state: { kept: 1, n: 10 }, lastUpdateTime: 100 });
  expect(await stored(keyOf(session))).toMatchObject({ state: { kept: 1, n: 10 }, events: { length: 4 } });
  expect(idsOf(session)).toHaveLength(10);

  // Both the handle from before and the new one append.
  await append(session, { id: 'e11', timestamp: 110 });
  await append(read, { id: 'e12', timestamp: 120 });
  expect(idsOf(read)).toEqual(E(7, 8, 9, 10, 11, 12));
  expect((await rows()).map(({ seq }) => seq)).toEqual([7, 8, 9, 10, 11, 12]);
  expect(idsOf(await fresh(session))).toEqual(E(7, 8, 9, 10, 11, 12));

  // One that was trimmed is a new event when it is appended again.
  await append(read, { id: 'e1', timestamp: 10 });
  expect((await rows()).at(-1)).toMatchObject({ seq: 13 });
  expect(idsOf(await fresh(session))).toEqual(E(7, 8, 9, 10, 11, 12, 1));
});

maintenanceSuite.own('K2', 'a trimmed session is read by number and by time', async (context) => {
  const { fresh } = context;
  const session = await trimmed(context);
  const ids = async (config: object) => idsOf(await fresh(session, config));
  expect(await ids({ numRecentEvents: 2 })).toEqual(E(9, 10));
  expect(await ids({ numRecentEvents: 9 })).toEqual(E(7, 8, 9, 10));
  expect(await ids({ afterTimestamp: 20 })).toEqual(E(7, 8, 9, 10));
  expect(await ids({ afterTimestamp: 80 })).toEqual(E(9, 10));
  expect(await ids({ afterTimestamp: 20, numRecentEvents: 3 })).toEqual(E(8, 9, 10));
  expect(await ids({ afterTimestamp: 20, numRecentEvents: 9 })).toEqual(E(7, 8, 9, 10));
});

maintenanceSuite.own('K2', 'reading a trimmed session costs what reading another one does', async (context) => {
  const { orm, service, recorded } = context;
  const log = new EventLog(orm.em);
  for (const session of [await trimmed(context), await old(context, 4)]) {
    const key = keyOf(session);
    expect(await recorded(() => service.getSession(key))).toHaveLength(1);
    expect(await recorded(() => service.getSession({ ...key, config: { afterTimestamp: 5 } }))).toHaveLength(1);
    expect(await recorded(() => read(log.session(key).since(0)))).toHaveLength(2);
  }
});

maintenanceSuite.own('K2', 'a session may be trimmed to nothing, and continues', async (context) => {
  const { fresh, append, another, orm, service } = context;
  const session = await trimmed(context, 0);
  const behind = await fresh(session);
  expect(behind).toMatchObject({ events: [], state: { kept: 1, n: 10 } });
  expect((await fresh(session, { numRecentEvents: 3 })).events).toEqual([]);
  expect((await fresh(session, { afterTimestamp: 1 })).events).toEqual([]);
  expect((await new EventLog(orm.em).session(keyOf(session)).head()).seq).toBe(10);
  await append(session, { id: 'e11', timestamp: 110 });
  await append(behind, { id: 'e12', timestamp: 120 }, another);
  expect(idsOf(behind)).toEqual(E(11, 12));
  const clone = { ...structuredClone({ ...session, events: [] }), events: [] };
  await service.appendEvent({ session: clone, event: saying('x', { id: 'e13', timestamp: 130 }) });
  expect(idsOf(clone)).toEqual(E(11, 12, 13));
});

maintenanceSuite.own('K2', 'a handle that is behind catches up, or is refused', async (context) => {
  const { app, orm, append, fresh } = context;
  const [early, strict] = await Promise.all([0, 1].map(() => old(context, 3)));
  const handles = [await fresh(early!), await fresh(strict!)];
  for (const session of [early!, strict!]) {
    for (const n of [4, 5, 6]) await append(session, { id: `e${n}`, timestamp: 10 * n });
  }
  await maintain(context).trim({ appName: app, keepLast: 1 });
  await append(handles[0]!, { id: 'e7', timestamp: 70 });
  expect(idsOf(handles[0]!)).toEqual(E(6, 7));
  const rejecting = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
  await expectCode(append(handles[1]!, {}, rejecting), 'ADK_STALE_SESSION');
  // Also when there is no event at all to compare with.
  await maintain(context).trim({ ...keyOf(strict!), keepLast: 0 });
  await expectCode(append(handles[1]!, {}, rejecting), 'ADK_STALE_SESSION');
  await append(await fresh(strict!), { id: 'e8' }, rejecting);
});

maintenanceSuite.own(
  'K2',
  'cursors stay valid, and nothing that was trimmed is reported as damage',
  async (context) => {
    const { app, orm, append } = context;
    const session = await old(context, 10);
    const log = new EventLog(orm.em);
    const head = await log.head();
    await maintain(context).trim({ ...keyOf(session), keepLast: 4 });
    const ofSession = log.session(keyOf(session));
    for (const [seq, expected] of [
      [0, E(7, 8, 9, 10)],
      [3, E(7, 8, 9, 10)],
      [6, E(7, 8, 9, 10)],
      [8, E(9, 10)],
      [10, []],
    ] as const) {
      expect(idsIn(await read(ofSession.since(seq)))).toEqual(expected);
    }
    expect(idsIn(await read(log.since(0, { appName: app })))).toEqual(E(7, 8, 9, 10));
    expect((await log.head()).position).toBe(head.position);
    await append(session, { id: 'e11' });
    expect(idsIn(await read(log.since(head, { appName: app })))).toEqual(E(11));
    expect(idsIn(await read(ofSession.since(10)))).toEqual(E(11));
    const stop = new AbortController();
    const watched = [];
    for await (const entry of ofSession.watch(0, {}, { signal: stop.signal })) {
      if (watched.push(entry) === 5) stop.abort();
    }
    expect(idsIn(watched)).toEqual(E(7, 8, 9, 10, 11));
  },
);

maintenanceSuite.own('K2', 'what is missing among the events that are kept is damage', async (context) => {
  const { query, another, orm } = context;
  const session = await trimmed(context);
  await query(`delete from adk_events where seq in (7, 9) and ${OF_SESSION}`, Object.values(keyOf(session)));
  const missing = [
    { from: 7, to: 7, problem: 'missing' },
    { from: 9, to: 9, problem: 'missing' },
  ];
  expect(await errorOf(another.getSession(keyOf(session)))).toMatchObject({ events: missing });
  expect(await errorOf(another.getSession({ ...keyOf(session), config: { afterTimestamp: 5 } }))).toMatchObject({
    events: missing,
  });
  const entries = await read(new EventLog(orm.em).session(keyOf(session)).since(0));
  expect(idsIn(entries)).toEqual(['error', 'e8', 'error', 'e10']);
});

maintenanceSuite.own(
  'K2',
  'a trim between the reads of a session’s log is not damage',
  async (context) => {
    const { orm, peer } = context;
    const session = await old(context, 10);
    let isTrimmed = false;
    const before = async (text: string) => {
      if (isTrimmed || !text.startsWith('select position')) return;
      isTrimmed = true;
      await new SessionMaintenance(peer.em).trim({ ...keyOf(session), keepLast: 4 });
    };
    const log = new EventLog(faulty(orm.em, { before }), { pollIntervalMs: NEVER_MS });
    expect(idsIn(await read(log.session(keyOf(session)).since(0)))).toEqual(E(7, 8, 9, 10));
    expect(isTrimmed).toBe(true);
  },
  withConnections,
);

maintenanceSuite.own('K2', 'trim by age drops the oldest events up to the first younger one', async (context) => {
  const { app, create, service, fresh } = context;
  const session = await create();
  const now = Date.now();
  const ages = [9, 8, 1, 9, 0].map((days) => now - days * DAY);
  await service.appendEvents({
    session,
    events: ages.map((timestamp, i) => saying(String(i), { id: `e${i + 1}`, timestamp })),
  });
  const gone = await old(context, 2);
  expect(await maintain(context).trim({ appName: app, eventsOlderThan: 3 * DAY })).toMatchObject({
    done: { sessions: 2, events: 4 },
  });
  expect(idsOf(await fresh(session))).toEqual(E(3, 4, 5));
  expect((await fresh(gone)).events).toEqual([]);
  expect(await maintain(context).trim({ appName: app, eventsOlderThan: 3 * DAY })).toMatchObject({
    done: { sessions: 0, events: 0 },
  });
});

maintenanceSuite.own('K2', 'a long session is trimmed in batches, and is whole after each', async (context) => {
  const { app, fresh } = context;
  const session = await old(context, 50);
  const seen: string[][] = [];
  for (;;) {
    const { more } = await maintain(context).trim({ appName: app, keepLast: 5, batchSize: 20, maxBatches: 1 });
    const read = await fresh(session);
    expect(read.state).toEqual({ kept: 1, n: 50 });
    seen.push(idsOf(read));
    if (!more) break;
  }
  expect(seen.map((ids) => ids[0])).toEqual(E(21, 41, 46));
  expect(seen.every((ids) => ids.at(-1) === 'e50')).toBe(true);
});

maintenanceSuite.own(
  'K2',
  'parts of large events go with them',
  async (context) => {
    const { app, service, create, append, query, fresh } = context;
    const session = await create();
    const large = (id: string) => append(session, { id, content: { parts: [{ text: 'x'.repeat(600_000) }] } });
    for (const id of ['e1', 'e2', 'e3']) await large(id);
    const parts = () =>
      query<{ seq: number }>('select distinct seq from adk_event_parts where app_name = ? order by seq', [app]);
    expect(await parts()).toHaveLength(3);
    await service.rewindSession(keyOf(session), { at: 1 });
    expect(await parts()).toEqual([{ seq: 1 }]);
    for (const id of ['e2', 'e3']) await large(id);
    await query('delete from adk_event_parts where app_name = ? and seq = 2 and part = 0', [app]);
    await maintain(context).repair(keyOf(session));
    expect((await parts()).at(-1)).toEqual({ seq: 3 });
    expect(await parts()).toHaveLength(2);
    await maintain(context).trim({ appName: app, keepLast: 1 });
    expect(await parts()).toEqual([{ seq: 3 }]);
    expect(idsOf(await fresh(session))).toEqual(E(3));
    await maintain(context).eraseUser({ appName: app, userId: 'alice' });
    expect(await parts()).toEqual([]);
  },
  onMysql,
);

// K5

maintenanceSuite.own('K5', 'stats count what is stored, for all, an app or a user', async ({ scratch }) => {
  const store = await scratch();
  const { service, query } = store;
  const maintenance = maintain(store);
  const none = { mean: 0, median: 0, percentile95: 0, largest: 0 };
  const noFiles = { artifacts: 0, artifactBytes: 0, memories: 0, memoryBytes: 0 };
  const nothing = { sessions: 0, deletedSessions: 0, users: 0, events: 0, eventBytes: 0, stateBytes: 0, ...noFiles };
  expect(await maintenance.stats()).toEqual({ ...nothing, eventsPerSession: none });
  expect(await maintenance.stats({ groupBy: 'app' })).toEqual([]);

  let bytes = 0;
  const fill = async (appName: string, userId: string, events: number, time: number) => {
    const session = await service.createSession({ appName, userId, state: { ä: 'ü' } });
    const appended = upTo(events).map((n) => saying('ö'.repeat(n), { timestamp: time + n }));
    bytes += appended.reduce((sum, event) => sum + Buffer.byteLength(JSON.stringify(event)), 0);
    if (events > 0) await service.appendEvents({ session, events: appended });
    else await query('update adk_sessions set last_update_time = ? where session_id = ?', [time, session.id]);
    return session;
  };
  for (const events of upTo(20)) await fill('many', `user ${events % 4}`, events, 1_000 * events);
  const ofMany = bytes;
  const empty = await fill('one', 'user 1', 0, 0.5);
  await service.updateState({ appName: 'state only', set: { 'app:a': 'x' } });
  await service.updateState({ appName: 'one', userId: 'user 1', set: { 'user:a': 12 } });
  await query("update adk_sessions set status = 'deleted', deleted_at = 5 where session_id = ?", [empty.id]);

  const eventsPerSession = { mean: 10.5, median: 10, percentile95: 19, largest: 20 };
  const many = { sessions: 20, deletedSessions: 0, users: 4, events: 210, eventBytes: ofMany, stateBytes: 20 * 4 };
  expect(await maintenance.stats({ appName: 'many' })).toEqual({
    ...many,
    ...noFiles,
    eventsPerSession,
    oldestUpdate: 1_001,
    newestUpdate: 20_020,
  });
  const all = await maintenance.stats();
  expect(all).toMatchObject({ sessions: 21, deletedSessions: 1, users: 5, events: 210, eventBytes: bytes });
  expect(all).toMatchObject({ stateBytes: 21 * 4 + 3 + 2, oldestUpdate: 0.5, newestUpdate: 20_020 });
  expect(await maintenance.stats({ userId: 'user 1' })).toMatchObject({
    sessions: 6,
    users: 2,
    events: 45,
    stateBytes: 26,
  });
  expect(await maintenance.stats({ groupBy: 'app' })).toMatchObject([
    { appName: 'many', ...many, eventsPerSession },
    { appName: 'one', ...nothing, sessions: 1, deletedSessions: 1, users: 1, stateBytes: 6 },
    { appName: 'state only', ...nothing, stateBytes: 3 },
  ]);
  expect(await maintenance.stats({ appName: 'one', groupBy: 'app' })).toMatchObject([{ appName: 'one', sessions: 1 }]);
  const statements = await store.recorded(() => maintenance.stats());
  expect(statements.filter(({ text }) => !/count\(|sum\(/.test(text))).toEqual([]);
});

maintenanceSuite.own('K5', 'stats count what follows a trim, and large events', async (context) => {
  const { app, create, append } = context;
  await trimmed(context);
  const session = await create();
  const large = await append(session, { content: { parts: [{ text: 'x'.repeat(1_200_000) }] } });
  const { eventBytes, ...stats } = await maintain(context).stats({ appName: app });
  expect(stats).toMatchObject({ sessions: 2, events: 5, eventsPerSession: { largest: 4 } });
  expect(eventBytes).toBeGreaterThan(Buffer.byteLength(JSON.stringify(large)));
  expect(eventBytes).toBeLessThan(Buffer.byteLength(JSON.stringify(large)) + 2_000);
});

// I5

maintenanceSuite.own('I5', 'after repair getSession works, whatever was damaged', async (context) => {
  const { another, query, append, recorded } = context;
  for await (const { damaging, session } of damaged(context)) {
    const rowsOfEvents = () =>
      query<{ seq: number; event_id: string }>(
        `select seq, event_id from adk_events where ${OF_SESSION} order by seq`,
        Object.values(keyOf(session)),
      );
    const readable = new Set(
      idsOf(
        (await new MikroOrmSessionService(context.orm.em, {
          onDamagedEvent: 'skip',
          onDamage: () => undefined,
        }).getSession(keyOf(session)))!,
      ),
    );
    const before = await rowsOfEvents();
    const dry = await maintain(context).repair(keyOf(session), { dryRun: true });
    expect(await rowsOfEvents()).toEqual(before);
    const repaired = await maintain(context).repair(keyOf(session));
    expect([damaging.title, repaired.damage]).toEqual([damaging.title, damaging.events]);
    expect(repaired).toEqual(dry);
    expect(repaired.stateValues).toEqual([]);

    const read = (await another.getSession(keyOf(session)))!;
    const uncounted = damaging.events.some(({ problem }) => problem === 'uncounted');
    expect(idsOf(read).filter((id) => readable.has(id))).toEqual([...readable]);
    if (uncounted) expect(idsOf(read)).toHaveLength(5);
    expect(read.state).toMatchObject({ kept: 1, n: 5 });
    // The numbers of what could be read are as they were.
    const seqOf = new Map((await rowsOfEvents()).map((row) => [row.event_id, row.seq]));
    for (const { seq, event_id } of before) if (readable.has(event_id)) expect(seqOf.get(event_id)).toBe(seq);
    await append(read, { id: 'e9' });
    expect(idsOf((await another.getSession(keyOf(session)))!).at(-1)).toBe('e9');
    // Nothing is left to do.
    const again = await recorded(async () => {
      expect(await maintain(context).repair(keyOf(session))).toEqual({
        ...{ damage: [], events: [], stateValues: [], changes: [] },
      });
    });
    // But for the token by which a retry finds the transaction done.
    expect(again.filter(({ text }) => /^(delete|insert)/.test(text) && !text.includes('adk_retry_tokens'))).toEqual([]);
  }
});

maintenanceSuite.own('J2', 'after repair the log folds to the tables, whatever was damaged', async (context) => {
  const { create, append, query, app, orm } = context;
  const log = new EventLog(orm.em);
  for (const { sql, title, values = [] } of damagings(context)) {
    const session = await create();
    for (const n of upTo(5)) await append(session, { id: `e${n}`, delta: { n, [`k${n}`]: n } });
    const reader = new FoldedLog();
    for await (const entry of log.complete().since(0, { appName: app })) reader.add(entry);
    const seen = await log.head();
    await query(sql, [...values, ...Object.values(keyOf(session))]);
    await maintain(context).repair(keyOf(session));
    const tables = await tablesOf(orm, app);
    expectSame(await folded(log, app), tables);
    for await (const entry of log.complete().since(seen, { appName: app })) reader.add(entry);
    expect([title, resultOf(reader)]).toEqual([title, tables]);
  }
});

maintenanceSuite.own('I5', 'what cannot be read is returned byte for byte', async (context) => {
  const { query, harness, app, another, service, create } = context;
  const session = await five(context);
  const values = Object.values(keyOf(session));
  const isJson = harness.columns.refuseOtherThanJson;
  const event = isJson ? '[1, "ä\\u0000",  2]' : '{"id": "ä';
  const value = isJson ? undefined : 'nö{';
  await query(`update adk_events set data = ? where seq = 1 and ${OF_SESSION}`, [event, ...values]);
  await query(`update adk_events set data = ? where seq = 3 and ${OF_SESSION}`, [event, ...values]);
  if (value !== undefined) {
    await service.updateState({ appName: app, userId: 'alice', set: { 'app:x': 1, 'user:x': 1, 'user:y': 2 } });
    await query(`update adk_session_states set value = ? where state_key = 'n' and ${OF_SESSION}`, [value, ...values]);
    await query("update adk_user_states set value = ? where state_key = 'x' and app_name = ?", [value, app]);
    await query("update adk_app_states set value = ? where state_key = 'x' and app_name = ?", [value, app]);
  }
  const repaired = await maintain(context).repair(keyOf(session));
  const content = Buffer.from(event);
  expect(repaired.events).toEqual([
    { seq: 1, eventId: 'e1', timestamp: 10, content, parts: [] },
    { seq: 3, eventId: 'e3', timestamp: 30, content, parts: [] },
  ]);
  const keys = value === undefined ? [] : ['app:x', 'n', 'user:x'];
  expect([...repaired.stateValues].sort((a, b) => (a.key < b.key ? -1 : 1))).toEqual(
    keys.map((key) => ({ key, content: Buffer.from(value ?? '') })),
  );
  const read = (await another.getSession(keyOf(session)))!;
  expect(idsOf(read)).toEqual(['e2', 'e3', 'e4', 'e5']);
  expect(read.events[1]).toMatchObject({ author: 'system', timestamp: 30 });
  expect(read.events[1]!.content).toBeUndefined();
  if (value !== undefined) expect(read.state).toEqual({ kept: 1, 'user:y': 2 });
  const other = await create();
  expect((await another.getSession(keyOf(other)))!.state).toEqual(value === undefined ? {} : { 'user:y': 2 });
});

maintenanceSuite.own('I5', 'state of a user or an app is repaired without a session', async (context) => {
  const { orm, query, app, service } = context;
  const user = { appName: app, userId: 'alice' };
  await service.updateState({ ...user, set: { 'app:x': 1, 'app:y': 2, 'user:x': 1, 'user:y': 2 } });
  // Also JSON, which the columns of PostgreSQL require.
  const value = '[ "adk-codec", 1, "x" ]';
  for (const table of ['user', 'app'])
    await query(`update adk_${table}_states set value = ? where state_key = 'x' and app_name = ?`, [value, app]);
  for (const [owner, userId, key, rows] of [
    [{ appName: app }, '', 'app:x', 'adk_app_states'],
    [user, user.userId, 'user:x', 'adk_user_states'],
  ] as const) {
    const error = await errorOf(read(maintain(context).exportSessions({ appName: app })));
    expect(error).toMatchObject({ appName: app, userId, sessionId: '', stateKeys: [key] });
    const dry = await maintain(context).repair(owner, { dryRun: true });
    expect(await maintain(context).repair(owner)).toEqual(dry);
    expect(dry).toEqual({ ...NOTHING_TAKEN, stateValues: [{ key, content: Buffer.from(value) }] });
    expect(await query(`select state_key from ${rows} where app_name = ?`, [app])).toEqual([{ state_key: 'y' }]);
    expect(await maintain(context).repair(owner)).toEqual(NOTHING_TAKEN);
  }
  expect(await read(maintain(context).exportSessions({ appName: app }))).toHaveLength(2);
  expectSame(await folded(new EventLog(orm.em), app), await tablesOf(orm, app));
  // A forgotten id does not mean all state of the user.
  for (const names of [
    { ...user, sessionId: undefined },
    { appName: app, userId: undefined },
    { ...user, id: 's' },
  ])
    await expect(maintain(context).repair(names as never)).rejects.toMatchObject({
      code: expect.stringMatching(/ADK_INVALID_(KEY|ARGUMENT)/),
    });
});

const NOTHING_TAKEN = { damage: [], events: [], stateValues: [], changes: [] };

maintenanceSuite.own(
  'I5',
  'parts of an event that lost one of them are returned',
  async (context) => {
    const { create, append, query, another } = context;
    const session = await create();
    await append(session, { id: 'e1' });
    await append(session, { id: 'e2', content: { parts: [{ text: 'x'.repeat(1_200_000) }] } });
    await query(`delete from adk_event_parts where part = 1 and ${OF_SESSION}`, Object.values(keyOf(session)));
    const { events } = await maintain(context).repair(keyOf(session));
    expect(events).toMatchObject([{ seq: 2, eventId: 'e2', content: null, parts: [{ part: 0 }, { part: 2 }] }]);
    expect(events[0]!.parts[0]!.content.toString()).toMatch(/^{"/);
    expect(idsOf((await another.getSession(keyOf(session)))!)).toEqual(['e1', 'e2']);
  },
  onMysql,
);

maintenanceSuite.own('I5', 'a wide gap is not filled', async (context) => {
  const { query, another } = context;
  const session = await five(context);
  const values = Object.values(keyOf(session));
  await query(`update adk_events set seq = 2000000 where seq = 5 and ${OF_SESSION}`, values);
  await query(`update adk_sessions set last_seq = 2000000 where ${OF_SESSION}`, values);
  const { events } = await maintain(context).repair(keyOf(session));
  expect(events.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
  expect(JSON.parse(events[0]!.content!.toString())).toMatchObject({ id: 'e1' });
  expect(idsOf((await another.getSession(keyOf(session)))!)).toEqual(['e5']);
});

maintenanceSuite.own(
  'I5',
  'repair of a session that is not there, or that somebody runs, is refused',
  async (context) => {
    const { orm, query } = context;
    const session = await five(context);
    const values = Object.values(keyOf(session));
    await query(`delete from adk_events where seq = 3 and ${OF_SESSION}`, values);
    const maintenance = maintain(context);
    await expectCode(maintenance.repair({ ...keyOf(session), sessionId: 'none' }), 'ADK_SESSION_NOT_FOUND');
    await new SessionLeases(orm.em, LONG_LEASE).acquire(keyOf(session), { holder: 'me' });
    await expectCode(maintenance.repair(keyOf(session)), 'ADK_LEASE_HELD', 'me');
    expect(await query(`select 1 from adk_events where ${OF_SESSION}`, values)).toHaveLength(4);
    expect(await maintenance.repair(keyOf(session), { includeLeased: true })).toMatchObject({ damage: [{ from: 3 }] });
  },
);

// F6

maintenanceSuite.own(
  'F6',
  'every read of maintenance is served by an index',
  async ({ scratch, harness }) => {
    const store = await scratch();
    const { service, orm, query, recorded } = store;
    await orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      for (const i of range(300)) {
        const key = { appName: `app ${i % 5}`, userId: `user ${i % 30}`, sessionId: `s${i}` };
        const session = await joined.createSession({ ...key, state: { a: 1, 'user:a': 1, 'user:b': 2 } });
        await joined.appendEvents({
          session,
          events: upTo(20).map((n) => saying('x'.repeat(200), { timestamp: i + n })),
        });
      }
    });
    for (const i of range(8)) {
      await query(`insert into adk_sessions (app_name, user_id, session_id, incarnation, origin, create_time, last_update_time)
      select 'elsewhere ${i}', user_id, session_id, incarnation, origin, create_time, last_update_time from adk_sessions
      where app_name like 'app %'`);
      await query(`insert into adk_user_states (app_name, user_id, state_key, value)
      select 'elsewhere ${i}', user_id, state_key, value from adk_user_states where app_name like 'app %'`);
    }
    await query("update adk_sessions set status = 'deleted', deleted_at = 5 where session_id like 's_'");
    await query(`insert into adk_event_parts (app_name, user_id, session_id, seq, part, text)
    select app_name, user_id, session_id, seq, 0, 'x' from adk_events`);
    await query(`insert into adk_app_states (app_name, state_key, value)
    select app_name, session_id, '1' from adk_sessions`);
    await query(`insert into adk_changes (app_name, user_id, session_id, change_id, kind, seq, time)
    select app_name, state_key, state_key, 1, 'state', 0, 0 from adk_app_states`);
    for (const key of upTo(20)) {
      await query(`insert into adk_session_states (app_name, user_id, session_id, state_key, value)
      select app_name, user_id, session_id, 'key ${key}', '1' from adk_sessions where app_name like 'app %'`);
    }
    await query(`insert into adk_artifacts (app_name, user_id, session_id, filename, last_version, update_time)
    select app_name, user_id, session_id, 'a file', 0, 0 from adk_sessions`);
    await query(`insert into adk_artifact_versions (app_name, user_id, session_id, filename, version, info, create_time)
    select app_name, user_id, session_id, filename, 0, '{}', 0 from adk_artifacts`);
    await query(`insert into adk_artifact_parts (app_name, user_id, session_id, filename, version, part, data)
    select app_name, user_id, session_id, filename, 0, 0, 'x' from adk_artifacts`);
    await query(`insert into adk_memories (app_name, user_id, session_id, memory_id, time, create_time, words, data)
    select app_name, user_id, session_id, 'm', 0, 0, '', '{}' from adk_sessions`);
    await query(`insert into adk_forgotten_memories (app_name, user_id, session_id, memory_id, create_time)
    select app_name, user_id, session_id, 'm', 0 from adk_sessions`);
    await query(`insert into adk_credentials (app_name, user_id, credential_key, update_time, data)
    select app_name, user_id, session_id, 0, '{}' from adk_sessions`);
    await query(`insert into adk_open_calls (app_name, user_id, session_id, open_until, seq, number, name, timestamp, data)
    select app_name, user_id, session_id, 2147483647, 1, 0, 'ask', 0, '{}' from adk_sessions`);
    const { plan } = harness;
    await query(plan.analyze);
    const maintenance = maintain(store);
    // What a call waits for between transactions changes no statement.
    const pauseMs = 0;
    const statements = await recorded(async () => {
      await maintenance.prune({ pauseMs, appName: 'app 1', idleFor: 60 * DAY, batchSize: 30, maxBatches: 1 });
      await maintenance.prune({ pauseMs, appName: 'app 1', sessionsOlderThan: DAY });
      await maintenance.prune({ pauseMs, deletedFor: DAY, maxBatches: 1 });
      await maintenance.prune({ pauseMs, userId: 'user 3', idleFor: DAY, dryRun: true });
      await maintenance.trim({ pauseMs, appName: 'app 2', keepLast: 5, batchSize: 40, maxBatches: 2 });
      await maintenance.trim({ pauseMs, appName: 'app 2', eventsOlderThan: DAY, batchSize: 40, maxBatches: 2 });
      await maintenance.eraseUser({ pauseMs, userId: 'user 3' });
      await maintenance.stats({ appName: 'app 4' });
      await maintenance.repair({ appName: 'app 4', userId: 'user 4', sessionId: 's64' });
    });
    // The next page, of more sessions than there are here.
    const pages = statements.filter(({ text }) => text.includes('as leased') && text.includes('order by'));
    expect(pages.length).toBeGreaterThan(10);
    // A plan for the catalog says nothing about tables of ours. There are few projections, and `eraseUser` has all of them read again.
    const reading = statements.filter(
      ({ text }) =>
        /^(select|update|delete)\b.*\badk_/s.test(text) && !/adk_projections\W+set version = version \+ 1$/.test(text),
    );
    const scans: [string, string[]][] = [];
    for (const { text, values } of reading) {
      const explain = (prefix: string) => query<object>(`${prefix} ${text}`, values);
      const found = await plan.scans(explain);
      // An app has a change for each of its sessions.
      if ((await plan.sorts?.(explain))?.includes('adk_changes')) found.push('adk_changes, sorted');
      if (found.length > 0) scans.push([text, found]);
    }
    expect(scans).toEqual([]);
  },
  oncePerDialect,
);
