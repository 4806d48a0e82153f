import {
  EventLog,
  MikroOrmSessionService,
  SessionMaintenance,
  type LogChange,
  type LogCursor,
  type LogEntry,
  type SessionKey,
} from '../../src/index.js';
import type { TransferRecord } from '../../src/model/records.js';
import { keyOf } from '../support/harnesses/harness.js';
import { FoldedLog } from '../support/folded-log.js';
import { expectSame, resultOf, tablesOf } from '../support/fold.js';
import { expectOrder, inBatchesOf } from '../support/positions.js';
import { expectRefusal, type Refusals } from '../support/refusals.js';
import { expectFold, upTo } from './log-tools.js';
import { Suite, oncePerDialect, onServers, type OwnContext } from './rule.js';
import { eventOf, expectCode, idsOf, range } from './tools.js';

export const completeLogSuite = new Suite({ isOfDialect: true });

type Entry = LogEntry | LogChange;

async function readAll<E extends Entry>(entries: AsyncIterable<E>): Promise<E[]> {
  const all: E[] = [];
  for await (const entry of entries) all.push(entry);
  return all;
}

const idOf = (entry: Entry) => (entry.change ? undefined : entry.event?.id);

/** An entry, in a word and a number. */
const summary = (entry: Entry) =>
  `${entry.change === 'replaced' ? entry.reason : (entry.change ?? 'event')} ${entry.seq}`;

completeLogSuite.own('J1', 'every change has its entry, in the order in which it was made', async (context) => {
  const { app, orm, service, create, append } = context;
  const softly = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
  const maintenance = new SessionMaintenance(orm.em);
  const session = await create({ state: { a: 1, 'user:u': 1, 'app:x': 1, 'temp:t': 1 } });
  const key = keyOf(session);
  for (const n of upTo(3)) await append(session, { id: `e${n}`, timestamp: 10 * n, delta: { n } });
  await service.updateState({ ...key, set: { a: 2 }, remove: ['n'] });
  await append(session, { id: 'e2', timestamp: 20, delta: { n: 2 }, author: 'corrected' });
  await softly.deleteSession(key);
  await softly.restoreSession(key);
  await maintenance.trim({ ...key, keepLast: 1 });
  await append(session, { id: 'e4', timestamp: 40 });
  const log = new EventLog(orm.em);
  const entries = await readAll(log.complete().since(0, { appName: app }));
  // Entries about the events that were trimmed are gone with them.
  expect(entries.map(summary)).toEqual([
    'created 0',
    'event 3',
    'state 3',
    'deleted 3',
    'restored 3',
    'trimmed 3',
    'event 4',
  ]);
  await expectFold(context);

  await service.deleteSession(key);
  const later = await readAll(log.complete().since(0, { appName: app }));
  expect(later).toEqual([expect.objectContaining({ ...key, change: 'deleted', soft: false })]);
  expect((later[0] as LogChange & { change: 'deleted' }).state).toEqual({ 'user:u': 1, 'app:x': 1 });
  await expectFold(context);
});

completeLogSuite.own('J1', 'a live reader gets each change once', async (context) => {
  const { app, orm, service, create, append } = context;
  const log = new EventLog(orm.em);
  let cursor = await log.complete().head();
  const next = async () => {
    const entries = await readAll(log.complete().since(cursor, { appName: app }));
    cursor = entries.at(-1)?.cursor ?? cursor;
    return entries;
  };
  const session = await create({ state: { a: 1, 'temp:t': 1 } });
  const key = keyOf(session);
  expect(await next()).toEqual([
    expect.objectContaining({ ...key, change: 'created', state: { a: 1 }, superseded: [] }),
  ]);
  await service.updateState({ ...key, set: { a: 2, 'app:x': [1] }, remove: ['b'] });
  expect(await next()).toEqual([
    expect.objectContaining({ change: 'state', state: { a: 2, 'app:x': [1] }, removed: ['b'], superseded: [] }),
  ]);
  await service.updateState({ appName: app, userId: 'alice', set: { 'user:u': 1 } });
  await service.updateState({ appName: app, remove: ['app:x'] });
  expect(await next()).toMatchObject([
    { change: 'state', appName: app, userId: 'alice', sessionId: '', state: { 'user:u': 1 } },
    { change: 'state', appName: app, userId: '', sessionId: '', removed: ['app:x'], superseded: [] },
  ]);
  await append(session, { id: 'e1', delta: { a: 3 } });
  expect(await next()).toMatchObject([{ event: { id: 'e1' }, superseded: [] }]);
  for (const author of ['second', 'third']) await append(session, { id: 'e1', author, delta: { a: author } });
  expect(await next()).toMatchObject([
    { change: 'replaced', reason: 'rewritten', firstSeq: 1, seq: 1, eventSeq: 1, event: { author: 'third' } },
    { change: 'replaced', reason: 'rewritten', state: { a: 'third', 'user:u': 1 } },
  ]);
  await new SessionMaintenance(orm.em).trim({ ...key, keepLast: 0 });
  expect(await next()).toMatchObject([{ change: 'replaced', reason: 'trimmed', firstSeq: 2, seq: 1 }]);
  await service.deleteSession(key);
  await service.createSession({ ...key, state: { b: 1 } });
  expect(await next()).toMatchObject([
    { change: 'deleted', soft: false },
    { change: 'created', state: { b: 1 } },
  ]);
  expect(await next()).toEqual([]);
});

completeLogSuite.own('J3', 'an event comes once, as it is, and each time that it was replaced', async (context) => {
  const { app, orm, create, append } = context;
  const log = new EventLog(orm.em);
  const session = await create();
  await append(session, { id: 'e1', author: 'first' });
  await append(session, { id: 'e2', author: 'other' });
  for (const author of ['second', 'second', 'third']) await append(session, { id: 'e1', author, timestamp: 1 });
  const authors = async (entries: AsyncIterable<Entry>) =>
    (await readAll(entries)).flatMap((entry) =>
      entry.change && entry.change !== 'replaced' ? [] : [entry.event?.author],
    );
  expect(await authors(log.complete().since(0, { appName: app }))).toEqual(['third', 'other', 'third', 'third']);
  expect(await authors(log.since(0, { appName: app }))).toEqual(['third', 'other']);
  await expectFold(context);
});

completeLogSuite.own('J3', 'readers of events see no change, and positions are those of events', async (context) => {
  const { app, orm, service, create, append } = context;
  const log = new EventLog(orm.em);
  const { position } = await log.head();
  const session = await create();
  await append(session);
  await service.updateState({ ...keyOf(session), set: { a: 1 } });
  await append(session);
  const entries = await readAll(log.since(position, { appName: app }));
  expect(entries.map((entry) => [entry.position - position, summary(entry)])).toEqual([
    [1, 'event 1'],
    [2, 'event 2'],
  ]);
  expect(entries.every((entry) => !('superseded' in entry))).toBe(true);
});

completeLogSuite.own('J3', 'an append sends the same statements, whatever is read', async (context) => {
  const { create, append, recorded, query, app } = context;
  const session = await create({ state: { 'app:x': 0 } });
  const before = await query('select * from adk_changes where app_name = ?', [app]);
  const statements = await recorded(() => append(session, { delta: { a: 1, 'user:u': 1, 'app:x': 1 } }));
  expect(statements.some(({ text }) => text.includes('adk_changes'))).toBe(false);
  expect(await query('select * from adk_changes where app_name = ?', [app])).toHaveLength(before.length);
});

completeLogSuite.own('J2', 'the one whose value stands is distinguished from those that lost', async (context) => {
  const { app, orm, create, append } = context;
  const [one, other] = [await create(), await create()];
  await append(one, { id: 'a', timestamp: 2_000, delta: { 'app:x': 1, 'user:u': 'one', own: 1 } });
  await append(other, { id: 'b', timestamp: 1_000, delta: { 'app:x': 2 } });
  const entries = await readAll(new EventLog(orm.em).complete().since(0, { appName: app }));
  const events = entries.flatMap((entry) => (entry.change ? [] : [[entry.event?.id, entry.superseded]]));
  expect(events).toEqual([
    ['a', ['app:x']],
    ['b', []],
  ]);
  await expectFold(context);
});

completeLogSuite.own(
  'J2',
  'changes that do not all get their places at once are in order, whatever the clocks say',
  async (context) => {
    const { app, orm, service } = context;
    await Promise.all(
      range(3).map(async (i) => {
        const key = { appName: app, userId: 'alice', sessionId: `s${i}` };
        const session = await service.createSession(key);
        await service.appendEvents({
          session,
          events: range(30).map((n) => eventOf({ id: `${n}`, timestamp: 1_000 * i - n })),
        });
        await service.updateState({ ...key, set: { a: i } });
        if (i === 1) await service.deleteSession(key);
      }),
    );
    const many = { appName: app, userId: 'bob', sessionId: 'many' };
    const session = await service.createSession(many);
    for (const n of range(70)) {
      if (n % 2 === 0) await service.appendEvent({ session, event: eventOf({ id: `${n}`, timestamp: -n }) });
      else await service.updateState({ ...many, set: { n } });
    }
    await inBatchesOf(50, async () => {
      const entries = await readAll(new EventLog(orm.em).complete().since(0, { ...many }));
      expect(entries.map((entry) => (entry.change === 'state' ? entry.state['n'] : idOf(entry)))).toEqual([
        undefined,
        ...range(70).map((n) => (n % 2 === 0 ? `${n}` : n)),
      ]);
      await expectFold(context);
    });
  },
);

completeLogSuite.own(
  'J2',
  'sessions whose creations do not get their places together have them before their events',
  async (context) => {
    const { app, orm, service } = context;
    const ids = range(70).map((i) => `s${i}`);
    await orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      const sessions = [];
      for (const sessionId of ids)
        sessions.push(await joined.createSession({ appName: app, userId: 'alice', sessionId }));
      for (const session of sessions.toReversed())
        await joined.appendEvent({ session, event: eventOf({ actions: { stateDelta: { a: 1 } } }) });
    });
    await inBatchesOf(50, async () => {
      const entries = await readAll(new EventLog(orm.em).complete().since(0, { appName: app }));
      const bySession = new Map<string, string[]>(ids.map((id) => [id, []]));
      for (const entry of entries) bySession.get(entry.sessionId)?.push(summary(entry));
      for (const [id, lines] of bySession) expect([id, ...lines]).toEqual([id, 'created 0', 'event 1']);
      await expectFold(context);
    });
  },
  oncePerDialect,
);

completeLogSuite.own('J2', 'a session whose changes wait behind those of others keeps its order', async (context) => {
  const { app, orm, service, create, append } = context;
  const log = new EventLog(orm.em);
  const createOthers = (count: number) => Promise.all(range(count).map(() => create({ userId: 'bob' })));
  const expectAll = async (key: SessionKey, lines: string[]) => {
    const entries = await readAll(log.complete().since(0, { ...key }));
    expect(entries.map(summary)).toEqual(lines);
    await expectOrder(orm, app);
    await expectFold(context);
  };
  await log.head();
  await inBatchesOf(3, async () => {
    const [one, other] = [await create({ state: { a: 1 } }), await create()];
    const [key, otherKey] = [keyOf(one), keyOf(other)];
    await append(one, { delta: { a: 2 } });
    await createOthers(5);
    await service.updateState({ ...key, set: { a: 3 } });
    await append(one, { delta: { a: 4, b: 1 } });
    await service.updateState({ ...key, set: { b: 2 } });
    await service.rewindSession(key, { at: 1 });
    await append(one, { delta: { c: 1 } });
    await createOthers(5);
    await service.updateState({ ...key, remove: ['c'] });
    // A change that belongs to the events before it.
    for (const n of upTo(5)) await append(other, { delta: { n } });
    await service.updateState({ ...otherKey, set: { n: 0 } });
    await service.rewindSession(otherKey, { at: 0 });
    await append(other, { delta: { n: 6 } });
    const rewound = ['created 0', 'event 1', 'state 1', 'rewound 1', 'event 2', 'state 2'];
    await expectAll(key, rewound);
    await expectAll(otherKey, ['created 0', 'rewound 0', 'event 1']);
  });
});

completeLogSuite.own('J2', 'one session has more changes than get their places at once', async (context) => {
  const { app, orm, service, create, append } = context;
  await new EventLog(orm.em).head();
  await inBatchesOf(3, async () => {
    const session = await create();
    for (const n of upTo(4)) await append(session, { delta: { n } });
    for (const n of upTo(7)) await service.updateState({ ...keyOf(session), set: { [`k${n}`]: n } });
    for (const n of upTo(4)) await append(session, { delta: { n } });
    await service.updateState({ ...keyOf(session), set: { last: 1 } });
    await expectFold(context);
    await expectOrder(orm, app);
  });
});

completeLogSuite.own(
  'J2',
  'a reader that continues from a cursor of the complete log gets exactly the rest',
  async (context) => {
    const { app, orm, service, create, append } = context;
    const session = await create();
    for (const n of range(5)) {
      await append(session, { id: `e${n}` });
      if (n % 2 === 0) await service.updateState({ ...keyOf(session), set: { n } });
    }
    const log = new EventLog(orm.em);
    const all = await readAll(log.complete().since(0, { appName: app }));
    expect(all.map(summary)).toEqual([
      'created 0',
      'event 1',
      'state 1',
      'event 2',
      'event 3',
      'state 3',
      'event 4',
      'event 5',
      'state 5',
    ]);
    for (const [i, { cursor }] of all.entries()) {
      const rest = await readAll(log.complete().since(cursor, { appName: app }));
      expect(rest).toEqual(all.slice(i + 1));
    }
    // With a bare position nothing is missed: changes after its event come again.
    const event = all[4]!;
    expect((await readAll(log.complete().since(event.position, { appName: app }))).map(summary)).toEqual(
      all.slice(5).map(summary),
    );
  },
);

completeLogSuite.own(
  'J2',
  'an erased user leaves nothing in the log, and the state of the app stays',
  async (context) => {
    const { app, orm, service, query, create, append } = context;
    const person = { appName: app, userId: 'person' };
    const [gone, stays] = [await service.createSession({ ...person, state: { 'app:y': 1 } }), await create()];
    await append(gone, { delta: { 'app:x': 1, 'user:u': 1, a: 1 } });
    await append(stays, { delta: { 'user:u': 2 } });
    await service.updateState({ ...person, set: { 'user:v': 1 } });
    await expectFold(context);
    await new SessionMaintenance(orm.em).eraseUser({ userId: 'person', appName: app });
    expect(await query('select 1 from adk_changes where user_id = ?', ['person'])).toEqual([]);
    await expectFold(context);
  },
);

completeLogSuite.own('J2', 'a trimmed session begins empty, and gets its state by the trim', async (context) => {
  const { app, orm, service, create, append } = context;
  const session = await create({ state: { a: 1 } });
  for (const n of upTo(6)) await append(session, { id: `e${n}`, delta: { n, [`k${n}`]: n, 'user:u': n } });
  await service.updateState({ ...keyOf(session), set: { late: 1 } });
  await new SessionMaintenance(orm.em).trim({ ...keyOf(session), keepLast: 2 });
  const [first, ...rest] = await readAll(new EventLog(orm.em).complete().since(0, { appName: app }));
  expect(first).toMatchObject({ change: 'created', state: {}, superseded: [] });
  expect(rest.map(summary)).toEqual(['event 5', 'event 6', 'state 6', 'trimmed 6']);
  await expectFold(context);
});

completeLogSuite.own(
  'J2',
  'state that the log does not explain any more is read from the tables, after a trim and for a fork',
  async (context) => {
    const { orm, service, create, append } = context;
    const maintenance = new SessionMaintenance(orm.em);
    // A rewriting that takes a key from the event leaves its value.
    const rewritten = await create({});
    for (const n of upTo(2)) await append(rewritten, { id: `e${n}`, delta: { [`k${n}`]: n, [`user:k${n}`]: n } });
    await append(rewritten, { id: 'e1', author: 'corrected', delta: {} });
    const large = await create({});
    await service.updateState({ ...keyOf(large), set: { large: 'x'.repeat(1_100_000), 'user:small': 1 } });
    await append(large, { delta: {} });
    const rewound = await create({ state: { gone: 1 } });
    await append(rewound, { delta: {} });
    await service.rewindSession(keyOf(rewound), { at: 0 });
    await append(rewound, { id: 'e1', delta: { k1: 1 } });
    await append(rewound, { id: 'e1', author: 'corrected', delta: {} });
    for (const session of [rewritten, large, rewound]) {
      const fork = await service.forkSession(keyOf(session), { at: 1 });
      await service.forkSession(keyOf(fork), { at: 1 });
      await expectFold(context);
    }
    await maintenance.trim({ ...keyOf(rewritten), keepLast: 1 });
    await maintenance.trim({ ...keyOf(large), keepLast: 0 });
    await expectFold(context);
    await maintenance.trim({ ...keyOf(rewritten), keepLast: 0 });
    await expectFold(context);
  },
);

completeLogSuite.own('J2', 'a change of any size has its entry', async (context) => {
  const { app, orm, service, create, append } = context;
  const log = new EventLog(orm.em);
  const reader = new FoldedLog();
  let cursor: LogCursor | number = 0;
  const expectEmitted = async () => {
    for await (const entry of log.complete().since(cursor, { appName: app })) {
      reader.add(entry);
      cursor = entry.cursor ?? cursor;
    }
    expectSame(resultOf(reader), await tablesOf(orm, app));
    await expectFold(context);
  };
  const session = await create({ state: { a: 1, 'user:a': 1 } });
  await expectEmitted();
  await service.updateState({ ...keyOf(session), set: { large: 'x'.repeat(1_100_000) }, remove: ['a', 'user:a'] });
  await expectEmitted();
  await append(session, { delta: { b: 1 } });
  await service.rewindSession(keyOf(session), { at: 0 });
  await expectEmitted();
  await append(session, { delta: { c: 1 } });
  await expectEmitted();
  await append(session, { id: 'e1', content: { parts: [{ text: 'x'.repeat(1_100_000) }] }, delta: { left: 1 } });
  await append(session, { id: 'e1', delta: {} });
  await expectEmitted();
  const fork = await service.forkSession(keyOf(session), { at: 0 });
  expect(Object.keys(fork.state)).toEqual(['large']);
  await expectEmitted();
});

completeLogSuite.own(
  'J2',
  'a reader that missed what was trimmed or deleted ends with what is left',
  async (context) => {
    const { app, orm, service, create, append } = context;
    const log = new EventLog(orm.em);
    const trimmed = await create({ state: { gone: 1, 'user:gone': 1, 'app:gone': 1 } });
    const deleted = await create({ userId: 'bob', state: { 'user:gone': 1, 'app:too': 1 } });
    const reader = new FoldedLog();
    let cursor: LogCursor | number = 0;
    const readOn = async () => {
      for await (const entry of log.complete().since(cursor, { appName: app })) {
        reader.add(entry);
        cursor = entry.cursor ?? cursor;
      }
    };
    await readOn();
    await service.updateState({ ...keyOf(trimmed), remove: ['gone', 'user:gone', 'app:gone'] });
    await service.updateState({ ...keyOf(deleted), remove: ['user:gone', 'app:too'] });
    for (const session of [trimmed, deleted])
      await append(session, { delta: { own: 1, 'user:stays': 1, [`app:${session.userId}`]: 1 } });
    await new SessionMaintenance(orm.em).trim({ ...keyOf(trimmed), keepLast: 0 });
    await service.deleteSession(keyOf(deleted));
    await readOn();
    expectSame(resultOf(reader), await tablesOf(orm, app));
  },
);

interface World extends OwnContext {
  maintenance: SessionMaintenance;
  softly: MikroOrmSessionService;
  records: readonly TransferRecord[];
}

/** What can happen to a session. */
const OPERATIONS: Record<string, (world: World, key: SessionKey) => Promise<unknown>> = {
  append: (world, key) => appendTo(world, key, { delta: { a: 'appended', 'user:u': 'appended' } }),
  rewrite: (world, key) =>
    appendTo(world, key, { id: 'e3', author: 'corrected', delta: { a: 'corrected', 'app:x': 'corrected' } }),
  state: ({ service }, key) => service.updateState({ ...key, set: { set: 1, 'app:y': 1 }, remove: ['a', 'user:u'] }),
  trim: ({ maintenance }, key) => maintenance.trim({ ...key, keepLast: 1 }),
  'trim all': ({ maintenance }, key) => maintenance.trim({ ...key, keepLast: 0 }),
  rewind: ({ service }, key) => service.rewindSession(key, { at: 2 }),
  'rewind far': ({ service }, key) => service.rewindSession(key, { at: 1 }),
  'soft delete': ({ softly }, key) => softly.deleteSession(key),
  restore: ({ service }, key) => service.restoreSession(key),
  'delete and create': async ({ service }, key) => {
    await service.deleteSession(key);
    await service.createSession({ ...key, state: { anew: 1 } });
  },
  'fork to it': ({ service }, key) => service.forkSession({ ...key, sessionId: 'other' }, { at: 3, as: key.sessionId }),
  import: ({ maintenance, records }, { userId }) =>
    maintenance.importSessions(records.filter((record) => 'userId' in record && record.userId === userId)),
  // It ends when two of the events are gone.
  'prune ended early': ({ maintenance }, { appName, userId }) =>
    maintenance.prune({ appName, userId, sessionsOlderThan: 0, batchSize: 1, maxBatches: 3, pauseMs: 0 }),
};

/** After a deletion there is no session, after a rewind or a trim of all not every number, and a fork needs a free id. */
const REFUSALS: Refusals<string> = {
  state: ['ADK_SESSION_NOT_FOUND'],
  rewind: ['ADK_SESSION_NOT_FOUND', 'ADK_INVALID_ARGUMENT'],
  'rewind far': ['ADK_SESSION_NOT_FOUND', 'ADK_INVALID_ARGUMENT'],
  'fork to it': ['ADK_SESSION_NOT_FOUND', 'ADK_SESSION_EXISTS'],
};

async function appendTo({ service, append }: World, key: SessionKey, event: Parameters<OwnContext['append']>[1]) {
  const session = await service.getSession(key);
  if (session) await append(session, event);
}

completeLogSuite.own(
  'J2',
  'a reader that was away for any operations ends with what the tables hold',
  async (context) => {
    const { app, orm, service, create } = context;
    const names = Object.keys(OPERATIONS);
    const ways = [
      ...names.flatMap((first) => names.map((second) => [first, second])),
      ['rewind', 'append', 'trim'],
      ['soft delete', 'prune ended early', 'restore'],
      ['soft delete', 'restore', 'append', 'trim'],
    ];
    const users = ways.map((way) => way.join(', '));
    for (const userId of users) {
      for (const sessionId of ['s', 'other']) {
        const session = await create({ userId, sessionId, state: { given: sessionId } });
        const deltas = upTo(4).map((n) => ({ a: n, 'user:u': n, 'app:x': n }));
        const events = deltas.map((stateDelta) => eventOf({ id: `e${stateDelta.a}`, actions: { stateDelta } }));
        await service.appendEvents({ session, events });
      }
    }
    const maintenance = new SessionMaintenance(orm.em);
    const softly = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
    const records: TransferRecord[] = [];
    for await (const record of maintenance.exportSessions({ appName: app })) records.push(record);
    const log = new EventLog(orm.em);
    const readOn = async (reader: FoldedLog, from: LogCursor | number) => {
      let cursor = from;
      for await (const entry of log.complete().since(cursor, { appName: app })) {
        reader.add(entry);
        cursor = entry.cursor ?? cursor;
      }
      return cursor;
    };
    // One is away for all of them, and one comes back after the first one of each.
    const [away, back] = [new FoldedLog(), new FoldedLog()];
    const seen = await readOn(away, 0);
    let seenFirst = await readOn(back, 0);
    const world: World = { ...context, maintenance, softly, records };
    for (const [i, way] of ways.entries()) {
      for (const [j, name] of way.entries()) {
        try {
          await OPERATIONS[name]!(world, { appName: app, userId: users[i]!, sessionId: 's' });
        } catch (error) {
          expectRefusal(REFUSALS, name, error);
        }
        if (j === 0) seenFirst = await readOn(back, seenFirst);
      }
    }
    await readOn(away, seen);
    await readOn(back, seenFirst);
    const tables = await tablesOf(orm, app);
    for (const reader of [away, back]) expectSame(resultOf(reader), tables);
    await expectFold(context);
  },
  oncePerDialect,
);

completeLogSuite.own(
  'J4',
  'with reject an event with other content is refused, and the same is a no-op',
  async (context) => {
    const { orm, create, stored } = context;
    const rejecting = new MikroOrmSessionService(orm.em, { onRewrittenEvent: 'reject' });
    const session = await create();
    const event = eventOf({ id: 'e1', author: 'first', actions: { stateDelta: { a: 1 } } });
    await rejecting.appendEvent({ session, event });
    await rejecting.appendEvent({ session, event });
    const before = await stored(keyOf(session));
    const other = eventOf({ ...event, author: 'second', actions: { stateDelta: { a: 2 } } });
    await expectCode(rejecting.appendEvent({ session, event: other }), 'ADK_EVENT_CONFLICT', /id of its own/);
    await expectCode(rejecting.appendEvents({ session, events: [eventOf({ id: 'e2' }), other] }), 'ADK_EVENT_CONFLICT');
    expect(await stored(keyOf(session))).toEqual(before);
    expect(idsOf(before!)).toEqual(['e1']);
    expect(session.state).toEqual({ a: 1 });
  },
);

completeLogSuite.own(
  'J4',
  'a run that continues with a stored event rewrites that one alone',
  async ({ orm, create, fresh }) => {
    const rejecting = new MikroOrmSessionService(orm.em, { onRewrittenEvent: 'reject' });
    const session = await create();
    const asked = eventOf({ id: 'e1', author: 'user', invocationId: 'first' });
    const said = eventOf({ id: 'e2', author: 'agent' });
    await rejecting.appendEvents({ session, events: [asked, said] });
    const running = rejecting.resuming([asked]);
    await running.appendEvent({ session, event: eventOf({ author: 'user', invocationId: 'second' }) });
    const other = eventOf({ ...said, author: 'another' });
    await expectCode(running.appendEvent({ session, event: other }), 'ADK_EVENT_CONFLICT');
    expect((await fresh(session)).events.map(({ id, invocationId, author }) => [id, invocationId, author])).toEqual([
      ['e1', 'second', 'user'],
      ['e2', said.invocationId, 'agent'],
    ]);
  },
);

completeLogSuite.own(
  'J3',
  'recording a change does not wait for other sessions that are being written',
  async ({ app, orm, peer, create, append }) => {
    const [session, other] = [await create(), await create()];
    const key = keyOf(session);
    for (const n of upTo(3)) await append(session, { id: `e${n}` });
    // One that waited would be given up.
    const patience = { timeoutMs: 5_000, retry: { attempts: 1 } };
    const service = new MikroOrmSessionService(orm.em, patience);
    const maintenance = new SessionMaintenance(orm.em, patience);
    const log = new EventLog(orm.em, patience);
    await peer.em.fork().transactional(async (tx) => {
      const held = new MikroOrmSessionService(peer.em).withEntityManager(tx);
      await held.createSession({ appName: app, userId: 'alice', sessionId: 'being made' });
      await held.updateState({ ...keyOf(other), set: { a: 1 } });
      await service.updateState({ ...key, set: { a: 1 } });
      await log.head();
      await service.forkSession(key, { at: 2, as: 'fork' });
      await service.rewindSession(key, { at: 2 });
      await maintenance.trim({ ...key, keepLast: 1 });
      await service.deleteSession(key);
      await service.createSession({ appName: app, userId: 'bob', state: { b: 1 } });
      await maintenance.eraseUser({ appName: app, userId: 'bob' });
      await log.head();
    });
  },
  onServers,
);
