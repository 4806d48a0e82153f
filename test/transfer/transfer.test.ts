import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../entities/index.js';
import {
  EventLog,
  MikroOrmSessionService,
  SessionMaintenance,
  migrate,
  type ImportProgress,
  type TransferRecord,
} from '../../src/index.js';
import { Fold, expectSame, tablesOf } from '../support/fold.js';
import { availableDatabases, createDatabase, type DatabaseName, type TestDatabase } from '../support/servers.js';

const open: { orm: MikroORM; database: TestDatabase }[] = [];

async function emptyStore(name: DatabaseName): Promise<MikroORM> {
  const database = await createDatabase(name);
  const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
  open.push({ orm, database });
  await migrate(orm);
  return orm;
}

afterEach(async () => {
  for (const { orm, database } of open.splice(0)) {
    await orm.close(true);
    await database.drop();
  }
});

async function linesOf({ em }: Pick<MikroORM, 'em'>, filter = {}): Promise<string[]> {
  const lines: string[] = [];
  for await (const record of new SessionMaintenance(em).exportSessions(filter)) lines.push(JSON.stringify(record));
  return lines;
}

const parsed = (lines: readonly string[]) => lines.map((line): unknown => JSON.parse(line));

const importInto = (orm: MikroORM, lines: readonly string[], options = {}): Promise<ImportProgress> =>
  new SessionMaintenance(orm.em).importSessions(parsed(lines), options);

/** Fills a store with everything that a year leaves. */
async function fill({ em }: MikroORM): Promise<void> {
  const service = new MikroOrmSessionService(em);
  const maintenance = new SessionMaintenance(em);
  const odd = 'é😀\'"`\\%_?';
  for (const appName of ['app', 'App', odd]) {
    for (const userId of ['u', 'U ', '__proto__']) {
      const key = { appName, userId, sessionId: `s ${odd}` };
      const session = await service.createSession({
        ...key,
        state: { given: { '2': 1, b: null, a: ['\0', '\ud800', 0.1] }, 'user:u': odd, 'app:x': 1e-7, ['__proto__']: 5 },
      });
      for (let n = 1; n <= 5; n++) {
        const actions = { stateDelta: { n, [`k${n}`]: [n], 'user:last': n, 'app:last': n } };
        const event = createEvent({
          id: `e${n}`,
          invocationId: `i${n}`,
          author: odd,
          timestamp: 1.5e12 + n / 3,
          actions,
        });
        await service.appendEvent({ session, event });
        if (n === 2) await service.updateState({ ...key, set: { outside: odd }, remove: ['k1'] });
      }
      // Another content for an event, which leaves a value that no event tells of.
      await service.appendEvent({ session, event: createEvent({ id: 'e2', timestamp: 1.5e12 }) });
      await service.describeSession(key, { title: odd, labels: { team: odd } });
      await service.forkSession(key, { at: 3, as: 'fork' });
    }
  }
  const app = { appName: 'app', userId: 'u' };
  await maintenance.trim({ ...app, sessionId: `s ${odd}`, keepLast: 2 });
  await service.rewindSession({ ...app, sessionId: 'fork' }, { at: 1 });
  const softly = new MikroOrmSessionService(em, { deletion: 'soft' });
  await softly.deleteSession({ ...app, userId: 'U ', sessionId: 'fork' });
  await service.createSession({ ...app, sessionId: 'empty' });
  const large = await service.createSession({ ...app, sessionId: 'large' });
  const events = Array.from({ length: 450 }, (_, n) =>
    createEvent({ id: `l${n}`, content: { parts: [{ text: 'x'.repeat(n === 7 ? 2_500_000 : n) }] } }),
  );
  await service.appendEvents({ session: large, events });
  await service.updateState({ appName: 'state alone', userId: 'nobody', set: { 'user:a': 1, 'app:b': [odd] } });
}

describe.each(availableDatabases())('from %s', (source) => {
  test('L1 an export is the same file from every database that it was imported into', async () => {
    const from = await emptyStore(source);
    await fill(from);
    const lines = await linesOf(from);
    expect(lines.length).toBeGreaterThan(500);
    for (const target of availableDatabases()) {
      const to = await emptyStore(target);
      const written = await importInto(to, lines, { batchSize: 100 });
      expect(written).toMatchObject({ sessions: 20, records: lines.length });
      expect(await linesOf(to)).toEqual(lines);
      for (const appName of ['app', 'App', 'state alone'])
        expectSame(await Fold.of(new EventLog(to.em), appName), await tablesOf(to, appName));
      // Again: nothing is new, also for the readers of the log.
      const head = await new EventLog(to.em).head({ changes: true });
      expect(await importInto(to, lines)).toMatchObject({ sessions: 0, events: 0 });
      expect(await new EventLog(to.em).head({ changes: true })).toEqual(head);
      expect(await linesOf(to)).toEqual(lines);
      const key = { appName: 'App', userId: 'u', sessionId: 's é😀\'"`\\%_?' };
      const past = (orm: MikroORM) => new MikroOrmSessionService(orm.em).forkSession(key, { at: 3, as: 'past' });
      expect((await past(to)).state).toEqual((await past(from)).state);
      await new MikroOrmSessionService(from.em).deleteSession({ ...key, sessionId: 'past' });
    }
  }, 300_000);
});

test('L1 an import that was interrupted is made whole by the same import', async () => {
  const from = await emptyStore('sqlite');
  await fill(from);
  const lines = await linesOf(from, { appName: 'app', userId: 'u' });
  expect(lines[0]).toContain('"type":"user"');
  for (const count of [1, 2, 5, 120, 300, lines.length - 1]) {
    const to = await emptyStore('sqlite');
    const stop = new AbortController();
    const onProgress = ({ records }: ImportProgress) => {
      if (records === count) stop.abort();
    };
    await importInto(to, lines, { batchSize: 50, signal: stop.signal, onProgress });
    // What is there is whole.
    const service = new MikroOrmSessionService(to.em);
    const { sessions } = await service.listSessions({ appName: 'app' });
    for (const { id } of sessions) {
      const key = { appName: 'app', userId: 'u', sessionId: id };
      const original = await new MikroOrmSessionService(from.em).getSession(key);
      expect((await service.getSession(key))?.events).toEqual(original?.events);
    }
    await importInto(to, lines, { batchSize: 70 });
    expect(await linesOf(to)).toEqual(lines);
  }
}, 120_000);

test('L1 a later import brings what is new, and leaves what has gone on', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const [there, here] = [new MikroOrmSessionService(from.em), new MikroOrmSessionService(to.em)];
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  const session = await there.createSession({ ...key, state: { a: 1 } });
  await there.appendEvent({ session, event: createEvent({ id: 'e1', actions: { stateDelta: { n: 1 } } }) });
  await importInto(to, await linesOf(from));
  const log = new EventLog(to.em);
  const reader = new Fold();
  for await (const entry of log.since(0, { appName: 'app', changes: true })) reader.add(entry);
  const seen = await log.head();
  await there.appendEvent({ session, event: createEvent({ id: 'e2', actions: { stateDelta: { n: 2 } } }) });
  await there.updateState({ ...key, set: { b: 2 }, remove: ['a'] });
  const lines = await linesOf(from);
  expect(await importInto(to, lines)).toMatchObject({ sessions: 0, events: 1 });
  expect(await here.getSession(key)).toMatchObject({
    state: { b: 2, n: 2 },
    events: [{ id: 'e1' }, { id: 'e2' }],
  });
  expectSame(await Fold.of(log, 'app'), await tablesOf(to, 'app'));
  for await (const entry of log.since(seen, { appName: 'app', changes: true })) reader.add(entry);
  expectSame(reader.result, await tablesOf(to, 'app'));

  const gone = (await here.getSession(key))!;
  await here.appendEvent({ session: gone, event: createEvent({ id: 'e3', actions: { stateDelta: { n: 3 } } }) });
  expect(await importInto(to, lines)).toMatchObject({ sessions: 0, events: 0 });
  expect(await here.getSession(key)).toMatchObject({ state: { n: 3 }, events: [{}, {}, { id: 'e3' }] });
});

test('J2 what a session that was rewound does not explain any more is in the log after an import', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const there = new MikroOrmSessionService(from.em);
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  const session = await there.createSession({ ...key, state: { a: 1 } });
  await there.appendEvent({ session, event: createEvent({ id: 'e1' }) });
  const rewound = await there.rewindSession(key, { at: 0 });
  await there.appendEvent({ session: rewound, event: createEvent({ id: 'e1', actions: { stateDelta: { k: 1 } } }) });
  await there.appendEvent({ session: rewound, event: createEvent({ id: 'e1', author: 'corrected' }) });
  await importInto(to, await linesOf(from));
  expectSame(await Fold.of(new EventLog(to.em), 'app'), await tablesOf(to, 'app'));
  expect(await linesOf(to)).toEqual(await linesOf(from));
});

test('L1 a session that is marked as deleted here, and not in the records, is brought back', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  await new MikroOrmSessionService(from.em).createSession({ ...key, state: { a: 1 } });
  const lines = await linesOf(from);
  await importInto(to, lines);
  const here = new MikroOrmSessionService(to.em, { deletion: 'soft' });
  await here.deleteSession(key);
  await importInto(to, lines);
  expect(await here.getSession(key)).toMatchObject({ state: { a: 1 } });
  expect(await linesOf(to)).toEqual(lines);
  expectSame(await Fold.of(new EventLog(to.em), 'app'), await tablesOf(to, 'app'));
});

test('L1 what is no record, or another session, is refused', async () => {
  const [from, to] = [await emptyStore('sqlite'), await emptyStore('sqlite')];
  const [there, here] = [new MikroOrmSessionService(from.em), new MikroOrmSessionService(to.em)];
  const key = { appName: 'app', userId: 'u', sessionId: 's' };
  const session = await there.createSession(key);
  for (const id of ['e1', 'e2']) await there.appendEvent({ session, event: createEvent({ id }) });
  const records = parsed(await linesOf(from)) as TransferRecord[];
  const into = (list: unknown[]) => new SessionMaintenance(to.em).importSessions(list);
  const [first, event, last] = records;
  for (const [list, message] of [
    [[5], /Record 1 must be an object/],
    [[{ type: 'event' }], /Record 1: seq must be/],
    [[{ type: 'other' }], /Record 1 has no type/],
    [[{ ...first, extra: 1 }], /Record 1 may not have 'extra'/],
    [[event], /Record 1 is an event/],
    [[first, { ...event, sessionId: 'other' }], /Record 2 is an event/],
    [[first, last], /lacks the events/],
    [[first, event], /lacks its events after number 1/],
    [[first, { ...event, event: { id: 'e1' } }], /Record 2: event.timestamp/],
  ] as const) {
    await expect(into([...list])).rejects.toThrow(message);
    expect(await here.listSessions({ appName: 'app' })).toMatchObject({ totalItems: 0 });
  }
  await here.createSession(key);
  await expect(into(records)).rejects.toMatchObject({ code: 'ADK_SESSION_EXISTS' });
  expect((await here.getSession(key))?.events).toEqual([]);
});

test('L1 a damaged session is not exported in part', async () => {
  const from = await emptyStore('sqlite');
  const service = new MikroOrmSessionService(from.em);
  const session = await service.createSession({ appName: 'app', userId: 'u', sessionId: 's' });
  for (const id of ['e1', 'e2']) await service.appendEvent({ session, event: createEvent({ id }) });
  await from.em.getConnection().execute('delete from adk_events where seq = 1');
  await expect(linesOf(from)).rejects.toMatchObject({ code: 'ADK_DAMAGED_SESSION' });
});
