import { DeadlockException, type EntityManager } from '@mikro-orm/core';
import { SessionMaintenance, type DatabaseError, type MaintenanceResult, type PruneOptions } from '../../src/index.js';
import type { Codec } from '../../src/codecs/index.js';
import { upTo } from './log-tools.js';
import { Suite, withConnections, type OwnContext } from './rule.js';
import { errorOf, faulty, saying, type Faults } from './tools.js';

/** Calls of several transactions that fail, or whose answers are lost. */
export const partsSuite = new Suite();

const DAY = 24 * 3_600_000;

/** Three sessions of four events of one user. @returns how many there are. */
async function three({ app, service, query }: OwnContext, userId: string) {
  for (const sessionId of ['s1', 's2', 's3']) {
    const session = await service.createSession({ appName: app, userId, sessionId, state: { 'user:a': 1 } });
    const events = upTo(4).map((n) => saying('x', { id: `e${n}`, timestamp: n }));
    await service.appendEvents({ session, events });
  }
  return async () => {
    const rows = async (table: string) =>
      (await query(`select 1 from ${table} where app_name = ? and user_id = ?`, [app, userId])).length;
    return { sessions: await rows('adk_sessions'), events: await rows('adk_events') };
  };
}

async function exported({ em }: { em: EntityManager }, filter: object): Promise<unknown[]> {
  const records: unknown[] = [];
  for await (const record of new SessionMaintenance(em).exportSessions(filter)) records.push(record);
  return records;
}

/** Each session in a transaction of its own. */
const EACH = { batchSize: 5, pauseMs: 0 };

/** The calls, each with a transaction for each session. */
const CALLS: Record<
  string,
  (by: SessionMaintenance, owner: { appName: string; userId: string }, records: unknown[]) => Promise<MaintenanceResult>
> = {
  prune: (by, owner) => by.prune({ ...owner, ...EACH, idleFor: DAY }),
  trim: (by, owner) => by.trim({ ...owner, ...EACH, batchSize: 3, keepLast: 1 }),
  eraseUser: (by, owner) => by.eraseUser({ ...owner, ...EACH }),
  importSessions: (by, _, records) => by.importSessions(records, { batchSize: 5 }),
};

partsSuite.own(
  'O1',
  'a call that fails after some transactions says that a part is stored, and what',
  async (context) => {
    const { app, orm } = context;
    for (const [userId, call] of Object.entries(CALLS)) {
      const count = await three(context, userId);
      const owner = { appName: app, userId };
      const records = await exported(orm, owner);
      if (userId === 'importSessions') await new SessionMaintenance(orm.em).eraseUser(owner);
      const before = await count();
      let begun = 0;
      const run = (failing: number) => {
        begun = 0;
        // An import writes the user's state first.
        const last = userId === 'importSessions' ? failing + 1 : failing;
        const em = faulty(orm.em, {
          statement: (text) => text === 'begin' && ++begun === last,
          error: () => new DeadlockException(new Error('secret')),
        });
        return errorOf(call(new SessionMaintenance(em, { retry: { attempts: 1 } }), owner, records));
      };
      if (userId !== 'importSessions') {
        const first = await run(1);
        expect(first).toMatchObject({ code: 'ADK_DATABASE', outcome: 'none', message: /Nothing was written/ });
        expect((first as DatabaseError).result).toBeUndefined();
        expect(await count()).toEqual(before);
      }
      const error = (await run(3)) as DatabaseError;
      expect([userId, error]).toMatchObject([userId, { code: 'ADK_DATABASE', outcome: 'partial' }]);
      expect(error.message).toContain('Earlier transactions of the call are stored');
      expect(error.message).not.toMatch(/Nothing was written|secret/);
      const after = await count();
      const [sessions, events] = [
        userId === 'trim' ? 2 : Math.abs(after.sessions - before.sessions),
        Math.abs(after.events - before.events),
      ];
      expect(events).toBeGreaterThan(0);
      expect([userId, error.result]).toMatchObject([userId, { done: { sessions, events } }]);
      // The same call again does the rest.
      const rest = await call(new SessionMaintenance(orm.em), owner, records);
      expect(rest).toMatchObject({ done: { sessions: 1 } });
    }
  },
);

partsSuite.own('O1', 'a reencode that fails after some transactions says what it has rewritten', async (context) => {
  const { app, orm } = context;
  await three(context, 'alice');
  const reversed = (data: Uint8Array) => Uint8Array.from(data).reverse();
  const codec: Codec = {
    name: 'reversed',
    encode: (data) => ({ data: reversed(data) }),
    decode: ({ data }) => reversed(data),
  };
  let begun = 0;
  const em = faulty(orm.em, {
    statement: (text) => text === 'begin' && ++begun === 3,
    error: () => new DeadlockException(new Error('secret')),
  });
  const failing = new SessionMaintenance(em, { codec, retry: { attempts: 1 } });
  const whole = new SessionMaintenance(orm.em, { codec });
  const owner = { appName: app, batchSize: 5, pauseMs: 0 };
  const { done } = await whole.reencode({ ...owner, dryRun: true });
  expect(await errorOf(failing.reencode(owner))).toMatchObject({
    outcome: 'partial',
    // One of the user's state, which comes first.
    result: { done: { texts: 6 }, batches: 2 },
  });
  expect(await whole.reencode(owner)).toMatchObject({ done: { texts: done.texts - 6 } });
});

partsSuite.own('O1', 'an error that ends an import midway says what was written', async (context) => {
  const { app, orm } = context;
  const count = await three(context, 'alice');
  const records = await exported(orm, { appName: app, userId: 'alice' });
  await new SessionMaintenance(orm.em).eraseUser({ appName: app, userId: 'alice' });
  const error = await errorOf(new SessionMaintenance(orm.em).importSessions([...records, { type: 'other' }]));
  expect(error).toMatchObject({
    code: 'ADK_INVALID_ARGUMENT',
    result: { done: { sessions: 2, events: 8, records: 16 } },
  });
  expect(await count()).toEqual({ sessions: 2, events: 8 });
  const early = await errorOf(new SessionMaintenance(orm.em).importSessions([{ type: 'other' }, ...records]));
  expect(early).toMatchObject({ code: 'ADK_INVALID_ARGUMENT' });
  expect(early).not.toHaveProperty('result', expect.anything());
});

partsSuite.own(
  'O1',
  'the work of a transaction counts when the answer to its commit is lost',
  async (context) => {
    const { app, orm } = context;
    const all = { sessions: 3, events: 12 };
    const expected: Record<string, object> = {
      prune: { done: all, batches: 3 },
      trim: { done: { sessions: 3, events: 9 }, batches: 3 },
      // Their state, and their entries of the log.
      eraseUser: { done: { ...all, stateKeys: 1 }, batches: 5 },
      importSessions: { done: all, batches: 4 },
    };
    for (const [userId, call] of Object.entries(CALLS)) {
      await three(context, userId);
      const owner = { appName: app, userId };
      const records = await exported(orm, owner);
      if (userId === 'importSessions') await new SessionMaintenance(orm.em).eraseUser(owner);
      let begun = 0;
      const faults: Faults = {
        error: () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }),
        // Fails the commit of each transaction, but not that of its retry.
        before: async (text) => {
          if (text === 'begin') faults.commit = ++begun % 2 === 1;
        },
      };
      const em = faulty(orm.em, faults);
      const result = await call(new SessionMaintenance(em, { retry: { baseDelayMs: 1 } }), owner, records);
      expect([userId, result]).toMatchObject([userId, expected[userId]!]);
    }
  },
  withConnections,
);

partsSuite.own('O1', 'a call leaves no row behind, but for the one that the next call takes', async (context) => {
  const { app, orm, service, query } = context;
  const key = { appName: app, userId: 'alice', sessionId: 's' };
  const tokens = () => query<{ slot: string; token: string }>('select slot, token from adk_retry_tokens');
  const update = (n: number) => service.updateState({ ...key, set: { n } });
  await service.createSession(key);
  await update(0);
  const first = await tokens();
  for (const n of upTo(3)) {
    await update(n);
    await errorOf(service.updateState({ ...key, sessionId: 'none', set: { n } }));
  }
  const last = await tokens();
  expect(last).toHaveLength(first.length);
  expect(last).not.toEqual(first);
  const old = 'of an ended process';
  const slots = async () => (await tokens()).map(({ slot }) => slot);
  await query('insert into adk_retry_tokens values (?, ?, ?)', [old, 'x', Date.now() - DAY - 1]);
  await new SessionMaintenance(orm.em).prune({ appName: app, idleFor: DAY, dryRun: true });
  expect(await slots()).toContain(old);
  await new SessionMaintenance(orm.em).prune({ appName: app, idleFor: DAY });
  const kept = await slots();
  expect(kept).not.toContain(old);
  expect(kept.length).toBeGreaterThan(0);
});

partsSuite.own(
  'O1',
  'prune removes all old tokens, in batches, and none that a process with a wrong clock uses',
  async (context) => {
    const { app, orm, service, query } = context;
    const tokens = async () => {
      const rows = await query<{ slot: string }>('select slot from adk_retry_tokens');
      return rows.map(({ slot }) => slot);
    };
    const clock = jest.spyOn(Date, 'now').mockReturnValue(0);
    try {
      await service.updateState({ appName: app, set: { 'app:a': 1 } });
    } finally {
      clock.mockRestore();
    }
    const used = await tokens();
    const rows = upTo(25).map((n) => `('of ended process ${n}', 'x', 0)`);
    await query(`insert into adk_retry_tokens values ${rows.join()}`);
    const left = async () => (await tokens()).filter((slot) => slot.startsWith('of ended')).length;
    const prune = (options: PruneOptions) =>
      new SessionMaintenance(orm.em).prune({ appName: app, idleFor: DAY, batchSize: 10, pauseMs: 0, ...options });
    expect(await prune({ signal: AbortSignal.abort() })).toMatchObject({ batches: 0, more: true });
    expect(await left()).toBe(25);
    expect(await prune({ maxBatches: 1 })).toMatchObject({ batches: 1, more: true });
    expect(await left()).toBe(15);
    expect(await prune({})).toMatchObject({ batches: 2, more: false });
    expect(await left()).toBe(0);
    // Prune itself uses tokens of its process.
    expect(await tokens()).toHaveLength(used.length);
  },
);
