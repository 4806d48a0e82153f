import { FunctionTool, LlmAgent, Runner, type Event, type Session } from '@google/adk';
import { ConnectionException } from '@mikro-orm/core';
import {
  AdkMikroOrmError,
  MikroOrmSessionService,
  SessionLeases,
  type AcquireOptions,
  type ErrorContext,
  type Lease,
} from '../../src/index.js';
import { scriptedModel } from '../../src/testing/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { NewerRunner } from '../support/newer-runner.js';
import { Suite, onServers, onSqlite, withConnections, type OwnContext, type Rule } from './rule.js';
import {
  LONG_LEASE,
  LeaseClock,
  errorOf,
  eventOf,
  expectCode,
  faulty,
  plain,
  range,
  remember,
  saying,
  textsOf,
  until,
  type Faults,
} from './tools.js';

export const leaseSuite = new Suite({ isOfDialect: true });

const LONG_MS = LONG_LEASE.ttlMs;

/** A lease as the tables have it. */
interface LeaseRow {
  holder: string | null;
  token: number;
  expiresAt: number | null;
  /** How long it lasts by the database's clock, in whole ms: no two databases' clocks have the same fractions. */
  leftMs: number;
}

interface LeaseContext extends OwnContext {
  leases: SessionLeases;
  /** As another process has them. */
  others: SessionLeases;
  /** Acquires a lease, which is given back after the test. */
  acquire(session: Session, options?: Partial<AcquireOptions> & { by?: SessionLeases }): Promise<Lease>;
  row(session: Session): Promise<LeaseRow>;
  /** Lets a lease run out at once. */
  expire(session: Session): Promise<void>;
  /** Lets a lease run out, and gives it to a successor whose service refuses a handle that is behind. */
  takeOver(session: Session): Promise<Lease>;
}

const OF_SESSION = 'where app_name = ? and user_id = ? and session_id = ?';

/** A test whose leases are given back at its end: their renewals would run on into other tests. */
function leaseTest(
  rule: string,
  title: string,
  test: (context: LeaseContext) => Promise<void>,
  where?: Rule['where'],
): void {
  const withLeases: Rule['test'] = async (context) => {
    const { harness, orm, peer, query } = context;
    const taken: Lease[] = [];
    const valuesOf = ({ appName, userId, id }: Session) => [appName, userId, id];
    const leases = new SessionLeases(orm.em, LONG_LEASE);
    const acquire: LeaseContext['acquire'] = async (session, { by = leases, ...options } = {}) => {
      const lease = await by.acquire(keyOf(session), { holder: 'holder', ...options });
      taken.push(lease);
      return lease;
    };
    const expire = async (session: Session) => {
      await query(`update adk_sessions set lease_expires = 1 ${OF_SESSION}`, valuesOf(session));
    };
    try {
      await test({
        ...context,
        leases,
        others: new SessionLeases(peer.em, LONG_LEASE),
        acquire,
        expire,
        async row(session) {
          const [row] = await query<
            Record<'token' | 'expires' | 'left_ms', string | number> & { holder: string | null }
          >(
            `select lease_holder as holder, lease_token as token, ${harness.columns.double('lease_expires')} as expires,
               lease_expires - ${harness.columns.now} as left_ms from adk_sessions ${OF_SESSION}`,
            valuesOf(session),
          );
          if (!row) throw new Error(`There is no session ${session.id}`);
          return {
            holder: row.holder,
            token: Number(row.token),
            expiresAt: row.expires === null ? null : Number(row.expires),
            leftMs: Math.floor(Number(row.left_ms)),
          };
        },
        async takeOver(session) {
          const by = new SessionLeases(peer.em, { ttlMs: LONG_MS, onStaleSession: 'reject' });
          for (;;) {
            await expire(session);
            try {
              return await acquire(session, { by, holder: 'successor' });
            } catch (error) {
              // The holder has renewed it in between.
              if (!(error instanceof AdkMikroOrmError && error.code === 'ADK_LEASE_HELD')) throw error;
            }
          }
        },
      });
    } finally {
      // One that is to fail may do so here as well.
      for (const lease of taken) await lease.release().catch(() => undefined);
    }
  };
  leaseSuite.own(rule, title, withLeases, where);
}

const takesLease = (text: string) => text.includes('lease_holder = ?');
const renewsLease = (text: string) => text.includes('set lease_expires = ');

leaseTest(
  'H1',
  'a lease is taken, seen by everybody and given back',
  async ({ create, leases, others, acquire, row }) => {
    const session = await create();
    expect(await others.current(keyOf(session))).toBeUndefined();

    const lease = await acquire(session, { holder: 'host 1' });
    const { leftMs, ...held } = await row(session);
    expect(held).toEqual({
      holder: 'host 1',
      token: lease.token,
      expiresAt: expect.any(Number),
    });
    expect(leftMs).toBeLessThanOrEqual(LONG_MS);
    expect(leftMs).toBeGreaterThan(LONG_MS - 60_000);
    for (const each of [leases, others])
      expect(await each.current(keyOf(session))).toEqual({ ...held, since: expect.any(Number) });
    expect(lease.session).toEqual(keyOf(session));

    await lease.release();
    expect(await row(session)).toMatchObject({ holder: null, expiresAt: null });
    expect(await others.current(keyOf(session))).toBeUndefined();
    await acquire(session, { by: others, holder: 'host 2' });
    expect(await leases.current(keyOf(session))).toMatchObject({ holder: 'host 2' });
    // Once more, which is no harm to the next one's.
    await lease.release();
    expect(await leases.current(keyOf(session))).toMatchObject({ holder: 'host 2' });
  },
);

leaseTest('H1', 'a lease is for 30 seconds unless told otherwise', async ({ orm, create, acquire, row }) => {
  const session = await create();
  await acquire(session, { by: new SessionLeases(orm.em) });
  const { leftMs } = await row(session);
  expect(leftMs).toBeLessThanOrEqual(30_000);
  expect(leftMs).toBeGreaterThan(25_000);
});

leaseTest(
  'H1',
  'while it is held, LeaseHeldError names the holder and the end, also to the holder itself',
  async ({ create, leases, others, acquire, row }) => {
    const session = await create();
    await acquire(session, { holder: 'host 1' });
    const before = await row(session);
    for (const each of [leases, others]) {
      const error = await errorOf(each.acquire(keyOf(session), { holder: 'host 1' }));
      expect(error).toMatchObject({ code: 'ADK_LEASE_HELD', holder: 'host 1', expiresAt: before.expiresAt });
      expect(error.message).toContain(`session ${session.id} is held by host 1`);
    }
    expect(await row(session)).toEqual({ ...before, leftMs: expect.any(Number) });
  },
);

for (const [title, free] of [
  ['it is given back', (_: LeaseContext, __: Session, lease: Lease) => lease.release()],
  ['it has expired', ({ expire }: LeaseContext, session: Session) => expire(session)],
] as const) {
  leaseTest('H1', `waitMs waits until ${title}`, async (context) => {
    const { peer, create, acquire, row } = context;
    const session = await create();
    const lease = await acquire(session);
    let questions = 0;
    const before = async (text: string) => {
      if (text.startsWith('select lease_holder')) questions++;
    };
    const by = new SessionLeases(faulty(peer.em, { before }), { ttlMs: LONG_MS });
    const waiting = acquire(session, { by, holder: 'next', waitMs: LONG_MS });
    await until(() => questions >= 2);
    expect(await row(session)).toMatchObject({ token: lease.token });

    await free(context, session, lease);
    const next = await waiting;
    expect(next.token).toBeGreaterThan(lease.token);
    expect(await row(session)).toMatchObject({ holder: 'next', token: next.token });
  });
}

leaseTest('H1', 'waitMs ends with LeaseHeldError', async ({ create, others, acquire }) => {
  const session = await create();
  await acquire(session);
  const before = performance.now();
  await expectCode(others.acquire(keyOf(session), { holder: 'next', waitMs: 300 }), 'ADK_LEASE_HELD', 'held by holder');
  expect(performance.now() - before).toBeGreaterThanOrEqual(300);
});

leaseTest('H1', 'a signal ends the wait for a lease', async ({ create, others, acquire, row }) => {
  const session = await create();
  await acquire(session);
  const before = await row(session);
  const stopping = new AbortController();
  const { signal } = stopping;
  const waiting = errorOf(others.acquire(keyOf(session), { holder: 'next', waitMs: LONG_MS, signal }));
  const reason = new Error('The worker stops.');
  stopping.abort(reason);
  expect(await waiting).toBe(reason);
  expect(await row(session)).toMatchObject({ token: before.token, holder: 'holder' });
});

leaseTest('H1', 'an expired lease is taken over, with a larger token', async ({ create, others, acquire, ...more }) => {
  const { expire, row } = more;
  const session = await create();
  const lease = await acquire(session);
  await expire(session);
  expect(await others.current(keyOf(session))).toBeUndefined();
  const next = await acquire(session, { by: others, holder: 'next' });
  expect(next.token).toBeGreaterThan(lease.token);
  expect(await row(session)).toMatchObject({ holder: 'next', token: next.token });
});

leaseTest(
  'H1',
  'ten acquire at once: one gets it, nine learn who has it',
  async ({ create, leases, others, acquire }) => {
    const session = await create();
    const answers = await Promise.allSettled(
      range(10).map((i) => acquire(session, { by: i % 2 ? leases : others, holder: `host ${i}` })),
    );
    const winners = answers.flatMap(({ status }, i) => (status === 'fulfilled' ? [`host ${i}`] : []));
    expect(winners).toHaveLength(1);
    const losers = answers.flatMap((answer) => (answer.status === 'rejected' ? [answer.reason as unknown] : []));
    for (const error of losers) expect(error).toMatchObject({ code: 'ADK_LEASE_HELD', holder: winners[0] });
  },
);

leaseTest('H1', 'ten wait for one lease: all get it, one at a time', async ({ create, leases, others }) => {
  const session = await create();
  let inside = 0;
  const tokens = await Promise.all(
    range(10).map((i) =>
      (i % 2 ? leases : others).run(
        keyOf(session),
        { holder: `host ${i}`, waitMs: LONG_MS },
        async ({ token, signal }) => {
          expect(++inside).toBe(1);
          // Long enough for another one to come.
          await others.current(keyOf(session));
          expect(signal.aborted).toBe(false);
          inside--;
          return token;
        },
      ),
    ),
  );
  expect(new Set(tokens).size).toBe(10);
});

leaseTest(
  'H1',
  'a lease whose answer was lost is not held against its holder',
  async ({ orm, create, acquire, row }) => {
    const session = await create();
    const faults = { answer: takesLease, error: () => new ConnectionException(new Error('gone')) };
    const by = new SessionLeases(faulty(orm.em, faults), { ttlMs: LONG_MS });
    const lease = await acquire(session, { by });
    expect(faults).not.toHaveProperty('answer');
    expect(await row(session)).toMatchObject({ holder: 'holder', token: lease.token });
    await lease.sessionService.updateState({ ...keyOf(session), set: { a: 1 } });
  },
);

leaseTest(
  'H1',
  'a lease is renewed while its holder appends one event after the other',
  async ({ orm, create, acquire, others, row }) => {
    const session = await create();
    // A loaded machine may stall this process for a second.
    const ttlMs = 3_000;
    const lease = await acquire(session, { by: new SessionLeases(orm.em, { ttlMs }) });
    const handle = (await lease.sessionService.getSession(keyOf(session)))!;
    const end = performance.now() + 1.2 * ttlMs;
    while (performance.now() < end) await lease.sessionService.appendEvent({ session: handle, event: eventOf({}) });

    expect(lease.signal.aborted).toBe(false);
    expect(await row(session)).toMatchObject({ holder: 'holder', token: lease.token });
    expect((await row(session)).leftMs).toBeGreaterThan(0);
    await expectCode(others.acquire(keyOf(session), { holder: 'next' }), 'ADK_LEASE_HELD');
  },
  // A driver for servers leaves the event loop alone.
  onSqlite,
);

leaseTest(
  'H1',
  'a session that is not there, or no more, has no lease',
  async ({ service, app, create, leases, others, acquire }) => {
    const missing = { appName: app, userId: 'alice', sessionId: 'never' };
    expect(await leases.current(missing)).toBeUndefined();
    await expectCode(leases.acquire(missing, { holder: 'a' }), 'ADK_SESSION_NOT_FOUND');

    const session = await create();
    await acquire(session);
    const waiting = errorOf(others.acquire(keyOf(session), { holder: 'next', waitMs: LONG_MS }));
    await service.deleteSession(keyOf(session));
    expect(await waiting).toMatchObject({ code: 'ADK_SESSION_NOT_FOUND' });
  },
);

leaseTest(
  'H1',
  'a holder without a name, and a time that no timer has, are refused',
  async ({ orm, create, leases, acquire, row }) => {
    const session = await create();
    for (const holder of ['', 'x'.repeat(256), 'a\0b', 'half \ud83d']) {
      await expectCode(leases.acquire(keyOf(session), { holder }), 'ADK_INVALID_ARGUMENT');
    }
    await expectCode(leases.acquire({ ...keyOf(session), userId: '' }, { holder: 'a' }), 'ADK_INVALID_KEY');
    for (const ttlMs of [0, -1, NaN, Infinity, 2 ** 31]) {
      expect(() => new SessionLeases(orm.em, { ttlMs })).toThrow(
        expect.objectContaining({ code: 'ADK_INVALID_ARGUMENT' }),
      );
    }
    expect(await row(session)).toMatchObject({ holder: null, token: 0 });

    const holder = '🦉'.repeat(255);
    const longest = await acquire(session, { by: new SessionLeases(orm.em, { ttlMs: 2 ** 31 - 1 }), holder });
    expect(await leases.current(keyOf(session))).toMatchObject({ holder });
    // After a turn of the timers.
    await until(async () => (await row(session)).leftMs < 2 ** 31 - 5);
    expect(longest.signal.aborted).toBe(false);
  },
);

leaseTest('H1', 'run gives the lease back, and returns what the work returns', async ({ create, leases, row }) => {
  const session = await create();
  const result = await leases.run(keyOf(session), { holder: 'a' }, async (lease) => {
    expect(await row(session)).toMatchObject({ holder: 'a', token: lease.token });
    await lease.sessionService.updateState({ ...keyOf(session), set: { a: 1 } });
    return 42;
  });
  expect(result).toBe(42);
  expect(await row(session)).toMatchObject({ holder: null });
});

leaseTest(
  'H1',
  'run gives the lease back when the work throws, and throws the same error',
  async ({ orm, create, leases, row }) => {
    const session = await create();
    const failing = () => Promise.reject(new RangeError('the work fails'));
    await expect(leases.run(keyOf(session), { holder: 'a' }, failing)).rejects.toThrow(RangeError);
    expect(await row(session)).toMatchObject({ holder: null });

    // Also where the lease cannot be given back.
    const noRelease = { statement: (text: string) => text.includes('set lease_holder = null') };
    const unlucky = new SessionLeases(faulty(orm.em, noRelease), { ttlMs: LONG_MS });
    await expect(unlucky.run(keyOf(session), { holder: 'a' }, failing)).rejects.toThrow('the work fails');
    expect(await row(session)).toMatchObject({ holder: 'a' });
  },
);

leaseTest(
  'H1',
  'a lease is renewed six times in ttlMs, and lives on when a renewal fails',
  ({ orm, create, others, acquire, row }) =>
    LeaseClock.with(async (time) => {
      const session = await create();
      const ttlMs = LONG_MS;
      let renewals = 0;
      const statement = (text: string) => renewsLease(text) && ++renewals === 1;
      const lease = await acquire(session, { by: new SessionLeases(faulty(orm.em, { statement }), { ttlMs }) });
      let { expiresAt } = await row(session);
      for (const n of range(12)) {
        // The database's clock may count whole milliseconds.
        const before = Date.now();
        await until(() => Date.now() > before);
        time.advance(ttlMs / 6);
        await until(() => renewals === n + 1);
        if (n === 0) continue;
        // It is stored, and the deadline is five sixths of the time after it.
        await until(() => time.due.includes(time.now + (ttlMs * 5) / 6));
        const renewed = await row(session);
        expect(renewed).toMatchObject({ holder: 'holder', token: lease.token });
        expect(renewed.expiresAt).toBeGreaterThan(expiresAt!);
        ({ expiresAt } = renewed);
      }
      await expectCode(others.acquire(keyOf(session), { holder: 'next' }), 'ADK_LEASE_HELD');
      expect(lease.signal.aborted).toBe(false);

      // The timers of its next renewal and its deadline. A lease of an earlier test may have renewed itself meanwhile.
      const timers = time.due.length;
      await lease.release();
      expect(time.due).toHaveLength(timers - 2);
    }),
);

leaseTest(
  'H1',
  'a lease that is over since its process was busy is not renewed, and is given back',
  async (context) => {
    const { orm, create, others, acquire, row } = context;
    const session = await create();
    const ttlMs = 1_200;
    let renewals = 0;
    const statement = (text: string) => renewsLease(text) && ++renewals < 0;
    const lease = await acquire(session, { by: new SessionLeases(faulty(orm.em, { statement }), { ttlMs }) });
    renewals = 0;
    // Nothing else happens in the process meanwhile.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ttlMs * 0.9);
    await until(() => lease.signal.aborted);
    await lease.release();
    expect(renewals).toBe(0);
    expect(await row(session)).toMatchObject({ holder: null });
    await (await others.acquire(keyOf(session), { holder: 'next' })).release();
    // A second release does not touch the lease of the next holder.
    const next = await acquire(session, { by: others });
    await lease.release();
    expect(await row(session)).toMatchObject({ token: next.token, holder: 'holder' });
  },
);

leaseTest('H1', 'a lost lease that cannot be given back throws nothing', async ({ orm, create, acquire, row }) => {
  const session = await create();
  const errors: ErrorContext[] = [];
  const ttlMs = 600;
  const statement = (text: string) => text.includes('set lease_holder = null');
  const onError = (_: unknown, context: ErrorContext) => void errors.push(context);
  const lease = await acquire(session, { by: new SessionLeases(faulty(orm.em, { statement }), { ttlMs, onError }) });
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ttlMs * 0.9);
  await until(() => lease.signal.aborted);
  await lease.release();
  expect(errors).toMatchObject([{ operation: 'release' }]);
  expect(await row(session)).toMatchObject({ holder: 'holder' });
});

for (const hours of [-1, 1]) {
  leaseTest(
    'H1',
    `a host whose clock is off by ${hours} hour changes nothing`,
    async ({ orm, create, others, acquire, expire, row }) => {
      const now = Date.now;
      const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + hours * 3_600_000);
      try {
        const session = await create();
        const ttlMs = 6_000;
        const lease = await acquire(session, { by: new SessionLeases(orm.em, { ttlMs }) });
        const first = await row(session);
        expect(first.leftMs).toBeLessThanOrEqual(ttlMs);
        expect(first.leftMs).toBeGreaterThan(0);
        expect(await others.current(keyOf(session))).toMatchObject({ expiresAt: first.expiresAt });
        await expectCode(others.acquire(keyOf(session), { holder: 'next' }), 'ADK_LEASE_HELD');

        await until(async () => (await row(session)).expiresAt !== first.expiresAt);
        const renewed = await row(session);
        expect(renewed.leftMs).toBeLessThanOrEqual(ttlMs);
        expect(renewed.leftMs).toBeGreaterThan(0);
        expect(lease.signal.aborted).toBe(false);
        await lease.release();

        await acquire(session);
        await expire(session);
        await acquire(session, { by: others, holder: 'next' });
      } finally {
        clock.mockRestore();
      }
    },
  );
}

leaseTest(
  'H1',
  'the counter of tokens is free while a session is locked',
  async ({ connect, peer, query, create, acquire, row }) => {
    const [locked, other] = [await create(), await create()];
    let isTaking = false;
    const before = async (text: string) => {
      if (takesLease(text)) isTaking = true;
    };
    const by = new SessionLeases(faulty((await connect()).em, { before }), { ttlMs: LONG_MS });
    const waiting: Promise<Lease>[] = [];
    await peer.em.fork().transactional(async (tx) => {
      await query(
        `update adk_sessions set last_seq = last_seq ${OF_SESSION}`,
        [locked.appName, locked.userId, locked.id],
        tx,
      );
      waiting.push(acquire(locked, { by }));
      await until(() => isTaking);
      const free = acquire(other);
      let isTaken = false;
      void free.then(() => (isTaken = true));
      await until(() => isTaken);
    });
    const [lease] = await Promise.all(waiting);
    expect(await row(locked)).toMatchObject({ token: lease?.token });
  },
  onServers,
);

leaseTest(
  'H1',
  'errors of leases hold neither SQL nor credentials',
  async ({ harness, connect, create }) => {
    const { options, secret } = harness.unreachable;
    const { em } = await connect({ ...options, connect: false });
    const leases = new SessionLeases(em, { retry: { attempts: 1 } });
    const key = keyOf(await create());
    for (const failing of [() => leases.acquire(key, { holder: 'a' }), () => leases.current(key)]) {
      const { message } = await errorOf(failing());
      expect(message).toMatch(/^The database (file could not be opened|could not be reached)/);
      expect(message).not.toContain(secret);
    }
  },
  withConnections,
);

leaseTest('H1', 'errors of lease statements hold nothing of them', async ({ orm, create, leases, row }) => {
  const session = await create();
  for (const part of ['select lease_holder', 'adk_counters', 'lease_holder = ?', 'set lease_holder = null']) {
    const faults = { statement: (text: string) => text.includes(part), error: () => new Error(`${part} of hunter2`) };
    const error = await errorOf(
      new SessionLeases(faulty(orm.em, faults), { ttlMs: LONG_MS })
        .acquire(keyOf(session), { holder: 'hunter2' })
        .then((lease) => lease.release()),
    );
    expect(error).toMatchObject({ code: 'ADK_DATABASE', message: expect.not.stringContaining('hunter2') });
    expect(error.message).not.toContain(part);
    expect(error.cause).toBeUndefined();
  }
  expect((await leases.current(keyOf(session)))?.token).toBe((await row(session)).token);
});

leaseTest('H1', 'missing columns and tables give the command that makes them', async ({ app, scratch }) => {
  const { orm, service, query } = await scratch();
  const session = await service.createSession({ appName: app, userId: 'alice' });
  const leases = new SessionLeases(orm.em);
  await query('drop table adk_counters');
  await expectCode(leases.acquire(keyOf(session), { holder: 'a' }), 'ADK_SCHEMA', 'migration:up');
  await query('alter table adk_sessions drop column lease_expires');
  await expectCode(leases.current(keyOf(session)), 'ADK_SCHEMA', 'migration:up');
});

leaseTest(
  'H2',
  'tokens grow and never repeat, also when a session is deleted and created again',
  async ({ service, create, leases, acquire, takeOver }) => {
    const tokens: number[] = [];
    for (const id of ['s', 't', 's']) {
      const session = await create({ sessionId: id });
      for (const _ of range(2)) {
        const lease = await acquire(session);
        tokens.push(lease.token);
        await lease.release();
      }
      tokens.push((await acquire(session)).token, (await takeOver(session)).token);
      await service.deleteSession(keyOf(session));
      expect(await leases.current(keyOf(session))).toBeUndefined();
    }
    expect(tokens).toHaveLength(12);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
  },
);

leaseTest(
  'H2',
  'a token that was given out before a larger one is not used after it',
  async ({ orm, create, others, acquire, row }) => {
    const session = await create();
    let faster: Lease | undefined;
    const before = async (text: string) => {
      if (faster || !takesLease(text)) return;
      faster = await acquire(session, { by: others });
      await faster.release();
    };
    const lease = await acquire(session, { by: new SessionLeases(faulty(orm.em, { before }), { ttlMs: LONG_MS }) });
    expect(lease.token).toBeGreaterThan(faster!.token);
    expect(await row(session)).toMatchObject({ token: lease.token });
  },
  // If there is only one connection, the waiting call has it.
  withConnections,
);

leaseTest(
  'H2',
  'the service of a current lease writes, and its handle equals what is stored',
  async ({ service, create, fresh, acquire, stored }) => {
    const session = await create({ state: { gone: 1 } });
    const { sessionService } = await acquire(session);
    const handle = (await sessionService.getSession(keyOf(session)))!;
    const event = await sessionService.appendEvent({
      session: handle,
      event: saying('1', { actions: { stateDelta: { a: 1, 'user:a': 1, 'app:a': 1 } } }),
    });
    await sessionService.appendEvents({ session: handle, events: [saying('2'), saying('3')] });
    await sessionService.appendEvent({ session: handle, event: { ...event, author: 'again' } });
    await service.appendEvent({ session, event: saying('user') });
    await sessionService.appendEvent({ session: handle, event: saying('4') });
    expect(textsOf(handle)).toEqual(['1', '2', '3', 'user', '4']);
    expect(plain(handle)).toEqual(plain(await fresh(session)));

    await sessionService.updateState({ ...keyOf(session), set: { b: 2 }, remove: ['gone'] });
    expect((await stored(keyOf(session)))?.state).toEqual({ a: 1, b: 2, 'user:a': 1, 'app:a': 1 });
    await sessionService.deleteSession(keyOf(session));
    expect(await stored(keyOf(session))).toBeUndefined();
    // As of any service (contract A14).
    await sessionService.deleteSession(keyOf(session));
    await expectCode(sessionService.appendEvent({ session: handle, event: saying('5') }), 'ADK_SESSION_NOT_FOUND');
  },
);

leaseTest('H2', 'the token is checked without a statement of its own', async ({ create, recorded, acquire, orm }) => {
  const countOf = async (service: MikroOrmSessionService, session: Session) => {
    // The first one may be prepared before.
    await service.appendEvent({ session, event: saying('x') });
    return (await recorded(() => service.appendEvent({ session, event: saying('y') }))).length;
  };
  const session = await create();
  const { sessionService } = await acquire(session);
  const leased = await countOf(sessionService, session);
  expect(leased).toBe(await countOf(new MikroOrmSessionService(orm.em), await create()));
  expect(leased).toBe(
    await countOf(new MikroOrmSessionService(orm.em, { onUnleasedAppend: 'reject' }), await create()),
  );
});

leaseTest(
  'H2',
  'a lease that has expired and that nobody took over still writes',
  async ({ create, fresh, acquire, expire }) => {
    const session = await create();
    const { sessionService } = await acquire(session);
    await expire(session);
    await sessionService.appendEvent({ session, event: saying('x') });
    expect(textsOf(await fresh(session))).toEqual(['x']);
  },
);

interface Handles {
  /** In step, with one event. */
  handle: Session;
  /** Lacks that event. */
  behind: Session;
}

const late = () => saying('late', { actions: { stateDelta: { a: 'late' } } });

/** What can be written to a session, in all the ways that an append may take, and its deletion. */
const WRITES: Readonly<Record<string, (service: MikroOrmSessionService, handles: Handles) => Promise<unknown>>> = {
  'an event': (service, { handle }) => service.appendEvent({ session: handle, event: late() }),
  'several events': (service, { handle }) => service.appendEvents({ session: handle, events: [late(), late()] }),
  'an event that is stored, as it is': (service, { handle }) =>
    service.appendEvent({ session: handle, event: plain<Event>(handle.events[0]!) }),
  'an event that is stored, changed': (service, { handle }) =>
    service.appendEvent({ session: handle, event: { ...late(), id: handle.events[0]!.id } }),
  'an event by a handle that is behind': (service, { behind }) =>
    service.appendEvent({ session: behind, event: late() }),
  'an event by a copy of a handle': (service, { handle }) =>
    service.appendEvent({ session: plain(handle), event: late() }),
  state: (service, { handle }) => service.updateState({ ...keyOf(handle), set: { a: 'late' }, remove: ['b'] }),
  'a deletion': (service, { handle }) => service.deleteSession(keyOf(handle)),
};

async function handlesOf({ create, append, fresh }: LeaseContext): Promise<Handles> {
  const handle = await create({ state: { a: 0, b: 0 } });
  const behind = await fresh(handle);
  await append(handle, { content: { parts: [{ text: 'first' }] }, delta: { a: 1 } });
  return { handle, behind };
}

/** Expects a write to fail and to change nothing. */
async function expectRefused(
  { stored }: LeaseContext,
  { handle, behind }: Handles,
  write: () => Promise<unknown>,
): Promise<Error> {
  const before = await stored(keyOf(handle));
  const unchanged = [handle, behind].map(remember);
  const error = await errorOf(write());
  for (const check of unchanged) check();
  expect(await stored(keyOf(handle))).toEqual(before);
  return error;
}

/** Expects that the handle which a lease's service has read before is in step, and writes an event by it. */
async function expectInStep({ sessionService }: Lease, handle: Session): Promise<void> {
  const { length } = handle.events;
  await sessionService.appendEvent({ session: handle, event: eventOf() });
  expect(handle.events).toHaveLength(length + 1);
}

const STALE = ['rebase', 'reject'] as const;

for (const [what, write] of Object.entries(WRITES)) {
  leaseTest('H2', `after a takeover ${what} is refused, and the successor's handle is in step`, async (context) => {
    for (const onStaleSession of STALE) {
      const { orm, acquire, takeOver } = context;
      const handles = await handlesOf(context);
      const lease = await acquire(handles.handle, {
        by: new SessionLeases(orm.em, { ttlMs: LONG_MS, onStaleSession }),
      });
      const successor = await takeOver(handles.handle);
      const read = (await successor.sessionService.getSession(keyOf(handles.handle)))!;

      const alone = () => write(lease.sessionService, handles);
      const inTransaction = () =>
        orm.em.fork().transactional((tx) => write(lease.sessionService.withEntityManager(tx), handles));
      for (const attempt of [alone, inTransaction]) {
        expect(await expectRefused(context, handles, attempt)).toMatchObject({
          code: 'ADK_LEASE_LOST',
          message: expect.stringContaining(`session ${handles.handle.id} is lost`),
        });
      }
      await expectInStep(successor, read);
    }
  });

  leaseTest('H2', `after its release ${what} is refused`, async (context) => {
    const handles = await handlesOf(context);
    const lease = await context.acquire(handles.handle);
    await lease.release();
    const error = await expectRefused(context, handles, () => write(lease.sessionService, handles));
    expect(error).toMatchObject({ code: 'ADK_LEASE_LOST' });
  });

  leaseTest(
    'H2',
    `a transaction of the host that has read before the takeover does not hide it from ${what}`,
    async (context) => {
      const { orm, acquire, takeOver } = context;
      const handles = await handlesOf(context);
      const lease = await acquire(handles.handle);
      await orm.em.fork().transactional(async (tx) => {
        const joined = lease.sessionService.withEntityManager(tx);
        await joined.getSession(keyOf(handles.handle));
        await takeOver(handles.handle);
        const error = await expectRefused(context, handles, () => write(joined, handles));
        expect(error).toMatchObject({ code: 'ADK_LEASE_LOST' });
      });
    },
    // On SQLite a transaction that has read does not get to write after others.
    onServers,
  );
}

leaseTest(
  'H2',
  'a lost lease that is given back leaves the next one alone',
  async ({ create, leases, acquire, takeOver }) => {
    const session = await create();
    const lease = await acquire(session);
    const successor = await takeOver(session);
    const held = await leases.current(keyOf(session));
    expect(held).toMatchObject({ holder: 'successor', token: successor.token });
    await lease.release();
    expect(await leases.current(keyOf(session))).toEqual(held);
    await expectInStep(successor, (await successor.sessionService.getSession(keyOf(session)))!);
  },
);

leaseTest(
  'H2',
  'a session that was created again is not written by a lease of the one before',
  async ({ service, create, acquire, stored }) => {
    const session = await create();
    const { sessionService } = await acquire(session);
    await service.deleteSession(keyOf(session));
    const anew = await create({ sessionId: session.id });
    for (const handle of [session, anew]) {
      await expectCode(sessionService.appendEvent({ session: handle, event: late() }), 'ADK_LEASE_LOST');
    }
    await expectCode(sessionService.deleteSession(keyOf(anew)), 'ADK_LEASE_LOST');
    expect((await stored(keyOf(anew)))?.events).toEqual([]);
  },
);

leaseTest(
  'H2',
  'the service of a lost lease still writes to sessions that it creates, and to those of agents that are tools',
  async ({ app, orm, service, create, fresh, acquire, takeOver }) => {
    const session = await create();
    const { sessionService } = await acquire(session);
    await takeOver(session);
    const writes = async (handle: Session, by = sessionService) => {
      await by.appendEvent({ session: handle, event: saying('x') });
      expect(textsOf(await fresh(handle))).toEqual(['x']);
      await by.deleteSession(keyOf(handle));
    };
    for (const other of [{ userId: 'bob' }, { sessionId: 'other' }])
      await writes(await sessionService.createSession({ ...keyOf(session), ...other }));
    await writes(await sessionService.forkSession(keyOf(session), { as: 'fork' }));
    // Such an agent has the same session id under another app.
    await writes(await service.createSession({ ...keyOf(session), appName: `${app}-sub` }));
    const made: Session[] = [];
    await orm.em.fork().transactional(async (tx) => {
      made.push(await sessionService.withEntityManager(tx).createSession({ appName: app, userId: 'alice' }));
    });
    await writes(made[0]!);
    await sessionService.updateState({ appName: app, userId: 'alice', set: { 'app:a': 1, 'user:a': 1 } });
    expect(await sessionService.getUserState({ appName: app, userId: 'alice' })).toEqual({ 'user:a': 1 });
  },
);

for (const [what, write] of Object.entries(WRITES)) {
  leaseTest(
    'H2',
    `${what} for a session without its lease is refused to the service of another lease`,
    async (context) => {
      const { orm, app, create, acquire } = context;
      const { sessionService } = await acquire(await create());
      const handles = await handlesOf(context);
      const inTransaction = () =>
        orm.em.fork().transactional((tx) => write(sessionService.withEntityManager(tx), handles));
      for (const refused of [() => write(sessionService, handles), inTransaction])
        expect(await expectRefused(context, handles, refused)).toMatchObject({ code: 'ADK_INVALID_ARGUMENT' });
      expect(await sessionService.getSession(keyOf(handles.handle))).toMatchObject({ appName: app });
    },
  );
}

leaseTest(
  'H2',
  'an append without the lease is allowed, and the holder continues',
  async ({ create, append, fresh, acquire }) => {
    const session = await create();
    const { sessionService, signal } = await acquire(session);
    const handle = (await sessionService.getSession(keyOf(session)))!;
    await append(session, { content: { parts: [{ text: 'user' }] }, delta: { a: 1 } });
    await sessionService.appendEvent({ session: handle, event: saying('holder') });
    expect(textsOf(handle)).toEqual(['user', 'holder']);
    expect(plain(handle)).toEqual(plain(await fresh(session)));
    expect(signal.aborted).toBe(false);
  },
);

for (const [what, write] of Object.entries(WRITES)) {
  leaseTest('H2', `with onUnleasedAppend: 'reject' ${what} is refused while the lease is held`, async (context) => {
    const { orm, acquire, expire, row } = context;
    const handles = await handlesOf(context);
    const lease = await acquire(handles.handle, { holder: 'host 1' });
    for (const onStaleSession of STALE) {
      const service = new MikroOrmSessionService(orm.em, { onUnleasedAppend: 'reject', onStaleSession });
      const alone = () => write(service, handles);
      const inTransaction = () => orm.em.fork().transactional((tx) => write(service.withEntityManager(tx), handles));
      for (const attempt of [alone, inTransaction]) {
        expect(await expectRefused(context, handles, attempt)).toMatchObject({
          code: 'ADK_LEASE_HELD',
          holder: 'host 1',
          expiresAt: (await row(handles.handle)).expiresAt,
        });
      }
    }

    const service = new MikroOrmSessionService(orm.em, { onUnleasedAppend: 'reject' });
    await expire(handles.handle);
    await write(service, handles);
    await lease.release();
    await write(service, handles);
  });

  leaseTest(
    'H2',
    `with onUnleasedAppend: 'reject' a transaction of the host that has read before the lease was taken does not hide it from ${what}`,
    async (context) => {
      const { orm, others, acquire } = context;
      const handles = await handlesOf(context);
      const service = new MikroOrmSessionService(orm.em, { onUnleasedAppend: 'reject' });
      await orm.em.fork().transactional(async (tx) => {
        const joined = service.withEntityManager(tx);
        await joined.getSession(keyOf(handles.handle));
        await acquire(handles.handle, { by: others, holder: 'host 1' });
        const error = await expectRefused(context, handles, () => write(joined, handles));
        expect(error).toMatchObject({ code: 'ADK_LEASE_HELD', holder: 'host 1' });
      });
    },
    onServers,
  );
}

leaseTest(
  'H2',
  "with onUnleasedAppend: 'reject' a lease's own service writes, but not to a session that another one holds",
  async ({ orm, app, service, create, fresh, acquire, others }) => {
    const mine = await create();
    const theirs = await service.createSession({ ...keyOf(mine), appName: `${app}-sub` });
    const by = new SessionLeases(orm.em, { ttlMs: LONG_MS, onUnleasedAppend: 'reject' });
    const { sessionService } = await acquire(mine, { by });
    await acquire(theirs, { by: others, holder: 'host 2' });
    await sessionService.appendEvent({ session: mine, event: saying('x') });
    const made = await sessionService.createSession({ appName: app, userId: 'alice' });
    await sessionService.appendEvent({ session: made, event: saying('x') });
    await expectCode(sessionService.appendEvent({ session: theirs, event: late() }), 'ADK_LEASE_HELD', 'host 2');
    expect([await fresh(mine), await fresh(theirs)].map(textsOf)).toEqual([['x'], []]);
    await sessionService.updateState({ appName: app, userId: 'alice', set: { 'app:a': 1 } });
  },
);

leaseTest(
  'H3',
  'the signal fires after a takeover, and leaves the next lease alone',
  async ({ orm, create, leases, acquire, takeOver }) => {
    const session = await create();
    const ttlMs = 6_000;
    const lease = await acquire(session, { by: new SessionLeases(orm.em, { ttlMs }) });
    expect(lease.signal.aborted).toBe(false);
    await takeOver(session);
    const held = await leases.current(keyOf(session));
    // By a renewal: much before the time at which it would have been lost anyway.
    const since = performance.now();
    await until(() => lease.signal.aborted, 5);
    expect(performance.now() - since).toBeLessThan((2 / 3) * ttlMs);
    expect(lease.signal.reason).toMatchObject({ code: 'ADK_LEASE_LOST' });
    expect(await leases.current(keyOf(session))).toEqual(held);
  },
);

leaseTest('H3', 'the signal fires when the session is deleted', async ({ orm, service, create, acquire }) => {
  const session = await create();
  const lease = await acquire(session, { by: new SessionLeases(orm.em, { ttlMs: 600 }) });
  await service.deleteSession(keyOf(session));
  await create({ sessionId: session.id });
  await until(() => lease.signal.aborted, 5);
  expect(lease.signal.reason).toMatchObject({ code: 'ADK_LEASE_LOST' });
});

leaseTest('H3', 'the signal fires once when the lease is given back', async ({ create, leases, acquire }) => {
  const session = await create();
  const lease = await acquire(session);
  let fired = 0;
  lease.signal.addEventListener('abort', () => fired++);
  const released = lease.release();
  // At once: what works by it is to stop before somebody else begins.
  expect(lease.signal.aborted).toBe(true);
  expect(lease.signal.reason).toMatchObject({ code: 'ADK_LEASE_LOST' });
  await released;
  await lease.release();
  expect(fired).toBe(1);

  const signal = await leases.run(keyOf(session), { holder: 'a' }, (inside) => Promise.resolve(inside.signal));
  expect(signal.aborted).toBe(true);
});

leaseTest(
  'H3',
  'while the database fails, or does not answer, the signal fires before the lease can be taken over',
  ({ connect, create, acquire, row }) =>
    LeaseClock.with(async (time) => {
      let answer: () => void = () => undefined;
      const answered = new Promise<void>((resolve) => (answer = resolve));
      let isAway = false;
      let refused = 0;
      const faults: Faults[] = [
        { statement: () => isAway && ++refused > 0 },
        { before: () => (isAway ? answered : Promise.resolve()) },
      ];
      const ttlMs = LONG_MS;
      const held = [];
      for (const each of faults) {
        const session = await create();
        // If the ORM has only one connection, the waiting renewal has it.
        const { em } = await connect();
        held.push({ session, lease: await acquire(session, { by: new SessionLeases(faulty(em, each), { ttlMs }) }) });
      }
      // Each has a timer for its renewals and one for its deadline; the first renewal is stored.
      time.advance(ttlMs / 6);
      const deadline = time.now + (ttlMs * 5) / 6;
      await until(() => time.due.filter((at) => at === deadline).length === 2);
      isAway = true;
      try {
        for (const n of range(4)) {
          time.advance(ttlMs / 6);
          await until(() => refused === n + 1);
          expect(held.map(({ lease }) => lease.signal.aborted)).toEqual([false, false]);
        }
        // A sixth of the time before the database gives it to somebody else.
        time.advance(ttlMs / 6);
        for (const { session, lease } of held) {
          expect(lease.signal.reason).toMatchObject({ code: 'ADK_LEASE_LOST' });
          expect(await row(session)).toMatchObject({ holder: 'holder', token: lease.token });
        }
      } finally {
        isAway = false;
        answer();
      }
    }),
  withConnections,
);

leaseTest('H1', 'a lease creates its session where that is asked for', async ({ app, leases, others, service }) => {
  const key = { appName: app, userId: 'alice', sessionId: 'new' };
  const options = { holder: 'holder' };
  await expectCode(
    leases.run(key, options, () => Promise.resolve()),
    'ADK_SESSION_NOT_FOUND',
  );
  expect(await service.getSession(key)).toBeUndefined();

  await leases.run(key, { ...options, autoCreateSession: true }, async ({ sessionService, signal }) => {
    const again = others.run(key, { ...options, autoCreateSession: true }, () => Promise.resolve());
    await expectCode(again, 'ADK_LEASE_HELD');
    const agent = new LlmAgent({ name: 'clerk', model: scriptedModel(['Hello.']) });
    const runner = new NewerRunner({ appName: app, agent, sessionService, autoCreateSession: true });
    const newMessage = { role: 'user', parts: [{ text: 'Hi.' }] };
    for await (const _ of runner.runAsync({ ...key, newMessage, abortSignal: signal }));
  });
  expect(textsOf((await service.getSession(key))!)).toEqual(['Hi.', 'Hello.']);
  expect(await leases.current(key)).toBeUndefined();
});

leaseTest(
  'H3',
  'a newer Runner throws when its lease is lost, and answers no call',
  async ({ create, fresh, acquire, takeOver }) => {
    const session = await create();
    const lease = await acquire(session);
    const work = new FunctionTool({
      name: 'work',
      description: 'Works.',
      execute: async () => {
        await takeOver(session);
        abort.abort();
        return { done: true };
      },
    });
    const abort = new AbortController();
    const model = scriptedModel(() => ({ name: 'work' }));
    const agent = new LlmAgent({ name: 'worker', model, tools: [work] });
    const runner = new NewerRunner({ appName: session.appName, agent, sessionService: lease.sessionService });
    const run = async () => {
      const newMessage = { role: 'user', parts: [{ text: 'Work.' }] };
      const { userId, id: sessionId } = session;
      for await (const _ of runner.runAsync({ userId, sessionId, newMessage, abortSignal: abort.signal }));
    };
    await expectCode(run(), 'ADK_LEASE_LOST');
    expect((await fresh(session)).events.map(({ author, errorCode }) => [author, errorCode])).toEqual([
      ['user', undefined],
      ['worker', undefined],
    ]);
  },
);

for (const [title, ttlMs] of [
  ['is notified of', 1_800],
  ['is not told of', LONG_MS],
] as const) {
  leaseTest(
    'H3',
    `a Runner stops within a step of a loss that it ${title}`,
    async ({ orm, create, fresh, acquire, takeOver }) => {
      const session = await create();
      const lease = await acquire(session, { by: new SessionLeases(orm.em, { ttlMs }) });
      const steps: string[] = [];
      let successor: Lease | undefined;
      let read: Session | undefined;
      const work = new FunctionTool({
        name: 'work',
        description: 'Works.',
        execute: async () => {
          if (steps.push('tool') < 4) return { done: true };
          successor = await takeOver(session);
          read = await successor.sessionService.getSession(keyOf(session));
          if (ttlMs < LONG_MS) await until(() => lease.signal.aborted, 5);
          return { done: true };
        },
      });
      // An end, should nothing else make one.
      const model = scriptedModel(() => (steps.push('model') > 20 ? 'done' : { name: 'work' }));
      const runner = new Runner({
        appName: session.appName,
        agent: new LlmAgent({ name: 'worker', model, tools: [work] }),
        sessionService: lease.sessionService,
      });
      const yielded: string[] = [];
      const running = (async () => {
        const newMessage = { role: 'user', parts: [{ text: 'Work.' }] };
        const { userId, id: sessionId } = session;
        const run = runner.runAsync({ userId, sessionId, newMessage, abortSignal: lease.signal });
        for await (const { id } of run) yielded.push(id);
      })();
      if (ttlMs < LONG_MS) await running;
      else await expectCode(running, 'ADK_LEASE_LOST');

      // Neither the second result is stored nor is the model asked what to do with it.
      expect(steps).toEqual(['model', 'tool', 'model', 'tool']);
      const { events } = await fresh(session);
      expect(events.map(({ author }) => author)).toEqual(['user', ...yielded.map(() => 'worker')]);
      expect(yielded).toHaveLength(3);
      await expectInStep(successor!, read!);
    },
  );
}

leaseSuite.own('K4', 'a rewind beside a held lease is refused unless it includes it', async (context) => {
  const { create, service, stored, orm, query } = context;
  const session = await create();
  await service.appendEvents({ session, events: range(3).map((n) => saying(`e${n}`, { id: `e${n}` })) });
  const key = keyOf(session);
  const lease = await new SessionLeases(orm.em, LONG_LEASE).acquire(key, { holder: 'worker' });
  for (const options of [{}, { onUnleasedAppend: 'reject' as const }])
    for (const point of [{ at: 1 }, { at: 3 }, { at: 1, includeLeased: false }])
      expect(await errorOf(new MikroOrmSessionService(orm.em, options).rewindSession(key, point))).toMatchObject({
        code: 'ADK_LEASE_HELD',
        holder: 'worker',
      });
  expect((await stored(key))?.events).toHaveLength(3);
  // Whoever has the lease knows of it, and so does who asks for it.
  expect((await lease.sessionService.rewindSession(key, { at: 2 })).events).toHaveLength(2);
  expect((await service.rewindSession(key, { at: 1, includeLeased: true })).events).toHaveLength(1);
  // By the database's clock, whatever this process thinks.
  await query('update adk_sessions set lease_expires = 1000 where session_id = ?', [session.id]);
  expect((await service.rewindSession(key, { at: 0 })).events).toEqual([]);
  await lease.release();
});

leaseTest('H1', 'the holders of leases are listed, with the time since when', async (context) => {
  const { acquire, leases, others, create, app, expire, harness, query } = context;
  const sessions = [await create(), await create({ userId: 'bob' }), await create()];
  const [{ now: before } = { now: NaN }] = await query<{ now: number | string }>(
    `select ${harness.columns.now} as now`,
  );
  const taken = [];
  for (const session of sessions) taken.push(await acquire(session));
  const names = (held: Awaited<ReturnType<typeof leases.held>>) => held.map(({ sessionId }) => sessionId);
  const held = await others.held({ appName: app });
  expect(names(held)).toEqual(sessions.map(({ id }) => id));
  const current = await others.current(keyOf(sessions[0]!));
  expect(held[0]).toEqual({ ...keyOf(sessions[0]!), ...current });
  expect(current?.since).toBeGreaterThanOrEqual(Number(before));
  expect(current?.since).toBeLessThanOrEqual(held[1]!.since);
  expect(names(await others.held({ appName: app, userId: 'bob' }))).toEqual([sessions[1]!.id]);
  expect(names(await others.held({ appName: app, limit: 1 }))).toEqual([sessions[0]!.id]);
  await expectCode(leases.held({ limit: 0 }), 'ADK_INVALID_ARGUMENT');
  await expire(sessions[2]!);
  await taken[0]!.release();
  expect(names(await others.held({ appName: app }))).toEqual([sessions[1]!.id]);
});

leaseTest('H2', 'a lease that somebody else has ended writes nothing', async (context) => {
  const { acquire, others, create, fresh } = context;
  const session = await create();
  const lease = await acquire(session);
  const handle = (await lease.sessionService.getSession(keyOf(session)))!;
  expect(await others.release(keyOf(session))).toBe(true);
  expect(await others.release(keyOf(session))).toBe(false);
  await expectCode(lease.sessionService.appendEvent({ session: handle, event: eventOf() }), 'ADK_LEASE_LOST');
  expect((await fresh(session)).events).toEqual([]);
});
