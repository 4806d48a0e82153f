import { MikroORM, type Options } from '@mikro-orm/core';
import { createEvent, type Event } from '@google/adk';
import { createRequire } from 'node:module';
import { adkEntities } from '../../../entities/index.js';
import { doctor } from '../../../packages/cli/src/commands/doctor.js';
import type { Context } from '../../../packages/cli/src/run.js';
import { EventLog, MikroOrmSessionService, SessionLeases, SessionMaintenance, migrate } from '../../../src/index.js';
import { errorOf, range } from '../../contract/tools.js';
import type { DriverSetting } from '../../support/harnesses/database.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { connectionOptions } from '../../support/mikro-orm.js';
import { availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';

/** node-postgres, which MikroORM's package installs. */
function pgTypes(): { getTypeParser(type: number): unknown; setTypeParser(type: number, parser: unknown): void } {
  const found = createRequire(createRequire(__filename).resolve('@mikro-orm/postgresql'));
  return (found('pg') as { types: ReturnType<typeof pgTypes> }).types;
}

/** Runs `work` with a host's settings. */
async function having<T>(
  { connection = {}, parsers = {}, onConnection }: DriverSetting,
  { options }: Pick<TestDatabase, 'options'>,
  work: (orm: MikroORM) => Promise<T>,
): Promise<T> {
  const given = Object.entries(parsers).map(([type, parser]) => [Number(type), parser] as const);
  const types = given.length > 0 ? pgTypes() : undefined;
  const before = given.map(([type]) => [type, types?.getTypeParser(type)] as const);
  for (const [type, parser] of given) types?.setTypeParser(type, parser);
  const driverOptions: Options['driverOptions'] = connectionOptions(connection);
  const orm = await MikroORM.init({ ...options, driverOptions, entities: adkEntities() });
  try {
    const raw = onConnection && (await rawOf(orm));
    onConnection?.(raw as never);
    return await work(orm);
  } finally {
    for (const [type, parser] of before) types?.setTypeParser(type, parser);
    await orm.close(true);
  }
}

/** The driver's connection to SQLite. */
async function rawOf(orm: MikroORM): Promise<unknown> {
  interface Connection {
    getNativeClient?(): Promise<unknown>;
    getKnex(): { client: { acquireConnection(): Promise<unknown>; releaseConnection(raw: unknown): unknown } };
  }
  const connection = orm.em.getConnection() as unknown as Connection;
  if (connection.getNativeClient) return connection.getNativeClient();
  const { client } = connection.getKnex();
  const raw = await client.acquireConnection();
  await client.releaseConnection(raw);
  return raw;
}

const OWNER = { appName: 'app', userId: 'u' };
const KEY = { ...OWNER, sessionId: 's' };
const YEAR_MS = 31_536_000_000;

/** Loses digits if a driver parses doubles by itself. */
const TIME = 902895004.4580133;

const eventOf = (id: string, stateDelta: Record<string, unknown> = {}): Event =>
  createEvent({ id, author: 'agent', invocationId: `i${id}`, timestamp: TIME + Number(id), actions: { stateDelta } });

/** Everything that the service reads, in that order, except times of the database's clock and random values. */
async function round(orm: MikroORM, { spoilsMigrator = false }: Partial<DriverSetting> = {}): Promise<unknown[]> {
  const { em } = orm;
  if (!spoilsMigrator) await migrate(orm);
  const seen: unknown[] = [];
  const see = async (value: unknown) => {
    const read = Symbol.asyncIterator in Object(value) ? await listed(value as AsyncIterable<unknown>) : await value;
    const text = JSON.stringify(read, (name, each: unknown) =>
      /^(appendTime|createTime|expiresAt|deletedAt|epoch|history|incarnation|oldestUpdate|newestUpdate|since)$/.test(
        name,
      )
        ? typeof each
        : each,
    );
    // Hides the last update of a session without events, and the times of the log.
    seen.push(JSON.parse((text ?? 'null').replace(/"(lastUpdateTime|time)":\d{13}(\.\d+)?/g, '"$1":"now"')));
  };
  const service = new MikroOrmSessionService(em, { deletion: 'soft' });
  const [log, leases, maintenance] = [new EventLog(em), new SessionLeases(em), new SessionMaintenance(em)];
  const session = await service.createSession({ ...KEY, state: { a: 1, 'user:a': '1', 'app:a': null } });
  await see(session);
  await see(errorOf(service.createSession(KEY)));
  for (const n of range(12)) await service.appendEvent({ session, event: eventOf(String(n + 1), { n, [`k${n}`]: n }) });
  const large = eventOf('13');
  large.content = { role: 'model', parts: [{ text: 'x'.repeat(600_000) }] };
  await service.appendEvents({ session, events: [large, eventOf('14')] });
  await service.appendEvent({ session, event: eventOf('3', { again: true }) });
  for (const config of [
    {},
    { numRecentEvents: 3 },
    { afterTimestamp: TIME + 5 },
    { afterTimestamp: TIME + 5, numRecentEvents: 2 },
  ])
    await see(service.getSession({ ...KEY, config }));
  await see(log.head());
  await see(log.since(0));
  await see(log.complete().since(3, { ...OWNER, limit: 5 }));
  await see(log.session(KEY).since(2, { afterTimestamp: TIME + 4 }));

  await service.describeSession(KEY, { title: 't', labels: { a: 'b' } });
  await service.describeSession(KEY, { title: 't', labels: { a: 'b' } });
  await see(service.findSessions({ ...OWNER, title: 't', labels: { a: 'b' }, limit: 1 }));
  await service.forkSession(KEY, { at: 4, as: 'fork' });
  await see(service.rewindSession(KEY, { at: 13 }));
  await see(service.listSessions(OWNER));
  await see(service.listSessions({ appName: 'app', limit: 1, order: 'desc' }));
  await service.updateState({ ...KEY, set: { 'user:b': 2, b: 3 }, remove: ['a'] });
  await see(service.getUserState(OWNER));
  await see(service.getAppState(OWNER));
  await see(log.complete().since(0, { ...OWNER }));

  const lease = await leases.acquire(KEY, { holder: 'h' });
  await see(leases.current(KEY));
  await see(errorOf(leases.acquire(KEY, { holder: 'other' })));
  const refusing = new MikroOrmSessionService(em, { onUnleasedAppend: 'reject' });
  await see(errorOf(refusing.appendEvent({ session, event: eventOf('20') })));
  const held = (await lease.sessionService.getSession(KEY))!;
  await lease.sessionService.appendEvent({ session: held, event: eventOf('21') });
  // Only the forked session.
  await see(maintenance.trim({ ...OWNER, keepLast: 2 }));
  await see(maintenance.prune({ ...OWNER, idleFor: YEAR_MS, dryRun: true }));
  await lease.release();
  await see(leases.current(KEY));
  await see(maintenance.trim({ ...OWNER, keepLast: 4 }));
  await see(service.getSession(KEY));
  await see(maintenance.stats());
  await see(maintenance.stats({ appName: 'app', groupBy: 'app' }));

  await service.deleteSession({ ...OWNER, sessionId: 'fork' });
  await see(service.findSessions({ ...OWNER, status: 'deleted' }));
  await service.restoreSession({ ...OWNER, sessionId: 'fork' });
  const exported = await listed(maintenance.exportSessions());
  await see(exported);
  await see(maintenance.repair(KEY));
  const findings: { check: string; state: string }[] = [];
  const terminal = {
    result: (all: typeof findings) => {
      findings.push(...all);
      return Promise.resolve();
    },
  };
  if (!spoilsMigrator) {
    await doctor({ em, terminal } as unknown as Context);
    expect(findings.map(({ check }) => check)).toContain('sessions');
    expect(findings.filter(({ state }) => state === 'wrong')).toEqual([]);
  }

  const again = await leases.acquire(KEY, { holder: 'h' });
  const erasing = await maintenance.eraseUser({ userId: 'u' }).catch((error: unknown) => String(error));
  await see(typeof erasing === 'string' ? erasing.length > 0 : erasing);
  await see(service.listSessions(OWNER));
  await again.release();
  await see(maintenance.eraseUser({ userId: 'u' }));
  await see(service.listSessions(OWNER));
  await see(log.complete().since(0));

  await see(maintenance.importSessions(exported));
  await see(maintenance.exportSessions());
  await see(maintenance.prune({ ...OWNER, idleFor: YEAR_MS }));
  await see(maintenance.prune({ appName: 'app', sessionsOlderThan: 0 }));
  await see(maintenance.stats());
  return seen;
}

async function listed<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

describe.each(availableDatabases())('O7 on %s', (name) => {
  const { driverOptions, schema } = DATABASES[name];
  const { harmless, refused } = driverOptions;
  let database: TestDatabase;
  let plain: MikroORM;
  let expected: unknown[];

  beforeAll(async () => {
    // knex logs if it cannot read the version of a server.
    jest.spyOn(console, 'log').mockImplementation();
    database = await createDatabase(name);
    plain = await MikroORM.init({ ...database.options, entities: adkEntities() });
    expected = await round(plain);
    await clear();
  });
  afterAll(async () => {
    await plain.close(true);
    await database.drop();
    jest.restoreAllMocks();
  });
  afterEach(() => clear());

  const execute = (sql: string): Promise<unknown> => plain.em.getConnection().execute(sql);

  const TABLES = ['changes', 'counters', 'sessions', 'user_states', 'app_states'];

  async function clear(): Promise<void> {
    for (const table of TABLES) await execute(`delete from adk_${table}`);
    if (schema.restartChanges) await execute(schema.restartChanges);
  }

  test('without a setting each round is like the one before', async () => {
    expect(await round(plain)).toEqual(expected);
  });

  for (const setting of harmless) {
    test(`what is read does not depend on ${setting.name}`, async () => {
      const seen = await having(setting, database, (orm) => round(orm, setting));
      for (const [i, value] of seen.entries()) expect([i, value]).toEqual([i, expected[i]]);
      expect(seen).toHaveLength(expected.length);
    });

    if (!setting.spoilsMigrator) continue;
    test(`migrate refuses ${setting.name}, with which MikroORM misreads its notes`, async () => {
      const error = await errorOf(having(setting, database, (orm) => migrate(orm)));
      expect(error).toMatchObject({ code: 'ADK_SCHEMA', message: expect.stringContaining('Its settings change rows') });
    });
  }

  for (const { named, ...setting } of refused) {
    test(`${setting.name}: refused by name before anything is written, and where rows are read`, async () => {
      const service = new MikroOrmSessionService(plain.em);
      const session = await service.createSession(KEY);
      await having(setting, database, async (orm) => {
        const given = new MikroOrmSessionService(orm.em);
        const calls = [
          () => migrate(orm),
          () => given.appendEvent({ session, event: eventOf('1') }),
          () => given.createSession({ ...KEY, sessionId: 'new' }),
          () => given.getSession(KEY),
          () => given.updateState({ ...KEY, set: { a: 1 } }),
          () => new SessionMaintenance(orm.em).eraseUser({ userId: 'u' }),
          () => new EventLog(orm.em).head(),
        ];
        for (const call of calls) {
          const error = await errorOf(call());
          expect(error).toMatchObject({ code: 'ADK_SCHEMA', message: expect.stringMatching(named) });
        }
      });
      expect((await service.getSession(KEY))?.events).toEqual([]);
      expect((await service.listSessions(OWNER)).sessions).toHaveLength(1);
    });
  }
});
