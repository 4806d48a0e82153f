import { EventEmitter, getEventListeners, once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Database } from '../../src/database/calls/database.js';
import { EventLog, MikroOrmSessionService, type CompleteLogEntry } from '../../src/index.js';
import { assignPositions } from '../../src/log/positions.js';
import { harnessOf } from '../support/harnesses/databases.js';
import { keyOf, type OwnStore } from '../support/harnesses/harness.js';
import {
  NEVER_MS,
  OFTEN_MS,
  expectDense,
  following,
  idsIn,
  observed,
  positioned,
  positionsIn,
  read,
  readSome,
  upTo,
  type AnyEntry,
} from './log-tools.js';
import { Suite, oncePerDialect, onServers, onSqlite, withConnections } from './rule.js';
import { errorOf, eventOf, expectCode, faulty, plain, range, saying, until } from './tools.js';

/** Tests of section G: what all databases do: positions, and reading with and without an end. */
export const logSuite = new Suite();

const ALICE = { appName: 'app', userId: 'alice' };

/** Appends events with these ids to a session that is made for them. */
async function write({ service }: Pick<OwnStore, 'service'>, sessionId: string, ids: readonly string[]): Promise<void> {
  const session = await service.createSession({ ...ALICE, sessionId });
  await service.appendEvents({ session, events: ids.map((id) => eventOf({ id })) });
}

const numbered = (n: number) => range(n).map((i) => `e${i + 1}`);

logSuite.own(
  'G1',
  'positions are 1, 2, 3 … without gaps, in append order inside each session, whatever the clocks say',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm } = store;
    const log = new EventLog(orm.em);
    expect((await log.head()).position).toBe(0);
    await Promise.all(
      range(3).map(async (i) => {
        const session = await service.createSession({ ...ALICE, sessionId: `s${i}` });
        // More than get their positions at once, and by clocks that run backwards.
        const events = range(400).map((n) => eventOf({ id: `s${i} ${n}`, timestamp: 1_000 * i - n }));
        await service.appendEvents({ session, events: events.slice(0, 300) });
        await log.head();
        for (let n = 300; n < 400; n += 20) {
          await service.appendEvents({ session, events: events.slice(n, n + 20) });
          await log.head();
        }
      }),
    );
    expect((await log.head()).position).toBe(1_200);
    const rows = await expectDense(store);
    const entries = await read(log.since(0));
    expect(idsIn(entries)).toEqual(rows.map((row) => row.event_id));
    expect(positionsIn(entries)).toEqual(upTo(1_200));
    expect(entries.map(({ seq }) => seq)).toEqual(rows.map(({ seq }) => seq));
  },
);

logSuite.own('G1', 'a position never changes, even if the event is appended again', async ({ scratch }) => {
  const store = await scratch();
  const { service, orm } = store;
  const session = await service.createSession({ ...ALICE, sessionId: 's' });
  await service.appendEvents({ session, events: [saying('a', { id: 'a' }), saying('b', { id: 'b' })] });
  const log = new EventLog(orm.em);
  expect(idsIn(await read(log.since(0)))).toEqual(['a', 'b']);

  await service.appendEvent({ session, event: saying('anew', { id: 'a', timestamp: Date.now() + 1_000 }) });
  const entries = await read(log.since(0));
  expect(entries.map(({ position, event }) => [position, event?.content?.parts?.[0]?.text])).toEqual([
    [1, 'anew'],
    [2, 'b'],
  ]);
  expect(await read(log.since(2))).toEqual([]);
});

logSuite.own(
  'G1',
  'an event of a transaction that commits late comes after the others; a reader by an auto-increment column loses it',
  async ({ scratch, harness }) => {
    const store = await scratch();
    const { service, another, orm, query } = store;
    await query(`create table host_log (id ${harness.columns.autoIncrement} primary key, text varchar(20) not null)`);
    const insert = "insert into host_log (text) values ('x')";
    const log = new EventLog(orm.em);
    const slow = await service.createSession({ ...ALICE, sessionId: 'slow' });
    const quick = await another.createSession({ ...ALICE, sessionId: 'quick' });
    const cursors = { log: 0, host: 0 };
    const readOn = async () => {
      const entries = await read(log.since(cursors.log));
      const rows = await query<{ id: number }>('select id from host_log where id > ? order by id', [cursors.host]);
      cursors.log = entries.at(-1)?.position ?? cursors.log;
      cursors.host = rows.at(-1)?.id ?? cursors.host;
      return { log: idsIn(entries), host: rows.map(({ id }) => id) };
    };

    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        const tx = orm.em.fork();
        await tx.begin();
        await service.withEntityManager(tx).appendEvent({ session: slow, event: eventOf({ id: 'late' }) });
        await query(insert, [], tx);
        await another.appendEvent({ session: quick, event: eventOf({ id: 'early' }) });
        await query(insert);
        expect(await readOn()).toEqual({ log: ['early'], host: [2] });
        await until(() => seen.length === 1);

        await tx.commit();
        expect(await readOn()).toEqual({ log: ['late'], host: [] });
        await until(() => seen.length === 2);
        expect(idsIn(seen)).toEqual(['early', 'late']);
      },
    );
    expect((await expectDense(store)).map((row) => row.event_id)).toEqual(['early', 'late']);
  },
  onServers,
);

logSuite.own('G1', 'an event that is rolled back never appears, and takes no position', async ({ scratch }) => {
  const store = await scratch();
  const { service, orm } = store;
  const log = new EventLog(orm.em, { pollIntervalMs: OFTEN_MS });
  await write(store, 's', ['first']);
  await following(
    (signal) => log.watch(0, {}, { signal }),
    async (seen) => {
      const rolledBack = orm.em.fork().transactional(async (tx) => {
        const joined = service.withEntityManager(tx);
        const session = (await joined.getSession({ ...ALICE, sessionId: 's' }))!;
        await joined.appendEvent({ session, event: eventOf({ id: 'gone' }) });
        throw new Error('the host fails');
      });
      await expect(rolledBack).rejects.toThrow('the host fails');
      const session = (await service.getSession({ ...ALICE, sessionId: 's' }))!;
      await service.appendEvent({ session, event: eventOf({ id: 'second' }) });
      await until(() => seen.length === 2);
      expect(idsIn(seen)).toEqual(['first', 'second']);
    },
  );
  expect(positionsIn(await read(log.since(0)))).toEqual([1, 2]);
});

logSuite.own(
  'G1',
  'readers of two ORMs agree, and each sees every event once, while several write',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, another, orm, peer } = store;
    const logs = [orm, peer].map(({ em }) => new EventLog(em, { pollIntervalMs: OFTEN_MS }));
    const writing = async (writer: MikroOrmSessionService, sessionId: string) => {
      const session = await writer.createSession({ ...ALICE, sessionId });
      for (const i of range(25)) await writer.appendEvent({ session, event: eventOf({ id: `${sessionId} ${i}` }) });
    };
    await following(
      (signal) => logs[0]!.watch(0, {}, { signal }),
      async (ones) =>
        following(
          (signal) => logs[1]!.watch(0, {}, { signal }),
          async (others) => {
            await Promise.all([service, another].flatMap((by, i) => range(2).map((j) => writing(by, `s${i}${j}`))));
            await until(() => ones.length >= 100 && others.length >= 100);
            const rows = await expectDense(store);
            for (const seen of [ones, others]) {
              expect(idsIn(seen)).toEqual(rows.map((row) => row.event_id));
              expect(positionsIn(seen)).toEqual(upTo(100));
            }
          },
        ),
    );
  },
  // A driver that waits for a lock stops the whole process, the holder of the lock included.
  withConnections,
);

logSuite.own(
  'G1',
  'an append does not wait while positions are assigned, to its session or others',
  async ({ scratch, harness }) => {
    const store = await scratch();
    // With this few, a server would rather read all of them and lock the gaps, unless a setting prevents it.
    for (const id of ['b', 'd']) await write(store, id, [`${id}1`]);
    const other = await store.connect({ pool: { min: 1, max: 1 } });
    const writer = new MikroOrmSessionService(other.em, { retry: { attempts: 1 } });
    await other.em.getConnection().execute(harness.connection.impatience);

    const database = new Database(store.peer.em);
    await database.transaction(async (sql) => {
      expect(await assignPositions(sql)).toMatchObject({ position: 2, isPending: false });
      for (const sessionId of ['b', 'd']) {
        const session = (await writer.getSession({ ...ALICE, sessionId }))!;
        await writer.appendEvent({ session, event: eventOf({ id: `${sessionId}2` }) });
      }
      // Before, between and after them in every index.
      for (const sessionId of ['a', 'c', 'e']) await write({ service: writer }, sessionId, [`${sessionId}1`]);
      expect((await positioned(store)).filter(({ position }) => position !== null)).toEqual([]);
    });
    expect((await new EventLog(store.orm.em).head()).position).toBe(7);
    await expectDense(store);
  },
  onServers,
);

logSuite.own(
  'G1',
  'a position is never assigned twice, not even after its session was deleted',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm } = store;
    const log = new EventLog(orm.em);
    await write(store, 'other', ['o1']);
    expect((await log.head()).position).toBe(1);
    await write(store, 's', ['a', 'b']);
    expect((await log.head()).position).toBe(3);
    await service.deleteSession({ ...ALICE, sessionId: 's' });
    expect((await log.head()).position).toBe(3);
    expect(idsIn(await read(log.since(0)))).toEqual(['o1']);

    // The same id, and the same event ids.
    await write(store, 's', ['a', 'c']);
    expect(positionsIn(await read(log.since(0)))).toEqual([1, 4, 5]);
    expect(idsIn(await read(log.since(3)))).toEqual(['a', 'c']);
  },
);

logSuite.own('G2', 'since ends where the log ended when the reading began', async ({ scratch }) => {
  const store = await scratch();
  const { service, orm } = store;
  await write(store, 's', numbered(3));
  const log = new EventLog(orm.em);
  const session = (await service.getSession({ ...ALICE, sessionId: 's' }))!;
  for (const entries of [log.since(0), log.session(keyOf(session)).since(0)]) {
    const before = session.events.length;
    const seen = [];
    for await (const entry of entries) {
      seen.push(entry);
      await service.appendEvent({ session, event: eventOf() });
    }
    expect(seen).toHaveLength(before);
  }
  expect(await read(log.since(await log.head()))).toEqual([]);
  expect(await read(log.session({ ...ALICE, sessionId: 'missing' }).since(0))).toEqual([]);
  expect(await log.session({ ...ALICE, sessionId: 'missing' }).head()).toEqual({ seq: 0, incarnation: '' });
  expect((await log.session(keyOf(session)).head()).seq).toBe(session.events.length);
});

logSuite.own('G2', 'since reads in batches of 200, and no batch before it is needed', async ({ scratch }) => {
  const store = await scratch();
  const { orm, recorded } = store;
  await write(store, 'one', ['e0']);
  await write(store, 's', numbered(999));
  const log = new EventLog(orm.em);
  expect((await log.head()).position).toBe(1_000);
  const reads = async (reading: () => Promise<unknown>) =>
    (await recorded(reading)).filter(({ text }) => /^select position, .*limit/s.test(text)).length;
  const ofSession = log.session({ ...ALICE, sessionId: 's' });
  for (const [end, since] of [
    [1_000, (cursor: number) => log.since(cursor)],
    [999, (cursor: number) => ofSession.since(cursor)],
  ] as const) {
    expect(await reads(() => read(since(0)))).toBe(5);
    expect(await reads(() => read(since(1)))).toBe(5);
    expect(await reads(() => read(since(600)))).toBe(2);
    expect(await reads(() => readSome(since(0), 200))).toBe(1);
    expect(await reads(() => readSome(since(0), 201))).toBe(2);
    expect(await reads(() => read(since(end)))).toBe(0);
  }
  // What the database leaves out is not asked for batch by batch.
  expect(await reads(() => read(log.since(0, { sessionId: 'one' })))).toBe(1);
});

logSuite.own('G2', 'a reader that starts again from its last cursor gets exactly the rest', async ({ scratch }) => {
  const store = await scratch();
  await write(store, 's', numbered(600));
  const log = new EventLog(store.orm.em);
  const ofSession = log.session({ ...ALICE, sessionId: 's' });
  for (const stop of [1, 199, 200, 201, 599, 600]) {
    const some = await readSome(log.since(0), stop);
    const rest = await read(log.since(some.at(-1)!.position));
    expect(idsIn([...some, ...rest])).toEqual(numbered(600));
    const someOfSession = await readSome(ofSession.since(0), stop);
    const restOfSession = await read(ofSession.since(someOfSession.at(-1)!.seq));
    expect(idsIn([...someOfSession, ...restOfSession])).toEqual(numbered(600));
  }
});

logSuite.own('G2', "the cursors of one session's log are its numbers, and need no positions", async ({ scratch }) => {
  const store = await scratch();
  for (const id of ['r', 's']) await write(store, id, [`${id}1`, `${id}2`]);
  const entries = await read(new EventLog(store.orm.em).session({ ...ALICE, sessionId: 's' }).since(1));
  const [{ incarnation }] = (await store.query<{ incarnation: string }>(
    "select incarnation from adk_sessions where session_id = 's'",
  )) as [{ incarnation: string }];
  const cursor = { seq: 2, incarnation };
  const event = expect.objectContaining({ id: 's2' });
  expect(entries).toEqual([{ ...ALICE, sessionId: 's', seq: 2, cursor, event, appendTime: expect.any(Number) }]);
  expect((await positioned(store)).filter(({ position }) => position !== null)).toEqual([]);
});

logSuite.own(
  'G2',
  'the head is the newest position, and watching from it gives only what comes',
  async ({ scratch }) => {
    const store = await scratch();
    await write(store, 's', ['before']);
    const log = new EventLog(store.orm.em, { pollIntervalMs: NEVER_MS });
    const head = await log.head();
    expect(head.position).toBe(1);
    await following(
      (signal) => log.watch(head, {}, { signal }),
      async (seen) => {
        await write(store, 't', ['after']);
        await until(() => seen.length === 1);
        expect(idsIn(seen)).toEqual(['after']);
      },
    );
  },
);

logSuite.own(
  'G2',
  'watch yields what is there and then what comes, at once if it is appended in the same process',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm } = store;
    await write(store, 's', numbered(450));
    const log = new EventLog(orm.em, { pollIntervalMs: NEVER_MS });
    const key = { ...ALICE, sessionId: 's' };
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) =>
        following(
          (signal) => log.session(key).watch(0, {}, { signal }),
          async (ofSession) => {
            await until(() => seen.length === 450 && ofSession.length === 450);
            const session = (await service.getSession(key))!;
            for (const i of range(10)) {
              await service.appendEvent({ session, event: eventOf({ id: `e${451 + i}` }) });
              await until(() => seen.length === 451 + i && ofSession.length === 451 + i);
            }
            await service.appendEvents({ session, events: range(240).map((i) => eventOf({ id: `e${461 + i}` })) });
            await until(() => seen.length === 700 && ofSession.length === 700);
            for (const entries of [seen, ofSession]) {
              expect(idsIn(entries)).toEqual(numbered(700));
              expect(entries.map(({ seq }) => seq)).toEqual(upTo(700));
            }
          },
        ),
    );
  },
);

logSuite.own(
  'G2',
  'an append during a poll is not missed',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm } = store;
    const session = await service.createSession({ ...ALICE, sessionId: 's' });
    let hasPassed = false;
    // The poll has read the events without a position, and does not know this one.
    const { em } = observed(orm.em, async (text) => {
      if (hasPassed || !/set (e\.)?position/.test(text)) return;
      hasPassed = true;
      await service.appendEvent({ session, event: eventOf({ id: 'b' }) });
    });
    const log = new EventLog(em, { pollIntervalMs: NEVER_MS });
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await service.appendEvent({ session, event: eventOf({ id: 'a' }) });
        await until(() => seen.length === 2);
        expect(idsIn(seen)).toEqual(['a', 'b']);
      },
    );
    expect(hasPassed).toBe(true);
  },
  // On SQLite the append waits for the connection, and so for the end of the poll.
  onServers,
);

logSuite.own(
  'G2',
  'a reader that has read more than a running poll does not take the log for an older one',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm, peer } = store;
    const elsewhere = new MikroOrmSessionService(peer.em);
    const key = { ...ALICE, sessionId: 's' };
    const session = await service.createSession(key);
    const events = upTo(BATCH + 1).map((n) => eventOf({ id: `a${n}` }));
    await service.appendEvents({ session, events });
    const poll = new EventEmitter();
    let isHolding = false;
    const { em } = observed(orm.em, async (text) => {
      // What a poll reads after the head, if a session is watched.
      if (!isHolding || !text.includes("status = 'active' and")) return;
      isHolding = false;
      poll.emit('held');
      await once(poll, 'released');
    });
    const log = new EventLog(em, { pollIntervalMs: NEVER_MS });
    const watched = log.session(key).watch(0)[Symbol.asyncIterator]();
    await watched.next();
    const all: AsyncIterable<CompleteLogEntry, undefined> = log.complete().watch(0);
    const entries = all[Symbol.asyncIterator]();
    const ids: (string | undefined)[] = [];
    const readTo = async (id: string) => {
      while (ids.at(-1) !== id) {
        const entry = (await entries.next()).value;
        ids.push(entry?.change ? undefined : entry?.event?.id);
      }
    };
    await readTo('a1');
    isHolding = true;
    const held = once(poll, 'held');
    await service.appendEvent({ session, event: eventOf({ id: 'b' }) });
    await held;
    // The poll's head does not have it, and the reader's next page comes with a head that does.
    await elsewhere.appendEvent({ session: (await elsewhere.getSession(key))!, event: eventOf({ id: 'c' }) });
    await readTo(`a${BATCH + 1}`);
    const rest = readTo('c');
    // The reader waits for the poll by now.
    await new Promise((resolve) => setImmediate(resolve));
    poll.emit('released');
    await rest;
    expect(ids.slice(-3)).toEqual([`a${BATCH + 1}`, 'b', 'c']);
    await Promise.all([entries.return?.(), watched.return?.()]);
  },
  onServers,
);

logSuite.own(
  'G2',
  'what another ORM commits is found by polling',
  async ({ scratch }) => {
    const store = await scratch();
    const { orm, peer } = store;
    const log = new EventLog(orm.em, { pollIntervalMs: OFTEN_MS });
    const elsewhere = { service: new MikroOrmSessionService(peer.em) };
    await write(store, 'there', ['a']);
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) =>
        following(
          (signal) => log.session({ ...ALICE, sessionId: 's' }).watch(0, {}, { signal }),
          async (ofSession) => {
            await until(() => seen.length === 1);
            await write(elsewhere, 's', ['b']);
            await until(() => seen.length === 2 && ofSession.length === 1);
            expect(idsIn(seen)).toEqual(['a', 'b']);
            expect(idsIn(ofSession)).toEqual(['b']);
          },
        ),
    );
  },
  withConnections,
);

logSuite.own(
  'G2',
  'what is appended in a transaction of the host is found by polling after its commit',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm } = store;
    const log = new EventLog(orm.em, { pollIntervalMs: OFTEN_MS });
    await write(store, 's', ['a']);
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await until(() => seen.length === 1);
        await orm.em.fork().transactional(async (tx) => {
          const joined = service.withEntityManager(tx);
          const session = (await joined.getSession({ ...ALICE, sessionId: 's' }))!;
          await joined.appendEvent({ session, event: eventOf({ id: 'b' }) });
        });
        await until(() => seen.length === 2);
        expect(idsIn(seen)).toEqual(['a', 'b']);
      },
    );
  },
);

logSuite.own(
  'G2',
  'watch ends quietly when its signal fires: before it begins, during it, and while it waits',
  async ({ scratch }) => {
    const store = await scratch();
    await write(store, 's', numbered(5));
    const log = new EventLog(store.orm.em, { pollIntervalMs: NEVER_MS });
    const watchAll = (signal: AbortSignal) => log.watch(0, {}, { signal });
    const watchSession = (signal: AbortSignal) => log.session({ ...ALICE, sessionId: 's' }).watch(0, {}, { signal });
    const watchMissing = (signal: AbortSignal) => log.session({ ...ALICE, sessionId: '?' }).watch(0, {}, { signal });
    for (const watch of [watchAll, watchSession]) {
      expect(await read(watch(AbortSignal.abort()))).toEqual([]);

      const stop = new AbortController();
      const seen = [];
      for await (const entry of watch(stop.signal)) if (seen.push(entry) === 2) stop.abort();
      expect(seen).toHaveLength(2);

      await following<AnyEntry>(watch, (entries) => until(() => entries.length === 5));
    }
    await following(watchMissing, async (entries, signal) => {
      await until(() => getEventListeners(signal, 'abort').length > 0);
      expect(entries).toEqual([]);
    });
  },
);

logSuite.own('G2', 'a signal that outlives many waits does not collect listeners', async ({ scratch }) => {
  const store = await scratch();
  const { service, orm } = store;
  const session = await service.createSession({ ...ALICE, sessionId: 's' });
  const log = new EventLog(orm.em, { pollIntervalMs: NEVER_MS });
  await following(
    (signal) => log.watch(0, {}, { signal }),
    async (seen, signal) => {
      for (const i of range(5)) {
        await service.appendEvent({ session, event: eventOf() });
        await until(() => seen.length === i + 1 && getEventListeners(signal, 'abort').length > 0);
        expect(getEventListeners(signal, 'abort')).toHaveLength(1);
      }
    },
  );
});

logSuite.own('G2', 'watchers of one signal are one listener of it', async ({ scratch }) => {
  const store = await scratch();
  const session = await store.service.createSession({ ...ALICE, sessionId: 's' });
  const log = new EventLog(store.orm.em, { pollIntervalMs: NEVER_MS });
  const stop = new AbortController();
  const { signal } = stop;
  const listeners = () => getEventListeners(signal, 'abort').length;
  const { addEventListener } = signal;
  let most = 0;
  signal.addEventListener = (...given: Parameters<typeof addEventListener>) => {
    addEventListener.apply(signal, given);
    most = Math.max(most, listeners());
  };
  let seen = 0;
  // Node.js warns of the eleventh.
  const watches = range(22).map(async (i) => {
    const entries =
      i % 2 ? log.watch(0, {}, { signal }) : log.session({ ...ALICE, sessionId: 's' }).watch(0, {}, { signal });
    for await (const _ of entries) seen++;
  });
  for (const i of range(3)) {
    await store.service.appendEvent({ session, event: eventOf() });
    await until(() => seen === 22 * (i + 1));
  }
  stop.abort();
  await Promise.all(watches);
  expect({ most, left: listeners() }).toEqual({ most: 1, left: 0 });
});

logSuite.own('G2', 'a watcher that ends stops the polling, however it ends', async ({ scratch }) => {
  const store = await scratch();
  await write(store, 's', numbered(3));
  const { em, texts } = observed(store.orm.em);
  const log = new EventLog(em, { pollIntervalMs: OFTEN_MS });
  const statementsLater = async () => {
    texts.length = 0;
    await setTimeout(50);
    return texts.length;
  };

  await readSome(log.watch(0), 1);
  expect(await statementsLater()).toBe(0);
  await read(log.watch(0, { limit: 2 }));
  expect(await statementsLater()).toBe(0);
  await expect(
    (async () => {
      for await (const _ of log.session({ ...ALICE, sessionId: 's' }).watch(0)) throw new Error('the reader fails');
    })(),
  ).rejects.toThrow('the reader fails');
  expect(await statementsLater()).toBe(0);

  await following(
    (signal) => log.watch(0, {}, { signal }),
    async (seen) =>
      following(
        (signal) => log.watch(0, {}, { signal }),
        async () => {
          // One that ends leaves the others theirs.
          await readSome(log.watch(0), 1);
          await until(() => seen.length === 3);
          texts.length = 0;
          await until(() => texts.length > 5);
        },
      ),
  );
  expect(await statementsLater()).toBe(0);
});

logSuite.own('G2', 'when the loop has ended nothing is under way, and the ORM can be closed', async ({ scratch }) => {
  const { orm } = await scratch();
  let begun = 0;
  const { em, texts } = observed(orm.em, async () => {
    // So long that the signal meets a poll.
    await setTimeout(5);
    begun++;
  });
  const log = new EventLog(em, { pollIntervalMs: OFTEN_MS });
  for (const _ of range(5)) {
    const before = texts.length;
    await following(
      (signal) => log.watch(0, {}, { signal }),
      () => until(() => texts.length > before + 3),
    );
    const atTheEnd = begun;
    await setTimeout(20);
    expect(begun).toBe(atTheEnd);
  }
});

logSuite.own('G2', 'if nothing happens a poll is one statement, on SQLite without a table', async (context) => {
  const { poll: poll } = context.harness.statements;
  const store = await context.scratch();
  await write(store, 's', ['a']);
  const { em, texts } = observed(store.orm.em);
  const log = new EventLog(em, { pollIntervalMs: OFTEN_MS });
  await following(
    (signal) => log.watch(0, {}, { signal }),
    async (seen) => {
      await until(() => seen.length === 1);
      texts.length = 0;
      await until(() => texts.length > 20);
      const [idle, ...others] = new Set(texts.slice(10));
      expect(others).toEqual([]);
      expect(idle).toMatch(new RegExp(`^select .*${poll.text}`));
      if (!poll.hasTables) expect(idle).not.toContain('adk_');
    },
  );
});

logSuite.own(
  'G2',
  'a thousand idle watchers poll as often as one, in few statements',
  async (context) => {
    const store = await context.scratch();
    const { poll: look } = context.harness.statements;
    const isHead = (text: string) => text.includes(look.text);
    const { em, texts } = observed(store.orm.em);
    const intervalMs = 50;
    const log = new EventLog(em, { pollIntervalMs: intervalMs });
    await write(store, 'there', ['a']);

    const stop = new AbortController();
    const { signal } = stop;
    const seen = range(1_000).map(() => 0);
    const seenBy = (count: number) => seen.filter((each) => each === count).length;
    const watchers = range(1_000).map(async (i) => {
      const ofSession = log.session({ ...ALICE, sessionId: `s${i}` }).watch(0, {}, { signal });
      for await (const _ of i % 2 ? ofSession : log.watch(0, {}, { signal })) seen[i]!++;
    });
    try {
      await until(() => seenBy(1) === 500);
      await until(() => texts.slice(-10).every((text) => isHead(text) || text.includes('adk_sessions')));
      texts.length = 0;
      const start = performance.now();
      await until(() => texts.filter(isHead).length > 5);
      const polls = texts.filter(isHead).length;
      // Each is at least an interval after the one before.
      expect(polls).toBeLessThanOrEqual((performance.now() - start) / intervalMs + 2);
      // The sessions in groups of 200; at first the rest of a poll.
      expect(texts.length).toBeLessThanOrEqual(look.hasTables ? 4 * polls + 3 : polls);

      // They are awake all the same.
      await write(store, 's1', ['b']);
      await write(store, 's999', ['c']);
      await until(() => seenBy(3) === 500);
      await until(() => seen[1] === 1 && seen[999] === 1);
      expect(seenBy(0)).toBe(498);
    } finally {
      stop.abort();
      await Promise.all(watchers);
    }
  },
  oncePerDialect,
);

logSuite.own(
  'G2',
  'a session that is not there yet is waited for, and read from its start when it is created again',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm } = store;
    const key = { ...ALICE, sessionId: 's' };
    const log = new EventLog(orm.em, { pollIntervalMs: NEVER_MS }).session(key);
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await write(store, 's', ['a1', 'a2', 'a3']);
        await until(() => seen.length === 3);
        for (const [life, count] of [
          ['b', 2],
          // As many as before: only the incarnation differs.
          ['c', 2],
          ['d', 5],
        ] as const) {
          const before = seen.length;
          await service.deleteSession(key);
          await write(
            store,
            's',
            upTo(count).map((i) => `${life}${i}`),
          );
          await until(() => seen.length === before + 1 + count);
        }
        const lives = [
          ['a1', 'a2', 'a3'],
          ['b1', 'b2'],
          ['c1', 'c2'],
          ['d1', 'd2', 'd3', 'd4', 'd5'],
        ];
        expect(idsIn(seen)).toEqual(lives.flatMap((life, i) => (i === 0 ? life : ['reset', ...life])));
        expect(seen.map(({ seq }) => seq)).toEqual([1, 2, 3, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5]);
      },
    );
  },
);

logSuite.own(
  'G2',
  'a session that is created again while its log is read is not confused with the old one',
  async ({ scratch }) => {
    const store = await scratch();
    // On SQLite the reader has the only connection.
    const service = new MikroOrmSessionService((await store.connect()).em);
    const key = { ...ALICE, sessionId: 's' };
    await write(store, 's', ['a1', 'a2', 'a3']);
    let isAnew = false;
    const { em } = observed(store.orm.em, async (text) => {
      if (isAnew || !/^select position,/.test(text)) return;
      isAnew = true;
      await service.deleteSession(key);
      await write({ ...store, service }, 's', ['b1', 'b2', 'b3', 'b4']);
    });
    const log = new EventLog(em, { pollIntervalMs: OFTEN_MS }).session(key);
    await following(
      (signal) => log.watch(1, {}, { signal }),
      async (seen) => {
        await until(() => seen.length >= 5);
        expect(idsIn(seen)).toEqual(['reset', 'b1', 'b2', 'b3', 'b4']);
      },
    );
  },
  withConnections,
);

logSuite.own(
  'G2',
  'a watcher whose database fails throws, and another continues from its cursor',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm } = store;
    await write(store, 's', ['a']);
    let isAway = false;
    const faults = {
      statement: (text: string) => isAway && text.startsWith('select'),
      error: () => new Error('secret'),
    };
    const log = new EventLog(faulty(orm.em, faults), { pollIntervalMs: OFTEN_MS });
    const seen: string[] = [];
    const reading = (async () => {
      for await (const { event } of log.watch(0)) seen.push(event!.id);
    })();
    await until(() => seen.length === 1);
    isAway = true;
    await expectCode(reading, 'ADK_DATABASE');
    expect((await errorOf(reading)).message).not.toContain('secret');
    await expectCode(log.head(), 'ADK_DATABASE');
    await expectCode(read(log.since(0)), 'ADK_DATABASE');
    await expectCode(read(log.watch(0)), 'ADK_DATABASE');

    isAway = false;
    const session = (await service.getSession({ ...ALICE, sessionId: 's' }))!;
    await service.appendEvent({ session, event: eventOf({ id: 'b' }) });
    expect(idsIn(await readSome(log.watch(1), 1))).toEqual(['b']);
  },
);

logSuite.own('G2', 'missing tables give a SchemaError here, too', async ({ scratch }) => {
  const { orm, query } = await scratch();
  await query('drop table adk_counters');
  const log = new EventLog(orm.em);
  await expectCode(log.head(), 'ADK_SCHEMA', /migration:up/);
  await expectCode(read(log.watch(0)), 'ADK_SCHEMA', /migration:up/);
});

logSuite.own('G2', 'events come back whole and equal: times, every string, and 3 MB', async ({ scratch }) => {
  const store = await scratch();
  const { service, orm, stored, query } = store;
  const session = await service.createSession({ ...ALICE, sessionId: 'ünï 🎉' });
  const texts = ['\0 \ud800 ✓ 🎉', '`"\\%_', 'é'.normalize('NFD'), `${'x'.repeat(3_000_000)}🎉`, ''];
  for (const [i, text] of texts.entries()) {
    await service.appendEvent({
      session,
      event: saying(text, { id: `é ${i}`, timestamp: 902_895_004.4580133 * (i + 1) }),
    });
  }
  const log = new EventLog(orm.em);
  const key = keyOf(session);
  const tables = (await stored(key))!.events;
  expect(tables).toHaveLength(texts.length);
  for (const entries of [await read(log.since(0)), await read(log.session(key).since(0))]) {
    expect(plain(entries.map(({ event }) => event))).toEqual(tables);
    expect(plain(entries.map(({ event }) => event))).toEqual(plain(session.events));
  }
  if (harnessOf(orm.em).columns.keepLargeEventsInParts) {
    expect((await query('select 1 from adk_event_parts')).length).toBeGreaterThan(1);
  }
});

logSuite.own(
  'G2',
  'every read of the log is served by an index',
  async ({ scratch, harness }) => {
    const store = await scratch();
    const { service, orm, query, recorded } = store;
    // So many that a server would rather use an index than read all.
    await orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      for (const i of range(200)) {
        const session = await joined.createSession({
          appName: `app ${i % 5}`,
          userId: `user ${i % 20}`,
          sessionId: `s${i}`,
        });
        const events = range(50).map((e) => eventOf({ timestamp: e, content: { parts: [{ text: 'x'.repeat(300) }] } }));
        await joined.appendEvents({ session, events });
      }
    });
    await query(
      `insert into adk_sessions (app_name, user_id, session_id, incarnation, origin, create_time, last_update_time)
     select 'elsewhere', user_id, session_id, incarnation, origin, create_time, last_update_time from adk_sessions`,
    );
    await query(`insert into adk_changes (app_name, user_id, session_id, change_id, kind, seq, time)
     select 'elsewhere', user_id, session_id, seq, 'state', seq, 0 from adk_events`);
    const log = new EventLog(orm.em, { pollIntervalMs: NEVER_MS });
    expect((await log.head()).position).toBe(10_000);
    const { plan } = harness;
    await query(plan.analyze);

    const key = { appName: 'app 3', userId: 'user 3', sessionId: 's3' };
    const session = (await service.getSession(key))!;
    const statements = await recorded(async () => {
      await service.appendEvents({ session, events: range(5).map(() => eventOf()) });
      await readSome(log.since(0), 1);
      await readSome(log.since(0, { appName: 'app 3', userId: 'user 3', sessionId: 's3' }), 1);
      for (const filter of [
        {},
        { appName: 'app 3' },
        { userId: 'user 3' },
        { sessionId: 's3' },
        { sessionTree: 's3' },
        { afterTimestamp: 40 },
        { ...ALICE, sessionTree: 's3', afterTimestamp: 40 },
      ]) {
        await read(log.since(9_900, filter));
      }
      for (const filter of [{}, { afterTimestamp: 40 }]) await read(log.session(key).since(10, filter));
      const stop = new AbortController();
      const watchers = range(250).map((i) =>
        read(log.session({ ...key, sessionId: `s${i}` }).watch(0, {}, { signal: stop.signal })),
      );
      // A poll that has found its events has looked for all of them.
      await readSome(log.session(key).watch(0), 1);
      stop.abort();
      await Promise.all(watchers);
    });
    const ofLog = statements.filter(
      ({ text }) => /^(select|update|with)\b/.test(text) && /position|adk_sessions/.test(text),
    );
    expect(ofLog.length).toBeGreaterThan(20);
    expect(ofLog.filter(({ text }) => /^(update|with)/.test(text) && text.includes('position'))).toHaveLength(1);

    const scans: [string, string[]][] = [];
    for (const { text, values } of ofLog) {
      const found = await plan.scans((prefix) => query(`${prefix} ${text}`, values));
      if (found.length > 0) scans.push([text, found]);
    }
    expect(scans).toEqual([]);
  },
  oncePerDialect,
);

const LONG = Boolean(process.env['ADK_TEST_LONG']);
const MANY = LONG ? 100_000 : 8_000;
const BATCH = 1_000;

logSuite.own(
  'G2',
  `reading ${MANY} events takes no more memory than reading a few`,
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm } = store;
    const session = await service.createSession({ ...ALICE, sessionId: 's' });
    for (let n = 0; n < MANY; n += BATCH) {
      const events = range(BATCH).map(() => saying('x'.repeat(5_000)));
      await service.appendEvents({ session, events });
      // Without the handle, which is not to be measured.
      session.events.length = 0;
    }
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const heapMb = () => {
      collect();
      return process.memoryUsage().heapUsed / 2 ** 20;
    };
    const log = new EventLog(orm.em);
    await readSome(log.since(0), 1);
    const before = heapMb();
    for (const entries of [log.since(0), log.session(keyOf(session)).since(0)]) {
      let count = 0;
      let highest = 0;
      for await (const _ of entries) if (++count % (MANY / 10) === 0) highest = Math.max(highest, heapMb());
      expect(count).toBe(MANY);
      expect(highest - before).toBeLessThan(15);
    }
  },
  (harness) => LONG || (onSqlite(harness) && !harness.hasConnections),
);
