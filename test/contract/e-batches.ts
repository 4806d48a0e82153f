import timers from 'node:timers/promises';
import { DeadlockException } from '@mikro-orm/core';
import { MikroOrmSessionService, SessionLeases } from '../../src/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, onSqlite, type OwnContext } from './rule.js';
import {
  LONG_LEASE,
  errorOf,
  eventOf,
  expectCode,
  faulty,
  idsOf,
  plain,
  range,
  saying,
  takesLock,
  textsOf,
} from './tools.js';

/** Appends to one session that wait for their turn are written together. */
export const batchesSuite = new Suite();

/** Several handles of one session. */
async function handlesOf({ create, service }: OwnContext, count: number, of = service) {
  const session = await create();
  return Promise.all(range(count).map(async () => (await of.getSession(keyOf(session)))!));
}

/** Waits with a timer that no test replaces. */
const { setTimeout: realTimeout } = globalThis;

const within = (ms: number, work: Promise<unknown>) =>
  Promise.race([work, new Promise((_, reject) => realTimeout(() => reject(new Error(`not within ${ms} ms`)), ms))]);

batchesSuite.own('O3', 'appends and retries end while the host’s tests have faked its timers', async (context) => {
  const { orm, service } = context;
  let failures = 3;
  const statement = (text: string) => takesLock(text) && failures-- > 0;
  const failing = new MikroOrmSessionService(
    faulty(orm.em, { statement, error: () => new DeadlockException(new Error('deadlock')) }),
  );
  const handles = await handlesOf(context, 8, failing);
  const faked = [
    jest.spyOn(timers, 'setImmediate').mockReturnValue(new Promise(() => undefined)),
    jest.spyOn(timers, 'setTimeout').mockReturnValue(new Promise(() => undefined)),
  ];
  jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask'] });
  try {
    const appends = handles.map((session, i) => failing.appendEvent({ session, event: writing(`e${i}`) }));
    await within(20_000, Promise.all(appends));
  } finally {
    jest.useRealTimers();
    for (const each of faked) each.mockRestore();
  }
  expect(failures).toBeLessThanOrEqual(0);
  expect((await service.getSession(keyOf(handles[0]!)))!.events).toHaveLength(8);
});

const writing = (id: string, stateDelta: Record<string, unknown> = {}) => eventOf({ id, actions: { stateDelta } });

batchesSuite.own(
  'E9',
  'appends that wait are one batch, and each handle gets the others’ events without reading',
  async (context) => {
    const { service, recorded, fresh } = context;
    const handles = await handlesOf(context, 8);
    const round = (n: number) =>
      Promise.all(
        handles.map((session, i) =>
          service.appendEvent({
            session,
            event: writing(`${n} ${i}`, { last: [n, i], [`own ${i}`]: n, 'user:shared': i }),
          }),
        ),
      );
    for (const [i, handle] of handles.entries()) handle.state['temp:own'] = i;
    await round(0);
    await round(1);
    const statements = await recorded(() => round(2));
    // The first one goes at once, and the others together.
    expect(statements.filter(({ text }) => takesLock(text)).length).toBeLessThanOrEqual(2);
    await round(3);
    const stored = await fresh(handles[0]!);
    // In the order of the calls.
    expect(idsOf(stored)).toEqual(range(4).flatMap((n) => range(8).map((i) => `${n} ${i}`)));
    for (const [i, handle] of handles.entries()) {
      const { 'temp:own': own, ...state } = handle.state;
      expect(own).toBe(i);
      expect(state).toEqual(stored.state);
      expect(plain(handle.events)).toEqual(plain(stored.events));
      expect(handle.lastUpdateTime).toBe(stored.lastUpdateTime);
    }
    expect(statements.filter(({ text }) => /select[^]*from \S*adk_events/i.test(text))).toEqual([]);
  },
);

batchesSuite.own('E9', 'a handle keeps the objects of its own events', async (context) => {
  const handles = await handlesOf(context, 3);
  const events = handles.map((_, i) => saying(String(i)));
  for (const round of [events, handles.map(() => saying('later'))])
    await Promise.all(handles.map((session, i) => context.service.appendEvent({ session, event: round[i]! })));
  for (const [i, handle] of handles.entries()) {
    expect(handle.events.filter((event) => events.includes(event))).toEqual([events[i]]);
    expect(handle.events.indexOf(events[i]!)).toBe(i);
  }
});

batchesSuite.own('E9', 'appends to one handle are written together, too', async (context) => {
  const [session, other] = await handlesOf(context, 2);
  const { service, fresh } = context;
  const append = (handle: typeof session, id: string, delta = {}) =>
    service.appendEvent({ session: handle!, event: writing(id, delta) });
  await Promise.all([
    append(session, 'a', { k: 'a' }),
    append(session, 'b', { k: 'b' }),
    append(other, 'c', { k: 'c' }),
    service.appendEvents({ session: session!, events: [writing('d'), writing('e', { k: 'e' })] }),
    append(other, 'f'),
  ]);
  const stored = await fresh(session!);
  expect(idsOf(stored)).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  expect(stored.state).toEqual({ k: 'e' });
  for (const handle of [session!, other!]) {
    await append(handle, `last of ${handle === other ? 'other' : 'session'}`);
    expect(handle.state).toEqual({ k: 'e' });
    expect(idsOf(handle).slice(0, 6)).toEqual(idsOf(stored));
  }
});

batchesSuite.own('E9', 'a refused append does not affect the others', async (context) => {
  const { orm, fresh, app } = context;
  const service = new MikroOrmSessionService(orm.em, { onRewrittenEvent: 'reject' });
  const handles = await handlesOf(context, 5, service);
  const append = (i: number, id: string, text = '') =>
    service.appendEvent({ session: handles[i]!, event: saying(text, { id }) });
  await append(0, 'stored');
  const results = await Promise.allSettled([
    append(0, 'a'),
    append(1, 'b'),
    append(2, 'stored', 'another text'),
    append(3, 'c'),
    append(4, 'b', 'the id of another one that waits'),
    append(1, 'd'),
  ]);
  expect(results.map(({ status }) => status === 'fulfilled')).toEqual([true, true, false, true, false, true]);
  for (const i of [2, 4]) expect(results[i]).toMatchObject({ reason: { code: 'ADK_EVENT_CONFLICT' } });
  const stored = await fresh(handles[0]!);
  expect(idsOf(stored)).toEqual(['stored', 'a', 'b', 'c', 'd']);
  expect(textsOf(stored)[2]).toBe('');
  expect(await context.query('select last_seq from adk_sessions where app_name = ?', [app])).toEqual([{ last_seq: 5 }]);
});

batchesSuite.own('E9', 'a call between appends runs between them', async (context) => {
  const { service, fresh } = context;
  const [first, second, third] = await handlesOf(context, 3);
  const key = keyOf(first!);
  await Promise.all([
    service.appendEvent({ session: first!, event: writing('a', { k: 'a' }) }),
    service.appendEvent({ session: second!, event: writing('b', { k: 'b' }) }),
    service.updateState({ ...key, set: { k: 'between', j: 'between' } }),
    service.appendEvent({ session: third!, event: writing('c', { j: 'c' }) }),
  ]);
  expect((await fresh(first!)).state).toEqual({ k: 'between', j: 'c' });
  const deleted = service.deleteSession(key);
  const late = [first!, second!].map((session) => service.appendEvent({ session, event: writing('late') }));
  await deleted;
  for (const append of late) await expectCode(append, 'ADK_SESSION_NOT_FOUND');
});

batchesSuite.own('E9', 'a lease that is lost while they wait refuses each of them', async (context) => {
  const { orm, query, app } = context;
  const [session] = await handlesOf(context, 1);
  const lease = await new SessionLeases(orm.em, LONG_LEASE).acquire(keyOf(session!), { holder: 'a' });
  const handles = await Promise.all(
    range(4).map(async () => (await lease.sessionService.getSession(keyOf(session!)))!),
  );
  await query('update adk_sessions set lease_token = lease_token + 1 where app_name = ?', [app]);
  const errors = await Promise.all(
    handles.map((handle) => errorOf(lease.sessionService.appendEvent({ session: handle, event: writing('x') }))),
  );
  expect(errors.map((error) => (error as { code?: string }).code)).toEqual(Array(4).fill('ADK_LEASE_LOST'));
  expect(await query('select seq from adk_events where app_name = ?', [app])).toEqual([]);
});

batchesSuite.own('E9', 'appends that do not fit into one batch are several', async (context) => {
  const { service, fresh } = context;
  const handles = await handlesOf(context, 2);
  const large = 'x'.repeat(400_000);
  const ids = [...range(150).map(String), 'large 1', 'large 2', 'large 3'];
  await Promise.all(
    ids.map((id, i) =>
      service.appendEvent({ session: handles[i % 2]!, event: saying(id.startsWith('large') ? large : '', { id }) }),
    ),
  );
  expect(idsOf(await fresh(handles[0]!))).toEqual(ids);
});

/** Handles of several sessions. */
const sessionsOf = ({ create }: OwnContext, count: number) => Promise.all(range(count).map(() => create()));

const commits = (statements: readonly { text: string }[]) => statements.filter(({ text }) => text === 'commit').length;

const busy = () => Object.assign(new Error('The database is locked'), { code: 'SQLITE_BUSY' });

batchesSuite.own(
  'E9',
  'sessions that wait for the only connection share a commit, and one that fails does not affect the others',
  async (context) => {
    const { service, recorded, fresh } = context;
    const sessions = await sessionsOf(context, 16);
    const append = (i: number, id: string) =>
      service.appendEvent({ session: sessions[i]!, event: writing(id, { id, 'user:last': i }) });
    const statements = await recorded(() => Promise.all(range(16).map((i) => append(i, 'first'))));
    // The first one goes at once.
    expect(commits(statements)).toBeLessThanOrEqual(3);
    await context.query('delete from adk_sessions where session_id = ?', [sessions[3]!.id]);
    const results = await Promise.allSettled(range(16).map((i) => append(i, i === 5 ? 'first' : 'second')));
    expect(results.filter(({ status }) => status === 'rejected')).toEqual([
      expect.objectContaining({ reason: expect.objectContaining({ code: 'ADK_SESSION_NOT_FOUND' }) as unknown }),
    ]);
    for (const [i, session] of sessions.entries()) {
      if (i === 3) continue;
      const stored = await fresh(session);
      expect(idsOf(stored)).toEqual(i === 5 ? ['first'] : ['first', 'second']);
      expect(stored.state).toMatchObject({ id: i === 5 ? 'first' : 'second', 'user:last': 15 });
    }
  },
  onSqlite,
);

batchesSuite.own(
  'E9',
  'an append that the database refuses does not affect those that share its commit',
  async (context) => {
    const { service, query, fresh } = context;
    const sessions = await sessionsOf(context, 8);
    await query(`create trigger refuse before insert on adk_events when new.event_id = 'refused'
      begin select raise(abort, 'refused'); end`);
    try {
      const results = await Promise.allSettled(
        sessions.map((session, i) => service.appendEvent({ session, event: writing(i === 5 ? 'refused' : 'a') })),
      );
      expect(results.map(({ status }) => status === 'fulfilled')).toEqual(sessions.map((_, i) => i !== 5));
    } finally {
      await query('drop trigger refuse');
    }
    for (const [i, session] of sessions.entries()) expect(idsOf(await fresh(session))).toEqual(i === 5 ? [] : ['a']);
  },
  onSqlite,
);

/** What fails once of appends that share a commit, for all of them. */
const SHARED_FAULTS: Record<string, (text: string, seen: (text: string) => number) => boolean> = {
  'the commit': (text, seen) => text === 'commit' && seen(text) === 1,
  'a statement': (text, seen) => text.startsWith('insert into') && seen('insert') === 8,
};

for (const [what, fails] of Object.entries(SHARED_FAULTS)) {
  batchesSuite.own(
    'E9',
    `if ${what} of appends that share it fails, each is retried`,
    async (context) => {
      const { orm, fresh } = context;
      const seen = new Map<string, number>();
      let shared: { begun?: number | undefined; inserted?: number | undefined } = {};
      const statement = (text: string) => {
        for (const name of new Set([text, text.slice(0, 6)])) seen.set(name, (seen.get(name) ?? 0) + 1);
        const isFault = fails(text, (name) => seen.get(name) ?? 0);
        if (isFault) shared = { begun: seen.get('begin'), inserted: seen.get('insert') };
        return isFault;
      };
      const service = new MikroOrmSessionService(faulty(orm.em, { statement, error: busy }));
      const sessions = await sessionsOf(context, 8);
      await Promise.all(sessions.map((session) => service.appendEvent({ session, event: writing('a', { k: 'a' }) })));
      // Each inserts an event and a key.
      expect(shared.begun).toBe(1);
      expect(shared.inserted).toBeGreaterThan(2);
      expect(seen.get('savepoint adk')).toBeUndefined();
      const seqs = await context.query<{ seq: number }>('select seq from adk_events where app_name = ?', [context.app]);
      expect(seqs.map(({ seq }) => seq)).toEqual(sessions.map(() => 1));
      for (const session of sessions) {
        const stored = await fresh(session);
        expect([idsOf(stored), stored.state]).toEqual([['a'], { k: 'a' }]);
        expect(plain(session.events)).toEqual(plain(stored.events));
      }
    },
    onSqlite,
  );
}
