import { createEvent, type Event, type Session } from '@google/adk';
import type { DatabaseSessionService } from '@google/adk/sessions/database';
import { MikroORM, type EntityManager } from '@mikro-orm/core';
import { readFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { adkEntities } from '../../../entities/index.js';
import {
  EventLog,
  MikroOrmSessionService,
  SchemaError,
  SessionMaintenance,
  migrate,
  type MaintenanceResult,
} from '../../../src/index.js';
import {
  importFrom as importSessionsFrom,
  type ImportFromOptions,
  type RefusedRow,
} from '../../../packages/import/src/index.js';
import { expectSame, folded, tablesOf } from '../../support/fold.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import {
  availableDatabases,
  createDatabase,
  databasesOf,
  type DatabaseName,
  type TestDatabase,
} from '../../support/servers.js';
import { ADK_JS_ON_SQLITE } from './stores/adk-js.js';
import { goTables, goTime } from './stores/adk-go.js';
import { PYTHON_EVENT, SAME_IN_JS, pythonTables } from './stores/adk-python.js';
import { PYTHON_SQLITE_TABLES } from './stores/adk-python-sqlite.js';

const closing: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function newDatabase(name: DatabaseName): Promise<TestDatabase> {
  const database = await createDatabase(name);
  closing.push(() => database.drop());
  return database;
}

async function emptyStore(name: DatabaseName = 'sqlite'): Promise<MikroORM> {
  const { options } = await newDatabase(name);
  const orm = await MikroORM.init({ ...options, entities: adkEntities() });
  closing.push(() => orm.close(true));
  await migrate(orm);
  return orm;
}

/** A host's ORM without entities for the tables. */
async function ormOn({ options }: TestDatabase): Promise<MikroORM> {
  const orm = await MikroORM.init({ ...options, entities: [], discovery: { warnWhenNoEntities: false } });
  closing.push(() => orm.close(true));
  return orm;
}

const execute = (em: EntityManager, sql: string, values: unknown[] = []) =>
  em.getConnection().execute(sql, values) as Promise<Record<string, unknown>[]>;

async function importFrom(source: MikroORM, target: MikroORM, options: Omit<ImportFromOptions, 'from' | 'to'> = {}) {
  const rows: RefusedRow[] = [];
  const onRefused = (row: RefusedRow) => rows.push(row);
  const result = await importSessionsFrom({ from: source.em, to: target.em, onRefused, ...options });
  expect(result.done.refused).toBe(rows.length);
  return { ...result, rows };
}

/** The whole content of a store's tables. */
async function contentOf({ em }: MikroORM): Promise<unknown> {
  const content: Record<string, unknown> = {};
  for (const table of ['sessions', 'events', 'app_states', 'user_states'])
    content[table] = (await execute(em, `select * from ${table}`)).map((row) => JSON.stringify(row)).sort();
  return content;
}

const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

function expectSameSession(ours: Session | undefined, theirs: Session | undefined): void {
  // Not with jest's comparison, which overlooks `__proto__`.
  const parts = ({ id, state, events, lastUpdateTime }: Session) => plain({ id, state, events, lastUpdateTime });
  if (!ours || !theirs || !isDeepStrictEqual(parts(ours), parts(theirs))) expect(ours).toEqual(theirs);
}

/** Which event wrote each value of the state. */
async function writersOf({ em }: MikroORM): Promise<Record<string, unknown>> {
  const writers: Record<string, unknown> = {};
  for (const scope of ['session', 'user', 'app'])
    for (const row of await execute(em, `select state_key, event_id from adk_${scope}_states`))
      writers[`${scope} ${row['state_key'] as string}`] = row['event_id'];
  return writers;
}

// ADK's store needs MikroORM 6.
(isMikroOrm7 ? describe.skip : describe)('a store of @google/adk', () => {
  async function adkStore(name: DatabaseName) {
    const database = await newDatabase(name);
    const { DatabaseSessionService } = await import('@google/adk/sessions/database');
    const service = new DatabaseSessionService(database.options);
    await service.init();
    closing.push(async () => (service as unknown as { orm: MikroORM }).orm.close(true));
    return { database, service, source: await ormOn(database) };
  }

  const key = { appName: 'app', userId: 'u', sessionId: 's' };

  async function append(service: DatabaseSessionService, place: typeof key, ...events: Partial<Event>[]) {
    for (const event of events) {
      const session = (await service.getSession(place))!;
      await service.appendEvent({ session, event: createEvent(event) });
    }
  }

  const odd = 'é😀\'"`\\%_?';

  /** Names of the user's, and names of ADK's. */
  const full = (id: string, timestamp: number): Partial<Event> => ({
    id,
    timestamp,
    invocationId: `i ${odd}`,
    author: odd,
    branch: 'a.b',
    longRunningToolIds: ['c1'],
    customMetadata: { my_key: { its_key: 1 }, myKey: 2 },
    content: {
      role: 'model',
      parts: [
        { text: odd, thought: true, thoughtSignature: '+/8=' },
        { functionCall: { id: 'c1', name: 'find_it', args: { my_arg: { in_ner: [1, null] }, myArg: 1 } } },
        { inlineData: { mimeType: 'image/png', data: '+/8=' } },
      ],
    },
    usageMetadata: { promptTokenCount: 5 },
    groundingMetadata: { webSearchQueries: ['a_b'] },
    actions: {
      stateDelta: { snake_key: { in_ner: 1 }, camelKey: timestamp, 'user:last': timestamp, 'app:last_app': id },
      artifactDelta: { 'my_file.txt': 1 },
      requestedAuthConfigs: {},
      requestedToolConfirmations: { c_1: { hint: 'a_b', confirmed: false, payload: { my_key: 1 } } },
      agentState: { node_state: { a_b: 1 } },
    },
  });

  async function fill(service: DatabaseSessionService): Promise<void> {
    for (const appName of ['app', odd])
      for (const userId of ['u', 'v'])
        for (const sessionId of ['s', `t ${odd}`]) {
          const place = { appName, userId, sessionId: `${sessionId} of ${userId} ${appName}` };
          await service.createSession({
            ...place,
            state: { given: { a_b: [null, 0.1] }, ['__proto__']: 1, 'user:given_u': odd, 'app:given_a': 1e-7 },
          });
          for (let n = 1; n <= 3; n++) await append(service, place, full(`e${n}`, 1.6e12 + n * 1_000 + 0.25));
        }
    await service.createSession({ appName: 'app', userId: 'no events', sessionId: 'empty' });
    await service.createSession({
      appName: 'gone',
      userId: 'gone',
      sessionId: 'x',
      state: { 'user:a': 1, 'app:b': 2 },
    });
    await service.deleteSession({ appName: 'gone', userId: 'gone', sessionId: 'x' });
  }

  describe.each(availableDatabases())('on %s', (name) => {
    test('L2 its sessions are what its own getSession gives, and it stays as it is', async () => {
      const { service, source } = await adkStore(name);
      await fill(service);
      const before = await contentOf(source);
      const target = await emptyStore(name);
      const ours = new MikroOrmSessionService(target.em);

      const dry = await importFrom(source, target, { dryRun: true, batchSize: 2 });
      expect(dry).toMatchObject({ done: { sessions: 9, events: 24, refused: 0 } });
      expect((await ours.listSessions({ appName: 'app' })).sessions).toEqual([]);

      const written = await importFrom(source, target, { batchSize: 2 });
      expect(written).toEqual(dry);
      for (const appName of ['app', odd]) {
        const { sessions } = await service.listSessions({ appName });
        for (const { userId, id } of sessions) {
          const place = { appName, userId, sessionId: id };
          expectSameSession(await ours.getSession(place), await service.getSession(place));
        }
        expect((await ours.listSessions({ appName })).sessions).toHaveLength(sessions.length);
        expectSame(await folded(new EventLog(target.em), appName), await tablesOf(target, appName));
      }
      expect(await ours.getUserState({ appName: 'gone', userId: 'gone' })).toEqual({ 'user:a': 1 });
      expect(await ours.getAppState({ appName: 'gone' })).toEqual({ 'app:b': 2 });
      expect(await execute(target.em, "select create_time from adk_sessions where session_id = 'empty'")).toEqual([
        {
          create_time: (await ours.getSession({ appName: 'app', userId: 'no events', sessionId: 'empty' }))!
            .lastUpdateTime,
        },
      ]);

      expect(await importFrom(source, target)).toMatchObject({ done: { sessions: 0, events: 0, refused: 0 } });
      expect(await contentOf(source)).toEqual(before);
    }, 60_000);

    test('L2 with replace a second run brings what has changed there, and keeps what was written to here', async () => {
      const { service, source } = await adkStore(name);
      const target = await emptyStore();
      const ours = new MikroOrmSessionService(target.em);
      for (const sessionId of ['s', 't', 'deleted']) {
        await service.createSession({ ...key, sessionId });
        await append(service, { ...key, sessionId }, full('e1', 1.6e12), full('e3', 1.6e12 + 3_000));
      }
      await importFrom(source, target);
      await ours.describeSession(key, { title: 'Refund' });
      const deleted = { ...key, sessionId: 'deleted' };
      await new MikroOrmSessionService(target.em, { deletion: 'soft' }).deleteSession(deleted);
      await append(service, key, full('e4', 1.6e12 + 4_000));
      await append(service, { ...key, sessionId: 't' }, full('e2', 1.6e12 + 2_000));

      expect(await importFrom(source, target)).toMatchObject({ done: { sessions: 0, events: 0 }, skipped: 3 });
      const changed = { done: { sessions: 2, events: 6, refused: 0 }, skipped: 1, rows: [] };
      for (const dryRun of [true, false])
        expect(await importFrom(source, target, { dryRun, onExisting: 'replace' })).toMatchObject(changed);
      expectSameSession(await ours.getSession(key), await service.getSession(key));
      expect(await ours.getSession(deleted)).toBeUndefined();
      expect((await ours.findSessions({ appName: 'app', userId: 'u', title: 'Refund' })).sessions).toMatchObject([
        { title: 'Refund' },
      ]);
      expect((await ours.getSession({ ...key, sessionId: 't' }))!.events.map(({ id }) => id)).toEqual([
        ...['e1', 'e2', 'e3'],
      ]);
      const head = await new EventLog(target.em).complete().head();
      expect(await importFrom(source, target, { onExisting: 'replace' })).toMatchObject({
        done: { events: 0 },
        skipped: 3,
      });
      expect(await new EventLog(target.em).complete().head()).toEqual(head);
      await ours.appendEvent({ session: (await ours.getSession(key))!, event: createEvent({ id: 'ours' }) });
      await append(service, key, full('e5', 1.6e12 + 5_000));
      expect(await importFrom(source, target, { onExisting: 'replace' })).toMatchObject({
        done: { events: 0 },
        skipped: 3,
      });
      const forced = await importFrom(source, target, { onExisting: 'replace', force: true });
      expect(forced).toMatchObject({ done: { sessions: 1, events: 4 }, skipped: 2 });
      expectSameSession(await ours.getSession(key), await service.getSession(key));
    }, 60_000);

    test('L2 of events of the same time a response comes after its call', async () => {
      const { service, source } = await adkStore(name);
      const target = await emptyStore();
      await service.createSession(key);
      const part = (id: string, ...parts: object[]): Partial<Event> => ({ id, timestamp: 1.6e12, content: { parts } });
      await append(
        service,
        key,
        part('b', { functionResponse: { id: 'c1', response: {} } }),
        part('c', { functionCall: { id: 'c1', args: {} } }),
        part('a', { functionResponse: { id: 'c2', response: {} } }),
        part('d', { functionCall: { id: 'c2', args: {} } }),
        { id: 'z', timestamp: 1.6e12 - 0.5 },
      );
      await importFrom(source, target);
      const { events } = (await new MikroOrmSessionService(target.em).getSession(key))!;
      const ids = events.map(({ id }) => id);
      expect(ids).toEqual(
        DATABASES[name].otherStores.keepOrderOfRows ? ['z', 'c', 'b', 'd', 'a'] : ['z', 'd', 'a', 'c', 'b'],
      );
    });

    test('L2 rows that cannot be read are reported one by one, and the rest is taken', async () => {
      const { service, source } = await adkStore(name);
      const target = await emptyStore();
      await service.createSession({ ...key, state: { kept: 1 } });
      for (let n = 1; n <= 6; n++) await append(service, key, full(`e${n}`, 1.6e12 + n));
      await service.createSession({ ...key, userId: 'v', sessionId: 'x'.repeat(191) });
      await service.createSession({ ...key, userId: 'a'.repeat(129), sessionId: 'long app', appName: 'a'.repeat(129) });
      await service.createSession({ ...key, userId: 'w', sessionId: 'list' });
      const set = (column: string, table: string, id: string, json: string) =>
        execute(source.em, `update ${table} set ${column} = ? where id = ?`, [json, id]);
      await set('event_data', 'events', 'e1', '[1]');
      await set('event_data', 'events', 'e3', '{"id":"e3","timestamp":"yesterday"}');
      await set('event_data', 'events', 'e4', '{"id":"another","timestamp":1600000000000}');
      await set('state', 'sessions', 'list', '[1]');

      const { rows, ...result } = await importFrom(source, target);
      expect(result).toMatchObject({ done: { sessions: 3, events: 3, refused: 5 } });
      expect(rows).toEqual(
        expect.arrayContaining([
          { ...key, eventId: 'e1', reason: 'event_data is not the JSON of an object' },
          { ...key, eventId: 'e3', reason: 'a time is missing or cannot be read' },
          { ...key, eventId: 'e4', reason: 'event_data has another id than the row' },
          { ...key, userId: 'w', sessionId: 'list', reason: 'state is not the JSON of an object' },
          expect.objectContaining({ sessionId: 'long app', reason: expect.stringContaining('longer than 128') }),
        ]),
      );
      const session = (await new MikroOrmSessionService(target.em).getSession(key))!;
      expect(session.events.map(({ id }) => id)).toEqual(['e2', 'e5', 'e6']);
      expect(session.state).toMatchObject({ kept: 1, camelKey: 1.6e12 + 6 });
    }, 60_000);
  });

  test('L2 what is nested too deeply is reported, and the rest is taken', async () => {
    const { service, source } = await adkStore('sqlite');
    const target = await emptyStore();
    const event = (n: number, more = '') => `{"id":"e${n}","timestamp":${1.6e12 + n},"output":1${more}}`;
    const deep = '{"my_v":'.repeat(5_000) + '1' + '}'.repeat(5_000);
    await service.createSession(key);
    // Deep inside of converted values, and of the user's own.
    const events = [event(1), event(2, `,"custom":${deep}`), event(3, `,"custom_metadata":${deep}`), event(4)];
    for (const [i, json] of events.entries())
      await execute(source.em, 'insert into events values (?, ?, ?, ?, ?, ?, ?)', [
        ...[`e${i + 1}`, 'app', 'u', 's', 'i', i, json],
      ]);
    await execute(source.em, `update sessions set state = '{"deep":${deep},"kept":1}' where id = 's'`);
    await execute(source.em, `update user_states set state = '{"deep":${deep},"kept":2}'`);
    const { rows, ...result } = await importFrom(source, target);
    expect(result).toMatchObject({ done: { sessions: 1, events: 2, refused: 4 } });
    const reason = expect.stringMatching(/nested too deeply/);
    expect(rows).toEqual(
      expect.arrayContaining([
        { ...key, eventId: 'e2', reason },
        { ...key, eventId: 'e3', reason },
        { ...key, reason },
        { appName: 'app', userId: 'u', reason },
      ]),
    );
    const session = (await new MikroOrmSessionService(target.em).getSession(key))!;
    expect(session.events.map(({ id }) => id)).toEqual(['e1', 'e4']);
    expect(session.state).toEqual({ kept: 1, 'user:kept': 2 });
  });

  test('L2 any number of responses and calls of the same time are in order', async () => {
    const { service, source } = await adkStore('sqlite');
    const target = await emptyStore();
    await service.createSession(key);
    // Each answers the call of the next one, so their order is the reverse of their ids.
    const ids = Array.from({ length: 6_000 }, (_, n) => `e${String(n).padStart(4, '0')}`);
    const json = (n: number) =>
      JSON.stringify({
        id: ids[n],
        timestamp: 1.6e12,
        content: { parts: [{ function_call: { id: `c${n}` } }, { function_response: { id: `c${n + 1}` } }] },
      });
    for (let from = 0; from < ids.length; from += 3_000) {
      const rows = ids.slice(from, from + 3_000).map((id, i) => [id, 'app', 'u', 's', 'i', from + i, json(from + i)]);
      const places = rows.map(() => '(?, ?, ?, ?, ?, ?, ?)').join();
      await execute(source.em, `insert into events values ${places}`, rows.flat());
    }
    expect(await importFrom(source, target)).toMatchObject({ done: { events: ids.length, refused: 0 } });
    const session = (await new MikroOrmSessionService(target.em).getSession(key))!;
    expect(session.events.map(({ id }) => id)).toEqual(ids.toReversed());
  });

  test('L2 a value of the state belongs to the last event that wrote it', async () => {
    const { service, source } = await adkStore('sqlite');
    const target = await emptyStore();
    await service.createSession({ ...key, state: { given: 1, 'app:given': 1 } });
    const delta = (id: string, timestamp: number, stateDelta: Record<string, unknown>): Partial<Event> => ({
      id,
      timestamp,
      actions: { stateDelta } as Event['actions'],
    });
    await append(
      service,
      key,
      delta('e1', 1.6e12 + 1, { a: { x: 1, y: 2 }, b: 1, 'user:u': 1, 'app:x': 1 }),
      delta('e2', 1.6e12 + 2, { b: 2, 'app:x': 2 }),
    );
    await service.createSession({ ...key, userId: 'v', sessionId: 'later' });
    await append(service, { ...key, userId: 'v', sessionId: 'later' }, delta('e3', 1.6e12 + 3, { 'app:x': 3 }));
    await execute(
      source.em,
      `update sessions set state = '{"a":{"y":2,"x":1},"b":2,"given":1,"by_hand":1}' where id = 's'`,
    );
    await importFrom(source, target);
    expect(await writersOf(target)).toEqual({
      'session a': 'e1',
      'session b': 'e2',
      'session given': null,
      'session by_hand': null,
      'user u': 'e1',
      'app x': 'e3',
      'app given': null,
    });
  });

  test('L2 more sessions and events than one page', async () => {
    const { service, source } = await adkStore('sqlite');
    const target = await emptyStore();
    await service.createSession(key);
    const event = (n: number) =>
      JSON.stringify({ id: `e${n}`, timestamp: 1.6e12 + n, actions: { state_delta: { n } } });
    for (let n = 0; n < 450; n++)
      await execute(source.em, 'insert into events values (?, ?, ?, ?, ?, ?, ?)', [
        `e${n}`,
        'app',
        'u',
        's',
        'i',
        n,
        event(n),
      ]);
    // The last page is full, too.
    for (let n = 0; n < 199; n++)
      await execute(source.em, `insert into sessions values (?, 'app', ?, '{}', 5, 6)`, [`s${n}`, `u${n}`]);
    for (let n = 0; n < 230; n++)
      await execute(source.em, `insert into user_states values ('app', ?, '{"n":${n}}', 6)`, [`alone ${n}`]);
    const dry = await importFrom(source, target, { dryRun: true, batchSize: 70 });
    const done = await importFrom(source, target, { batchSize: 70 });
    expect(done).toEqual(dry);
    expect(done).toMatchObject({ done: { sessions: 200, events: 450, refused: 0 } });
    const { events } = (await new MikroOrmSessionService(target.em).getSession(key))!;
    expect(events.map(({ id }) => id)).toEqual(Array.from({ length: 450 }, (_, n) => `e${n}`));
    expect(await execute(target.em, 'select count(*) as n from adk_user_states')).toEqual([{ n: 230 }]);
  });

  test('L2 the file is the same after it was read', async () => {
    const { service, source, database } = await adkStore('sqlite');
    await fill(service);
    const file = database.options.dbName!;
    const before = await readFile(file);
    await importFrom(source, await emptyStore());
    expect((await readFile(file)).equals(before)).toBe(true);
    expect(await execute(source.em, 'pragma journal_mode')).toEqual([{ journal_mode: 'delete' }]);
  });

  test('L2 from a store in the same database, and what ends a run', async () => {
    const { service, database } = await adkStore('sqlite');
    await fill(service);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    closing.push(() => orm.close(true));
    await migrate(orm);
    const stop = new AbortController();
    const onProgress = ({ done }: MaintenanceResult) => done['records'] === 4 && stop.abort();
    expect(await importFrom(orm, orm, { signal: stop.signal, onProgress })).toMatchObject({ done: { records: 4 } });
    expect(await importFrom(orm, orm)).toMatchObject({ done: { refused: 0 } });
    const total = (await new SessionMaintenance(orm.em).stats()) as { sessions: number };
    expect(total.sessions).toBe(9);
  });
});

/** A database that the statements have filled. */
async function storeOf(name: DatabaseName, statements: readonly string[]): Promise<MikroORM> {
  const source = await ormOn(await newDatabase(name));
  for (const statement of statements) await execute(source.em, statement);
  return source;
}

test('L2 a store of @google/adk, on MikroORM 7 as well', async () => {
  const [source, target] = [await storeOf('sqlite', ADK_JS_ON_SQLITE), await emptyStore()];
  expect(await importFrom(source, target)).toMatchObject({ done: { sessions: 1, events: 1, refused: 0 } });
  const ours = new MikroOrmSessionService(target.em);
  expect(await ours.getSession({ appName: 'shop', userId: 'ada', sessionId: 'old' })).toMatchObject({
    state: { step: 1, 'user:lang': 'pt' },
    events: [{ id: 'e1', invocationId: 'i1', timestamp: 1600000001000.5, actions: { stateDelta: { step: 1 } } }],
    lastUpdateTime: 1600000001000,
  });
});

test('L2 integers that JavaScript would change in a store of @google/adk are reported with their paths', async () => {
  const [source, target] = [await storeOf('sqlite', ADK_JS_ON_SQLITE), await emptyStore()];
  // A column of type json has numbers for SQLite: it would give the driver a number.
  await execute(source.em, `update app_states set state = '${LONG}'`);
  await execute(source.em, `update sessions set state = '${longId('mine')}'`);
  await execute(source.em, `update events set event_data = replace(event_data, '"step":1', '"step":${LONG}')`);
  const { rows } = await importFrom(source, target);
  const owner = { appName: 'shop', userId: 'ada', sessionId: 'old' };
  expect(rows).toHaveLength(3);
  expect(rows).toEqual(
    expect.arrayContaining([
      { appName: 'shop', reason: 'state is not the JSON of an object' },
      { ...owner, reason: refusedBigint('state.mine[1]') },
      { ...owner, eventId: 'e1', reason: refusedBigint('event.actions.stateDelta.step') },
    ]),
  );
});

test('L2 a store of a schema_version that is not known is refused', async () => {
  const [source, target] = [await storeOf('sqlite', ADK_JS_ON_SQLITE), await emptyStore()];
  for (const version of ['2', '1.1', '']) {
    await execute(source.em, "update adk_internal_metadata set value = ? where key = 'schema_version'", [version]);
    await expect(importFrom(source, target)).rejects.toMatchObject({
      code: 'ADK_SCHEMA',
      message: expect.stringContaining(`schema_version is ${version};`),
    });
  }
  const go = await storeOf('sqlite', [
    ...goTables('sqlite'),
    'create table adk_internal_metadata (key text, value integer)',
    "insert into adk_internal_metadata values ('schema_version', 2)",
  ]);
  await expect(importFrom(go, target)).rejects.toMatchObject({
    message: expect.stringContaining('schema_version is 2;'),
  });
  expect(await new SessionMaintenance(target.em).stats()).toMatchObject({ sessions: 0 });
});

const app = { appName: 'app', userId: 'u' };

/** JSON of Python or Go, whose integers are longer than those of JavaScript. */
const LONG = '1187654321098765433';
const longId = (name: string) => `{"kept": 1, "${name}": [0, ${LONG}]}`;
const LONG_CALL = (args: string) => `{"parts": [{"${args}": {"id": "c1", "name": "f", "args": {"${LONG}": ${LONG}}}}]}`;
const refusedBigint = (path: string) => expect.stringContaining(`${path} is a bigint, which JSON cannot carry`);
const REFUSED_STATE = [
  { appName: 'app', reason: refusedBigint('state.ofApp[1]') },
  { ...app, reason: refusedBigint('state.ofUser[1]') },
  { ...app, sessionId: 's', reason: refusedBigint('state.mine[1]') },
];
const REFUSED_EVENTS = [
  {
    ...app,
    sessionId: 's',
    eventId: 'call',
    reason: refusedBigint(`event.content.parts[0].functionCall.args.${LONG}`),
  },
  { ...app, sessionId: 's', eventId: 'delta', reason: refusedBigint('event.actions.stateDelta.mine[1]') },
];

/** Expects the values that remain if long integers are refused. */
async function expectKept({ em }: MikroORM): Promise<void> {
  const { state } = (await new MikroOrmSessionService(em).getSession({ ...app, sessionId: 's' }))!;
  expect(state).toEqual({ kept: 1, 'user:kept': 1, 'app:kept': 1 });
}

/** The ids of a session's events, in order. */
const idsIn = async ({ em }: MikroORM, sessionId: string) =>
  (await new MikroOrmSessionService(em).getSession({ ...app, sessionId }))!.events.map(({ id }) => id);

describe.each(availableDatabases())('a store of adk-python on %s', (name) => {
  /** @param created in UTC, without a zone. */
  const addSession = (em: EntityManager, id: string, state: object, created = '2020-09-13 12:26:40.123456') =>
    execute(em, 'insert into sessions values (?, ?, ?, ?, ?, ?)', [
      'app',
      'u',
      id,
      JSON.stringify(state),
      created,
      created,
    ]);
  /** @param event its JSON; null if the column is. */
  const addEvent = (em: EntityManager, sessionId: string, id: string, event: object | null) =>
    // The naive time of a host in another zone.
    execute(em, 'insert into events values (?, ?, ?, ?, ?, ?, ?)', [
      ...[id, 'app', 'u', sessionId, 'i1', '2020-09-13 05:26:41.123456'],
      event && JSON.stringify(event),
    ]);

  test('L2 its sessions have the shape and the times of ADK JS, and a second run with replace brings what is new', async () => {
    const [source, target] = [await storeOf(name, pythonTables(name)), await emptyStore()];
    await addSession(source.em, 's', { my_key: { in_ner: 1 }, by_hand: [null, 1] });
    await addSession(source.em, 'empty', {});
    await execute(source.em, `insert into app_states values ('app', '{"my_version": 3}', '2020-09-13 12:26:40')`);
    await execute(source.em, `insert into user_states values ('app', 'u', '{"my_lang": "pt"}', '2020-09-13 12:26:40')`);
    await addEvent(source.em, 's', 'e1', PYTHON_EVENT);
    const before = await contentOf(source);
    const dry = await importFrom(source, target, { dryRun: true });
    expect(dry).toMatchObject({ done: { sessions: 2, events: 1, refused: 0 } });
    expect(await importFrom(source, target)).toEqual(dry);
    const ours = new MikroOrmSessionService(target.em);
    const session = (await ours.getSession({ ...app, sessionId: 's' }))!;
    expect(plain(session.events)).toEqual([SAME_IN_JS]);
    expect(session).toMatchObject({
      state: { my_key: { in_ner: 1 }, by_hand: [null, 1], 'app:my_version': 3, 'user:my_lang': 'pt' },
      lastUpdateTime: 1600000001123.456,
    });
    expect((await ours.getSession({ ...app, sessionId: 'empty' }))!.lastUpdateTime).toBe(
      DATABASES[name].otherStores.pythonTime,
    );
    expect(await writersOf(target)).toEqual({
      'session my_key': 'e1',
      'session by_hand': null,
      'user my_lang': 'e1',
      'app my_version': 'e1',
    });
    expect(await contentOf(source)).toEqual(before);

    await addEvent(source.em, 's', 'e2', { ...PYTHON_EVENT, timestamp: 1600000002 });
    const again = await importFrom(source, target, { onExisting: 'replace' });
    expect(again).toMatchObject({ done: { sessions: 1, events: 2, refused: 0 }, skipped: 1 });
    expect(await idsIn(target, 's')).toEqual(['e1', 'e2']);
  });

  test('L2 what a rewind has annulled is left out and counted, unless it is wanted', async () => {
    const [source, target, whole] = [await storeOf(name, pythonTables(name)), await emptyStore(), await emptyStore()];
    await addSession(source.em, 's', { n: 1 });
    const add = (id: string, timestamp: number, actions: object) =>
      addEvent(source.em, 's', id, { ...PYTHON_EVENT, timestamp, actions });
    await add('e1', 1600000001, { state_delta: { n: 1 } });
    // All these rows have the invocation i1.
    await add('r1', 1600000002, { state_delta: { n: 1 }, rewind_before_invocation_id: 'i1' });
    await add('e2', 1600000003, { state_delta: { n: 1 } });
    await add('r2', 1600000004, { rewind_before_invocation_id: 'not there' });
    expect(await importFrom(source, target)).toMatchObject({ done: { events: 1, annulled: 3, refused: 0 } });
    expect(await idsIn(target, 's')).toEqual(['e2']);
    expect(await importFrom(source, target)).toMatchObject({ done: { events: 0, annulled: 3, refused: 0 } });
    expect(await importFrom(source, whole, { keepAnnulled: true })).toMatchObject({ done: { events: 4, annulled: 0 } });
    expect(await idsIn(whole, 's')).toEqual(['e1', 'r1', 'e2', 'r2']);
  });

  test('L2 by the times of their JSON, its events are in order, and events of ADK JS among them', async () => {
    const [source, target] = [await storeOf(name, pythonTables(name)), await emptyStore()];
    await addSession(source.em, 's', {});
    const at = (timestamp: number, part: object = { text: 'a' }) => ({ timestamp, content: { parts: [part] } });
    await addEvent(source.em, 's', 'd', at(1600000003));
    await addEvent(source.em, 's', 'a', at(1600000002, { function_response: { id: 'c', response: {} } }));
    await addEvent(source.em, 's', 'b', at(1600000002, { function_call: { id: 'c', args: {} } }));
    await addEvent(source.em, 's', 'c', { ...at(1600000001000), id: 'c' });
    expect(await importFrom(source, target)).toMatchObject({ done: { events: 4, refused: 0 } });
    expect(await idsIn(target, 's')).toEqual(['c', 'b', 'a', 'd']);
  });

  test('L2 its rows that cannot be read are reported one by one', async () => {
    const [source, target] = [await storeOf(name, pythonTables(name)), await emptyStore()];
    await addSession(source.em, 's', {});
    await addEvent(source.em, 's', 'none', null);
    await addEvent(source.em, 's', 'list', []);
    await addEvent(source.em, 's', 'timeless', { author: 'a' });
    await addEvent(source.em, 's', 'fine', PYTHON_EVENT);
    const { rows, ...result } = await importFrom(source, target);
    expect(result).toMatchObject({ done: { sessions: 1, events: 1, refused: 3 } });
    const of = (eventId: string, reason: string) => ({ ...app, sessionId: 's', eventId, reason });
    expect(rows).toEqual([
      of('list', 'event_data is not the JSON of an object'),
      of('none', 'event_data is empty'),
      of('timeless', 'a time is missing or cannot be read'),
    ]);
    expect(await idsIn(target, 's')).toEqual(['fine']);
  });

  test('L2 integers that JavaScript would change are reported with their paths', async () => {
    const [source, target] = [await storeOf(name, pythonTables(name)), await emptyStore()];
    const times = Array.from({ length: 2 }, () => '2020-09-13 12:26:40');
    await execute(source.em, 'insert into sessions values (?, ?, ?, ?, ?, ?)', [
      'app',
      'u',
      's',
      longId('mine'),
      ...times,
    ]);
    await execute(source.em, 'insert into app_states values (?, ?, ?)', ['app', longId('ofApp'), times[0]]);
    await execute(source.em, 'insert into user_states values (?, ?, ?, ?)', ['app', 'u', longId('ofUser'), times[0]]);
    for (const [id, json] of [
      ['call', `{"timestamp": 1600000001.5, "content": ${LONG_CALL('function_call')}}`],
      ['delta', `{"timestamp": 1600000002.5, "actions": {"state_delta": ${longId('mine')}}}`],
      // A number holds it exactly, and so does the text of an export.
      ['fine', `{"timestamp": 1600000003.5, "custom_metadata": {"a": 100000000000000000000, "b": "${LONG}"}}`],
    ])
      await execute(source.em, 'insert into events values (?, ?, ?, ?, ?, ?, ?)', [
        id,
        'app',
        'u',
        's',
        'i1',
        times[0],
        json,
      ]);
    for (const dryRun of [true, false]) {
      const { rows } = await importFrom(source, target, { dryRun });
      expect(rows).toHaveLength(5);
      expect(rows).toEqual(expect.arrayContaining([...REFUSED_STATE, ...REFUSED_EVENTS]));
    }
    await expectKept(target);
    const [{ data } = {}] = await execute(target.em, 'select data from adk_events');
    expect(data).toContain(`"customMetadata":{"a":100000000000000000000,"b":"${LONG}"}`);
  });

  if (name === 'postgresql')
    test('L2 in another schema, by the search path', async () => {
      const database = await newDatabase(name);
      const [owner, target] = [await ormOn(database), await emptyStore()];
      await execute(owner.em, 'create schema agents');
      for (const sql of pythonTables(name)) await execute(owner.em, sql);
      await addSession(owner.em, 's', {});
      await addEvent(owner.em, 's', 'e1', PYTHON_EVENT);
      for (const table of ['sessions', 'events', 'app_states', 'user_states', 'adk_internal_metadata'])
        await execute(owner.em, `alter table ${table} set schema agents`);
      await expect(importFrom(owner, target)).rejects.toThrow(SchemaError);

      await execute(
        owner.em,
        "do $$ begin execute format('alter database %I set search_path = agents', current_database()); end $$",
      );
      const source = await ormOn(database);
      await importFrom(source, target);
      expect(await idsIn(target, 's')).toEqual(['e1']);
    });

  if (name === 'postgresql')
    test('L2 its columns of times that were given a zone', async () => {
      const [source, target] = [await storeOf(name, pythonTables(name)), await emptyStore()];
      await addSession(source.em, 's', {});
      // sessions/migration/migrate_postgresql_timestamptz.py at 75a75f1f9843e39a8ccd0aba5fcef4545587a754.
      for (const column of ['create_time', 'update_time'])
        await execute(
          source.em,
          `alter table sessions alter ${column} type timestamptz using ${column} at time zone 'UTC'`,
        );
      await importFrom(source, target);
      const session = await new MikroOrmSessionService(target.em).getSession({ ...app, sessionId: 's' });
      expect(session!.lastUpdateTime).toBe(1600000000123.456);
    });

  if (DATABASES[name].dialect === 'sqlite')
    test('L2 NaN, which Python writes as JSON, is reported', async () => {
      const [source, target] = [await storeOf(name, pythonTables(name)), await emptyStore()];
      await addSession(source.em, 's', {});
      await addEvent(source.em, 's', 'e1', PYTHON_EVENT);
      await execute(source.em, `update sessions set state = '{"a": NaN}'`);
      const { rows } = await importFrom(source, target);
      expect(rows).toEqual([{ ...app, sessionId: 's', reason: 'state is not the JSON of an object' }]);
      expect(await idsIn(target, 's')).toEqual(['e1']);
    });
});

for (const name of databasesOf('sqlite'))
  describe(`SqliteSessionService on ${name}`, () => {
    test('L2 its sessions, and events of the same time as they were inserted', async () => {
      const [source, target] = [await storeOf(name, PYTHON_SQLITE_TABLES), await emptyStore()];
      const sessions = 'insert into sessions values (?, ?, ?, ?, ?, ?)';
      await execute(source.em, sessions, [
        'app',
        'u',
        's',
        '{"my_key":{"in_ner":1}}',
        1600000000.123456,
        1600000001.123456,
      ]);
      await execute(source.em, sessions, ['app', 'u', 'no state', '', 1600000000.5, 1600000000.5]);
      await execute(source.em, 'insert into user_states values (?, ?, ?, ?)', [
        'app',
        'u',
        '{"my_lang":"pt"}',
        1600000000,
      ]);
      await execute(source.em, 'insert into user_states values (?, ?, ?, ?)', [
        'app',
        'alone',
        '{"a":null}',
        1600000000,
      ]);
      const add = (id: string, timestamp: number, event: object) =>
        execute(source.em, 'insert into events values (?, ?, ?, ?, ?, ?, ?)', [
          ...[id, 'app', 'u', 's', 'i1', timestamp],
          JSON.stringify(event),
        ]);
      const { timestamp } = PYTHON_EVENT;
      await add('z', timestamp, { timestamp });
      await add('e1', timestamp, PYTHON_EVENT);
      await add('a', timestamp, { timestamp });
      await add('0', timestamp - 1, { timestamp: timestamp - 1 });
      const before = await contentOf(source);

      const { rows, ...result } = await importFrom(source, target);
      expect(result).toMatchObject({ done: { sessions: 2, events: 4, refused: 1 } });
      expect(rows).toEqual([{ ...app, sessionId: 'no state', reason: 'state is not the JSON of an object' }]);
      expect(await idsIn(target, 's')).toEqual(['0', 'z', 'e1', 'a']);
      const ours = new MikroOrmSessionService(target.em);
      const session = (await ours.getSession({ ...app, sessionId: 's' }))!;
      expect(plain(session.events[2])).toEqual(SAME_IN_JS);
      expect(session).toMatchObject({
        state: { my_key: { in_ner: 1 }, 'user:my_lang': 'pt' },
        lastUpdateTime: 1600000001123.456,
      });
      expect(await ours.getUserState({ appName: 'app', userId: 'alone' })).toEqual({ 'user:a': null });
      expect(await execute(target.em, 'select create_time from adk_sessions order by session_id')).toEqual([
        { create_time: 1600000000500 },
        { create_time: 1600000000123.456 },
      ]);
      expect(await importFrom(source, target)).toMatchObject({ done: { sessions: 0, events: 0 } });
      expect(await contentOf(source)).toEqual(before);
    });
  });

describe.each(availableDatabases())('a store of adk-go on %s', (name) => {
  const add = (em: EntityManager, table: string, row: Record<string, unknown>) =>
    execute(
      em,
      `insert into ${table} (${Object.keys(row).join(', ')}) values (${Object.keys(row)
        .map(() => '?')
        .join(', ')})`,
      Object.values(row),
    );
  const addSession = (em: EntityManager, id = 's', state: string | null = '{"my_key":{"in_ner":1}}') =>
    add(em, 'sessions', {
      ...{ app_name: 'app', user_id: 'u', id, state },
      ...{ create_time: goTime(name, '40.123456'), update_time: goTime(name, '41.5') },
    });
  const addEvent = (em: EntityManager, id: string, seconds: string, more: Record<string, unknown> = {}) =>
    add(em, 'events', {
      ...{ id, app_name: 'app', user_id: 'u', session_id: 's', invocation_id: 'i1', author: 'agent' },
      timestamp: goTime(name, seconds),
      ...more,
    });
  const json = (value: unknown) => JSON.stringify(value);

  test('L2 its sessions, of all of its versions in one table', async () => {
    const [source, target] = [await storeOf(name, goTables(name)), await emptyStore()];
    await addSession(source.em);
    await add(source.em, 'user_states', {
      app_name: 'app',
      user_id: 'u',
      state: '{"my_lang":"pt"}',
      update_time: null,
    });
    await addEvent(source.em, 'bare', '41.123456');
    await addEvent(source.em, 'old', '41.123457', {
      actions: Buffer.from(
        json({
          ...{ StateDelta: { my_key: { in_ner: 1 } }, ArtifactDelta: null, SkipSummarization: false },
          ...{ RequestedToolConfirmations: { call_1: { hint: 'a', confirmed: false, payload: { A_b: 1 } } } },
          ...{ TransferToAgent: '', Escalate: true },
        }),
      ),
      content: json({
        role: 'model',
        parts: [{ functionCall: { id: 'c1', name: 'f', args: { my_arg: { In_ner: 1 } } } }],
      }),
      long_running_tool_ids_json: json(['c1']),
      ...{ custom_metadata: json({ My_key: 1 }), usage_metadata: json({ promptTokenCount: 5 }) },
      ...{ branch: 'a.b', error_code: 'MAX_TOKENS', partial: false, turn_complete: true, interrupted: null },
    });
    await addEvent(source.em, 'new', '41.5', {
      actions: Buffer.from(
        json({
          ...{ stateDelta: { 'user:my_lang': 'pt' }, transferToAgent: 'other' },
          compaction: { startTimestamp: '2020-09-13T12:26:40.5Z', endTimestamp: '2020-09-13T14:26:41+02:00' },
        }),
      ),
      ...{ output_json: json('5'), node_info_json: json({ path: 'wf.child' }), routes_json: json(['left']) },
      isolation_scope: 'scope',
    });
    await addEvent(source.em, 'empty', '42', { actions: Buffer.from(''), content: null });
    const before = await contentOf(source);

    expect(await importFrom(source, target)).toMatchObject({ done: { sessions: 1, events: 4, refused: 0 } });
    const session = (await new MikroOrmSessionService(target.em).getSession({ ...app, sessionId: 's' }))!;
    const maps = { stateDelta: {}, artifactDelta: {}, requestedAuthConfigs: {}, requestedToolConfirmations: {} };
    const each = { invocationId: 'i1', author: 'agent', actions: maps, longRunningToolIds: [] };
    expect(plain(session.events)).toEqual([
      { ...each, id: 'bare', timestamp: 1600000001123.456 },
      {
        ...each,
        ...{ id: 'old', timestamp: 1600000001123.457, longRunningToolIds: ['c1'] },
        ...{ branch: 'a.b', errorCode: 'MAX_TOKENS', turnComplete: true },
        content: { role: 'model', parts: [{ functionCall: { id: 'c1', name: 'f', args: { my_arg: { In_ner: 1 } } } }] },
        ...{ customMetadata: { My_key: 1 }, usageMetadata: { promptTokenCount: 5 } },
        actions: {
          ...maps,
          stateDelta: { my_key: { in_ner: 1 } },
          requestedToolConfirmations: { call_1: { hint: 'a', confirmed: false, payload: { A_b: 1 } } },
          escalate: true,
        },
      },
      {
        ...each,
        ...{ id: 'new', timestamp: 1600000001500, isolationScope: 'scope' },
        ...{ output: '5', nodeInfo: { path: 'wf.child' }, route: ['left'] },
        actions: {
          ...maps,
          ...{ stateDelta: { 'user:my_lang': 'pt' }, transferToAgent: 'other' },
          compaction: { startTimestamp: 1600000000500, endTimestamp: 1600000001000 },
        },
      },
      { ...each, id: 'empty', timestamp: 1600000002000 },
    ]);
    expect(session).toMatchObject({
      state: { my_key: { in_ner: 1 }, 'user:my_lang': 'pt' },
      lastUpdateTime: 1600000001500,
    });
    expect(await writersOf(target)).toEqual({ 'session my_key': 'old', 'user my_lang': 'new' });
    expect(await execute(target.em, 'select create_time from adk_sessions')).toEqual([
      { create_time: 1600000000123.456 },
    ]);
    expect(await importFrom(source, target)).toMatchObject({ done: { sessions: 0, events: 0, refused: 0 } });
    expect(await contentOf(source)).toEqual(before);
  });

  test('L2 its rows that cannot be read are reported, and of the same time a response comes after its call', async () => {
    const [source, target] = [await storeOf(name, goTables(name)), await emptyStore()];
    await addSession(source.em);
    await addEvent(source.em, 'a', '41', { content: json({ parts: [{ functionResponse: { id: 'c' } }] }) });
    await addEvent(source.em, 'b', '41', { content: json({ parts: [{ functionCall: { id: 'c' } }] }) });
    await addEvent(source.em, 'list', '41', { actions: Buffer.from('[1]') });
    await addEvent(source.em, 'timeless', '41', { timestamp: null });
    const { rows } = await importFrom(source, target);
    const of = (eventId: string, reason: string) => ({ ...app, sessionId: 's', eventId, reason });
    expect(rows).toEqual([
      of('list', 'actions is not the JSON of an object'),
      of('timeless', 'a time is missing or cannot be read'),
    ]);
    expect(await idsIn(target, 's')).toEqual(['b', 'a']);
  });

  test('L2 integers that JavaScript would change are reported with their paths', async () => {
    const [source, target] = [await storeOf(name, goTables(name)), await emptyStore()];
    await addSession(source.em, 's', longId('mine'));
    const update_time = goTime(name, '41');
    await add(source.em, 'app_states', { app_name: 'app', state: longId('ofApp'), update_time });
    await add(source.em, 'user_states', { app_name: 'app', user_id: 'u', state: longId('ofUser'), update_time });
    await addEvent(source.em, 'call', '41', { content: LONG_CALL('functionCall') });
    await addEvent(source.em, 'delta', '42', { actions: Buffer.from(`{"stateDelta": ${longId('mine')}}`) });
    // A column of numbers for SQLite, which would give the driver a number.
    await addEvent(source.em, 'output', '43', { output_json: LONG });
    await addEvent(source.em, 'fine', '44', { output_json: '100000000000000000000' });
    const { rows } = await importFrom(source, target);
    expect(rows).toHaveLength(6);
    const output = { ...app, sessionId: 's', eventId: 'output', reason: refusedBigint('event.output') };
    expect(rows).toEqual(expect.arrayContaining([...REFUSED_STATE, ...REFUSED_EVENTS, output]));
    await expectKept(target);
    expect(await idsIn(target, 's')).toEqual(['fine']);
  });

  test('L2 a state without keys is no fault, however it was written', async () => {
    const [source, target] = [await storeOf(name, goTables(name)), await emptyStore()];
    const states = [null, 'null', '{}', ...(DATABASES[name].otherStores.takeEmptyText ? [''] : [])];
    for (const [i, state] of states.entries()) await addSession(source.em, `s${i}`, state);
    await addSession(source.em, 'wrong', '[1]');
    const times = { update_time: goTime(name, '41') };
    await add(source.em, 'app_states', { app_name: 'app', state: 'null', ...times });
    await add(source.em, 'user_states', { app_name: 'app', user_id: 'u', state: null, ...times });
    expect(await importFrom(source, target)).toMatchObject({
      done: { sessions: states.length + 1 },
      rows: [{ ...app, sessionId: 'wrong', reason: 'state is not the JSON of an object' }],
    });
    expect(await writersOf(target)).toEqual({});
  });

  test('L2 tables of this kind whose actions are pickled are refused by name', async () => {
    const [source, target] = [await storeOf(name, goTables(name)), await emptyStore()];
    await addSession(source.em);
    await addEvent(source.em, 'e1', '41', { actions: Buffer.from([0x80, 0x04, 0x95]) });
    await expect(importFrom(source, target)).rejects.toThrow('adk migrate session');
  });

  if (DATABASES[name].dialect === 'sqlite')
    test('L2 times as other drivers of Go write them', async () => {
      const [source, target] = [await storeOf(name, goTables(name)), await emptyStore()];
      await addSession(source.em);
      await addEvent(source.em, 'monotonic', '41', { timestamp: '2020-09-13 14:26:42.5 +0200 CEST m=+0.002946117' });
      await addEvent(source.em, 'utc', '41', { timestamp: '2020-09-13 12:26:43 +0000 UTC' });
      await addEvent(source.em, 'iso', '41', { timestamp: '2020-09-13T12:26:44.123456789Z' });
      expect(await importFrom(source, target)).toMatchObject({ done: { events: 3, refused: 0 } });
      const { events } = (await new MikroOrmSessionService(target.em).getSession({ ...app, sessionId: 's' }))!;
      expect(events.map(({ timestamp }) => timestamp)).toEqual([1600000002500, 1600000003000, 1600000004123.457]);
    });
});

describe.each(availableDatabases())('what importFrom refuses on %s', (name) => {
  const TABLES = ['sessions', 'app_states', 'user_states'].map((table) => `create table ${table} (id varchar(128))`);

  test('L2 tables of another kind are refused with their names', async () => {
    const [source, target] = [await ormOn(await newDatabase(name)), await emptyStore()];
    const attempt = () => importFrom(source, target);
    await expect(attempt()).rejects.toMatchObject({
      code: 'ADK_SCHEMA',
      message: expect.stringContaining('Found: none of theirs.'),
    });
    for (const table of TABLES) await execute(source.em, table);
    await expect(attempt()).rejects.toThrow('Found: app_states, sessions, user_states.');
    await execute(source.em, 'create table events (id varchar(128), title varchar(10))');
    await expect(attempt()).rejects.toThrow('Found: app_states, events, sessions, user_states.');
  });

  // google/adk-python, src/google/adk/sessions/schemas/v0.py at 0e5790805a2f4d2361ef6ef340941c3e614c9178.
  test('L2 pickled events of adk-python are refused by name', async () => {
    const { bytes } = DATABASES[name].columns;
    const events = `create table events (id varchar(128), actions ${bytes}, input_transcription text)`;
    const [source, target] = [await storeOf(name, [...TABLES, events]), await emptyStore()];
    await expect(importFrom(source, target)).rejects.toThrow('adk migrate session');
  });
});
