import type { Event, Session } from '@google/adk';
import { createStudio, usageOf, type UsageOptions } from '../../packages/studio/src/index.js';
import {
  EventLog,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  SessionProjection,
  type Lease,
  type SessionKey,
} from '../../src/index.js';
import type { Codec } from '../../src/codecs/index.js';
import { Suite, type OwnContext } from './rule.js';
import { read, readSome } from './log-tools.js';
import { LONG_LEASE, eventOf, idsOf, range, saying } from './tools.js';

/** What calls are given counts as it was when they were made. */
export const requestSuite = new Suite();

interface Given extends OwnContext {
  key: SessionKey;
  session: Session;
  log: EventLog;
  leases: SessionLeases;
  held: Lease;
  maintenance: SessionMaintenance;
}

/** A call that is not made yet. */
interface Prepared {
  args: readonly unknown[];
  run(): unknown;
}

const call = <Args extends unknown[]>(run: (...args: Args) => unknown, ...args: Args): Prepared => ({
  args,
  run: () => run(...args),
});

/** What is not read before what the call was given has changed. */
async function* later<Entry>(entries: AsyncIterable<Entry>): AsyncGenerator<Entry> {
  await Promise.resolve();
  yield* entries;
}

/** Leaves a text as it is, and says so. */
const MARKING: Codec = { name: 'marking', encode: (data) => ({ data }), decode: ({ data }) => data };

const CALLS: Readonly<Record<string, (given: Given) => Prepared>> = {
  createSession: ({ service, app }) =>
    call((request) => service.createSession(request), {
      appName: app,
      userId: 'bob',
      sessionId: 'new',
      state: { a: { b: [1] }, 'user:a': [1] },
    }),
  getOrCreateSession: ({ service, app }) =>
    call((request) => service.getOrCreateSession(request), {
      appName: app,
      userId: 'bob',
      sessionId: 'new',
      state: { a: { b: [1] }, 'user:a': [1] },
    }),
  getSession: ({ service, key }) =>
    call(async (request) => idsOf((await service.getSession(request))!), { ...key, config: { numRecentEvents: 1 } }),
  listSessions: ({ service, app }) =>
    call(async (request) => (await service.listSessions(request)).sessions.map(({ id }) => id), {
      appName: app,
      userId: 'alice',
      limit: 1,
      offset: 1,
    }),
  findSessions: ({ service, app }) =>
    call(async (request) => (await service.findSessions(request)).sessions.map(({ sessionId }) => sessionId), {
      appName: app,
      labels: { team: 'red' },
      limit: 1,
    }),
  describeSession: ({ service, key }) =>
    call((...args) => service.describeSession(...args), { ...key }, { title: 'new', labels: { team: 'blue' } }),
  deleteSession: ({ service, key }) => call((request) => service.deleteSession(request), { ...key }),
  restoreSession: ({ service, key }) =>
    call((request) => service.restoreSession(request), { ...key, sessionId: 'deleted' }),
  forkSession: ({ service, key }) => call((...args) => service.forkSession(...args), { ...key }, { at: 1, as: 'fork' }),
  rewindSession: ({ service, key }) => call((...args) => service.rewindSession(...args), { ...key }, { at: 1 }),
  appendEvent: ({ service, session }) =>
    call((request) => service.appendEvent(request), { session, event: given('x') }),
  'appendEvent that waits for its turn': ({ service, session, key }) =>
    call(
      async (handle) => {
        await Promise.all(['x', 'y'].map((id) => service.appendEvent({ session: handle, event: given(id) })));
      },
      { ...session, id: key.sessionId },
    ),
  appendEvents: ({ service, session }) =>
    call(async (request) => (await service.appendEvents(request)).map(({ id }) => id), {
      session,
      events: [given('x'), given('y')],
    }),
  getAppState: ({ service, app }) => call((request) => service.getAppState(request), { appName: app }),
  getUserState: ({ service, app }) =>
    call((request) => service.getUserState(request), { appName: app, userId: 'alice' }),
  updateState: ({ service, key }) =>
    call((request) => service.updateState(request), { ...key, set: { c: [1], 'app:c': { d: 1 } }, remove: ['a'] }),
  'the options of MikroOrmSessionService': ({ orm, app, key }) =>
    call(
      async (options) => {
        const service = new MikroOrmSessionService(orm.em, options);
        await Promise.resolve();
        const session = (await service.getSession(key))!;
        await orm.em.fork().transactional(async (tx) => {
          const joined = service.withEntityManager(tx);
          await joined.createSession({ appName: app, userId: 'bob', sessionId: 'new', state: { a: 1 } });
        });
        await service.deleteSession(key);
        return idsOf(session);
      },
      { codec: [MARKING], deletion: 'soft' as const, defaultNumRecentEvents: 1 },
    ),
  'EventLog.since': ({ log, app }) =>
    call((filter) => ids(later(log.since(0, filter))), { appName: app, author: 'agent', limit: 1 }),
  'EventLog.watch': ({ log, app }) =>
    call((filter) => ids(readSome(later(log.watch(0, filter)), 2)), { appName: app, author: 'agent', limit: 1 }),
  'EventLog.session': ({ log, key }) =>
    call(
      (session, cursor, filter) => ids(later(log.session(session).since(cursor, filter))),
      { ...key },
      { seq: 1, incarnation: '' },
      { author: 'agent', limit: 1 },
    ),
  'SessionLog.watch': ({ log, key }) =>
    call((filter) => ids(readSome(later(log.session(key).watch(0, filter)), 2)), { author: 'agent', limit: 1 }),
  'SessionLeases.acquire': ({ leases, key }) =>
    call(
      async (...args) => {
        const lease = await leases.acquire(...args);
        const held = await leases.current(key);
        await lease.release();
        return [lease.session, held?.holder];
      },
      { ...key },
      { holder: 'me', waitMs: 0 },
    ),
  'SessionLeases.run': ({ leases, key }) =>
    call(
      (session, options) => leases.run(session, options, () => leases.current(key)).then((info) => info?.holder),
      {
        ...key,
      },
      { holder: 'me', autoCreateSession: true },
    ),
  'SessionLeases.current': ({ leases, key }) =>
    call(async (session) => (await leases.current(session))?.holder, { ...key, sessionId: 'leased' }),
  'the options of SessionLeases': ({ orm, key }) =>
    call(
      async (options) => {
        const leases = new SessionLeases(orm.em, options);
        const lease = await leases.acquire(key, { holder: 'me' });
        await lease.sessionService.deleteSession(key);
        await lease.release();
      },
      { ...LONG_LEASE, deletion: 'soft' as const },
    ),
  prune: ({ maintenance, app }) =>
    call((options) => maintenance.prune(options), { appName: app, idleFor: 1, batchSize: 1, maxBatches: 1 }),
  trim: ({ maintenance, app }) =>
    call((options) => maintenance.trim(options), { appName: app, keepLast: 1, batchSize: 1, maxBatches: 1 }),
  eraseUser: ({ maintenance, app }) =>
    call((options) => maintenance.eraseUser(options), { appName: app, userId: 'alice', batchSize: 1, maxBatches: 1 }),
  repair: ({ maintenance, key }) =>
    call(
      async (session, options) => (await maintenance.repair(session, options)).events.length,
      { ...key, sessionId: 'damaged' },
      { dryRun: true },
    ),
  exportSessions: ({ maintenance, key: { appName, userId } }) =>
    call(
      async (options) => (await read(later(maintenance.exportSessions(options))).catch(String)).length,
      // The next one has a session that cannot be exported.
      { appName, userId: `${userId}, too` },
    ),
  importSessions: ({ maintenance, app }) => {
    let calls = 0;
    return call(
      async (options) => {
        const session = {
          type: 'session',
          appName: app,
          userId: 'bob',
          sessionId: 'imported',
          firstSeq: 1,
          lastSeq: 0,
        };
        await maintenance.importSessions([{ ...session, createTime: 1, lastUpdateTime: 1, state: [] }], options);
        return calls;
      },
      {
        sharedState: 'keep' as const,
        onProgress: () => {
          calls++;
        },
      },
    );
  },
  reencode: ({ orm, app }) =>
    call(
      (options, request) => new SessionMaintenance(orm.em, options).reencode(request),
      { codec: [MARKING] },
      { appName: app, batchSize: 1, maxBatches: 1 },
    ),
  stats: ({ maintenance, app }) =>
    call(async (options: { appName: string; groupBy?: 'app' }) => Array.isArray(await maintenance.stats(options)), {
      appName: app,
      groupBy: 'app' as const,
    }),
  usageOf: ({ orm, app }) =>
    call(async (options: UsageOptions) => (await usageOf(new EventLog(orm.em), options)).rows, {
      ...{ appName: app, from: '2026-11-01', to: '2026-11-02' },
      by: 'day' as const,
    }),
  'the options of createStudio': ({ orm }) =>
    call(
      async (options) => {
        const { fetch } = createStudio(orm.em, options);
        await Promise.resolve();
        return (await fetch(new Request('http://studio.example/pages'))).status;
      },
      { hosts: ['studio.example'], basePath: '/pages' },
    ),
  'what authorize of the studio returns': ({ orm, app }) => {
    const scope = { appName: app, userId: 'nobody' };
    const { fetch } = createStudio(orm.em, { authorize: () => scope });
    return call(
      async (_scope) =>
        (await (await fetch(new Request(`http://localhost/sessions?app=${encodeURIComponent(app)}`))).text()).includes(
          'damaged',
        ),
      scope,
    );
  },
};

const given = (id: string): Event =>
  eventOf({ id, timestamp: 1, actions: { ...eventOf().actions, stateDelta: { a: id } } });

const ids = async (entries: Promise<{ event?: Event }[]> | AsyncIterable<{ event?: Event }>) =>
  (await ('then' in entries ? entries : read(entries))).map(({ event }) => event?.id);

/** Changes everything that a caller can reach in the arguments, except what stays the caller's: events, handles' events, codecs. */
function change(value: unknown): void {
  if (typeof value !== 'object' || value === null || 'author' in value || 'encode' in value) return;
  for (const [name, each] of Object.entries(value)) {
    if (name === 'events' && 'state' in value) continue;
    change(each);
    Reflect.set(value, name, changed(each));
  }
  if (Array.isArray(value)) value.push('added');
}

function changed(value: unknown): unknown {
  if (typeof value === 'boolean') return !value;
  return typeof value === 'number' ? value + 1 : typeof value === 'string' ? `${value}, too` : undefined;
}

/** The same rows and services for each call of the table. */
async function prepare(context: OwnContext, app: string): Promise<Given> {
  const { orm, query } = context;
  const service = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
  const keyOf = (sessionId: string) => ({ appName: app, userId: 'alice', sessionId });
  for (const sessionId of ['s', 'damaged', 'deleted', 'leased']) {
    const session = await service.createSession({ ...keyOf(sessionId), state: { a: 1, 'user:a': 1, 'app:a': 1 } });
    const events = range(3).map((n) => saying(`${n}`, { id: `${sessionId} ${n}`, timestamp: n + 1 }));
    await service.appendEvents({ session, events });
    await service.describeSession(keyOf(sessionId), { labels: { team: 'red' } });
  }
  await service.deleteSession(keyOf('deleted'));
  await query("delete from adk_events where app_name = ? and session_id = 'damaged' and seq = 2", [app]);
  const leases = new SessionLeases(orm.em, LONG_LEASE);
  const held = await leases.acquire(keyOf('leased'), { holder: 'somebody' });
  const [key, log, maintenance] = [keyOf('s'), new EventLog(orm.em), new SessionMaintenance(orm.em)];
  return { ...context, service, app, key, session: (await service.getSession(key))!, log, leases, held, maintenance };
}

/** All rows of an app, and of the name that it may be changed to, without times and random values. */
async function rowsOf({ query }: OwnContext, app: string): Promise<object[][]> {
  const tables = [
    ['sessions', 'user_id, session_id, first_seq, last_seq, lease_holder, title, labels'],
    ['sessions', 'user_id, session_id, case when deleted_at is null then 0 else 1 end as deleted'],
    ['events', 'user_id, session_id, seq, event_id'],
    ['session_states', 'user_id, session_id, state_key, value'],
    ['user_states', 'user_id, state_key, value'],
    ['app_states', 'state_key, value'],
    ['changes', 'user_id, session_id, kind, seq, data'],
  ];
  const rows: object[][] = [];
  for (const [table, columns] of tables) {
    const text = `select app_name, ${columns} from adk_${table} where app_name in (?, ?)`;
    const found = await query(text, [app, `${app}, too`]);
    rows.push(found.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)));
  }
  return rows;
}

const withoutTimes = (key: string, value: unknown) => (/time$|^incarnation$/i.test(key) ? undefined : value);

for (const [name, prepared] of Object.entries(CALLS)) {
  requestSuite.own('A3', `${name}: arguments count as they were at the call`, async (context) => {
    const outcomes: unknown[] = [];
    for (const isChanged of [false, true]) {
      const app = `${context.app} ${isChanged ? 'changed' : 'as it was'}`;
      const given = await prepare(context, app);
      const { args, run } = prepared(given);
      const result = run();
      if (isChanged) args.forEach(change);
      const outcome = [await result, await rowsOf(context, app)];
      outcomes.push(JSON.parse(JSON.stringify(outcome, withoutTimes).replaceAll(app, '@')));
      // Its renewals would run beside the tests that follow.
      await given.held.release();
    }
    expect(outcomes[1]).toEqual(outcomes[0]);
  });
}

requestSuite.own('A3', 'SessionProjection: arguments count as they were at the call', async ({ scratch }) => {
  const { orm, service } = await scratch();
  for (const appName of ['app', 'app, too'])
    await service.createSession({ appName, userId: 'alice', sessionId: appName });
  const seen: string[] = [];
  const options = {
    name: 'seen',
    filter: { appName: 'app' },
    apply: async (entries: readonly { sessionId: string }[]) =>
      void seen.push(...entries.map(({ sessionId }) => sessionId)),
    clear: async () => undefined,
  };
  const projection = new SessionProjection(orm.em, options);
  change(options);
  await projection.catchUp();
  expect(seen).toEqual(['app']);
  expect(await SessionProjection.list(orm.em)).toMatchObject([{ name: 'seen' }]);
});
