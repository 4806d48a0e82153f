import { MikroORM, type Options } from '@mikro-orm/core';
import { createEvent, type Event } from '@google/adk';
import { createRequire } from 'node:module';
import { adkEntities } from '../../entities/index.js';
import { doctor } from '../../src/cli/commands/doctor.js';
import type { Context } from '../../src/cli/run.js';
import { EventLog, MikroOrmSessionService, SessionLeases, SessionMaintenance, migrate } from '../../src/index.js';
import { errorOf, range } from '../contract/tools.js';
import { connectionOptions, isMikroOrm7 } from '../support/mikro-orm.js';
import { availableDatabases, createDatabase, type DatabaseName, type TestDatabase } from '../support/servers.js';

/** What a host may set for its driver. */
interface Setting {
  name: string;
  /** Of the driver's connections. */
  connection?: object;
  /** Parsers of node-postgres, by the number of the type; they hold for the process. */
  parsers?: Readonly<Record<number, (text: string) => unknown>>;
  /** Whether MikroORM itself works with it: its migrator takes no bytes for a name. */
  spoilsMigrator?: boolean;
  /** Called with the driver's connection. */
  onConnection?: (raw: never) => void;
}

/** A column as mysql2 and mariadb give it to a `typeCast`. */
interface Field {
  type: string;
  string(): string | null;
  buffer(): Buffer | null;
}

const typeCast = (of: (field: Field, next: () => unknown) => unknown) => ({ typeCast: of });

const bigIntOf = (text: string | null) => (text === null ? null : BigInt(text));

/** Those of mysql2 and mariadb under which everything works. */
const OF_MYSQL: readonly Setting[] = [
  { name: 'bigNumberStrings', connection: { supportBigNumbers: true, bigNumberStrings: true } },
  { name: 'supportBigNumbers: false', connection: { supportBigNumbers: false } },
  { name: 'decimalNumbers', connection: { decimalNumbers: true } },
  { name: 'dateStrings', connection: { dateStrings: true } },
  { name: 'dateStrings: false', connection: { dateStrings: false } },
  { name: 'jsonStrings', connection: { jsonStrings: true } },
  { name: 'timezone', connection: { timezone: '+05:00' } },
  { name: 'a typeCast that gives texts', connection: typeCast((field) => field.string()) },
  { name: 'a typeCast that gives bytes', connection: typeCast((field) => field.buffer()), spoilsMigrator: true },
  {
    name: 'a typeCast that gives the bytes of long texts',
    connection: typeCast((field, next) => (field.type === 'BLOB' ? field.buffer() : next())),
  },
  {
    name: 'a typeCast that gives bigints',
    connection: typeCast((field, next) =>
      ['LONG', 'LONGLONG', 'INT', 'BIGINT'].includes(field.type) ? bigIntOf(field.string()) : next(),
    ),
  },
  { name: 'typeCast: false', connection: { typeCast: false }, spoilsMigrator: true },
];

const OF_MARIADB: readonly Setting[] = [
  { name: 'bigIntAsNumber: false', connection: { bigIntAsNumber: false, insertIdAsNumber: false } },
  { name: 'insertIdAsNumber', connection: { insertIdAsNumber: true, checkNumberRange: true } },
  { name: 'decimalAsNumber', connection: { decimalAsNumber: true, bigIntAsNumber: true, checkNumberRange: true } },
  { name: 'metaAsArray', connection: { metaAsArray: true } },
  { name: 'bitOneIsBoolean: false', connection: { bitOneIsBoolean: false, autoJsonMap: false } },
];

const TYPES = { bool: 16, int8: 20, int4: 23, text: 25, json: 114, float8: 701, varchar: 1043, numeric: 1700 };

const same = (text: string) => text;
const asBytes = (text: string) => Buffer.from(text);

const OF_POSTGRESQL: readonly Setting[] = [
  { name: 'int4 as bigint', parsers: { [TYPES.int4]: BigInt } },
  { name: 'int4 as text', parsers: { [TYPES.int4]: same } },
  { name: 'int8 as bigint', parsers: { [TYPES.int8]: BigInt } },
  { name: 'int8 as number', parsers: { [TYPES.int8]: Number } },
  { name: 'float8 and numeric as text', parsers: { [TYPES.float8]: same, [TYPES.numeric]: same } },
  { name: 'numeric as number', parsers: { [TYPES.numeric]: Number } },
  { name: 'booleans as text', parsers: { [TYPES.bool]: same } },
  { name: 'booleans as numbers', parsers: { [TYPES.bool]: (text) => (text === 't' ? 1 : 0) } },
  { name: 'json as text', parsers: { [TYPES.json]: same } },
  {
    name: 'texts as bytes',
    parsers: { [TYPES.text]: asBytes, [TYPES.varchar]: asBytes },
    spoilsMigrator: true,
  },
  { name: 'types that parse nothing', connection: { types: { getTypeParser: () => same } } },
  { name: 'parseInputDatesAsUTC', connection: { parseInputDatesAsUTC: true } },
  { name: "rowMode: 'array'", connection: { rowMode: 'array' } },
  { name: 'binary', connection: { binary: true } },
];

const OF_SQLITE: readonly Setting[] = [
  {
    name: 'defaultSafeIntegers',
    onConnection: (raw: { defaultSafeIntegers(on: boolean): void }) => raw.defaultSafeIntegers(true),
  },
];

const HARMLESS: Record<DatabaseName, readonly Setting[]> = {
  sqlite: isMikroOrm7 ? OF_SQLITE : [],
  'better-sqlite': OF_SQLITE,
  postgresql: OF_POSTGRESQL,
  mysql: OF_MYSQL,
  mariadb: isMikroOrm7 ? OF_MYSQL : [...OF_MYSQL, ...OF_MARIADB],
};

/** What the error names. */
type Refused = Setting & { named: RegExp };

const REFUSED_BY_MYSQL: readonly Refused[] = [
  { name: 'rowsAsArray', connection: { rowsAsArray: true }, named: /gave an array .*rowsAsArray/ },
  { name: 'nestTables', connection: { nestTables: true }, named: /gave an object .*nestTables/ },
  { name: "nestTables: '_'", connection: { nestTables: '_' }, named: /gave no column of that name .*nestTables/ },
  {
    name: 'a typeCast that gives objects',
    connection: typeCast((field) => ({ value: field.string() })),
    named: /gave an object .*typeCast/,
  },
  {
    name: 'a typeCast that gives numbers for texts',
    connection: typeCast((field) => Number(field.string())),
    named: /gave a number where a text .*typeCast/,
  },
  {
    name: 'a typeCast that trims texts',
    connection: typeCast((field) => field.string()?.trim()),
    named: /gave a string where the text that was written .*typeCast/,
  },
];

/** An update that changes nothing would be taken for one that found no row. */
const CHANGED_ROWS: Readonly<Record<'mysql2' | 'mariadb', Refused>> = {
  mysql2: { name: '-FOUND_ROWS', connection: { flags: ['-FOUND_ROWS'] }, named: /'-FOUND_ROWS'/ },
  mariadb: { name: 'foundRows: false', connection: { foundRows: false }, named: /'foundRows'/ },
};

const REFUSED: Record<DatabaseName, readonly Refused[]> = {
  sqlite: [],
  'better-sqlite': [],
  postgresql: [
    {
      name: 'float8 as objects',
      parsers: { [TYPES.float8]: (text) => ({ text }) },
      named: /gave an object .*pg\.types/,
    },
    {
      name: 'int4 as true',
      parsers: { [TYPES.int4]: () => true },
      named: /gave a boolean where a number .*pg\.types/,
    },
    {
      name: 'booleans as words',
      parsers: { [TYPES.bool]: (text) => (text === 't' ? 'yes' : 'no') },
      named: /gave a string where a boolean .*pg\.types/,
    },
    { name: 'texts as JSON', parsers: { [TYPES.text]: parsed }, named: /where the text that was written .*pg\.types/ },
  ],
  mysql: [...REFUSED_BY_MYSQL, CHANGED_ROWS.mysql2],
  mariadb: [...REFUSED_BY_MYSQL, CHANGED_ROWS[isMikroOrm7 ? 'mysql2' : 'mariadb']],
};

/** As a host does that keeps JSON in columns of texts. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** node-postgres, which MikroORM's package brings along. */
function pgTypes(): { getTypeParser(type: number): unknown; setTypeParser(type: number, parser: unknown): void } {
  const found = createRequire(createRequire(__filename).resolve('@mikro-orm/postgresql'));
  return (found('pg') as { types: ReturnType<typeof pgTypes> }).types;
}

/** Runs `work` with what a host has set. */
async function having<T>(
  { connection = {}, parsers = {}, onConnection }: Setting,
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

/** Not all of its digits survive where a driver parses doubles by itself. */
const TIME = 902895004.4580133;

const eventOf = (id: string, stateDelta: Record<string, unknown> = {}): Event =>
  createEvent({ id, author: 'agent', invocationId: `i${id}`, timestamp: TIME + Number(id), actions: { stateDelta } });

/** Everything that is read, in the order in which it is read; without the database's clock, and what is made at random. */
async function round(orm: MikroORM, { spoilsMigrator = false }: Partial<Setting> = {}): Promise<unknown[]> {
  const { em } = orm;
  if (!spoilsMigrator) await migrate(orm);
  const seen: unknown[] = [];
  const see = async (value: unknown) => {
    const read = Symbol.asyncIterator in Object(value) ? await listed(value as AsyncIterable<unknown>) : await value;
    const text = JSON.stringify(read, (name, each: unknown) =>
      /^(createTime|expiresAt|deletedAt|epoch|history|incarnation|oldestUpdate|newestUpdate)$/.test(name)
        ? typeof each
        : each,
    );
    // A session's last update, before its first event, and what the log knows of times.
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
  await see(log.since(3, { ...OWNER, changes: true, limit: 5 }));
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
  await see(log.since(0, { ...OWNER, changes: true }));

  const lease = await leases.acquire(KEY, { holder: 'h' });
  await see(leases.current(KEY));
  await see(errorOf(leases.acquire(KEY, { holder: 'other' })));
  const refusing = new MikroOrmSessionService(em, { onUnleasedAppend: 'reject' });
  await see(errorOf(refusing.appendEvent({ session, event: eventOf('20') })));
  const held = (await lease.sessionService.getSession(KEY))!;
  await lease.sessionService.appendEvent({ session: held, event: eventOf('21') });
  // The forked session alone.
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
    await doctor({ orm, em, terminal } as unknown as Context);
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
  await see(log.since(0, { changes: true }));

  await see(maintenance.importSessions(exported));
  await see(maintenance.exportSessions());
  await see(maintenance.prune({ ...OWNER, idleFor: YEAR_MS }));
  await see(maintenance.prune({ appName: 'app', olderThan: 0 }));
  await see(maintenance.stats());
  return seen;
}

async function listed<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

describe.each(availableDatabases())('O7 on %s', (name) => {
  let database: TestDatabase;
  let plain: MikroORM;
  let expected: unknown[];

  beforeAll(async () => {
    // Where knex cannot read the version of a server, and says so.
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
    if (name === 'mysql' || name === 'mariadb') await execute('alter table adk_changes auto_increment = 1');
  }

  const harmless = HARMLESS[name];
  const refused = REFUSED[name];

  test('without a setting each round is like the one before', async () => {
    expect(await round(plain)).toEqual(expected);
  });

  for (const setting of harmless) {
    test(`what is read does not depend on ${setting.name}`, async () => {
      const seen = await having(setting, database, (orm) => round(orm, setting));
      for (const [i, value] of seen.entries()) expect([i, value]).toEqual([i, expected[i]]);
      expect(seen).toHaveLength(expected.length);
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

  if (name === 'postgresql') {
    test('a parser that is set later is found where rows are read', async () => {
      const service = new MikroOrmSessionService(plain.em);
      await service.createSession(KEY);
      const parsers = { [TYPES.int4]: (text: string) => ({ text }) };
      await having({ name: 'int4 as objects', parsers }, database, async () => {
        await expect(service.getSession(KEY)).rejects.toMatchObject({ code: 'ADK_SCHEMA' });
      });
      expect(await service.getSession(KEY)).toBeDefined();
    });
  }
});
