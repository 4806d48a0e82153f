import type { Session } from '@google/adk';
import {
  EventLog,
  LogWentBackError,
  MikroOrmSessionService,
  SessionMaintenance,
  type LogChange,
  type CompleteEventLog,
  type LogCursor,
  type LogEntry,
  type SessionLogEntry,
} from '../../src/index.js';
import { Database } from '../../src/database/calls/database.js';
import { assignPositions } from '../../src/log/positions.js';
import type { HistoryEnd } from '../../src/model/log-history.js';
import type { OwnHarness, OwnStore } from '../support/harnesses/harness.js';
import { Backup } from '../support/backup.js';
import { FoldedLog } from '../support/folded-log.js';
import { expectSame, resultOf, tablesOf, type Folded } from '../support/fold.js';
import { NEVER_MS, OFTEN_MS, following, idsIn, observed, positioned, read, readSome } from './log-tools.js';
import { Suite, oncePerDialect, withConnections } from './rule.js';
import {
  errorOf,
  eventOf,
  expectCode,
  faulty,
  idsOf,
  plain,
  range,
  remember,
  until,
  withAccount,
  type Faults,
} from './tools.js';

/** Tests of section O: what a restore or a failover to a replica that was behind leaves. */
export const historySuite = new Suite();

const KEY = { appName: 'app', userId: 'alice', sessionId: 's' };

const writing = (id: string) => eventOf({ id, actions: { stateDelta: { last: id, [id]: true } } });

/** Three events, of which the last one is lost when the database goes back. */
async function withThreeEvents(store: OwnStore) {
  const { service, orm } = store;
  const session = await service.createSession(KEY);
  for (const id of ['a', 'b']) await service.appendEvent({ session, event: writing(id) });
  await new EventLog(orm.em).head();
  const backup = await Backup.of(store);
  await service.appendEvent({ session, event: writing('c') });
  const goBack = async () => {
    await backup.restore();
    expect(await store.query('select last_seq from adk_sessions')).toEqual([{ last_seq: 2 }]);
  };
  return { session, goBack };
}

const storedIds = async ({ query }: OwnStore) =>
  (await query<{ event_id: string }>('select event_id from adk_events order by seq')).map((row) => row.event_id);

historySuite.own('O2', 'an append on a handle that is ahead of its session reads it again', async ({ scratch }) => {
  const store = await scratch();
  const { service } = store;
  const { session, goBack } = await withThreeEvents(store);
  await goBack();
  const { state, events } = session;
  await service.appendEvent({ session, event: writing('d') });

  expect(await storedIds(store)).toEqual(['a', 'b', 'd']);
  expect(idsOf(session)).toEqual(['a', 'b', 'd']);
  expect(session.state).toBe(state);
  expect(session.events).toBe(events);
  expect(plain(session)).toEqual(plain(await service.getSession(KEY)));
});

historySuite.own('O2', 'a lost event that is appended again is new', async ({ scratch }) => {
  const store = await scratch();
  const { session, goBack } = await withThreeEvents(store);
  const [, , lost] = session.events;
  await goBack();
  await store.service.appendEvents({ session, events: [lost!, writing('d')] });
  expect(await storedIds(store)).toEqual(['a', 'b', 'c', 'd']);
  expect(plain(session)).toEqual(plain(await store.service.getSession(KEY)));
});

historySuite.own('O2', 'with reject a handle that is ahead is stale, and nothing is written', async ({ scratch }) => {
  const store = await scratch();
  const { session, goBack } = await withThreeEvents(store);
  await goBack();
  const unchanged = remember(session);
  const strict = new MikroOrmSessionService(store.orm.em, { onStaleSession: 'reject' });
  await expectCode(strict.appendEvent({ session, event: writing('d') }), 'ADK_STALE_SESSION');
  unchanged();
  expect(await storedIds(store)).toEqual(['a', 'b']);
});

historySuite.own(
  'O2',
  'a cursor ahead of the log gets an error with the cursor to continue from',
  async ({ scratch }) => {
    const store = await scratch();
    const { goBack } = await withThreeEvents(store);
    const log = new EventLog(store.orm.em);
    const ofSession = log.session(KEY);
    const head = await log.head();
    expect([head.position, (await ofSession.head()).seq]).toEqual([3, 3]);
    const [, , { cursor }] = (await read(log.since(0))) as [LogEntry, LogEntry, LogEntry];
    expect(cursor).toEqual(head);
    await goBack();

    for (const entries of [ofSession.since(3), ofSession.watch(3)]) {
      expect(await errorOf(read(entries))).toMatchObject({ code: 'ADK_LOG_WENT_BACK', position: 2 });
    }
    for (const entries of [log.since(cursor), log.watch(cursor)]) {
      const error = await errorOf(read(entries));
      expect(error).toMatchObject({
        code: 'ADK_LOG_WENT_BACK',
        position: 2,
        epoch: 0,
        cursor: { position: 2, epoch: 0 },
      });
    }
    // A bare number says nothing about history: the events 1 and 2 that its reader has seen may be gone, too.
    for (const entries of [log.since(3), log.watch(3), log.since({ position: 3, epoch: 0 })]) {
      expect(await errorOf(read(entries))).toMatchObject({
        code: 'ADK_LOG_WENT_BACK',
        position: 0,
        cursor: { position: 0 },
      });
    }
    const session = (await store.service.getSession(KEY))!;
    await store.service.appendEvent({ session, event: writing('d') });
    expect(idsIn(await read(log.since(2)))).toEqual(['d']);
    expect(idsIn(await read(ofSession.since(2)))).toEqual(['d']);
  },
);

historySuite.own('O2', 'an invalid history in a cursor is refused', async ({ orm }) => {
  const log = new EventLog(orm.em);
  for (const history of [
    1,
    null,
    'x',
    'x.1.1',
    `${'x'.repeat(12)}.1`,
    `~~1.1.1`,
    `${'x'.repeat(12)}.1.1~`.repeat(400),
  ]) {
    const reading = async () => log.since({ position: 1, epoch: 0, history } as never);
    await expectCode(reading(), 'ADK_INVALID_ARGUMENT', 'history must be that of a cursor of the log.');
  }
});

historySuite.own(
  'O2',
  'an epoch is an error for a reader that keeps a position without its history',
  async ({ scratch }) => {
    const store = await scratch();
    const { goBack } = await withThreeEvents(store);
    const log = new EventLog(store.orm.em, { pollIntervalMs: OFTEN_MS });
    const { history, ...cursor } = await log.head();
    expect(cursor).toEqual({ position: 3, epoch: 0 });
    const watching = log.watch(cursor)[Symbol.asyncIterator]();
    const next = errorOf(watching.next());

    await goBack();
    const maintenance = new SessionMaintenance(store.orm.em);
    expect(await maintenance.beginLogEpoch()).toEqual({ position: 2, epoch: 1 });
    const session = (await store.service.getSession(KEY))!;
    for (const id of ['d', 'e', 'f']) await store.service.appendEvent({ session, event: writing(id) });

    const wentBack = { code: 'ADK_LOG_WENT_BACK', position: 0, epoch: 1 };
    expect(await next).toMatchObject({ code: 'ADK_LOG_WENT_BACK' });
    for (const entries of [log.since(cursor), log.watch(cursor), log.since({ position: 1, epoch: 0 })])
      expect(await errorOf(read(entries))).toMatchObject(wentBack);
    // Only a history says what both share.
    const shared = (await errorOf(read(log.since({ ...cursor, history })))) as LogWentBackError;
    expect(shared).toMatchObject({ ...wentBack, position: 2 });
    expect(idsIn(await read(log.since(shared.cursor!)))).toEqual(['d', 'e', 'f']);
    expect(idsIn(await read(log.since({ position: 2, epoch: 1 })))).toEqual(['d', 'e', 'f']);
    await maintenance.beginLogEpoch();
    expect(await errorOf(read(log.since(cursor)))).toMatchObject({ ...wentBack, epoch: 2 });
    expect((await log.head()).epoch).toBe(2);
    await expectCode(
      Promise.resolve().then(() => log.since({ position: 1 } as never)),
      'ADK_INVALID_ARGUMENT',
    );
  },
);

for (const ofSession of [false, true]) {
  historySuite.own(
    'O2',
    `a watcher of ${ofSession ? 'a session' : 'the log'} gets an error when the log goes back`,
    async ({ scratch }) => {
      const store = await scratch();
      const { goBack } = await withThreeEvents(store);
      const log = new EventLog(store.orm.em, { pollIntervalMs: OFTEN_MS });
      const entries = (ofSession ? log.session(KEY) : log).watch(0)[Symbol.asyncIterator]();
      for (const id of ['a', 'b', 'c']) expect((await entries.next()).value).toMatchObject({ event: { id } });
      const next = errorOf(entries.next());
      await goBack();
      expect(await next).toMatchObject({ code: 'ADK_LOG_WENT_BACK', position: 2 });
    },
  );
}

type Entry = LogEntry | LogChange;

/** Keeps entries with their cursors, and follows the advice of `LogWentBackError`. */
class Reader {
  kept: Entry[] = [];
  readonly errors: LogWentBackError[] = [];
  #cursor: LogCursor | number = 0;

  constructor(
    readonly log: EventLog,
    readonly isComplete: boolean,
  ) {}

  get #log(): EventLog | CompleteEventLog {
    return this.isComplete ? this.log.complete() : this.log;
  }

  /** To the end of the log. */
  read(): Promise<void> {
    return this.#reading((cursor) => this.#log.since(cursor));
  }

  /** Until the signal fires. */
  async watch(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#reading((cursor) => this.#log.watch(cursor, {}, { signal }));
    }
  }

  get ids(): string[] {
    return idsIn(this.kept as LogEntry[]);
  }

  get folded(): Folded {
    const fold = new FoldedLog();
    for (const entry of this.kept) fold.add(entry);
    return resultOf(fold);
  }

  async #reading(entries: (cursor: LogCursor | number) => AsyncIterable<Entry>): Promise<void> {
    for (;;) {
      try {
        for await (const entry of entries(this.#cursor)) {
          this.kept.push(entry);
          this.#cursor = entry.cursor;
        }
        return;
      } catch (error) {
        if (!(error instanceof LogWentBackError)) throw error;
        this.errors.push(error);
        const cursor = (this.#cursor = error.cursor!);
        const isLater = (entry: Entry) =>
          entry.cursor.position > cursor.position || (entry.cursor.change ?? 0) > (cursor.change ?? 0);
        this.kept = this.kept.filter((entry) => !isLater(entry));
      }
    }
  }
}

/** Two that assign positions, as in two processes, which have nothing in memory together, if there can be two. */
async function twoLogs(store: OwnStore, harness: OwnHarness): Promise<[EventLog, EventLog]> {
  const { em } = harness.hasConnections ? await store.connect() : store.orm;
  return [new EventLog(store.orm.em, { pollIntervalMs: OFTEN_MS }), new EventLog(em, { pollIntervalMs: NEVER_MS })];
}

const positionOf = async (store: OwnStore) =>
  Number(
    (await store.query<{ value: number | string }>("select value from adk_counters where name = 'position'"))[0]?.value,
  );

/** Events and changes of several kinds. Later ones change what a reader gets for earlier ones. */
class Writer {
  #count = 0;

  constructor(
    readonly service: MikroOrmSessionService,
    readonly isComplete: boolean,
  ) {}

  /** @param written is called after each. */
  async write(times: number, written?: () => Promise<unknown>): Promise<void> {
    for (const _ of range(times)) {
      const n = ++this.#count;
      const session = await this.service.getOrCreateSession({ ...KEY, sessionId: `s${n % 3}` });
      const write = this.isComplete ? this.#changes[n % 5] : undefined;
      await (write?.(session, n) ?? this.#append(session, n));
      await written?.();
    }
  }

  #append(session: Session, n: number): Promise<unknown> {
    return this.service.appendEvent({ session, event: writing(`e${n}`) });
  }

  readonly #changes: Record<number, (session: Session, n: number) => Promise<unknown>> = {
    2: (session, n) =>
      this.service.updateState({ ...KEY, sessionId: session.id, set: { last: n, 'user:n': n }, remove: [`e${n - 3}`] }),
    3: async (session, n) => {
      const [first] = session.events;
      if (!first) return this.#append(session, n);
      return this.service.appendEvent({ session, event: eventOf({ ...first, author: `again ${n}` }) });
    },
    4: async (session, n) =>
      n % 2 ? this.service.deleteSession({ ...KEY, sessionId: session.id }) : this.#append(session, n),
  };
}

async function expectTables(store: OwnStore, reader: Reader): Promise<void> {
  if (reader.isComplete) expectSame(reader.folded, await tablesOf(store.peer, KEY.appName));
  else expect(reader.ids).toEqual((await positioned(store)).map((row) => row.event_id));
}

/** How many are lost, how many are written then, and who looks first. */
const LOSSES = range(4).flatMap((lost) =>
  range(6).flatMap((written) => [true, false].map((othersFirst) => ({ lost: lost + 1, written, othersFirst }))),
);

for (const isComplete of [false, true]) {
  const what = isComplete ? 'the complete log' : 'events';
  historySuite.own(
    'O2',
    `a reader of ${what} that continues from the error's cursor ends with what the tables hold, whatever was lost and written since`,
    async ({ scratch, harness }) => {
      const store = await scratch();
      const logs = await twoLogs(store, harness);
      let turn = 0;
      // They take turns, so that the last boundary that is left was given out by either.
      const inTurns = () => logs[turn++ % 2]!.head();
      const writer = new Writer(store.service, isComplete);
      const reader = new Reader(logs[0], isComplete);
      const backup = await Backup.of(store);
      for (const { lost, written, othersFirst } of LOSSES) {
        // Half of them take long enough.
        if (othersFirst === ((lost + written) % 2 === 0)) continue;
        await writer.write(3, inTurns);
        await reader.read();
        if (written % 2) await writer.write(1, inTurns);
        const position = await positionOf(store);
        await backup.take();
        await writer.write(lost, inTurns);
        await reader.read();
        const seen = await positionOf(store);
        await backup.restore();
        await writer.write(written);
        if (othersFirst) await logs[1].head();
        const errors = reader.errors.length;
        await reader.read();
        expect({ lost, written, errors: reader.errors.length - errors }).toEqual({ lost, written, errors: 1 });
        expect({ lost, written, position: reader.errors.at(-1)!.position }).toEqual({ lost, written, position });
        if (!isComplete) expect([seen, await positionOf(store)]).toEqual([position + lost, position + written]);
        await expectTables(store, reader);
      }
      // The error's cursor is near: it is not before the place at which the reader was last up to date.
      if (isComplete)
        expect(Math.min(...reader.errors.slice(-10).map(({ cursor }) => cursor!.position))).toBeGreaterThan(10);
    },
    oncePerDialect,
  );

  historySuite.own(
    'O2',
    `a watcher of ${what} that continues from the error's cursor ends with what the tables hold`,
    async ({ scratch, harness }) => {
      const store = await scratch();
      const logs = await twoLogs(store, harness);
      const writer = new Writer(store.service, isComplete);
      const reader = new Reader(logs[0], isComplete);
      const backup = await Backup.of(store);
      const stop = new AbortController();
      const watching = reader.watch(stop.signal);
      const isUpToDate = () =>
        expectTables(store, reader).then(
          () => true,
          () => false,
        );
      try {
        for (const { lost, written, othersFirst } of LOSSES.filter((_, i) => i % 5 === 0)) {
          await writer.write(2);
          await Promise.race([until(isUpToDate), watching]);
          await backup.take();
          await writer.write(lost);
          await Promise.race([until(isUpToDate), watching]);
          const errors = reader.errors.length;
          await backup.restore();
          await writer.write(written);
          if (othersFirst) await logs[1].head();
          await Promise.race([until(async () => reader.errors.length > errors && (await isUpToDate())), watching]);
        }
      } finally {
        stop.abort();
        await watching;
      }
      await expectTables(store, reader);
    },
    oncePerDialect,
  );
}

historySuite.own(
  'O2',
  'a reader of the complete log drops what was lost before it had a position',
  async ({ scratch }) => {
    const store = await scratch();
    // On SQLite the reader has the only connection.
    const service = new MikroOrmSessionService((await store.connect()).em);
    const session = await service.createSession(KEY);
    await service.appendEvent({ session, event: writing('a') });
    let isWritten = false;
    const { em } = observed(store.orm.em, async (text) => {
      // Between the head and the state, by which the reader finds out which values stand.
      if (isWritten || !text.includes('adk_session_states')) return;
      isWritten = true;
      await service.appendEvent({ session, event: writing('b') });
    });
    const reader = new Reader(new EventLog(em, { pollIntervalMs: OFTEN_MS }), true);
    await new EventLog(store.orm.em).head();
    const backup = await Backup.of(store);
    await reader.read();
    expect(reader.kept.at(-1)).toMatchObject({ event: { id: 'a' }, superseded: ['last'] });
    await backup.restore();
    await reader.read();
    expect(reader.errors).toHaveLength(1);
    await expectTables(store, reader);
  },
  withConnections,
);

historySuite.own(
  'O2',
  'positions of a commit whose answer was lost are not confused with positions that were assigned again',
  async ({ scratch }) => {
    const store = await scratch();
    const session = await store.service.createSession(KEY);
    const faults: Faults = { error: () => Object.assign(new Error('gone'), { code: 'ECONNRESET' }) };
    const log = new EventLog(faulty(store.orm.em, faults), { pollIntervalMs: OFTEN_MS });
    const reader = new Reader(new EventLog(store.orm.em, { pollIntervalMs: NEVER_MS }), false);
    const backup = await Backup.of(store);
    await store.service.appendEvent({ session, event: writing('a') });
    await log.head();
    await backup.take();
    await store.service.appendEvent({ session, event: writing('b') });
    faults.commit = true;
    await log.head();
    expect(faults.commit).toBeUndefined();
    await reader.read();
    await backup.restore();
    const again = (await store.service.getSession(KEY))!;
    await store.service.appendEvent({ session: again, event: writing('c') });
    await log.head();
    await reader.read();
    expect(reader.ids).toEqual(['a', 'c']);
    expect(reader.errors).toMatchObject([{ position: 1 }]);
  },
);

const WRITERS = "select name from adk_counters where name like 'history %' or name like 'former %'";

historySuite.own(
  'O2',
  'a cursor stays valid after many processes have assigned positions, and each leaves two counters',
  async ({ scratch }) => {
    const store = await scratch();
    const session = await store.service.createSession(KEY);
    const log = new EventLog(store.orm.em);
    const reader = new Reader(log, false);
    const database = new Database(store.orm.em);
    const writers: (HistoryEnd | undefined)[] = [];
    /** Appends an event, to which one of 20 processes assigns a position. */
    const write = async (id: string, i: number) => {
      await store.service.appendEvent({ session, event: writing(id) });
      const { writer } = await database.transaction((sql) => assignPositions(sql, writers[i % 20]));
      writers[i % 20] = writer;
    };
    await write('first', 0);
    await reader.read();
    const early = await log.head();
    for (const i of range(60)) await write(`e${i}`, i);
    expect(await store.query(WRITERS)).toHaveLength(40);
    expect(await store.query(`${WRITERS.split(' or ')[0]}`)).toHaveLength(32);
    await reader.read();
    expect(reader.errors).toEqual([]);
    expect(await read(log.since(early))).toHaveLength(60);
    expect(reader.ids).toHaveLength(61);

    // What was lost was written by more than the newest: the boundary may be an earlier one, and is right.
    const backup = await Backup.of(store);
    const { position } = await log.head();
    for (const i of range(30)) await write(`lost ${i}`, i);
    await reader.read();
    await backup.restore();
    const again = (await store.service.getSession(KEY))!;
    await store.service.appendEvents({ session: again, events: range(40).map((i) => writing(`new ${i}`)) });
    await reader.read();
    expect(reader.errors).toHaveLength(1);
    expect(reader.errors[0]!.position).toBeLessThanOrEqual(position);
    await expectTables(store, reader);
  },
  oncePerDialect,
);

historySuite.own(
  'O2',
  'the readers of a process leave two counters together, also if the host gives settings for each',
  async ({ scratch, harness }) => {
    const store = await scratch();
    const session = await store.service.createSession(KEY);
    await withAccount(harness.server!, 'select', store, async ({ orm }) => {
      let role = 'none';
      const log = new EventLog(store.orm.em, { postgresql: { settings: () => ({ role }) }, onError: () => undefined });
      for (const i of range(6)) {
        await store.service.appendEvent({ session, event: writing(`e${i}`) });
        // It may not assign positions.
        role = new URL(String(orm.config.get('clientUrl'))).username;
        expect(await read(log.since(i))).toEqual([]);
        role = 'none';
        if (i % 2) await readSome(log.watch(i), 1);
        else expect(idsIn(await read(log.since(i)))).toEqual([`e${i}`]);
      }
    });
    expect(await store.query(WRITERS)).toHaveLength(2);
  },
  ({ dialect, server }) => dialect === 'postgresql' && server !== undefined,
);

/** What makes another history of the session of three events, and the ids of the events that it has then. */
const OTHER_HISTORIES: Record<string, { change: (store: OwnStore) => Promise<void>; ids: string[] }> = {
  'was rewound, and has fewer events': {
    change: async ({ service }) => {
      await service.rewindSession(KEY, { at: 1 });
    },
    ids: ['a'],
  },
  'was rewound, and has more events': {
    change: async ({ service }) => {
      const session = await service.rewindSession(KEY, { at: 1 });
      for (const id of ['x', 'y', 'z']) await service.appendEvent({ session, event: writing(id) });
    },
    ids: ['a', 'x', 'y', 'z'],
  },
  'was deleted and created again, and has as many events': {
    change: async (store) => {
      await store.service.deleteSession(KEY);
      const session = await store.service.createSession(KEY);
      for (const id of ['x', 'y', 'z']) await store.service.appendEvent({ session, event: writing(id) });
    },
    ids: ['x', 'y', 'z'],
  },
  'was deleted and created again, and has no events': {
    change: async ({ service }) => {
      await service.deleteSession(KEY);
      await service.createSession(KEY);
    },
    ids: [],
  },
};

for (const [what, { change, ids }] of Object.entries(OTHER_HISTORIES)) {
  historySuite.own('O2', `a reader of one session learns that it ${what}`, async ({ scratch }) => {
    const store = await scratch();
    await withThreeEvents(store);
    const log = new EventLog(store.orm.em, { pollIntervalMs: OFTEN_MS }).session(KEY);
    const [first, , last] = await read(log.since(0));
    const cursors = [first!.cursor, last!.cursor];
    expect(cursors.map(({ seq }) => seq)).toEqual([1, 3]);
    expect(await log.head()).toEqual(last!.cursor);
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await until(() => seen.length === 3);
        await change(store);
        await until(() => seen.length >= 4 + ids.length);
        expect(idsIn(seen)).toEqual(['a', 'b', 'c', 'reset', ...ids]);
      },
    );
    for (const cursor of cursors) {
      const entries = await read(log.since(cursor));
      expect(idsIn(entries)).toEqual(['reset', ...ids]);
      expect(entries[0]).toEqual({ ...KEY, change: 'reset', seq: 0, cursor: { ...(await log.head()), seq: 0 } });
      expect(idsIn(await readSome(log.watch(cursor), 1 + ids.length))).toEqual(['reset', ...ids]);
      // From each of these entries on, the reader is in the history that the session has now.
      for (const [i, entry] of entries.entries())
        expect(idsIn(await read(log.since(entry.cursor)))).toEqual(ids.slice(i));
    }
    expect(idsIn(await read(log.since(0)))).toEqual(ids);
    expect(idsIn(await read(log.since(first!.cursor, { limit: 1 })))).toEqual(['reset']);
  });
}

historySuite.own('O2', 'operations that keep the history of a session cause no reset', async ({ scratch }) => {
  const store = await scratch();
  const { service, orm } = store;
  await withThreeEvents(store);
  const log = new EventLog(orm.em, { pollIntervalMs: OFTEN_MS }).session(KEY);
  const [, { cursor }] = (await read(log.since(0))) as [unknown, SessionLogEntry];
  await following(
    (signal) => log.watch(cursor, {}, { signal }),
    async (seen) => {
      await new SessionMaintenance(orm.em).trim({ ...KEY, keepLast: 1 });
      await service.rewindSession(KEY, { at: 3 });
      await new MikroOrmSessionService(orm.em, { deletion: 'soft' }).deleteSession(KEY);
      expect(await read(log.since(cursor))).toEqual([]);
      await service.restoreSession(KEY);
      const session = (await service.getSession(KEY))!;
      await service.appendEvent({ session, event: writing('d') });
      await until(() => seen.length >= 2);
      expect(idsIn(seen)).toEqual(['c', 'd']);
    },
  );
  expect(idsIn(await read(log.since(cursor)))).toEqual(['c', 'd']);
});

historySuite.own(
  'O2',
  'a cursor that is ahead of its session is reported; an invalid one is refused',
  async (context) => {
    const store = await context.scratch();
    const { goBack } = await withThreeEvents(store);
    const log = new EventLog(store.orm.em).session(KEY);
    const position = await log.head();
    await goBack();
    for (const cursor of [position, position.seq])
      for (const entries of [log.since(cursor), log.watch(cursor)])
        expect(await errorOf(read(entries))).toMatchObject({ code: 'ADK_LOG_WENT_BACK', position: 2 });
    expect(await log.head()).toEqual({ ...position, seq: 2 });

    const missing = new EventLog(store.orm.em).session({ ...KEY, sessionId: 'missing' });
    expect(await missing.head()).toEqual({ seq: 0, incarnation: '' });
    expect(await read(missing.since(position))).toEqual([]);
    // Who has read nothing keeps nothing.
    expect(idsIn(await read(log.since({ seq: 0, incarnation: '' })))).toEqual(['a', 'b']);
    for (const wrong of [
      null,
      {},
      { seq: 1 },
      { seq: -1, incarnation: '' },
      { seq: 1, incarnation: 1 },
      { ...position, a: 1 },
      'x',
    ])
      for (const call of ['since', 'watch'] as const)
        await expectCode(
          Promise.resolve().then(() => log[call](wrong as never)),
          'ADK_INVALID_ARGUMENT',
        );
  },
);
