import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { isDeepStrictEqual } from 'node:util';
import { adkMigrations, distribute } from '../../../migrations/index.js';
import { compression } from '../../../src/codecs/index.js';
import {
  AdkMikroOrmError,
  EventLog,
  InvalidArgumentError,
  MikroOrmArtifactService,
  MikroOrmCredentialService,
  MikroOrmMemoryService,
  MikroOrmSessionService,
  SchemaError,
  SessionLeases,
  SessionMaintenance,
  SessionProjection,
  adkEntities,
  adkServices,
  toolJournal,
  migrate,
} from '../../../src/index.js';
import { createStudio, usageOf } from '../../../packages/studio/src/index.js';
import { BetterSqliteDriver } from '../../support/mikro-orm.js';

const ADA = { appName: 'shop', userId: 'ada', sessionId: 's' };

let orm: MikroORM;
let service: MikroOrmSessionService;

beforeAll(async () => {
  orm = await MikroORM.init({ driver: BetterSqliteDriver, dbName: ':memory:', entities: adkEntities() });
  await migrate(orm);
  service = new MikroOrmSessionService(orm.em);
  const session = await service.createSession({ ...ADA, state: { 'app:a': 1, 'user:a': 1, a: 1 } });
  await service.appendEvent({ session, event: createEvent({ author: 'user' }) });
  await service.createSession({ ...ADA, userId: 'bob' });
});

afterAll(() => orm.close(true));

/** Everything that takes options, a filter or a request: the names that it lists as known, and a call with an argument. */
const TAKERS: Record<string, { known: string; call: (argument: never) => unknown }> = {
  adkServices: {
    known:
      'retry, timeoutMs, postgresql, onError, telemetry, codec, maxDecodedBytes, owned, sessions, artifacts, memory, leases, log',
    call: (options) => adkServices(orm.em, options),
  },
  'postgresql of adkServices': {
    known: 'preparedStatements, settings, notify, listen',
    call: (postgresql) => adkServices(orm.em, { postgresql }),
  },
  'sessions of adkServices': {
    known:
      'onStaleSession, onUnleasedAppend, deletion, toolApps, onRewrittenEvent, onAnsweredCall, defaultNumRecentEvents, onDamagedEvent, onDamage',
    call: (sessions) => adkServices(orm.em, { sessions }),
  },
  'artifacts of adkServices': {
    known: 'canonicalUri, maxBytes',
    call: (artifacts) => adkServices(orm.em, { artifacts }),
  },
  'memory of adkServices': {
    known: 'limit, maxCharacters, ttlMs, text, embed, onDamage',
    call: (memory) => adkServices(orm.em, { memory }),
  },
  'leases of adkServices': { known: 'ttlMs', call: (leases) => adkServices(orm.em, { leases }) },
  'log of adkServices': { known: 'pollIntervalMs', call: (log) => adkServices(orm.em, { log }) },
  SessionMaintenance: {
    known: 'retry, timeoutMs, postgresql, onError, telemetry, codec, maxDecodedBytes, toolApps, owned',
    call: (options) => new SessionMaintenance(orm.em, options),
  },
  'postgresql of MikroOrmSessionService': {
    known: 'preparedStatements, settings, notify',
    call: (postgresql) => new MikroOrmSessionService(orm.em, { postgresql }),
  },
  MikroOrmSessionService: {
    known:
      'onStaleSession, onUnleasedAppend, deletion, toolApps, onRewrittenEvent, onAnsweredCall, defaultNumRecentEvents, onDamagedEvent, onDamage, retry, timeoutMs, postgresql, onError, telemetry, codec, maxDecodedBytes',
    call: (options) => new MikroOrmSessionService(orm.em, options),
  },
  'retry of MikroOrmSessionService': {
    known: 'attempts, forMs, baseDelayMs, maxDelayMs',
    call: (retry) => new MikroOrmSessionService(orm.em, { retry }),
  },
  toolJournal: { known: 'exactlyOnce', call: (options) => toolJournal(options) },
  SessionLeases: {
    known:
      'onStaleSession, onUnleasedAppend, deletion, toolApps, onRewrittenEvent, onAnsweredCall, defaultNumRecentEvents, onDamagedEvent, onDamage, retry, timeoutMs, postgresql, onError, telemetry, codec, maxDecodedBytes, ttlMs',
    call: (options) => new SessionLeases(orm.em, options),
  },
  'retry of SessionLeases': {
    known: 'attempts, forMs, baseDelayMs, maxDelayMs',
    call: (retry) => new SessionLeases(orm.em, { retry }),
  },
  acquire: {
    known: 'holder, waitMs, signal, autoCreateSession',
    call: (options: object) => new SessionLeases(orm.em).acquire(ADA, { holder: 'me', ...options }),
  },
  run: {
    known: 'holder, waitMs, signal, autoCreateSession',
    call: (options: object) => new SessionLeases(orm.em).run(ADA, { holder: 'me', ...options }, async () => undefined),
  },
  EventLog: {
    known: 'pollIntervalMs, retry, timeoutMs, postgresql, onError, telemetry, codec, maxDecodedBytes',
    call: (options) => new EventLog(orm.em, options),
  },
  'retry of EventLog': {
    known: 'attempts, forMs, baseDelayMs, maxDelayMs',
    call: (retry) => new EventLog(orm.em, { retry }),
  },
  'since of a log': {
    known:
      'appName, userId, sessionId, sessionTree, branchPrefix, author, authorSuffix, invocationId, afterTimestamp, limit',
    call: (filter) => new EventLog(orm.em).since(0, filter),
  },
  'watch of a log': {
    known:
      'appName, userId, sessionId, sessionTree, branchPrefix, author, authorSuffix, invocationId, afterTimestamp, limit',
    call: (filter) => new EventLog(orm.em).watch(0, filter),
  },
  'options of watch': { known: 'signal', call: (options) => new EventLog(orm.em).watch(0, {}, options) },
  "since of a session's log": {
    known: 'branchPrefix, author, authorSuffix, invocationId, afterTimestamp, limit',
    call: (filter) => new EventLog(orm.em).session(ADA).since(0, filter),
  },
  "watch of a session's log": {
    known: 'branchPrefix, author, authorSuffix, invocationId, afterTimestamp, limit',
    call: (filter) => new EventLog(orm.em).session(ADA).watch(0, filter),
  },
  "options of watch of a session's log": {
    known: 'signal',
    call: (options) => new EventLog(orm.em).session(ADA).watch(0, {}, options),
  },
  adkEntities: { known: 'schema, tablePrefix', call: (options) => adkEntities(options) },
  adkMigrations: { known: 'schema, tablePrefix', call: (options) => adkMigrations('postgresql', options) },
  createSession: {
    known: 'appName, userId, sessionId, state',
    call: (request: object) => service.createSession({ ...ADA, sessionId: 'new', ...request }),
  },
  getOrCreateSession: {
    known: 'appName, userId, sessionId, state',
    call: (request: object) => service.getOrCreateSession({ ...ADA, sessionId: 'new', ...request }),
  },
  getSession: {
    known: 'appName, userId, sessionId, config',
    call: (request: object) => service.getSession({ ...ADA, ...request }),
  },
  'config of getSession': {
    known: 'numRecentEvents, afterTimestamp',
    call: (config) => service.getSession({ ...ADA, config }),
  },
  listSessions: {
    known: 'appName, userId, sessionId, limit, offset, page, order',
    call: (request: object) => service.listSessions({ appName: 'shop', ...request }),
  },
  deleteSession: {
    known: 'appName, userId, sessionId',
    call: (request: object) => service.deleteSession({ ...ADA, ...request }),
  },
  appendEvent: {
    known: 'session, event',
    call: async (request: object) =>
      service.appendEvent({ session: (await service.getSession(ADA))!, event: createEvent(), ...request }),
  },
  appendEvents: {
    known: 'session, events',
    call: async (request: object) =>
      service.appendEvents({ session: (await service.getSession(ADA))!, events: [createEvent()], ...request }),
  },
  getAppState: {
    known: 'appName, userId, sessionId',
    call: (request: object) => service.getAppState({ appName: 'shop', ...request }),
  },
  getUserState: {
    known: 'appName, userId, sessionId',
    call: (request: object) => service.getUserState({ appName: 'shop', userId: 'ada', ...request }),
  },
  updateState: {
    known: 'appName, userId, sessionId, set, remove',
    call: (request: object) => service.updateState({ ...ADA, set: { a: 2, 'app:a': 2 }, ...request }),
  },
};

async function refusal(call: () => unknown): Promise<Error> {
  const error: unknown = await (async () => call())().catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(InvalidArgumentError);
  expect(error).toBeInstanceOf(AdkMikroOrmError);
  expect(error).toMatchObject({ code: 'ADK_INVALID_ARGUMENT', name: 'InputValidationError' });
  return error as Error;
}

/** All rows, as text. */
async function everythingStored(): Promise<string> {
  const em = orm.em.fork();
  const tables = await Promise.all(adkEntities().map(({ meta }) => em.find(meta.className, {})));
  return JSON.stringify(tables);
}

describe.each(Object.entries(TAKERS))('%s', (_name, { known, call }) => {
  const pass = (argument: unknown) => () => call(argument as never);

  test('refuses a name that is not known, and lists the known ones', async () => {
    const before = await everythingStored();
    for (const unknown of [{ usr: 'ada' }, { usr: undefined }]) {
      const { message } = await refusal(pass(unknown));
      expect(message).toContain("'usr'");
      expect(message).toContain(`known are ${known}.`);
    }
    expect(await everythingStored()).toBe(before);
  });

  test('refuses no known name', async () => {
    // The values here are invalid, but none is refused because of its name.
    for (const name of known.split(', ')) {
      const error: unknown = await (async () => pass({ [name]: Symbol('none') })())().catch(
        (reason: unknown) => reason,
      );
      expect(String(error)).not.toContain('known are');
    }
  });
});

test.each<[string, keyof typeof TAKERS, object]>([
  ["onStaleSession must be 'rebase' or 'reject'.", 'MikroOrmSessionService', { onStaleSession: 'rejct' }],
  ["onStaleSession must be 'rebase' or 'reject'.", 'SessionLeases', { onStaleSession: true }],
  ["onUnleasedAppend must be 'allow' or 'reject'.", 'MikroOrmSessionService', { onUnleasedAppend: 'no' }],
  ['notify must be true or false.', 'postgresql of MikroOrmSessionService', { notify: 'yes' }],
  ['retry must be an object.', 'MikroOrmSessionService', { retry: 3 }],
  ['retry must be an object.', 'EventLog', { retry: null }],
  ['forMs must be a number of ms, 0 or more.', 'retry of EventLog', { forMs: -1 }],
  ['timeoutMs must be a number of ms, 0 for no limit', 'EventLog', { timeoutMs: -1 }],
  ['timeoutMs must be a number of ms, 0 for no limit', 'MikroOrmSessionService', { timeoutMs: Infinity }],
  ['attempts must be a whole number, 1 or more.', 'retry of EventLog', { attempts: 0 }],
  ['baseDelayMs must be a number of ms, 0 or more.', 'retry of SessionLeases', { baseDelayMs: -1 }],
  ['maxDelayMs must be a number of ms, 0 or more.', 'retry of MikroOrmSessionService', { maxDelayMs: '5' }],
  ['ttlMs must be a number of ms above 0, and 2147483647 at most.', 'SessionLeases', { ttlMs: 0 }],
  ['listen must be a function.', 'EventLog', { postgresql: { listen: {} } }],
  ['ttlMs must be a number of ms above 0', 'leases of adkServices', { ttlMs: 0 }],
  ['holder must be a string of 1 to 255 characters', 'acquire', { holder: undefined }],
  ['waitMs must be a number of ms, 0 or more.', 'acquire', { waitMs: NaN }],
  ['author must be a string.', 'since of a log', { author: null }],
  ['branchPrefix must be a string that is not empty.', "since of a session's log", { branchPrefix: ['a'] }],
  ['signal must be an AbortSignal.', 'options of watch', { signal: new AbortController() }],
  ['schema must be a string.', 'adkEntities', { schema: 5 }],
  ['tablePrefix must be a string.', 'adkMigrations', { tablePrefix: null }],
  ['tablePrefix must have at most 32 bytes of UTF-8.', 'adkEntities', { tablePrefix: 'p'.repeat(33) }],
  ['tablePrefix must have at most 32 bytes of UTF-8.', 'adkMigrations', { tablePrefix: 'é'.repeat(17) }],
  ['tablePrefix must hold no NUL', 'adkEntities', { tablePrefix: 'a\0_' }],
  ['schema must hold no NUL', 'adkMigrations', { schema: 'a\0' }],
  ["order must be 'asc' or 'desc'.", 'listSessions', { order: 'down' }],
  ['page must be a whole number, 1 or more.', 'listSessions', { page: 0 }],
  ['state must be a plain object.', 'createSession', { state: 'none' }],
  ['state must be a plain object.', 'createSession', { state: new Map([['a', 1]]) }],
  ['state must be a plain object.', 'getOrCreateSession', { state: new URLSearchParams('a=1') }],
  ['numRecentEvents must be a whole number, 0 or more.', 'config of getSession', { numRecentEvents: '5' }],
  ['afterTimestamp must be a number of ms since 1970.', 'config of getSession', { afterTimestamp: NaN }],
  ['session must be an object with events and state', 'appendEvent', { session: undefined }],
  ['session must be an object with events and state', 'appendEvent', { session: {} }],
  ['session must be an object with events and state', 'appendEvent', { session: { ...ADA, id: 's', state: {} } }],
  ['session must be an object with events and state', 'appendEvents', { session: { ...ADA, id: 's', events: [] } }],
  ['session must be an object with events and state', 'appendEvents', { session: { id: 's', events: [], state: 's' } }],
  [
    'actions.stateDelta must be an object.',
    'appendEvent',
    { event: createEvent({ actions: { stateDelta: 'ab' as never } }) },
  ],
  ['event must be an object.', 'appendEvent', { event: undefined }],
  ['events must be an array of objects.', 'appendEvents', { events: createEvent() }],
  ['events must be an array of objects.', 'appendEvents', { events: [undefined] }],
  ['events must be an array of objects.', 'appendEvents', { events: new Array(1) }],
  ['set must be a plain object.', 'updateState', { set: null }],
  ['set must be a plain object.', 'updateState', { set: new Map([['a', 1]]) }],
  ['remove must be an array of strings.', 'updateState', { remove: 'a' }],
  ['remove must be an array of strings.', 'updateState', { remove: new Array(1) }],
])('%s (%s)', async (message, taker, argument) => {
  const before = await everythingStored();
  const error = await refusal(() => TAKERS[taker]!.call(argument as never));
  expect(error.message).toContain(message);
  expect(await everythingStored()).toBe(before);
});

/** The options that not every service has. */
const SOME_HAVE = [
  ...['onStaleSession', 'onUnleasedAppend', 'deletion', 'onRewrittenEvent', 'onAnsweredCall', 'onDamagedEvent'],
  ...['defaultNumRecentEvents', 'onDamage', 'toolApps', 'limit', 'maxCharacters', 'text', 'embed', 'ttlMs'],
  ...['pollIntervalMs', 'canonicalUri', 'maxBytes', 'notify', 'listen'],
];

const codec = compression();
/** Constructors, and the groups and objects in their options. */
const SERVICES: Record<string, (options: never) => unknown> = {
  ...Object.fromEntries(
    ['adkServices', 'SessionMaintenance', 'MikroOrmSessionService', 'SessionLeases', 'EventLog']
      .concat(
        ['sessions', 'artifacts', 'memory', 'leases', 'log', 'postgresql'].map((name) => `${name} of adkServices`),
      )
      .map((name) => [name, TAKERS[name]!.call]),
  ),
  'postgresql of MikroOrmSessionService': TAKERS['postgresql of MikroOrmSessionService']!.call,
  MikroOrmArtifactService: (options) => new MikroOrmArtifactService(orm.em, options),
  MikroOrmMemoryService: (options) => new MikroOrmMemoryService(orm.em, options),
  MikroOrmCredentialService: (options: object) => new MikroOrmCredentialService(orm.em, { codec, ...options }),
  SessionProjection: (options: object) =>
    new SessionProjection(orm.em, { name: 'p', apply: async () => {}, clear: async () => {}, ...options }),
  'postgresql of EventLog': (postgresql) => new EventLog(orm.em, { postgresql }),
  'postgresql of SessionLeases': (postgresql) => new SessionLeases(orm.em, { postgresql }),
  'postgresql of SessionMaintenance': (postgresql) => new SessionMaintenance(orm.em, { postgresql }),
  'postgresql of MikroOrmArtifactService': (postgresql) => new MikroOrmArtifactService(orm.em, { postgresql }),
  'postgresql of MikroOrmMemoryService': (postgresql) => new MikroOrmMemoryService(orm.em, { postgresql }),
};

test.each(Object.entries(SERVICES))('%s refuses an option that it does not use', async (_name, make) => {
  const refused: string[] = [];
  for (const option of SOME_HAVE) {
    const error: unknown = await (async () => make({ [option]: Symbol('none') } as never))().catch(
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(InvalidArgumentError);
    const { message } = error as Error;
    if (!message.includes('may not have')) continue;
    expect(message).toContain(`may not have '${option}'; known are `);
    refused.push(option);
  }
  // No service has all of them: one that refuses none takes options that it does not use.
  expect(refused.length).toBeGreaterThan(SOME_HAVE.length / 3);
});

test('options of one service do not reach another', () => {
  const services = adkServices(orm.em, {
    codec,
    sessions: { deletion: 'soft', toolApps: ['expert'], onDamage: () => undefined },
    artifacts: { maxBytes: 1, canonicalUri: () => undefined },
    memory: {
      limit: 1,
      ttlMs: 1,
      embed: { model: 'm', vectors: async () => [] },
      text: () => '',
      onDamage: () => undefined,
    },
    leases: { ttlMs: 1_000 },
    log: { pollIntervalMs: 10 },
    postgresql: { preparedStatements: false, notify: true, listen: () => ({}) as never },
  });
  expect(services.credentialService).toBeInstanceOf(MikroOrmCredentialService);
});

test('a value that is not an object is refused', async () => {
  for (const taker of ['MikroOrmSessionService', 'EventLog', 'since of a log', 'options of watch', 'adkEntities']) {
    for (const argument of [null, 'ada', 5, []]) {
      expect(await refusal(() => TAKERS[taker]!.call(argument as never))).toHaveProperty(
        'message',
        expect.stringContaining('must be an object.'),
      );
    }
  }
  await refusal(() => service.getSession(undefined as never));
});

test('a signal instead of the options is refused, not passed over', async () => {
  const { signal } = new AbortController();
  expect((await refusal(() => new EventLog(orm.em).watch(0, {}, signal as never))).message).toContain(
    'known are signal.',
  );
});

test('a dialect that is not known is refused', async () => {
  expect((await refusal(() => adkMigrations('postgres' as never))).message).toBe(
    "The dialect of adkMigrations must be 'sqlite' or 'postgresql' or 'mysql' or 'mariadb'.",
  );
});

test("null is nothing in a request where it is to ADK's own services", async () => {
  expect(await service.getSession({ ...ADA, config: null } as never)).toMatchObject({ id: 's' });
  expect(await service.createSession({ ...ADA, sessionId: null, state: null } as never)).toHaveProperty('id');
});

describe('D9 what is not understood is refused', () => {
  /** Has no tables: a call that gets as far as the database fails with another error. */
  let empty: MikroORM;
  beforeAll(async () => {
    empty = await MikroORM.init({ driver: BetterSqliteDriver, dbName: ':memory:', entities: adkEntities() });
  });
  afterAll(() => empty.close(true));

  const all = async (entries: AsyncIterable<unknown>) => {
    for await (const _ of entries) return;
  };
  const OWNER = { appName: 'shop', userId: 'ada' };
  const EVENTS = {
    branchPrefix: 'root',
    author: 'agent',
    authorSuffix: 't',
    invocationId: 'i',
    afterTimestamp: 1,
  };
  const KEYS = { ...ADA, sessionTree: 's' };
  const projection = { name: 'p', apply: async () => undefined, clear: async () => undefined };

  /** Every public call in which a missing name widens the selection: these names with values, and the call. */
  const QUESTIONS: Record<string, { conditions: object; rest?: object; call: (argument: never) => unknown }> = {
    since: { conditions: { ...KEYS, ...EVENTS }, call: (it) => all(new EventLog(empty.em).since(0, it)) },
    watch: { conditions: { ...KEYS, ...EVENTS }, call: (it) => all(new EventLog(empty.em).watch(0, it)) },
    'since of a session': { conditions: EVENTS, call: (it) => all(new EventLog(empty.em).session(ADA).since(0, it)) },
    'watch of a session': { conditions: EVENTS, call: (it) => all(new EventLog(empty.em).session(ADA).watch(0, it)) },
    'the filter of a projection': {
      conditions: { ...KEYS, ...EVENTS },
      call: (filter) => new SessionProjection(empty.em, { ...projection, filter }).catchUp(),
    },
    SessionProjection: {
      conditions: { filter: OWNER },
      rest: projection,
      call: (it) => new SessionProjection(empty.em, it).catchUp(),
    },
    listSessions: {
      conditions: { userId: 'ada' },
      rest: { appName: 'shop' },
      call: (it) => new MikroOrmSessionService(empty.em).listSessions(it),
    },
    findSessions: {
      conditions: { userId: 'ada', title: 'T', labels: { a: 'b' }, updatedAfter: 1, updatedBefore: 2 },
      rest: { appName: 'shop' },
      call: (it) => new MikroOrmSessionService(empty.em).findSessions(it),
    },
    'forkSession at': {
      conditions: { at: 1 },
      call: (it) => new MikroOrmSessionService(empty.em).forkSession(ADA, it),
    },
    'forkSession before': {
      conditions: { beforeInvocationId: 'i' },
      call: (it) => new MikroOrmSessionService(empty.em).forkSession(ADA, it),
    },
    'rewindSession at': {
      conditions: { at: 1 },
      call: (it) => new MikroOrmSessionService(empty.em).rewindSession(ADA, it),
    },
    prune: {
      conditions: { ...OWNER, idleFor: 1, sessionsOlderThan: 1, deletedFor: 1 },
      call: (it) => new SessionMaintenance(empty.em).prune(it),
    },
    trim: { conditions: { ...ADA, keepLast: 1 }, call: (it) => new SessionMaintenance(empty.em).trim(it) },
    'trim by age': {
      conditions: { ...OWNER, eventsOlderThan: 1 },
      call: (it) => new SessionMaintenance(empty.em).trim(it),
    },
    eraseUser: { conditions: OWNER, call: (it) => new SessionMaintenance(empty.em).eraseUser(it) },
    reencode: {
      conditions: OWNER,
      call: (it) => new SessionMaintenance(empty.em, { codec: compression() }).reencode(it),
    },
    stats: { conditions: OWNER, call: (it) => new SessionMaintenance(empty.em).stats(it) },
    'stats by app': {
      conditions: OWNER,
      rest: { groupBy: 'app' },
      call: (it) => new SessionMaintenance(empty.em).stats(it),
    },
    usageOf: {
      conditions: { ...OWNER, from: '2026-11-01', to: '2026-11-02' },
      rest: { by: 'day' },
      call: (it) => usageOf(new EventLog(empty.em), it),
    },
    exportSessions: { conditions: OWNER, call: (it) => all(new SessionMaintenance(empty.em).exportSessions(it)) },
    createStudio: {
      conditions: { authorize: () => false, hosts: ['localhost'] },
      call: (it) => {
        createStudio(empty.em, it);
        throw new SchemaError('made');
      },
    },
  };

  class Condition {
    readonly appName = 'shop';
  }

  /** Calls whose argument has no names of its own, or takes them from elsewhere. */
  const NO_OBJECTS: readonly (() => unknown)[] = [
    () => null,
    () => 'shop',
    () => '',
    () => 0,
    () => false,
    () => [],
    () => [OWNER],
    () => new Condition(),
    () => Object.create(OWNER) as unknown,
    () => Object.defineProperty({}, 'user', { value: 'ada', enumerable: false }),
    () => ({ [Symbol('userId')]: 'ada' }),
    () => new Map(Object.entries(OWNER)),
    () => new Set(),
    () => new Headers(OWNER),
    () => new URLSearchParams(OWNER),
    () => new Response('no', { status: 401 }),
    () => new Error('no'),
    () => new Date(),
    () => Object(false),
    () => Promise.resolve(OWNER),
    () => () => OWNER,
  ];

  const refused = { code: expect.stringMatching(/^ADK_INVALID_(ARGUMENT|KEY)$/) };
  const errorOf = async (call: () => unknown): Promise<unknown> => {
    try {
      await call();
      return undefined;
    } catch (error) {
      return error;
    }
  };

  describe.each(Object.entries(QUESTIONS))('%s', (_name, { conditions, rest, call }) => {
    const given = { ...conditions, ...rest };
    const ask = (argument: unknown) => errorOf(() => call(argument as never));

    test('reads, when it is asked as it should be', async () => {
      expect(await ask(given)).toMatchObject({ code: 'ADK_SCHEMA' });
      expect(await ask(Object.assign(Object.create(null), given))).toMatchObject({ code: 'ADK_SCHEMA' });
    });

    test.each(Object.keys(conditions))('refuses a value of %s that is none', async (name) => {
      for (const value of [undefined, null, [], {}, ['ada'], Symbol('a'), NaN, false, new Map(), Object('ada')]) {
        // An empty list of hosts is valid: none is answered. So are an empty filter and empty labels: they have no condition.
        if (
          (name === 'hosts' && Array.isArray(value)) ||
          (/^(filter|labels)$/.test(name) && isDeepStrictEqual(value, {}))
        )
          continue;
        expect([value, await ask({ ...given, [name]: value })]).toEqual([value, expect.objectContaining(refused)]);
      }
      // The author and the invocation of an event may be empty texts.
      if (!/^(author|invocationId|beforeInvocationId)$/.test(name))
        expect(await ask({ ...given, [name]: '' })).toMatchObject(refused);
    });

    test('refuses an object that is not one', async () => {
      for (const make of NO_OBJECTS)
        expect([make, await ask(make())]).toEqual([make, expect.objectContaining(refused)]);
    });
  });

  test('a session alone does not limit a list', async () => {
    const request = { appName: 'shop', sessionId: 's' };
    expect(await errorOf(() => new MikroOrmSessionService(empty.em).listSessions(request))).toMatchObject(refused);
  });

  test('labels that are no plain object take none away', async () => {
    const label = (labels: unknown) => () => service.describeSession(ADA, { labels: labels as never });
    await label({ team: 'red' })();
    for (const labels of [new Map(), [], new Headers()]) expect(await errorOf(label(labels))).toMatchObject(refused);
    const { sessions } = await service.findSessions({ appName: 'shop', labels: { team: 'red' } });
    expect(sessions).toHaveLength(1);
  });
});

describe('a name or an id that is missing', () => {
  const KINDS = ['appName', 'userId', 'sessionId'] as const;
  const CALLS = {
    createSession: (key: never) => service.createSession(key),
    getOrCreateSession: (key: never) => service.getOrCreateSession(key),
    deleteSession: (key: never) => service.deleteSession(key),
    getUserState: ({ appName, userId }: typeof ADA) => service.getUserState({ appName, userId }),
    acquire: (key: never) => new SessionLeases(orm.em).acquire(key, { holder: 'me' }),
    'session of a log': async (key: never) => new EventLog(orm.em).session(key),
  };

  test.each(Object.entries(CALLS))("%s says so in the words of ADK's own service", async (name, call) => {
    for (const kind of KINDS) {
      // `createSession` makes a missing id, and a user's state has none.
      if (kind === 'sessionId' && /create|user/i.test(name)) continue;
      for (const missing of [undefined, null]) {
        await expect(call({ ...ADA, [kind]: missing } as never)).rejects.toMatchObject({
          name: 'InputValidationError',
          code: 'ADK_INVALID_KEY',
          message: `Value for AdkSession.${kind} is required, '${String(missing)}' found`,
        });
      }
    }
  });

  test('appendEvent does not find such a session', async () => {
    const session = (await service.getSession(ADA))!;
    for (const kind of ['appName', 'userId', 'id']) {
      const append = service.appendEvent({ session: { ...session, [kind]: undefined }, event: createEvent() });
      await expect(append).rejects.toMatchObject({ code: 'ADK_SESSION_NOT_FOUND' });
    }
  });
});

describe('a value that is not an EntityManager or an ORM', () => {
  test.each([MikroOrmSessionService, EventLog, SessionLeases, SessionMaintenance])('%p says orm.em', (Class) => {
    expect(() => new Class(orm as never)).toThrow(InvalidArgumentError);
    expect(() => new Class(orm as never)).toThrow('orm.em');
    expect(() => new Class(undefined as never)).toThrow(InvalidArgumentError);
    expect(() => new Class({} as never)).toThrow('orm.em');
  });

  test.each([migrate, distribute])('$name says $name(orm)', async (call) => {
    for (const wrong of [orm.em, undefined, {}, Promise.resolve(orm)]) {
      const error: unknown = await call(wrong as never).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(InvalidArgumentError);
      expect(error).toHaveProperty('message', expect.stringContaining(`${call.name}(orm)`));
    }
  });

  test('entities that are not spread say so', async () => {
    const options = { driver: BetterSqliteDriver, dbName: ':memory:', entities: [adkEntities()] as never };
    await expect(MikroORM.init(options)).rejects.toThrow('...adkEntities()');
  });
});
