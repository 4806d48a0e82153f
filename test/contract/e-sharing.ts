import { randomUUID } from 'node:crypto';
import type { Session } from '@google/adk';
import { DatabaseError, EventLog, MikroOrmSessionService, SessionLeases, SessionMaintenance } from '../../src/index.js';
import { expectSame, folded, tablesOf } from '../support/fold.js';
import { keyOf, type OwnHarness } from '../support/harnesses/harness.js';
import { Suite, onServers, type OwnContext } from './rule.js';
import {
  LONG_LEASE,
  errorOf,
  eventOf,
  faulty,
  idsOf,
  plain,
  range,
  saying,
  takesLock,
  textsOf,
  until,
} from './tools.js';

/** Appends to different sessions that wait for a connection are one statement where the database has one. */
export const sharingSuite = new Suite();

const onPostgresql = ({ dialect }: OwnHarness) => dialect === 'postgresql';

const onPostgresqlServer = (harness: OwnHarness) => onPostgresql(harness) && onServers(harness);

const sessionsOf = ({ create }: OwnContext, count: number) => Promise.all(range(count).map(() => create()));

const writing = (id: string, stateDelta: Record<string, unknown> = {}) => eventOf({ id, actions: { stateDelta } });

const appendToAll = (service: MikroOrmSessionService, sessions: readonly Session[], id: string, delta = {}) =>
  Promise.all(sessions.map((session, i) => service.appendEvent({ session, event: writing(id, { id, i, ...delta }) })));

const codeOf = (error: { code?: string }) => error.code;

/** Whether a statement is one of several appends. */
const isShared = (text: string) => takesLock(text) && text.includes('skip locked');

/** What the tables have of each session is what its handle shows. */
async function expectStored({ fresh }: OwnContext, sessions: readonly Session[], ids: readonly string[]) {
  for (const session of sessions) {
    const stored = await fresh(session);
    expect(idsOf(stored)).toEqual(ids);
    expect(plain(session)).toEqual(plain(stored));
  }
}

/** Keeps the only connection of a pool, until it is given back. */
async function holding({ connect, harness }: OwnContext, options: Record<string, unknown> = {}) {
  const orm = await connect({ pool: { min: harness.server ? 0 : 1, max: 1 } });
  const em = orm.em.fork();
  const service = new MikroOrmSessionService(orm.em, options);
  await service.listSessions({ appName: 'x' });
  await em.begin();
  return { orm, service, giveBack: () => em.rollback() };
}

sharingSuite.own('E9', 'many sessions at once, each with its own events and state', async (context) => {
  const sessions = await sessionsOf(context, 80);
  const rounds = ['a', 'b', 'c'];
  for (const id of rounds) await appendToAll(context.service, sessions, id, { [`odd '"\\{},?NULL ${id}`]: null });
  await expectStored(context, sessions, rounds);
  const several = sessions.slice(0, 20);
  const events = (i: number) => range(3).map((n) => writing(`several ${n}`, { [`of ${n}`]: i, last: n }));
  await Promise.all(several.map((session, i) => context.service.appendEvents({ session, events: events(i) })));
  await expectStored(context, several, [...rounds, 'several 0', 'several 1', 'several 2']);
  const rows = await context.query<{ lowest: number; highest: number; total: number }>(
    'select min(seq) as lowest, max(seq) as highest, count(*) as total from adk_events where app_name = ? group by session_id',
    [context.app],
  );
  expect(rows.map((row) => [row.lowest, row.highest, row.total].map(Number)).sort()).toEqual(
    sessions.map((_, i) => (i < 60 ? [1, 3, 3] : [1, 6, 6])),
  );
  expect((await context.fresh(sessions[7]!)).state).toMatchObject({ id: 'c', i: 7 });
});

sharingSuite.own(
  'E9',
  'appends that wait for a connection are one statement, and a lone one is sent as usual',
  async (context) => {
    const { service, recorded } = context;
    const sessions = await sessionsOf(context, 30);
    // On Citus there are more statements in the transaction.
    const texts = async (work: () => Promise<unknown>) =>
      (await recorded(work)).map(({ text }) => text).filter(takesLock);
    const alone = await texts(() => service.appendEvent({ session: sessions[0]!, event: writing('first') }));
    expect(alone.map(isShared)).toEqual([false]);
    const together = await texts(() => appendToAll(service, sessions.slice(1), 'a'));
    expect(together.map(isShared)).toEqual([true]);
    const batches = await texts(() =>
      Promise.all(
        sessions.slice(1).map((session) => {
          return service.appendEvents({
            session,
            events: range(3).map((n) => writing(`b${n}`, { n, [`of ${n}`]: n })),
          });
        }),
      ),
    );
    expect(batches.map(isShared)).toEqual([true]);
    // What is large is not kept waiting for by others for long.
    const large = 'x'.repeat(400_000);
    const several = await texts(() =>
      Promise.all(sessions.slice(1, 7).map((session) => service.appendEvent({ session, event: saying(large) }))),
    );
    expect(several).toHaveLength(3);
    await expectStored(context, sessions.slice(7), ['a', 'b0', 'b1', 'b2']);
  },
  onPostgresql,
);

sharingSuite.own('E9', 'each session has its own outcome', async (context) => {
  const { orm, app, query, create, fresh, recorded } = context;
  const service = new MikroOrmSessionService(orm.em, { onUnleasedAppend: 'reject' });
  const strict = new MikroOrmSessionService(orm.em, { onStaleSession: 'reject' });
  const leases = new SessionLeases(orm.em, LONG_LEASE);
  const outcomes = {
    fine: ['stored', ['first', 'second']],
    'with the lease': ['stored', ['first', 'second']],
    deleted: ['ADK_SESSION_NOT_FOUND', []],
    'created again': ['stored', ['second']],
    'the lease is lost': ['ADK_LEASE_LOST', ['first']],
    behind: ['stored', ['first', 'missed', 'second']],
    'in step': ['stored', ['first', 'second']],
    stale: ['ADK_STALE_SESSION', ['first', 'missed']],
    'another one with as many events': ['ADK_STALE_SESSION', ['first']],
    'somebody has the lease': ['ADK_LEASE_HELD', ['first']],
  };
  type Name = keyof typeof outcomes;
  const names = Object.keys(outcomes) as Name[];
  const sessions = new Map<Name, Session>();
  for (const name of names) sessions.set(name, await create());
  const of = (name: Name) => sessions.get(name)!;
  await appendToAll(service, [...sessions.values()], 'first');
  for (const name of ['behind', 'stale'] as const)
    await context.append((await service.getSession(keyOf(of(name))))!, { id: 'missed' });
  const own = await leases.acquire(keyOf(of('with the lease')), { holder: 'a' });
  const lost = await leases.acquire(keyOf(of('the lease is lost')), { holder: 'a' });
  await leases.acquire(keyOf(of('somebody has the lease')), { holder: 'b' });
  await query('update adk_sessions set lease_token = lease_token + 1 where session_id = ?', [
    of('the lease is lost').id,
  ]);
  const another = 'another one with as many events';
  for (const name of ['deleted', 'created again', another] as const) await service.deleteSession(keyOf(of(name)));
  await service.createSession(keyOf(of('created again')));
  await context.append(await service.createSession(keyOf(of(another))), { id: 'first' });

  const services = new Map<Name, MikroOrmSessionService>([
    ['with the lease', own.sessionService],
    ['the lease is lost', lost.sessionService],
    ['in step', strict],
    ['stale', strict],
    [another, strict],
  ]);
  const results: Record<string, unknown> = {};
  const statements = await recorded(() =>
    Promise.all(
      names.map(async (name) => {
        const append = (services.get(name) ?? service).appendEvent({ session: of(name), event: writing('second') });
        results[name] = await append.then(() => 'stored', codeOf);
      }),
    ),
  );
  const taking = statements.map(({ text }) => text).filter(takesLock);
  if (onPostgresql(context.harness)) expect(taking.map(isShared).indexOf(true)).toBe(0);
  const rows = await query<{ session_id: string; event_id: string }>(
    'select session_id, event_id from adk_events where app_name = ? order by seq',
    [app],
  );
  const stored = (name: Name) => rows.filter((row) => row.session_id === of(name).id).map((row) => row.event_id);
  expect(Object.fromEntries(names.map((name) => [name, [results[name], stored(name)]]))).toEqual(outcomes);
  for (const name of names) {
    if (outcomes[name][0] === 'stored') expect(plain(of(name))).toEqual(plain(await fresh(of(name))));
    else expect(idsOf(of(name))).toEqual(['first']);
  }
});

sharingSuite.own('E9', 'an event that is stored already does not affect new ones', async (context) => {
  const { orm, query, fresh, recorded } = context;
  const service = new MikroOrmSessionService(orm.em, { onRewrittenEvent: 'reject' });
  const sessions = await sessionsOf(context, 8);
  await appendToAll(service, sessions, 'first');
  const events = sessions.map((session, i) =>
    i === 2 ? session.events[0]! : i === 5 ? saying('other content', { id: 'first' }) : writing('second'),
  );
  let results: unknown[] = [];
  const statements = await recorded(async () => {
    results = await Promise.all(
      sessions.map((session, i) => service.appendEvent({ session, event: events[i]! }).then(() => 'stored', codeOf)),
    );
  });
  expect(results).toEqual(range(8).map((i) => (i === 5 ? 'ADK_EVENT_CONFLICT' : 'stored')));
  // The shared statement, then one for each append. For two of them a lock in a transaction finds the reason.
  if (onPostgresql(context.harness)) {
    const texts = statements.map(({ text }) => text);
    const [first, ...others] = texts.filter(takesLock).map(isShared);
    expect([first, others.includes(true), others.length >= 8]).toEqual([true, false, true]);
  }
  for (const [i, session] of sessions.entries()) {
    const ids = i === 2 || i === 5 ? ['first'] : ['first', 'second'];
    expect(idsOf(session)).toEqual(ids);
    const stored = await fresh(session);
    expect(idsOf(stored)).toEqual(ids);
    expect(textsOf(stored)[0]).toBeUndefined();
    expect(await query('select last_seq from adk_sessions where session_id = ?', [session.id])).toEqual([
      { last_seq: ids.length },
    ]);
  }
});

sharingSuite.own(
  'O6',
  'a locked session makes no other session wait',
  async (context) => {
    const { service, query, peer } = context;
    const sessions = await sessionsOf(context, 20);
    const locked = sessions[7]!;
    const others = sessions.filter((session) => session !== locked);
    let isStored = false;
    await peer.em.fork().transactional(async (tx) => {
      // By the whole key: InnoDB locks all rows that it searches.
      const where = 'app_name = ? and user_id = ? and session_id = ?';
      const key = [locked.appName, locked.userId, locked.id];
      await query(`update adk_sessions set last_seq = last_seq where ${where}`, key, tx);
      const append = service.appendEvent({ session: locked, event: writing('a', { id: 'a', i: 7 }) });
      await appendToAll(service, others, 'a');
      expect(isStored).toBe(false);
      void append.then(() => (isStored = true));
    });
    await expectStored(context, others, ['a']);
    await until(() => isStored);
    await expectStored(context, [locked], ['a']);
  },
  onServers,
);

sharingSuite.own(
  'O6',
  'a locked key of the app makes only those wait that write it',
  async (context) => {
    const { service, query, peer, app } = context;
    const sessions = await sessionsOf(context, 12);
    const [writer, ...others] = sessions;
    await service.appendEvent({ session: writer!, event: writing('first', { 'app:k': 0 }) });
    let append: Promise<unknown> = Promise.resolve();
    await peer.em.fork().transactional(async (tx) => {
      await query('update adk_app_states set event_id = event_id where app_name = ?', [app], tx);
      append = service.appendEvent({ session: writer!, event: writing('second', { 'app:k': 1 }) });
      await appendToAll(service, others, 'a');
    });
    await append;
    expect((await context.fresh(writer!)).state).toEqual({ 'app:k': 1 });
  },
  onServers,
);

sharingSuite.own(
  'O6',
  'a change that waits for a locked session makes no change, lease or reader of others wait, nor prune',
  async (context) => {
    const { service, query, peer, orm, app, harness } = context;
    const [locked, other] = (await sessionsOf(context, 2)) as [Session, Session];
    const change = (session: Session) => service.updateState({ ...keyOf(session), set: { at: randomUUID() } });
    // It leaves a retry token, which the next change uses again.
    await change(other);
    await query("insert into adk_retry_tokens values ('of an ended process', 'x', 0)");
    let waiting: Promise<unknown> = Promise.resolve();
    let isChanged = false;
    await peer.em.fork().transactional(async (tx) => {
      const where = 'app_name = ? and user_id = ? and session_id = ?';
      await query(`update adk_sessions set last_seq = last_seq where ${where}`, Object.values(keyOf(locked)), tx);
      waiting = change(locked).then(() => (isChanged = true));
      await until(async () => (await query(harness.server!.waiting, [], orm.em.fork())).length > 0, 150);
      await change(other);
      await (await new SessionLeases(orm.em).acquire(keyOf(other), { holder: 'a' })).release();
      await new EventLog(orm.em).head();
      await new SessionMaintenance(orm.em).prune({ appName: app, idleFor: 86_400_000 });
      expect(isChanged).toBe(false);
    });
    await waiting;
  },
  onServers,
);

sharingSuite.own('J2', 'sessions at once that write the same keys of user and app', async (context) => {
  const { service, orm, app } = context;
  const sessions = await sessionsOf(context, 12);
  const log = new EventLog(orm.em);
  for (const round of range(3)) {
    await Promise.all(
      sessions.map((session, i) => {
        const delta = i % 3 === 0 ? {} : { 'app:k': [round, i], [`app:${i % 2}`]: i, 'user:k': i };
        return service.appendEvent({ session, event: writing(`${round}`, { own: i, ...delta }) });
      }),
    );
    expectSame(await folded(log, app), await tablesOf(orm, app));
  }
  const { state } = await context.fresh(sessions[0]!);
  expect([2, [2, state['user:k']]]).toEqual([(state['app:k'] as number[])[0], state['app:k']]);
});

sharingSuite.own(
  'H2',
  'a lease that is lost before the statement of many locks its session',
  async (context) => {
    const { orm, query } = context;
    const sessions = await sessionsOf(context, 8);
    let isOvertaken = false;
    const em = faulty(orm.em, {
      async before(text) {
        if (!isShared(text) || isOvertaken) return;
        isOvertaken = true;
        await query('update adk_sessions set lease_token = lease_token + 1 where session_id = ?', [sessions[3]!.id]);
      },
    });
    const service = new MikroOrmSessionService(em);
    const lease = await new SessionLeases(em, LONG_LEASE).acquire(keyOf(sessions[3]!), { holder: 'a' });
    const results = await Promise.allSettled(
      sessions.map((session, i) =>
        (i === 3 ? lease.sessionService : service).appendEvent({ session, event: writing('a', { id: 'a', i }) }),
      ),
    );
    expect(isOvertaken).toBe(true);
    expect(
      results.flatMap((result, i) =>
        result.status === 'rejected' ? [[i, codeOf(result.reason as { code: string })]] : [],
      ),
    ).toEqual([[3, 'ADK_LEASE_LOST']]);
    await expectStored(context, sessions.toSpliced(3, 1), ['a']);
    expect(await query('select seq from adk_events where session_id = ?', [sessions[3]!.id])).toEqual([]);
  },
  // Somebody writes while the statement has its connection.
  onPostgresqlServer,
);

const lost = () => Object.assign(new Error('lost'), { code: 'ECONNRESET' });

sharingSuite.own(
  'O1',
  'a lost answer of a statement of many leaves each stored once, or its outcome unknown',
  async (context) => {
    const { orm, query, app, fresh } = context;
    const stored = async () => {
      const rows = await query<{ seq: number }>('select seq from adk_events where app_name = ?', [app]);
      return rows.map(({ seq }) => seq);
    };
    const sessions = await sessionsOf(context, 10);
    const faults = { answer: isShared, error: lost };
    const service = new MikroOrmSessionService(faulty(orm.em, faults));
    await appendToAll(service, sessions, 'a');
    expect(faults.answer).toBeUndefined();
    expect(await stored()).toEqual(sessions.map(() => 1));
    await expectStored(context, sessions, ['a']);

    const reported: unknown[] = [];
    const impatient = new MikroOrmSessionService(faulty(orm.em, { answer: isShared, error: lost }), {
      retry: { attempts: 1 },
      onError: (error) => reported.push(error),
    });
    const errors = await Promise.all(
      sessions.map((session) => errorOf(impatient.appendEvent({ session, event: writing('b', { id: 'b' }) }))),
    );
    for (const error of errors) {
      expect(error).toBeInstanceOf(DatabaseError);
      expect(error).toMatchObject({ outcome: 'unknown' });
    }
    expect(reported).toHaveLength(10);
    for (const session of sessions) {
      expect(idsOf(session)).toEqual(['a']);
      expect(idsOf(await fresh(session))).toEqual(['a', 'b']);
    }
  },
  onPostgresql,
);

sharingSuite.own(
  'O1',
  'when a statement of many is refused, or meets a deadlock, each is written alone',
  async (context) => {
    const { orm } = context;
    const sessions = await sessionsOf(context, 6);
    for (const [id, code] of [
      ['a', '22000'],
      ['b', '40P01'],
    ] as const) {
      let failures = 0;
      const statement = (text: string) => isShared(text) && failures++ === 0;
      const error = () => Object.assign(new Error('refused'), { code });
      const service = new MikroOrmSessionService(faulty(orm.em, { statement, error }), {
        onError: () => expect(code).toBe('none'),
      });
      await appendToAll(service, sessions, id);
      expect(failures).toBe(1);
    }
    await expectStored(context, sessions, ['a', 'b']);
  },
  onPostgresql,
);

sharingSuite.own(
  'O3',
  'appends that wait for a connection together each give up at their own time, and none is written',
  async (context) => {
    const { orm, service: patient, giveBack } = await holding(context);
    const sessions = await sessionsOf(context, 8);
    const impatient = new MikroOrmSessionService(orm.em, { timeoutMs: 60, retry: { attempts: 1 } });
    // Also where the first one, which asks for the connection on behalf of all, is one of those that give up.
    // The second one asks next, and gives up before it has a connection, too.
    const services = [impatient, impatient, patient, patient, patient, impatient, patient, patient];
    const appends = services.map((service, i) =>
      service.appendEvent({ session: sessions[i]!, event: writing('a', { id: 'a', i }) }),
    );
    const gaveUp = services.map((service) => service === impatient);
    for (const [i, append] of appends.entries()) {
      if (!gaveUp[i]) continue;
      const message = expect.stringContaining('No connection of the pool became free in time');
      expect(await errorOf(append)).toMatchObject({ code: 'ADK_DATABASE', outcome: 'none', message });
    }
    await giveBack();
    await Promise.all(appends.filter((_, i) => !gaveUp[i]));
    await expectStored(
      context,
      sessions.filter((_, i) => !gaveUp[i]),
      ['a'],
    );
    await expectStored(
      context,
      sessions.filter((_, i) => gaveUp[i]),
      [],
    );
    await appendToAll(patient, sessions, 'b');
  },
  onPostgresqlServer,
);

sharingSuite.own(
  'O6',
  'what waits for the only connection is written when it is given back, and other calls have their turn',
  async (context) => {
    const { service, giveBack } = await holding(context);
    const sessions = await sessionsOf(context, 100);
    const appends = appendToAll(service, sessions, 'a');
    const read = service.getSession(keyOf(sessions[0]!));
    await giveBack();
    await Promise.all([appends, read]);
    await expectStored(context, sessions, ['a']);
  },
  onPostgresqlServer,
);
