import { Readable } from 'node:stream';
import { createSession, type Session } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import {
  EventLog,
  MikroOrmArtifactService,
  MikroOrmSessionService,
  SessionMaintenance,
  SessionProjection,
  adkServices,
} from '../../src/index.js';
import type { TransferRecord } from '../../src/model/records.js';
import { harnessOf } from '../support/harnesses/databases.js';
import type { OwnStore } from '../support/harnesses/harness.js';
import { HostNote } from '../support/harnesses/host-note.js';
import type { RecordedStatement } from '../support/harnesses/statement-log.js';
import { inBatchesOf } from '../support/positions.js';
import { Suite, onServers, oncePerDialect } from './rule.js';
import { TABLES, errorOf, eventOf, expectCode, range, saying, withAccount } from './tools.js';

/** Tests of section F: what needs the service; test/hosts/schema has the rest. */
export const schemaSuite = new Suite();

schemaSuite.own(
  'F1',
  'rows are named by their keys, and those of a session go with its row',
  async ({ app, create, append, query }) => {
    const session = await create({ state: { theme: 'dark' } });
    await append(session, { delta: { step: 1 } });
    const rowsOf = (table: string) =>
      query(`select 1 from ${table} where app_name = ? and user_id = ? and session_id = ?`, [app, 'alice', session.id]);
    const [row] = await query(`select * from adk_sessions where app_name = ?`, [app]);
    expect(row).toMatchObject({ app_name: app, user_id: 'alice', session_id: session.id });
    expect([await rowsOf('adk_events'), await rowsOf('adk_session_states')]).toMatchObject([[{}], [{}, {}]]);

    await query('delete from adk_sessions where app_name = ?', [app]);
    expect([await rowsOf('adk_events'), await rowsOf('adk_session_states')]).toEqual([[], []]);
  },
);

schemaSuite.own(
  'F2',
  'an account that may select, insert, update and delete needs no other right',
  async ({ harness, scratch }) => {
    const store = await scratch();
    await withAccount(harness.server!, 'select, insert, update, delete', store, async ({ orm }) => {
      await expect(orm.em.getConnection().execute('create table other (id int)')).rejects.toThrow();
      const { sessionService, leases, log, maintenance } = adkServices(orm.em, { sessions: { deletion: 'soft' } });
      const key = { appName: 'a', userId: 'u', sessionId: 's' };
      const session = await sessionService.createSession({ ...key, state: { 'app:x': 1, 'user:y': 2, z: 3 } });
      // In parts, on MySQL and MariaDB.
      await sessionService.appendEvents({ session, events: [saying('x'.repeat(2_000_000)), saying('y')] });
      await sessionService.updateState({ ...key, set: { z: 4, 'app:x': 2 } });
      await sessionService.describeSession(key, { title: 't' });
      await sessionService.forkSession(key, { as: 'f' });
      await sessionService.rewindSession(key, { at: 1 });
      await sessionService.deleteSession(key);
      await sessionService.restoreSession(key);
      await leases.run(key, { holder: 'h' }, ({ sessionService }) => sessionService.getSession(key));
      await log.complete().head();
      const nothing = () => Promise.resolve();
      await new SessionProjection(orm.em, { name: 'p', apply: nothing, clear: nothing }).catchUp();
      const records: TransferRecord[] = [];
      for await (const record of maintenance.exportSessions()) records.push(record);
      await maintenance.importSessions(records);
      await maintenance.repair(key);
      await maintenance.beginLogEpoch();
      await maintenance.trim({ keepLast: 0 });
      await maintenance.prune({ sessionsOlderThan: 0 });
      await maintenance.eraseUser({ userId: 'u' });
      expect(await maintenance.stats()).toMatchObject({ sessions: 0 });
    });
  },
  onServers,
);

schemaSuite.own('F5', 'missing tables give a SchemaError with the command that makes them', async ({ scratch }) => {
  const { service, query } = await scratch();
  const key = { appName: 'a', userId: 'u', sessionId: 's' };
  const session = await service.createSession(key);
  for (const table of TABLES) await query(`drop table adk_${table}`);
  for (const call of [
    () => service.createSession(key),
    () => service.getSession(key),
    () => service.getOrCreateSession(key),
    () => service.listSessions(key),
    () => service.deleteSession(key),
    () => service.appendEvent({ session, event: saying('x') }),
    () => service.getAppState(key),
    () => service.getUserState(key),
    () => service.updateState({ ...key, set: { a: 1 } }),
  ]) {
    await expectCode(call(), 'ADK_SCHEMA', /npx mikro-orm migration:up/);
  }
});

schemaSuite.own('F5', 'so do outdated tables', async ({ scratch }) => {
  const { service, query } = await scratch();
  await query('alter table adk_sessions rename column incarnation to something_else');
  await expectCode(service.getSession({ appName: 'a', userId: 'u', sessionId: 's' }), 'ADK_SCHEMA', /migration:up/);
});

schemaSuite.own('F5', 'an ORM that does not list the entities is refused', async ({ orm: { config } }) => {
  const orm = await MikroORM.init({
    driver: config.get('driver')!,
    dbName: 'none',
    entities: [HostNote],
    connect: false,
  });
  const error = await errorOf(Promise.resolve().then(() => new MikroOrmSessionService(orm.em)));
  expect(error).toMatchObject({ code: 'ADK_SCHEMA', message: expect.stringContaining('adkEntities()') });
  await orm.close(true);
});

const stateOf = (prefix: string, n: number) => Object.fromEntries(range(n).map((i) => [`${prefix}${i}`, i]));

const USERS = 20;
const SESSIONS = 20;
const EVENTS = 10;

/** A user's sessions, events and state, many times over, so that a server would rather use an index than read all. */
async function fill({ orm, service, query }: OwnStore): Promise<Session> {
  const app = { appName: 'app' };
  // In one transaction, which spares a thousand commits.
  await orm.em.fork().transactional(async (tx) => {
    const joined = service.withEntityManager(tx);
    await joined.updateState({ ...app, set: stateOf('app:', 50) });
    for (const i of range(60)) await joined.updateState({ appName: `other ${i}`, set: stateOf('app:', 20) });
    for (const user of range(USERS)) {
      const userId = `user ${user}`;
      await joined.updateState({ ...app, userId, set: stateOf('user:', 40) });
      for (const id of range(SESSIONS)) {
        const state = { a: 1, b: 2, c: 3 };
        const session = await joined.createSession({ ...app, userId, sessionId: `session ${id}`, state });
        const events = range(EVENTS).map((e) => eventOf({ id: `event ${e}`, timestamp: 1_000 * id + e }));
        await joined.appendEvents({ session, events });
      }
    }
  });
  await query(`insert into adk_open_calls (app_name, user_id, session_id, open_until, seq, number, name, timestamp, data)
    select app_name, user_id, session_id, 2147483647, 1, 0, 'ask', 0, '{}' from adk_sessions where session_id <> 'session 3'`);
  await query(`insert into adk_artifacts (app_name, user_id, session_id, filename, last_version, update_time)
    select app_name, user_id, session_id, 'a file', 0, 0 from adk_sessions`);
  // The same in other apps, which no read of this one may touch.
  for (const [table, columns] of [
    ['adk_sessions', 'user_id, session_id, incarnation, origin, last_seq, create_time, last_update_time'],
    ['adk_session_states', 'user_id, session_id, state_key, value, event_id'],
    ['adk_user_states', 'user_id, state_key, value, event_id'],
    ['adk_open_calls', 'user_id, session_id, open_until, seq, number, name, timestamp, data'],
    ['adk_artifacts', 'user_id, session_id, filename, last_version, update_time'],
  ] as const) {
    for (const i of range(8)) {
      const copied = `select 'elsewhere ${i}', ${columns} from ${table} where app_name = 'app'`;
      await query(`insert into ${table} (app_name, ${columns}) ${copied}`);
    }
  }
  await query(`insert into adk_artifact_versions (app_name, user_id, session_id, filename, version, info, create_time)
    select app_name, user_id, session_id, filename, 0, '{}', 0 from adk_artifacts where app_name <> 'app'`);
  await query(`insert into adk_memories (app_name, user_id, session_id, memory_id, time, create_time, words, data)
    select app_name, user_id, session_id, 'm', 0, 0, '', '{}' from adk_artifacts where app_name <> 'app'`);
  await query(`insert into adk_forgotten_memories (app_name, user_id, session_id, memory_id, create_time)
    select app_name, user_id, session_id, memory_id, create_time from adk_memories`);
  return createSession({ ...app, id: 'session 3', userId: 'user 3' });
}

schemaSuite.own(
  'F6',
  'every read is served by an index',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm, query, recorded } = store;
    const session = await fill(store);
    await query(harnessOf(orm.em).plan.analyze);

    const key = { appName: session.appName, userId: session.userId, sessionId: session.id };
    const statements = await recorded(async () => {
      await service.getSession(key);
      await service.getSession({ ...key, config: { numRecentEvents: 3 } });
      await new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 3 }).getSession(key);
      await service.readEvents(key, { limit: 2, before: 4 });
      await service.getSession({ ...key, config: { afterTimestamp: 3_005 } });
      await service.getSession({ ...key, config: { afterTimestamp: 3_005, numRecentEvents: 2 } });
      for (const order of ['asc', 'desc'] as const) {
        await service.listSessions({ appName: 'app', order, limit: 5, offset: 10 });
        await service.listSessions({ appName: 'app', userId: key.userId, order, limit: 5, offset: 10 });
        await service.listSessions({ appName: 'app', userId: key.userId, order });
      }
      await service.getAppState(key);
      await service.getUserState(key);
      // By a handle made by hand, and an event that is stored already: the long way.
      await service.appendEvent({ session, event: saying('x') });
      await service.appendEvent({ session, event: eventOf({ id: 'event 3', timestamp: 3_003 }) });
      await service.updateState({ ...key, set: { a: 1, 'app:1': 1, 'user:1': 1 }, remove: ['b', 'app:2', 'user:2'] });
      await service.deleteSession(key);
    });
    await expectIndexes(store, statements);
  },
  oncePerDialect,
);

schemaSuite.own(
  'F6',
  'every read of lists, pasts, transfers and the complete log is served by an index',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm, query, recorded } = store;
    const { appName, userId } = await fill(store);
    const [owner, key] = [
      { appName, userId },
      { appName, userId, sessionId: 'session 3' },
    ];
    const maintenance = new SessionMaintenance(orm.em);
    const softly = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
    const records: TransferRecord[] = [];
    for await (const record of maintenance.exportSessions(owner)) records.push(record);
    const log = new EventLog(orm.em);
    await log.head();
    // Parts and changes of other sessions, as many as a planner needs to look for an index.
    await query(`insert into adk_event_parts (app_name, user_id, session_id, seq, part, text)
      select app_name, user_id, session_id, seq, 0, 'x' from adk_events where user_id <> '${userId}'`);
    await query(`insert into adk_open_calls (app_name, user_id, session_id, open_until, seq, number, name, timestamp, data)
      select app_name, user_id, session_id, 2147483647, seq, 1, 'ask', timestamp, '{}' from adk_events`);
    await query(`insert into adk_forgotten_memories (app_name, user_id, session_id, memory_id, create_time)
      select app_name, user_id, session_id, event_id, 0 from adk_events`);
    for (const i of range(20)) {
      await query(`insert into adk_changes (app_name, user_id, session_id, change_id, kind, seq, time, position, number)
      select 'elsewhere ${i}', user_id, session_id, change_id, 'state', 0, 0, 1000000, abs(change_id) % 1000 + ${10_000 * (i + 1)}
        from adk_changes where app_name = 'app'`);
    }
    await query(harnessOf(orm.em).plan.analyze);

    const statements = await recorded(async () => {
      for (const find of [
        {},
        { userId },
        { title: 'x' },
        { labels: { a: 'b' } },
        { updatedAfter: 5 },
        { status: 'deleted' as const },
      ]) {
        const page = await service.findSessions({ appName, ...find, limit: 2 });
        if (page.next !== undefined) await service.findSessions({ appName, ...find, limit: 2, after: page.next });
      }
      await service.findOpenCalls({ appName });
      await service.findOpenCalls(key);
      await service.findAnsweredCalls({ appName });
      await service.findAnsweredCalls({ appName, userId });
      await service.findOpenCalls({ appName, userId, name: 'ask', openFor: 1 });
      await service.describeSession(key, { title: 'a title' });
      const fork = await service.forkSession(key, { at: 5 });
      await service.rewindSession({ ...key, sessionId: fork.id }, { at: 2 });
      await softly.deleteSession({ ...key, sessionId: fork.id });
      await service.restoreSession({ ...key, sessionId: fork.id });
      // More than get their positions at once.
      await inBatchesOf(3, () => log.head());
      for await (const _ of maintenance.exportSessions(owner));
      await maintenance.importSessions(records);
      await maintenance.importSessions(records.map((record) => ({ ...record, appName: 'imported' })));
      const content = Readable.from([Buffer.alloc(2_000_000)]);
      await new MikroOrmArtifactService(orm.em).saveArtifactStream({
        ...key,
        filename: 'a file',
        mimeType: 'a/b',
        content,
      });
      await maintenance.prune({ ...owner, idleFor: 1e12 });
      for await (const _ of log.complete().since(0, { ...key, limit: 20 }));
    });
    await expectIndexes(store, statements);
  },
  oncePerDialect,
);

schemaSuite.own(
  'F6',
  'events of a long session are found by their numbers',
  async ({ scratch }) => {
    const store = await scratch();
    const { service, orm, query, recorded } = store;
    const key = { appName: 'app', userId: 'alice', sessionId: 's' };
    const session = await service.createSession(key);
    await service.appendEvents({ session, events: range(60).map((i) => eventOf({ id: `event ${i}`, timestamp: i })) });
    // With this many, a planner that treats the columns of the key as independent expects one event for each session.
    for (const i of range(60)) {
      for (const [table, columns] of [
        ['adk_sessions', 'incarnation, origin, last_seq, create_time, last_update_time'],
        ['adk_events', 'seq, event_id, timestamp, data'],
      ]) {
        await query(`insert into ${table} (app_name, user_id, session_id, ${columns})
        select 'app ${i % 3}', 'user ${i % 30}', 'session ${i}', ${columns} from ${table} where app_name = 'app'`);
      }
    }
    await query('update adk_events set position = seq');
    await query(harnessOf(orm.em).plan.analyze);

    const statements = await recorded(async () => {
      await service.getSession({ ...key, config: { numRecentEvents: 3 } });
      await new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 3 }).getSession(key);
      await service.readEvents(key, { limit: 2, before: 4 });
      await service.appendEvents({ session, events: [saying('x'), saying('y')] });
      await new EventLog(orm.em).head();
      await new SessionMaintenance(orm.em).trim({ ...key, keepLast: 10, batchSize: 20 });
    });
    const reading = statements.filter(({ text }) => /^(with given|select|update|delete)\b.*adk_events\b/s.test(text));
    expect(reading.length).toBeGreaterThan(4);
    const found: [string, string[]][] = [];
    for (const { text, values } of reading) {
      const lines = await harnessOf(orm.em).plan.wholeSessions((prefix) => query(`${prefix} ${text}`, values));
      if (lines.length > 0) found.push([text, lines]);
    }
    expect(found).toEqual([]);
  },
  oncePerDialect,
);

async function expectIndexes({ orm, query }: OwnStore, statements: readonly RecordedStatement[]): Promise<void> {
  const { plan } = harnessOf(orm.em);
  // A plan for the catalog says nothing about tables of ours.
  const reading = statements.filter(({ text }) => /^(select|update|delete)\b.*\badk_/s.test(text));
  expect(reading.length).toBeGreaterThan(20);

  const scans: [string, string[]][] = [];
  for (const { text, values } of reading) {
    const found = await plan.scans((prefix) => query(`${prefix} ${text}`, values));
    if (found.length > 0) scans.push([text, found]);
  }
  expect(scans).toEqual([]);
}
