import { LlmAgent, Runner, createEvent, type Event } from '@google/adk';
import {
  EventLog,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  type ImportOptions,
  type TrimOptions,
} from '../../src/index.js';
import type { Codec } from '../../src/model/codec.js';
import type { SessionKey } from '../../src/model/keys.js';
import { scriptedModel } from '../../src/testing/index.js';
import { expectFold, idsIn, read, upTo } from './log-tools.js';
import { Suite, withConnections, type OwnContext } from './rule.js';
import { LONG_LEASE, expectCode, faulty, idsOf, saying } from './tools.js';

/** What others do to a session between two transactions of a call that deletes. */
export const interleavingSuite = new Suite({ isOfDialect: true });

const OF_SESSION = 'app_name = ? and user_id = ? and session_id = ?';
const DAY = 24 * 3_600_000;

const E = (from: number, to: number) => upTo(to - from + 1).map((n) => `e${from + n - 1}`);

/** The ids of a session's events in the tables, and whether anybody can read it; undefined if no row is left. */
async function left({ query, service }: OwnContext, key: SessionKey) {
  const values = Object.values(key);
  const sessions = await query(`select 1 from adk_sessions where ${OF_SESSION}`, values);
  const events = await query<{ event_id: string }>(
    `select event_id from adk_events where ${OF_SESSION} order by seq`,
    values,
  );
  const states = await query(`select 1 from adk_session_states where ${OF_SESSION}`, values);
  if (sessions.length + events.length + states.length === 0) return undefined;
  const session = await service.getSession(key);
  const ids = events.map((row) => row.event_id);
  // A read returns what is stored, or there is nothing.
  if (session) expect(idsOf(session)).toEqual(ids);
  return { ids, isSeen: session !== undefined };
}

const whole = (ids: readonly string[]) => ({ ids, isSeen: true });

/** Maintenance in whose call something happens before the transaction with this number. */
function interrupted({ orm }: OwnContext, number: number, change: () => Promise<unknown>): SessionMaintenance {
  let begun = 0;
  const before = async (text: string) => {
    if (text === 'begin' && ++begun === number) await change();
  };
  return new SessionMaintenance(faulty(orm.em, { before }));
}

/** A session of its own user, of events e1, e2 … with these times, and what others can do to it. */
async function prepare({ app, peer, query }: OwnContext, name: string, times: readonly number[]) {
  // With connections of their own, whatever the driver.
  const service = new MikroOrmSessionService(peer.em);
  const softly = new MikroOrmSessionService(peer.em, { deletion: 'soft' });
  const maintenance = new SessionMaintenance(peer.em);
  const key = { appName: app, userId: name, sessionId: 's' };
  const session = await service.createSession({ ...key, state: { kept: 1 } });
  const events = times.map((timestamp, i) => saying('x', { id: `e${i + 1}`, timestamp }));
  await service.appendEvents({ session, events });
  await query(`update adk_sessions set create_time = 2000000 where ${OF_SESSION}`, Object.values(key));
  const exported: unknown[] = [];
  for await (const record of maintenance.exportSessions({ appName: app, userId: name })) exported.push(record);
  const create = async () => {
    await service.deleteSession(key);
    const session = await service.createSession({ ...key, state: { fresh: 1 } });
    for (const id of ['new 1', 'new 2', 'new 3', 'new 4'])
      await service.appendEvent({ session, event: saying(id, { id }) });
  };
  return {
    key,
    softly,
    create,
    append: () => service.appendEvent({ session, event: saying('back', { id: `e${times.length + 1}` }) }),
    rewind: (at: number) => service.rewindSession(key, { at }),
    restore: () => service.restoreSession(key),
    import: (options?: ImportOptions) => maintenance.importSessions(exported, options),
    lease: () => new SessionLeases(peer.em, LONG_LEASE).acquire(key, { holder: 'me' }),
    delete: () => service.deleteSession(key),
  };
}

type Prepared = Awaited<ReturnType<typeof prepare>>;

const NEW = ['new 1', 'new 2', 'new 3', 'new 4'];
const NOT_FOUND = 'ADK_SESSION_NOT_FOUND';

/** What each change does before the deletion has begun: what is left, or that the session goes, and why it may have failed. */
type Effects = Record<string, readonly [ids: readonly string[] | 'goes', code?: string]>;

/** What each change does once it has begun. */
const BEGUN: Effects = {
  create: [NEW],
  append: ['goes', NOT_FOUND],
  rewind: ['goes', NOT_FOUND],
  restore: ['goes', NOT_FOUND],
  import: [E(1, 5)],
  lease: ['goes', NOT_FOUND],
};

const CHANGES: Record<string, (prepared: Prepared) => Promise<unknown>> = {
  create: (each) => each.create(),
  append: (each) => each.append(),
  rewind: (each) => each.rewind(3),
  restore: (each) => each.restore(),
  import: (each) => each.import({ onExisting: 'replace', force: true }),
  lease: (each) => each.lease(),
};

type Remove = (
  by: SessionMaintenance,
  options: { appName: string; userId: string; batchSize: number; pauseMs: number },
) => Promise<unknown>;

const DELETIONS: Record<string, readonly [Remove, Effects]> = {
  'prune of what is idle': [
    (by, options) => by.prune({ ...options, idleFor: DAY }),
    {
      create: [NEW],
      append: [E(1, 6)],
      rewind: [E(1, 3)],
      restore: ['goes'],
      import: [E(1, 5)],
      lease: [E(1, 5)],
    },
  ],
  'prune of what is old': [
    (by, options) => by.prune({ ...options, sessionsOlderThan: DAY }),
    {
      create: [NEW],
      append: ['goes'],
      rewind: [E(1, 3)],
      restore: ['goes'],
      import: [E(1, 5)],
      lease: [E(1, 5)],
    },
  ],
  'prune of what is deleted': [
    (by, options) => by.prune({ ...options, deletedFor: 0 }),
    {
      create: [NEW],
      append: ['goes', NOT_FOUND],
      rewind: ['goes', NOT_FOUND],
      restore: [E(1, 5)],
      import: [E(1, 5)],
      lease: ['goes', NOT_FOUND],
    },
  ],
  eraseUser: [
    (by, options) => by.eraseUser(options),
    {
      create: [NEW],
      append: ['goes'],
      rewind: [E(1, 3)],
      restore: ['goes'],
      import: [E(1, 5)],
      lease: [E(1, 5)],
    },
  ],
};

for (const [title, [remove, unbegun]] of Object.entries(DELETIONS)) {
  interleavingSuite.own(
    'K1',
    `${title}: a session that somebody changes between two transactions is deleted whole or not at all`,
    async (context) => {
      for (const name of Object.keys(CHANGES)) {
        // In one transaction, or in four: the deletion begins, and the events go, the last of them with the session.
        for (const [number, batchSize] of [[1, 100], ...upTo(4).map((number) => [number, 2] as const)] as const) {
          const userId = `${title} ${name} ${number} of ${batchSize}`;
          const prepared = await prepare(context, userId, [10, 20, 30, 40, 50]);
          const { key } = prepared;
          if (title.includes('deleted')) await prepared.softly.deleteSession(key);
          let failed: unknown;
          let isChanged = false;
          const change = async () => {
            isChanged = true;
            failed = await CHANGES[name]!(prepared).then(
              () => undefined,
              (error: unknown) => error,
            );
          };
          const options = { appName: context.app, userId, batchSize, pauseMs: 0 };
          const removed = await remove(interrupted(context, number, change), options).catch((error: unknown) => error);
          // A user is not erased of whom a session was skipped.
          const lefts = number === 1 ? ['create', 'import', 'rewind', 'lease'] : ['create', 'import'];
          const isLeft = title === 'eraseUser' && lefts.includes(name);
          expect([userId, removed instanceof Error && removed.name]).toEqual([userId, isLeft && 'UserNotErasedError']);
          const [expected, code] = (number === 1 ? unbegun : BEGUN)[name]!;
          const found = await left(context, key);
          expect([userId, isChanged, failed && (failed as { code?: string }).code, found]).toEqual([
            userId,
            true,
            code,
            expected === 'goes' ? undefined : whole(expected),
          ]);
        }
      }
      await expectFold(context);
    },
    withConnections,
  );
}

interleavingSuite.own(
  'K2',
  'a session that somebody changes between two transactions of a trim loses what the rule says then, and no more',
  async (context) => {
    const { app, query } = context;
    const now = Date.now();
    const rules = { keepLast: { keepLast: 3 }, eventsOlderThan: { eventsOlderThan: DAY } };
    /** How many events have gone when the transaction begins that the change comes before. */
    const gone = (number: number) => 2 * (number - 1);
    const changes: Record<
      string,
      [(prepared: Prepared) => Promise<unknown>, (number: number, rule: string) => readonly string[], isDeleted?: true]
    > = {
      create: [({ create }) => create(), () => NEW],
      append: [({ append }) => append(), () => E(6, 9)],
      rewind: [({ rewind }) => rewind(7), (_, rule) => (rule === 'keepLast' ? E(5, 7) : E(6, 7))],
      delete: [({ softly, key }) => softly.deleteSession(key), (number) => E(gone(number) + 1, 8), true],
      'delete and restore': [({ softly, key, restore }) => softly.deleteSession(key).then(restore), () => E(6, 8)],
      import: [(prepared) => prepared.import(), () => E(6, 8)],
      // As one that comes after the call.
      'delete and import': [(prepared) => prepared.delete().then(() => prepared.import()), () => E(1, 8)],
      lease: [({ lease }) => lease(), (number) => E(gone(number) + 1, 8)],
    };
    for (const [rule, options] of Object.entries(rules)) {
      for (const [name, [change, expected, isDeleted]] of Object.entries(changes)) {
        for (const number of upTo(3)) {
          const userId = `${rule} ${name} ${number}`;
          const times = [10, 20, 30, 40, 50, now, now, now];
          const prepared = await prepare(context, userId, times);
          let isChanged = false;
          const maintenance = interrupted(context, number, async () => {
            isChanged = true;
            await change(prepared);
          });
          await maintenance.trim({ appName: app, userId, batchSize: 2, pauseMs: 0, ...options });
          const ids = expected(number, rule);
          expect([userId, isChanged, await left(context, prepared.key)]).toEqual([
            userId,
            true,
            isDeleted ? { ids, isSeen: false } : whole(ids),
          ]);
          // A restored session has the remaining events.
          if (isDeleted) {
            await prepared.restore();
            expect(await left(context, prepared.key)).toEqual(whole(ids));
          }
          const state = name === 'create' ? 'fresh' : 'kept';
          const rows = await query<{ state_key: string }>(
            `select state_key from adk_session_states where ${OF_SESSION}`,
            Object.values(prepared.key),
          );
          expect(rows).toEqual([{ state_key: state }]);
        }
      }
    }
    await expectFold(context);
  },
  withConnections,
);

/** The span of ADK 2.0, and that of later releases. */
const SPAN = { startTime: 10, endTime: 50 };
const SHOWN = [expect.stringMatching(/They talked/), 'said 6', 'said 7', 'said 8', 'And?'];

/** What a model is shown after five of eight events were summed up. @returns the texts of its request. */
async function shownBeside(
  { app, peer }: OwnContext,
  userId: string,
  during: (sumUp: () => Promise<unknown>) => Promise<unknown>,
): Promise<(string | undefined)[]> {
  const service = new MikroOrmSessionService(peer.em);
  const session = await service.createSession({ appName: app, userId, sessionId: 's' });
  const events = upTo(8).map((n) => saying(`said ${n}`, { timestamp: 10 * n }));
  await service.appendEvents({ session, events });
  const event = { ...createEvent({ author: 'system' }), isCompacted: true, compactedContent: 'They talked.', ...SPAN };
  await during(() => service.appendEvent({ session, event }));
  const model = scriptedModel(['Yes.']);
  const runner = new Runner({ appName: app, agent: new LlmAgent({ name: 'agent', model }), sessionService: service });
  const newMessage = { role: 'user', parts: [{ text: 'And?' }] };
  for await (const _ of runner.runAsync({ userId, sessionId: 's', newMessage }));
  return model.requests.flatMap(({ contents }) => contents.flatMap(({ parts = [] }) => parts.map(({ text }) => text)));
}

interleavingSuite.own('K2', 'a trim changes nothing of what a model is shown of the kept events', async (context) => {
  const { app, orm } = context;
  const maintenance = new SessionMaintenance(orm.em);
  const trimmed = (keepLast: number, keepSummary: boolean) => {
    const userId = `${keepLast} ${keepSummary}`;
    return shownBeside(context, userId, async (sumUp) => {
      await sumUp();
      await maintenance.trim({ appName: app, userId, keepLast, keepSummary, batchSize: 2 });
    });
  };
  const [summary, ...others] = SHOWN;
  for (const keepLast of [9, 5, 4, 3, 2, 1, 0]) {
    // Of nine events the last is the summary.
    const kept = keepLast > 0 ? [summary, ...others.slice(-Math.min(keepLast, 4))] : others.slice(-1);
    expect([keepLast, await trimmed(keepLast, false)]).toEqual([keepLast, kept]);
    expect([keepLast, await trimmed(keepLast, true)]).toEqual([keepLast, SHOWN]);
  }
});

interleavingSuite.own(
  'K2',
  'a trim stops before what the newest summary leaves to be shown, unless the call gives it up',
  async ({ app, orm, query }) => {
    const said = (from: number, to: number) =>
      upTo(to)
        .slice(from - 1)
        .map((n) => saying(`said ${n}`, { timestamp: 10 * n }));
    const in20 = (end: number) => ({ isCompacted: true, startTime: 10, endTime: end });
    const later = (end: number) => ({ actions: { compaction: { startTimestamp: 10, endTimestamp: end } } });
    const codec: Codec = { name: 'hides', encode: (data) => ({ data }), decode: ({ data }) => data };
    for (const [userId, sumUp, options] of [
      ['2.0', in20, {}],
      ['later', later, {}],
      ['encoded', later, { codec }],
    ] as const) {
      const service = new MikroOrmSessionService(orm.em, options);
      const maintenance = new SessionMaintenance(orm.em, options);
      const first = async (trim: TrimOptions) => {
        const result = await maintenance.trim({ appName: app, userId, ...trim });
        const [row] = await query<{ seq: number }>(
          'select min(seq) as seq from adk_events where app_name = ? and user_id = ?',
          [app, userId],
        );
        return [result.done.events, row?.seq];
      };
      const session = await service.createSession({ appName: app, userId });
      const summary = (at: number, end: number) => {
        const { actions, ...event } = createEvent({ author: 'system', timestamp: 10 * at });
        return { ...event, actions, ...sumUp(end) } as Event;
      };
      // More events than are read at a time; the older summary has the number 7, the newer one 12.
      const events = [...said(1, 6), summary(7, 40), ...said(8, 11), summary(12, 90), ...said(13, 250)];
      await service.appendEvents({ session, events });
      expect(await first({ keepLast: 3, dryRun: true })).toEqual([9, 1]);
      expect(await first({ keepLast: 248 })).toEqual([2, 3]);
      expect(await first({ keepLast: 3 })).toEqual([7, 10]);
      expect(await first({ eventsOlderThan: 0 })).toEqual([0, 10]);
      expect(await first({ keepLast: 3, keepSummary: false })).toEqual([238, 248]);
      expect(await first({ keepLast: 1 })).toEqual([2, 250]);
    }
  },
);

interleavingSuite.own(
  'K2',
  'a trim keeps everything beside an event that cannot be decoded, unless the call gives summaries up',
  async ({ app, orm, service, query }) => {
    const key = { appName: app, userId: 'alice', sessionId: 's' };
    const codec = (isLost: boolean): Codec => ({
      name: 'hides',
      encode: (data) => ({ data, key: 'lost' }),
      decode({ data }) {
        return isLost ? undefined : data;
      },
    });
    const encoding = new MikroOrmSessionService(orm.em, { codec: codec(false) });
    const session = await service.createSession(key);
    await service.appendEvents({ session, events: upTo(4).map((n) => saying(`said ${n}`, { timestamp: n })) });
    const summary = { ...createEvent({ author: 'system', timestamp: 5 }), isCompacted: true, startTime: 1, endTime: 3 };
    await encoding.appendEvent({ session: (await encoding.getSession(key))!, event: summary });
    await service.appendEvent({
      session: (await encoding.getSession(key))!,
      event: saying('said 6', { timestamp: 6 }),
    });
    const maintenance = new SessionMaintenance(orm.em, { codec: codec(true) });
    const first = async (trim: TrimOptions) => {
      await maintenance.trim({ ...key, ...trim });
      return query('select min(seq) as seq from adk_events where app_name = ?', [app]);
    };
    expect(await first({ keepLast: 1 })).toEqual([{ seq: 1 }]);
    expect(await first({ keepLast: 1, keepSummary: false })).toEqual([{ seq: 6 }]);
  },
);

interleavingSuite.own(
  'K2',
  'a trim sends as many statements for a long session as for a short one',
  async ({ app, orm, service, create, recorded }) => {
    const maintenance = new SessionMaintenance(orm.em);
    const counts: number[] = [];
    for (const length of [3, 250]) {
      const session = await create({ userId: `${length}` });
      await service.appendEvents({ session, events: upTo(length).map((n) => saying(`a "compaction" of ${n}`)) });
      const trim = () => maintenance.trim({ appName: app, userId: session.userId, keepLast: 1, dryRun: true });
      counts.push((await recorded(trim)).length);
    }
    expect(counts[1]).toBe(counts[0]);
  },
);

interleavingSuite.own(
  'K2',
  'a compaction that is stored while a trim is under way is kept, with all that a model is shown beside it',
  async (context) => {
    const { app } = context;
    const shown = (userId: string, during: (sumUp: () => Promise<unknown>) => Promise<unknown>) =>
      shownBeside(context, userId, during);
    const untrimmed = await shown('untrimmed', (sumUp) => sumUp());
    expect(untrimmed).toEqual(SHOWN);
    for (const number of upTo(3)) {
      const userId = `trimmed ${number}`;
      const trimmed = await shown(userId, async (sumUp) => {
        const result = await interrupted(context, number, sumUp).trim({
          appName: app,
          userId,
          keepLast: 3,
          batchSize: 2,
        });
        expect(result).toMatchObject({ done: { events: 5 }, more: false });
      });
      expect([userId, trimmed]).toEqual([userId, untrimmed]);
    }
  },
  withConnections,
);

/** A session of five events of which an interrupted deletion has left three. */
async function halfDeleted(context: OwnContext, name: string, remove: (by: SessionMaintenance) => Promise<unknown>) {
  const prepared = await prepare(context, name, [10, 20, 30, 40, 50]);
  await remove(new SessionMaintenance(context.orm.em));
  expect(await left(context, prepared.key)).toEqual({ ids: E(3, 5), isSeen: false });
  return prepared;
}

interleavingSuite.own(
  'K1',
  'what an interrupted deletion has left is gone for everybody, and cannot be restored',
  async (context) => {
    const { app, orm, service, another } = context;
    const interruption = { appName: app, batchSize: 2, maxBatches: 2, pauseMs: 0 };
    for (const [name, remove] of Object.entries({
      prune: (by: SessionMaintenance) => by.prune({ ...interruption, userId: 'prune', idleFor: DAY }),
      eraseUser: (by: SessionMaintenance) => by.eraseUser({ ...interruption, userId: 'eraseUser' }),
    })) {
      const { key } = await halfDeleted(context, name, remove);
      for (const each of [service, another, new MikroOrmSessionService(orm.em, { deletion: 'soft' })]) {
        expect(await each.getSession(key)).toBeUndefined();
        await each.deleteSession(key);
        await expectCode(each.restoreSession(key), NOT_FOUND);
        await expectCode(each.forkSession(key, {}), NOT_FOUND);
        await expectCode(each.rewindSession(key, { at: 5 }), NOT_FOUND);
        await expectCode(each.describeSession(key, { title: 'x' }), NOT_FOUND);
      }
      const maintenance = new SessionMaintenance(orm.em);
      await expectCode(maintenance.repair(key), NOT_FOUND);
      expect(await maintenance.trim({ appName: app, keepLast: 0 })).toMatchObject({ done: { sessions: 0 } });
      for (const status of ['active', 'deleted'] as const)
        expect((await service.findSessions({ appName: app, userId: name, status })).sessions).toEqual([]);
      expect(await service.listSessions({ appName: app, userId: name })).toMatchObject({ totalItems: 0 });
      const records = [];
      for await (const record of maintenance.exportSessions({ appName: app, userId: name })) records.push(record);
      expect(records).toEqual([]);
      expect(idsIn(await read(new EventLog(orm.em).since(0, { appName: app, userId: name })))).toEqual([]);
      expect(await left(context, key)).toEqual({ ids: E(3, 5), isSeen: false });
      // Not the time that the deletion has left in the row.
      const { oldestUpdate, deletedSessions } = await maintenance.stats({ appName: app, userId: name });
      expect(deletedSessions).toBe(1);
      expect(oldestUpdate).toBeGreaterThan(1_000_000);
    }
  },
);

interleavingSuite.own(
  'K1',
  'the rest of an interrupted deletion goes with the next prune or erasure, or with what creates its id again',
  async (context) => {
    const { app, orm, service } = context;
    const maintenance = new SessionMaintenance(orm.em);
    const ends: Record<string, [end: (prepared: Prepared) => Promise<unknown>, ids?: readonly string[]]> = {
      'the same call': [({ key: { userId } }) => maintenance.prune({ appName: app, userId, sessionsOlderThan: DAY })],
      'another condition': [() => maintenance.prune({ appName: app, deletedFor: 30 * DAY })],
      // Found by the index of last updates.
      'a prune of idle sessions': [() => maintenance.prune({ appName: app, idleFor: 30 * DAY })],
      'an erasure': [({ key: { userId } }) => maintenance.eraseUser({ appName: app, userId })],
      create: [(prepared) => prepared.create(), NEW],
      getOrCreate: [({ key }) => service.getOrCreateSession(key), []],
      fork: [
        async ({ key }) => {
          const { id } = await service.createSession({ appName: key.appName, userId: key.userId });
          await service.forkSession({ ...key, sessionId: id }, { as: key.sessionId });
        },
        [],
      ],
      import: [(prepared) => prepared.import(), E(1, 5)],
    };
    for (const [name, [end, ids]] of Object.entries(ends)) {
      const now = Date.now();
      const prepared = await prepare(context, name, [now, now, now, now, now]);
      const { key } = prepared;
      const begin = { appName: app, userId: name, sessionsOlderThan: DAY, batchSize: 2, pauseMs: 0 };
      expect(await maintenance.prune({ ...begin, maxBatches: 2 })).toMatchObject({
        done: { sessions: 0, events: 2 },
        more: true,
      });
      expect(await left(context, key)).toEqual({ ids: E(3, 5), isSeen: false });
      await end(prepared);
      expect([name, await left(context, key)]).toEqual([name, ids && whole(ids)]);
      // It continues as any other.
      if (ids) {
        const session = (await service.getSession(key))!;
        await service.appendEvent({ session, event: saying('x', { id: 'next' }) });
        expect(await left(context, key)).toEqual(whole([...ids, 'next']));
      }
    }
    await expectFold(context);
  },
);

interleavingSuite.own(
  'L1',
  'importing an older export over a session that was trimmed since brings nothing back',
  async (context) => {
    const { app, service } = context;
    const prepared = await prepare(context, 'alice', [10, 20, 30, 40, 50]);
    await new SessionMaintenance(context.orm.em).trim({ appName: app, keepLast: 2 });
    await prepared.import();
    expect(await left(context, prepared.key)).toEqual(whole(E(4, 5)));
    const session = (await service.getSession(prepared.key))!;
    await service.appendEvent({ session, event: saying('x', { id: 'e6' }) });
    await expectFold(context);
  },
);
