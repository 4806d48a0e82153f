import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { brotliCompressSync, constants } from 'node:zlib';
import {
  AuthCredentialTypes,
  BaseAgent,
  Runner,
  type AuthConfig,
  type Context,
  type Event,
  type InvocationContext,
  type Session,
} from '@google/adk';
import type { EntityProperty } from '@mikro-orm/core';
import { adkEntities } from '../../entities/index.js';
import { PART_BYTES } from '../../src/artifacts/artifact-content.js';
import {
  KeyNeeded,
  compression,
  encryption,
  wrappedKeys,
  type Codec,
  type KeyFunction,
} from '../../src/codecs/index.js';
import {
  type AdkMikroOrmError,
  DamagedSessionError,
  EventLog,
  MikroOrmArtifactService,
  MikroOrmSessionService,
  SessionMaintenance,
  adkServices,
  type MikroOrmSessionServiceOptions,
} from '../../src/index.js';
import { MikroOrmMemoryService } from '../../src/memory/memory-service.js';
import { resolveDialect } from '../../src/database/dialects/resolve.js';
import { ormConnectionOf } from '../../src/database/orm/orm-connection.js';
import { Backup } from '../support/backup.js';
import { expectSame, folded as foldOf } from '../support/fold.js';
import { keyOf, type OwnStore } from '../support/harnesses/harness.js';
import { read, upTo } from './log-tools.js';
import { Suite, oncePerDialect, type OwnContext } from './rule.js';
import {
  errorOf,
  eventOf,
  expectCode,
  faulty,
  idsOf,
  late,
  plain,
  range,
  reversing,
  saying,
  textsOf,
} from './tools.js';

export const codecSuite = new Suite({ isOfDialect: true });

/** What no column may hold in plain text. */
const SECRET = 'the launch code is 0451';

const OF_SESSION = 'app_name = ? and user_id = ? and session_id = ?';
const valuesOf = (session: Session) => [session.appName, session.userId, session.id];

const bytesOf = (id: string) => createHash('sha256').update(id).digest();

/** A codec with one key; `key` answers later, as a KMS does. */
const encrypting = (currentKey: string | undefined, key: KeyFunction = async (id) => bytesOf(id)): Codec =>
  encryption({ currentKey, key });

/** Compresses what is long, and encrypts with a key. */
const both = (key = 'k1'): Codec[] => [compression({ minBytes: 200 }), encrypting(key)];

const serviceOf = ({ orm }: Pick<OwnStore, 'orm'>, options: MikroOrmSessionServiceOptions) =>
  new MikroOrmSessionService(orm.em, options);

/** All texts with contents that the tables have of an app. */
async function textsIn({ query, app }: Pick<OwnContext, 'query' | 'app'>): Promise<string[]> {
  const columns = {
    events: 'data',
    event_parts: 'text',
    session_states: 'value',
    user_states: 'value',
    app_states: 'value',
    changes: 'data',
  };
  const texts: string[] = [];
  for (const [table, column] of Object.entries(columns)) {
    const where = table === 'changes' ? ` and kind <> 'trimmed'` : '';
    const rows = await query<{ content: unknown }>(
      `select ${column} as content from adk_${table} where app_name = ? and ${column} is not null${where}`,
      [app],
    );
    // Drivers parse the column of PostgreSQL.
    texts.push(...rows.map(({ content }) => (typeof content === 'string' ? content : JSON.stringify(content))));
  }
  // Without an order a server gives rows as it finds them: PostgreSQL moves a row that gets its position.
  return texts.sort();
}

/** Copies one event's stored text to another row, by a statement of somebody who may write to the tables. */
async function copyEvent(
  { query }: Pick<OwnStore, 'query'>,
  [from, seq]: [Session, number],
  [to, toSeq]: [Session, number],
) {
  // MySQL does not select from the table that it updates.
  const text = `(select kept.data from (select data from adk_events where ${OF_SESSION} and seq = ?) as kept)`;
  await query(`update adk_events set data = ${text} where ${OF_SESSION} and seq = ?`, [
    ...valuesOf(from),
    seq,
    ...valuesOf(to),
    toSeq,
  ]);
}

/** A session of three events and some state of every scope. */
async function three(
  service: MikroOrmSessionService,
  app: string,
  options: { userId?: string; sessionId?: string } = {},
) {
  const session = await service.createSession({
    appName: app,
    userId: 'alice',
    state: { given: SECRET, 'user:u': SECRET, 'app:x': SECRET },
    ...options,
  });
  for (const n of upTo(3)) {
    const event = saying(SECRET, { id: `e${n}`, timestamp: n, actions: { stateDelta: { n: { n, SECRET } } } });
    await service.appendEvent({ session, event });
  }
  return session;
}

const again = (service: MikroOrmSessionService, session: Session) => service.getSession(keyOf(session));

/** Expects that a session is reported as damaged, and returns the error. */
async function damageOf(service: MikroOrmSessionService, session: Session): Promise<DamagedSessionError> {
  const error = await errorOf(again(service, session));
  expect(error).toBeInstanceOf(DamagedSessionError);
  return error as DamagedSessionError;
}

/** Lives as a session does, with all that writes contents. */
async function live(service: MikroOrmSessionService, maintenance: SessionMaintenance, app: string) {
  const session = await three(service, app, { sessionId: 's' });
  const key = keyOf(session);
  await service.appendEvents({
    session,
    events: [
      saying(SECRET.repeat(50), { id: 'long', timestamp: 4 }),
      eventOf({ id: 'plain', timestamp: 5, actions: { stateDelta: { [SECRET.slice(0, 3)]: SECRET } } }),
    ],
  });
  await service.updateState({ ...key, set: { outside: SECRET, 'user:o': SECRET, 'app:o': SECRET }, remove: ['given'] });
  // Again with other content, and again with the same.
  for (const _ of range(2))
    await service.appendEvent({ session, event: saying(`${SECRET}!`, { id: 'e2', timestamp: 2 }) });
  await service.forkSession(key, { at: 4, as: 'fork' });
  await service.forkSession(key, { as: 'whole' });
  await service.rewindSession({ ...key, sessionId: 'whole' }, { at: 2 });
  const rewound = (await service.getSession({ ...key, sessionId: 'whole' }))!;
  await service.appendEvent({ session: rewound, event: saying('after', { id: 'after', timestamp: 9 }) });
  await maintenance.trim({ ...key, keepLast: 3 });
  await service.forkSession(key, { at: 4, as: 'fork of trimmed' });
  const deleted = await service.createSession({ appName: app, userId: 'bob', sessionId: 'gone', state: { a: SECRET } });
  await service.deleteSession(keyOf(deleted));
  await service.createSession({ appName: app, userId: 'bob', sessionId: 'gone', state: { b: SECRET } });
}

/** What everybody sees of an app. */
async function shown(service: MikroOrmSessionService, app: string) {
  const { sessions } = await service.listSessions({ appName: app });
  const whole = await Promise.all(sessions.map((session) => again(service, session)));
  const without = ({ appName: _, lastUpdateTime: __, ...rest }: Session) => plain(rest);
  const own = [sessions, whole].map((each) => each.map((session) => without(session!)).sort(byId));
  return [
    ...own,
    await service.getAppState({ appName: app }),
    await service.getUserState({ appName: app, userId: 'alice' }),
  ];
}

const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1);

codecSuite.own('M1', 'adkServices gives the codec to every service that it makes', async (context) => {
  const { orm, app } = context;
  const { sessionService, leases, log, maintenance } = adkServices(orm.em, { codec: encrypting('k1') });
  const session = await sessionService.createSession({ appName: app, userId: 'alice' });
  await leases.run(keyOf(session), { holder: 'me' }, async (lease) =>
    lease.sessionService.appendEvent({ session, event: saying(SECRET) }),
  );
  for (const text of await textsIn(context)) expect(text).not.toContain(SECRET);
  const [{ event } = {}] = await read(log.session(keyOf(session)).since(0));
  expect(event?.content?.parts?.[0]?.text).toBe(SECRET);
  expect(JSON.stringify(await read(maintenance.exportSessions({ appName: app })))).toContain(SECRET);
});

codecSuite.own(
  'M1',
  'what is stored is encoded, and everything that reads shows it as without a codec',
  async (context) => {
    const { orm, app, another } = context;
    const codec = both();
    const service = serviceOf(context, { codec });
    const maintenance = new SessionMaintenance(orm.em, { codec });
    await live(service, maintenance, app);
    await live(another, new SessionMaintenance(orm.em), `${app} plain`);
    expect(await shown(service, app)).toEqual(await shown(another, `${app} plain`));

    const texts = await textsIn(context);
    expect(texts.length).toBeGreaterThan(30);
    for (const text of texts) {
      const [mark, steps, data] = JSON.parse(text) as [string, { codec: string; key?: string }[], string];
      expect([mark, steps.at(-1)]).toEqual(['adk-codec', { codec: 'aes-256-gcm', key: 'k1' }]);
      expect(data).not.toMatch(/launch code|is 0451/);
    }
    // The long event was compressed first.
    expect(texts.filter((text) => text.includes('compression')).length).toBeGreaterThan(0);

    // J2 with a codec: the log says what the service shows.
    const log = new EventLog(orm.em, { codec });
    const [folded, plainly] = [await foldOf(log, app), await foldOf(new EventLog(orm.em), `${app} plain`)];
    const renamed = JSON.parse(JSON.stringify(folded).replaceAll(app, `${app} plain`)) as typeof folded;
    expectSame(renamed, plainly);
    const ofSession = await read(log.session({ appName: app, userId: 'alice', sessionId: 'fork' }).since(0));
    expect(ofSession.map(({ event }) => event?.id)).toEqual(['e1', 'e2', 'e3', 'long']);
  },
);

codecSuite.own(
  'M1',
  'rows without a codec, with another codec and with another key can all be read',
  async (context) => {
    const { app, another } = context;
    const keys = [undefined, [compression({ minBytes: 100 })], both('k1'), both('k2')];
    const session = await another.createSession({ appName: app, userId: 'alice' });
    for (const [i, codec] of keys.entries()) {
      const service = codec ? serviceOf(context, { codec }) : another;
      const handle = i === 0 ? session : (await again(serviceOf(context, { codec: both('k2') }), session))!;
      const delta = { [`k${i}`]: SECRET, [`user:k${i}`]: 'x'.repeat(1_000) };
      await service.appendEvent({
        session: handle,
        event: saying(SECRET.repeat(20), { actions: { stateDelta: delta } }),
      });
    }
    const whole = (await again(serviceOf(context, { codec: both('k3') }), session))!;
    expect(textsOf(whole)).toEqual(Array(4).fill(SECRET.repeat(20)));
    expect(Object.keys(whole.state).sort()).toEqual(
      range(4)
        .flatMap((i) => [`k${i}`, `user:k${i}`])
        .sort(),
    );
    const stored = await textsIn(context);
    for (const named of ['"k1"', '"k2"', '"compression"', '"content"'])
      expect(stored.some((text) => text.includes(named))).toBe(true);
  },
);

codecSuite.own(
  'M1',
  'without the codec a call fails and names codec and key, and nothing is taken for damage or removed',
  async (context) => {
    const { orm, app } = context;
    const service = serviceOf(context, { codec: both() });
    const session = await three(service, app);
    const key = keyOf(session);
    await service.updateState({ ...key, set: { outside: SECRET } });
    const file = { ...key, filename: 'file', artifact: { text: SECRET } };
    await new MikroOrmArtifactService(orm.em, { codec: both() }).saveArtifact(file);
    await new MikroOrmMemoryService(orm.em, { codec: both() }).addSessionToMemory(session);
    const before = await textsIn(context);
    const damaged: unknown[] = [];
    const options = { onDamagedEvent: 'skip', onDamage: (error: unknown) => void damaged.push(error) } as const;
    // Also with a part of the codecs.
    for (const codec of [undefined, compression()]) {
      const forgotten = serviceOf(context, { codec, ...options });
      const maintenance = new SessionMaintenance(orm.em, { codec });
      const artifacts = new MikroOrmArtifactService(orm.em, { codec });
      const memory = new MikroOrmMemoryService(orm.em, { codec, onDamage: options.onDamage });
      const log = new EventLog(orm.em, { codec });
      const { artifact: _, ...name } = file;
      const owner = { appName: app, userId: 'alice' };
      const calls = [
        () => forgotten.getSession(key),
        () => forgotten.getSession({ ...key, config: { numRecentEvents: 1 } }),
        () => forgotten.listSessions({ appName: app }),
        () => forgotten.getUserState(key),
        () => forgotten.readEvents(key),
        () => forgotten.forkSession(key),
        () => forgotten.rewindSession(key, { at: 1 }),
        () => forgotten.appendEvent({ session: plain(session), event: saying('again', { id: 'e2', timestamp: 2 }) }),
        () => read(log.since(0, { appName: app })),
        () => read(log.complete().since(0, { appName: app })),
        () => read(log.session(key).since(0)),
        () => maintenance.repair(key),
        () => maintenance.trim({ ...key, keepLast: 1 }),
        () => maintenance.reencode({ appName: app }),
        () => read(maintenance.exportSessions({ appName: app })),
        () => artifacts.loadArtifact(name),
        () => artifacts.findArtifacts(owner),
        () => memory.searchMemory({ ...owner, query: 'which launch code?' }),
        () => memory.listMemories({ ...owner, limit: 10 }),
      ];
      for (const [i, call] of calls.entries()) {
        const error = await errorOf(call());
        expect({ i, code: (error as Partial<AdkMikroOrmError>).code, message: error.message }).toEqual({
          ...{ i, code: 'ADK_CODEC' },
          message: expect.stringMatching(/aes-256-gcm \(key k1\), and aes-256-gcm is not in the codec option/),
        });
      }
    }
    expect(damaged).toEqual([]);
    expect(await textsIn(context)).toEqual(before);
    // An append needs nothing that is stored (I4), not even on a handle that no service has read.
    await serviceOf(context, {}).appendEvent({ session: plain(session), event: saying('new', { id: 'new' }) });
    expect(textsOf((await again(service, session))!)).toEqual([SECRET, SECRET, SECRET, 'new']);
  },
);

codecSuite.own(
  'M1',
  'the same event appended again changes no row, and other content is a conflict',
  async (context) => {
    const { app } = context;
    const service = serviceOf(context, { codec: both(), onRewrittenEvent: 'reject' });
    const session = await three(service, app);
    const before = await textsIn(context);
    await service.appendEvent({ session, event: session.events[1]! });
    const fresh = (await again(service, session))!;
    await service.appendEvent({ session: fresh, event: fresh.events[0]! });
    expect(await textsIn(context)).toEqual(before);
    await expectCode(
      service.appendEvent({ session, event: saying('other', { id: 'e2', timestamp: 2 }) }),
      'ADK_EVENT_CONFLICT',
    );
  },
);

codecSuite.own('M1', 'a key is waited for without a connection and without a lock', async (context) => {
  const { orm, app, query } = context;
  const asked: string[] = [];
  // With the connections of the same ORM; on SQLite there is one. Nothing is kept in memory.
  const key: KeyFunction = async (id, use) => {
    await orm.em.fork().getConnection().execute('select 1');
    asked.push(`${use} ${id}`);
    return bytesOf(id);
  };
  const service = serviceOf(context, {
    codec: encryption({ currentKey: ({ userId }) => `of ${userId}`, key, cacheMs: 0 }),
  });
  const session = await three(service, app);
  await service.updateState({ ...keyOf(session), set: { more: 1, 'app:y': 2 } });
  const stale = (await again(service, session))!;
  await service.appendEvent({ session, event: saying('four') });
  await service.appendEvent({ session: stale, event: saying('five') });
  await service.appendEvent({ session, event: { ...session.events[0]!, customMetadata: { x: 1 } } });
  await service.forkSession(keyOf(session), { as: 'fork' });
  asked.length = 0;
  expect(textsOf((await again(service, session))!)).toEqual([SECRET, SECRET, SECRET, 'four', 'five']);
  // One question for all texts of a key.
  expect(asked.sort()).toEqual(['decrypt of ', 'decrypt of alice']);
  // In a host's transaction the connection is the host's. A key that is at hand is not waited for.
  const kept = serviceOf(context, { codec: encrypting('k1') });
  const handle = await three(kept, `${app} 2`);
  await orm.em.fork().transactional(async (tx) => {
    await kept.withEntityManager(tx).appendEvent({ session: handle, event: saying('inside', { id: 'inside' }) });
  });
  const rows = await query(`select event_id from adk_events where app_name = ? and event_id = 'inside'`, [`${app} 2`]);
  expect(rows).toHaveLength(1);
});

/** An `EntityManager` that counts the connections that are taken from its pool. */
function watched({ orm }: Pick<OwnStore, 'orm'>) {
  const own = faulty(orm.em, {});
  const way = ormConnectionOf(own);
  const reserve = way.reserve.bind(way);
  const taken = { now: 0 };
  way.reserve = async () => {
    const { release, ...connection } = await reserve();
    taken.now++;
    const releasing = () => {
      taken.now--;
      release();
    };
    return { ...connection, release: releasing };
  };
  return { own, taken };
}

/** A codec whose keys a test may hold back. */
function gated({ taken }: Pick<ReturnType<typeof watched>, 'taken'>) {
  let gate = Promise.resolve();
  let asked = () => {};
  let waits = 0;
  const codec = late(reversing, () => {
    waits++;
    asked();
    return gate;
  });
  /** Makes a call, and does something else once it waits for a key. The call must then have no connection. */
  const during = async <T>(call: () => Promise<T>, meanwhile: () => Promise<unknown> = async () => {}): Promise<T> => {
    let open = () => {};
    gate = new Promise((resolve) => (open = resolve));
    const isAsked = new Promise<void>((resolve) => (asked = resolve));
    const done = call();
    await Promise.race([isAsked, done]);
    try {
      await meanwhile();
      // The rollback is answered first.
      for (let turns = 0; taken.now > 0 && turns < 10_000; turns++) await setImmediate();
      expect(taken.now).toBe(0);
    } finally {
      open();
    }
    return done;
  };
  return { codec, during, waits: () => waits };
}

codecSuite.own(
  'M1',
  'a call that writes has no connection and no lock while it waits for a key',
  async (context) => {
    const { orm, app, another, query } = context;
    const { own, taken } = watched(context);
    const { codec, during, waits } = gated({ taken });
    const service = new MikroOrmSessionService(own, { codec });
    const memory = new MikroOrmMemoryService(own, { codec });
    const session = await three(service, app, { sessionId: 's' });
    const key = keyOf(session);
    const again = (id: string) =>
      saying(`${SECRET}!`, { id, timestamp: 2, actions: { stateDelta: { again: SECRET } } });
    const calls: Record<string, () => Promise<unknown>> = {
      created: () => service.createSession({ appName: app, userId: 'alice', state: { given: SECRET } }),
      updated: () => service.updateState({ ...key, set: { outside: SECRET, 'user:o': SECRET }, remove: ['given'] }),
      replaced: () => service.appendEvent({ session, event: again('e2') }),
      forked: () => service.forkSession(key, { at: 5, as: 'forked' }),
      appended: () =>
        service.appendEvents({ session, events: [saying('new', { id: 'new' }), again('e1'), again('e1')] }),
      remembered: () => memory.addSessionToMemory(session),
    };
    for (const [name, call] of Object.entries(calls)) {
      await during(call, async () => {
        await another.appendEvent({ session: plain(session), event: saying(name, { id: name }) });
        // With the same ORM, which may have only one connection.
        await orm.em.fork().getConnection().execute('select 1');
      });
    }
    await service.rewindSession({ ...key, sessionId: 'forked' }, { at: 2 });
    expect(waits()).toBeGreaterThan(Object.keys(calls).length);
    const rows = await query(`select event_id from adk_events where ${OF_SESSION} order by seq`, valuesOf(session));
    const ids = ['e1', 'e2', 'e3', 'created', 'updated', 'replaced', 'forked', 'appended', 'new', 'remembered'];
    expect(rows).toEqual(ids.map((event_id) => ({ event_id })));
    // All texts are bound to their new place, including those that were recorded for the past.
    const fork = await service.forkSession(key, { as: 'fork' });
    const texts = [`${SECRET}!`, `${SECRET}!`, SECRET, ...ids.slice(3)];
    expect(textsOf(fork)).toEqual(texts);
    expect(fork.state).toMatchObject({ outside: SECRET, again: SECRET, 'user:o': SECRET });
    expect(fork.state).not.toHaveProperty('given');
  },
  // Others have another queue, with a connection of their own.
  ({ hasConnections }) => hasConnections,
);

codecSuite.own(
  'M1',
  'neither has maintenance, an import or an artifact, whatever is written meanwhile',
  async (context) => {
    const { orm, app, another, query } = context;
    const { own, taken } = watched(context);
    const { codec, during } = gated({ taken });
    const service = new MikroOrmSessionService(own, { codec });
    const maintenance = new SessionMaintenance(own, { codec });
    const artifacts = new MikroOrmArtifactService(own, { codec });
    const session = await three(service, app, { sessionId: 's' });
    const key = keyOf(session);
    const append = (id: string) => () =>
      another.appendEvent({ session: plain(session), event: saying(id, { id, timestamp: 9 }) });

    const calling = (name: string) =>
      eventOf({
        ...{ id: 'call', timestamp: 4, longRunningToolIds: ['c1'] },
        content: { role: 'model', parts: [{ functionCall: { id: 'c1', name, args: {} } }] },
      });
    await service.appendEvent({ session, event: calling('ask') });
    await during(() => service.appendEvent({ session, event: calling('approve') }), append('rewritten'));
    const { calls } = await service.findOpenCalls({ appName: app });
    expect(calls.map(({ name }) => name)).toEqual(['approve']);

    const file = (text: string) => ({ ...key, filename: 'file', artifact: { text } });
    const versions = await during(
      () => artifacts.saveArtifact(file('second')),
      () => new MikroOrmArtifactService(orm.em, { codec: reversing }).saveArtifact(file('first')),
    );
    expect(versions).toBe(1);
    await service.appendEvent({ session, event: eventOf({ id: 'saved', actions: { artifactDelta: { file: 1 } } }) });
    const fork = await service.forkSession(key, { as: 'fork' });
    for (const sessionId of ['s', 'fork'])
      expect(await artifacts.loadArtifact({ ...key, sessionId, filename: 'file' })).toEqual({ text: 'second' });
    expect(await artifacts.listArtifactVersions({ ...key, filename: 'file' })).toHaveLength(2);
    expect(textsOf(fork)).toHaveLength(6);

    const records = await read(maintenance.exportSessions({ appName: app }));
    const moved = records.map((record) => ({ ...record, appName: `${app} 2` }));
    const imported = await during(
      () => maintenance.importSessions(moved),
      () => new SessionMaintenance(orm.em, { codec: reversing }).importSessions(moved),
    );
    expect(imported).toMatchObject({ done: { sessions: 0, events: 0, artifactVersions: 0 } });
    expect(await read(maintenance.exportSessions({ appName: `${app} 2` }))).toEqual(moved);

    const trimmed = await during(() => maintenance.trim({ ...key, keepLast: 4 }), append('trimmed'));
    expect(trimmed).toMatchObject({ done: { sessions: 1, events: 2 }, skipped: 0 });
    expect((await service.forkSession(key, { at: 3, as: 'past' })).state).toMatchObject({ given: SECRET });

    await query(`update adk_events set data = '"damaged"' where ${OF_SESSION} and seq = 6`, valuesOf(session));
    const repaired = await during(() => maintenance.repair(key), append('repaired'));
    expect(repaired.events.map(({ seq }) => seq)).toEqual([6]);
    expect(idsOf((await again(service, session))!)).toEqual([
      'e3',
      'call',
      'rewritten',
      'saved',
      'trimmed',
      'repaired',
    ]);
  },
  ({ hasConnections }) => hasConnections,
);

codecSuite.own('M1', 'a call that reads has no connection while it waits for a key', async (context) => {
  const { orm, app } = context;
  const { own, taken } = watched(context);
  const { codec, during } = gated({ taken });
  const session = await three(serviceOf(context, { codec: reversing }), app);
  const [key, config] = [keyOf(session), { afterTimestamp: 1 }];
  await serviceOf(context, { codec: reversing }).updateState({ ...key, set: { outside: SECRET } });
  const file = { ...key, filename: 'file' };
  await new MikroOrmArtifactService(orm.em, { codec: reversing }).saveArtifact({ ...file, artifact: { text: SECRET } });
  const readingWith = (em: typeof own, codec: Codec): (() => Promise<unknown>)[] => {
    const service = new MikroOrmSessionService(em, { codec });
    const log = new EventLog(em, { codec });
    return [
      () => service.getSession(key),
      () => service.getSession({ ...key, config }),
      () => service.listSessions({ appName: app }),
      () => service.getUserState(key),
      () => service.readEvents(key),
      () => read(log.since(0, { appName: app })),
      () => read(log.complete().since(0, { appName: app })),
      () => read(log.session(key).since(0)),
      () => new MikroOrmArtifactService(em, { codec }).loadArtifact(file),
      () => read(new SessionMaintenance(em, { codec }).exportSessions({ appName: app })),
    ];
  };
  const expected: unknown[] = [];
  for (const call of readingWith(orm.em, reversing)) expected.push(plain(await call()));
  for (const [i, call] of readingWith(own, codec).entries()) {
    const found = await during(call, () => orm.em.fork().getConnection().execute('select 1'));
    expect(plain(found)).toEqual(expected[i]);
  }
});

codecSuite.own('M1', 'a read without a missing key sends no statement more than without a codec', async (context) => {
  const { app, recorded } = context;
  const service = serviceOf(context, { codec: reversing });
  const sentBy = async (service: MikroOrmSessionService, appName: string) => {
    const session = await three(service, appName);
    const statements = await recorded(async () => {
      await service.getSession(keyOf(session));
      await service.listSessions({ appName });
      await service.appendEvent({ session, event: saying('more') });
    });
    return statements.map(({ text }) => text);
  };
  expect(await sentBy(service, app)).toEqual(await sentBy(serviceOf(context, {}), `${app} plain`));
});

codecSuite.own('M1', 'an artifact is saved by the same statements with a codec as without one', async (context) => {
  const { orm, app, recorded } = context;
  const sentBy = async (codec: Codec | undefined, sessionId: string) => {
    const artifacts = new MikroOrmArtifactService(orm.em, { codec });
    const file = { appName: app, userId: 'alice', sessionId, filename: 'file' };
    const artifact = { text: SECRET };
    const statements = await recorded(async () => {
      for (const version of [0, 1]) expect(await artifacts.saveArtifact({ ...file, artifact })).toBe(version);
      expect(await artifacts.loadArtifact(file)).toEqual(artifact);
    });
    return statements.map(({ text }) => text);
  };
  expect(await sentBy(encryption({ currentKey: 'k', key: bytesOf }), 's')).toEqual(await sentBy(undefined, 'plain'));
});

codecSuite.own('M1', 'a codec that never has its key ends the call, and nothing is written', async (context) => {
  const { app, another } = context;
  const session = await three(another, app);
  const before = await textsIn(context);
  let asked = 0;
  const lacking: Codec = {
    ...reversing,
    encode: () => {
      asked++;
      throw new KeyNeeded(Promise.resolve());
    },
  };
  const service = serviceOf(context, { codec: lacking });
  const calls = [
    () => service.updateState({ ...keyOf(session), set: { late: 1 } }),
    () => service.appendEvent({ session: plain(session), event: saying('late') }),
    () => service.createSession({ appName: app, userId: 'alice', state: { late: 1 } }),
    () => service.forkSession(keyOf(session)),
  ];
  for (const call of calls) await expectCode(call(), 'ADK_CODEC', /still lacks a key after 100 waits/);
  expect(asked).toBeLessThan(10_000);
  expect(await textsIn(context)).toEqual(before);
  // As in version 0 of the interface.
  const promising = { ...reversing, encode: async () => undefined } as unknown as Codec;
  const update = serviceOf(context, { codec: promising }).updateState({ ...keyOf(session), set: { late: 1 } });
  await expectCode(update, 'ADK_CODEC', 'The codec reversed returned a promise. It must answer at once');
  expect(await textsIn(context)).toEqual(before);
});

codecSuite.own('M1', 'keys of different users are waited for together, each once', async (context) => {
  const { app } = context;
  const asked: string[] = [];
  const key: KeyFunction = async (id) => (asked.push(id), bytesOf(id));
  const codec = encryption({ currentKey: ({ userId }) => `of ${userId}`, key, cacheMs: 0 });
  const service = serviceOf(context, { codec });
  const users = range(20).map((n) => `user ${n}`);
  for (const userId of users) await service.createSession({ appName: app, userId, state: { a: userId } });
  asked.length = 0;
  const statements = await context.recorded(async () => {
    expect((await service.listSessions({ appName: app })).sessions).toHaveLength(20);
  });
  expect(asked.sort()).toEqual(users.map((userId) => `of ${userId}`).sort());
  const selects = statements.filter(({ text }) => /^select/.test(text)).map(({ text }) => text);
  expect(selects.length).toBeLessThanOrEqual(2 * new Set(selects).size);
});

codecSuite.own(
  'M1',
  'in a transaction of the host, only what a call wrote is undone while it waits',
  async (context) => {
    const { orm, app } = context;
    const plainly = serviceOf(context, {});
    const session = await three(plainly, app);
    let waits = 0;
    const service = serviceOf(context, { codec: late(reversing, async () => waits++) });
    await orm.em.fork().transactional(async (tx) => {
      await plainly.withEntityManager(tx).updateState({ ...keyOf(session), set: { before: 1 } });
      const joined = service.withEntityManager(tx);
      await joined.updateState({ ...keyOf(session), set: { inside: 1, 'user:inside': 1 } });
      await joined.appendEvent({ session, event: saying('inside', { id: 'inside' }) });
      await joined.appendEvent({ session, event: saying('again', { id: 'inside' }) });
      await joined.forkSession(keyOf(session), { as: 'fork' });
    });
    expect(waits).toBeGreaterThanOrEqual(4);
    for (const id of [session.id, 'fork']) {
      const found = (await service.getSession({ ...keyOf(session), sessionId: id }))!;
      expect(found.state).toMatchObject({ before: 1, inside: 1, 'user:inside': 1 });
      expect(textsOf(found)).toEqual([SECRET, SECRET, SECRET, 'again']);
    }
  },
);

codecSuite.own('M1', 'a key function that fails is not damage, and nothing is written', async (context) => {
  const { orm, app } = context;
  const session = await three(serviceOf(context, { codec: encrypting('k1') }), app);
  const before = await textsIn(context);
  const failing: KeyFunction = async () => {
    throw new Error('the KMS said: secret detail');
  };
  const reasons: unknown[] = [];
  const onError = (error: unknown) => void reasons.push(error);
  const codec = encrypting('k1', failing);
  const service = serviceOf(context, { codec, onDamagedEvent: 'skip', onError });
  const calls = [
    () => again(service, session),
    () => service.listSessions({ appName: app }),
    () => service.createSession({ appName: app, userId: 'carol', state: { a: 1 } }),
    () => service.appendEvent({ session, event: saying('new') }),
    () => service.updateState({ ...keyOf(session), set: { a: 1 } }),
    () => new SessionMaintenance(orm.em, { codec, onError }).repair(keyOf(session)),
    () => read(new EventLog(orm.em, { codec, onError }).since(0, { appName: app })),
  ];
  for (const call of calls) {
    const error = await errorOf(call());
    expect(error).toMatchObject({ code: 'ADK_CODEC' });
    expect(JSON.stringify([error.message, error])).not.toContain('secret detail');
  }
  expect(reasons.map(String)).toEqual(calls.map(() => 'Error: the KMS said: secret detail'));
  expect(await textsIn(context)).toEqual(before);
  // One that never answers ends, too.
  const silent = serviceOf(context, { codec: encrypting('k1', () => new Promise<never>(() => {})), timeoutMs: 500 });
  await expectCode(again(silent, session), 'ADK_CODEC', 'within 500 ms');
});

codecSuite.own('M1', 'an event of several megabytes is encoded, rewritten, forked and read', async (context) => {
  const { app } = context;
  const service = serviceOf(context, { codec: encrypting('k1') });
  const session = await service.createSession({ appName: app, userId: 'alice', sessionId: 's' });
  const large = (letter: string) => letter.repeat(3_000_000);
  await service.appendEvent({ session, event: saying(large('é'), { id: 'large', timestamp: 1 }) });
  await service.appendEvent({ session, event: saying('small', { id: 'small', timestamp: 2 }) });
  await service.appendEvent({ session, event: saying(large('b'), { id: 'large', timestamp: 1 }) });
  const fork = await service.forkSession(keyOf(session), { as: 'fork' });
  for (const one of [fork, (await again(service, session))!]) expect(textsOf(one)).toEqual([large('b'), 'small']);
});

/** Says how many events it sees, and keeps the damage that was reported. */
class Keeper extends BaseAgent {
  protected override async *runAsyncImpl({
    invocationId,
    session,
  }: InvocationContext): AsyncGenerator<Event, void, void> {
    const stateDelta = { told: session.events.length, 'user:secret': SECRET };
    yield saying(`${session.events.length} events`, { invocationId, author: this.name, actions: { stateDelta } });
  }

  protected override async *runLiveImpl(): AsyncGenerator<Event, void, void> {}
}

codecSuite.own('M1', 'a Runner keeps a conversation over several turns', async (context) => {
  const { app } = context;
  const sessionService = serviceOf(context, { codec: both() });
  const session = await sessionService.createSession({ appName: app, userId: 'alice' });
  const runner = new Runner({ appName: app, agent: new Keeper({ name: 'keeper' }), sessionService });
  for (const text of [SECRET, 'again']) {
    const newMessage = { role: 'user', parts: [{ text }] };
    for await (const _ of runner.runAsync({ userId: 'alice', sessionId: session.id, newMessage })) continue;
  }
  const read = (await again(serviceOf(context, { codec: both() }), session))!;
  expect(textsOf(read)).toEqual([SECRET, '1 events', 'again', '3 events']);
  expect(read.state).toEqual({ told: 3, 'user:secret': SECRET });
  expect((await textsIn(context)).join()).not.toMatch(/launch code|is 0451/);
});

codecSuite.own('M1', 'an export is plain, and an import encodes with its own key', async (context) => {
  const { orm, app, scratch } = context;
  const codec = both();
  await live(serviceOf(context, { codec }), new SessionMaintenance(orm.em, { codec }), app);
  const records = await read(new SessionMaintenance(orm.em, { codec }).exportSessions({ appName: app }));
  expect(JSON.stringify(records)).toContain(SECRET);
  const target = await scratch();
  const maintenance = new SessionMaintenance(target.orm.em, { codec: both('k2') });
  await maintenance.importSessions(records);
  expect((await textsIn({ ...target, app })).join()).not.toMatch(/launch code|is 0451|"k1"/);
  expect(await read(maintenance.exportSessions({ appName: app }))).toEqual(records);
  expect(await maintenance.importSessions(records)).toMatchObject({ done: { sessions: 0, events: 0 } });
});

/** What ADKs after 2.0 write into an event. */
const NEWER_METADATA = { __adk_internal_fc_hmac: { call: 'v1:0f' }, __adk_internal_restored_event: true, shown: 1 };
const NEWER_ACTIONS = {
  rewindBeforeInvocationId: 'i2',
  compaction: { startTimestamp: 1, endTimestamp: 2.5, compactedContent: { role: 'model', parts: [{ text: SECRET }] } },
};

codecSuite.own('U2', 'codecs, the log, exports and forks carry what newer ADKs store', async (context) => {
  const { orm, app, scratch } = context;
  const carried = (event: Event | undefined) => ({ ...event?.actions, metadata: event?.customMetadata });
  const newer = expect.objectContaining({ ...NEWER_ACTIONS, metadata: NEWER_METADATA }) as unknown;
  // Whoever makes a file could write the names that ADK trusts.
  const exported = expect.objectContaining({ ...NEWER_ACTIONS, metadata: { shown: 1 } }) as unknown;
  for (const options of [{}, { codec: both() }]) {
    const service = serviceOf(context, options);
    const session = await service.createSession({ appName: app, userId: `of ${Object.keys(options).join()}` });
    const event = eventOf({ customMetadata: NEWER_METADATA });
    Object.assign(event.actions, NEWER_ACTIONS);
    await service.appendEvent({ session, event });
    const key = keyOf(session);
    const fork = await service.forkSession(key, { at: 1 });
    const [logged] = await read(new EventLog(orm.em, options).session(key).since(0));
    const target = await scratch();
    const imported = { ...target, app };
    await new SessionMaintenance(target.orm.em, options).importSessions(
      new SessionMaintenance(orm.em, options).exportSessions({ appName: app, userId: session.userId }),
    );
    const found = [await again(service, session), fork, await again(serviceOf(imported, options), session)];
    expect(found.map((each) => carried(each!.events[0]))).toEqual([newer, newer, exported]);
    expect(carried(logged?.event)).toEqual(newer);
  }
});

codecSuite.own('M2', 'a row that was moved, swapped or changed is damage', async (context) => {
  const { query } = context;
  const codec = encrypting('k1');
  const service = serviceOf(context, { codec });
  const at = (session: Session, seq: number): [Session, number] => [session, seq];
  const update = (session: Session, set: string, values: unknown[] = []) =>
    query(`update adk_events set ${set} where ${OF_SESSION} and seq = 2`, [...values, ...valuesOf(session)]);
  const textAt = async (session: Session): Promise<string> => {
    const rows = await query<{ data: unknown }>(
      `select data from adk_events where ${OF_SESSION} and seq = 2`,
      valuesOf(session),
    );
    const data = rows[0]!.data;
    // As it is stored, with the space that marks it.
    return typeof data === 'string' ? data : JSON.stringify(data).replace('["adk-codec",', '[ "adk-codec", ');
  };
  const damagings: Record<string, (session: Session, other: Session) => Promise<unknown>> = {
    'another event of the session': (session) => copyEvent(context, at(session, 1), at(session, 2)),
    'the event of another session': (session, other) => copyEvent(context, at(other, 2), at(session, 2)),
    'another id': (session) => update(session, `event_id = 'other'`),
    'a changed byte': async (session) => {
      const text = await textAt(session);
      const middle = text.length - 40;
      const letter = text[middle] === 'A' ? 'B' : 'A';
      await update(session, 'data = ?', [text.slice(0, middle) + letter + text.slice(middle + 1)]);
    },
    'another key': async (session) => update(session, 'data = ?', [(await textAt(session)).replace('"k1"', '"k2"')]),
    'no data': async (session) =>
      update(session, 'data = ?', [(await textAt(session)).replace(/"[^"]*" ?\]$/, '"" ]')]),
  };
  for (const [name, damage] of Object.entries(damagings)) {
    const app = `${context.app} ${name}`;
    const session = await three(service, app);
    const other = await three(service, app, { userId: 'bob' });
    await damage(session, other);
    const { events, stateKeys } = await damageOf(service, session);
    const expected = { name, events: [{ from: 2, to: 2, problem: 'unreadable' }], stateKeys: [] };
    expect({ name, events, stateKeys }).toEqual(expected);
    expect(textsOf((await again(service, other))!)).toHaveLength(3);
  }
});

/** Columns of any text that are not encoded: names of keys, what a host searches by, and what says where others are. */
const PLAIN = [
  ...['adk_events.superseded', 'adk_sessions.labels', 'adk_open_calls.data'],
  ...['adk_projections.log_cursor', 'adk_memories.model'],
];

/** Every column that has contents, by the entities' own types, so that no new one is forgotten. */
function encodedColumns(orm: OwnContext['orm']) {
  return adkEntities().flatMap(({ meta }) => {
    const { tableName, primaryKeys, properties } = orm.getMetadata().get(meta.className);
    const all: EntityProperty[] = Object.values(properties);
    const key = all.filter(({ name }) => primaryKeys.some((each) => each === name)).flatMap((each) => each.fieldNames);
    return all.flatMap(({ customType, fieldNames: [column = ''] }) => {
      const type = /(Json|Bytes|LongText)/.exec(customType?.constructor.name ?? '')?.[0];
      const isEncoded = type && !PLAIN.includes(`${tableName}.${column}`);
      return isEncoded ? [{ type, table: tableName, column, key, place: `${tableName}.${column}` }] : [];
    });
  });
}

/** As the column of another type has the same encoded text. */
function asOfType(type: string, text: string | Buffer): string | Buffer {
  const bytes = Buffer.isBuffer(text) ? text : undefined;
  if (type === 'Bytes') {
    const [, steps, data] = /^\[ "adk-codec", (.*), "(.*)" \]$/.exec(text.toString('latin1')) ?? [];
    return (
      bytes ?? (steps ? Buffer.concat([Buffer.from(`${steps}\n`), Buffer.from(data!, 'base64')]) : Buffer.from(text))
    );
  }
  const end = bytes?.indexOf('\n') ?? 0;
  if (bytes) return `[ "adk-codec", ${bytes.toString('latin1', 0, end)}, "${bytes.toString('base64', end + 1)}" ]`;
  // The column of PostgreSQL takes JSON alone, and a part of an event is none.
  return type === 'Json' && !text.toString().endsWith(']') ? JSON.stringify(text) : text;
}

codecSuite.own('M2', 'a text at the place of any other text is damage, and never a value', async (context) => {
  const { app, harness, orm, query } = context;
  const damaged: unknown[] = [];
  const memory = {
    onDamage: (error: unknown) => damaged.push(error),
    embed: { model: 'm', vectors: async (texts: readonly string[]) => texts.map(({ length }) => [length, 1]) },
  };
  const codec = encryption({ currentKey: 'k1', key: bytesOf, required: true });
  const services = adkServices(orm.em, { codec, memory });
  const { sessionService, artifactService, memoryService, credentialService } = services;
  const owner = { appName: app, userId: 'alice' };
  const key = { ...owner, sessionId: 's' };
  const session = await sessionService.createSession({ ...key, state: { plan: 'none', seat: 'x' } });
  for (const plan of ['free', 'gold'])
    await sessionService.updateState({
      ...key,
      set: { plan, 'user:of': plan, 'app:of': plan, 'user:to': plan, 'app:to': plan },
    });
  const current = (await sessionService.getSession(key)) ?? session;
  for (const id of ['e1', 'e2', 'e3'])
    await sessionService.appendEvent({ session: current, event: saying(id, { id }) });
  const files = ['f', 'large'].flatMap((filename) => [0, 1].map((version) => ({ ...key, filename, version })));
  for (const { version: _, ...file } of files) {
    const data = Buffer.alloc(file.filename === 'large' ? PART_BYTES + 1 : 1).toString('base64');
    await artifactService.saveArtifact({ ...file, artifact: { inlineData: { data, mimeType: 'image/png' } } });
  }
  for (const text of ['peanuts', 'walnuts'])
    await memoryService.addMemory({ ...owner, memories: [{ content: { role: 'user', parts: [{ text }] } }] });
  const authOf = (credentialKey: string): AuthConfig => ({
    ...{ credentialKey, authScheme: { type: 'http', scheme: 'bearer' } },
    exchangedAuthCredential: { authType: AuthCredentialTypes.API_KEY, apiKey: credentialKey },
  });
  const tool = Object.assign(Object.create(null) as Context, { invocationContext: { session } });
  for (const each of ['a', 'b']) await credentialService!.saveCredential(authOf(each), tool);
  // Other databases have no limit of a packet, and do not look for parts.
  const hasParts = resolveDialect(orm.em.getPlatform()).limits !== undefined;
  if (hasParts) await splitEvent(context, 'e3');

  let forks = 0;
  const reads: Record<string, () => Promise<unknown>> = {
    session: async () => plain(await sessionService.getSession(key)),
    past: async () => (await sessionService.forkSession(key, { at: 1, as: `fork ${forks++}` })).state,
    files: () =>
      Promise.all(
        files.map(async (file) => [
          await artifactService.getArtifactVersion(file),
          (await artifactService.loadArtifact(file))?.inlineData?.data?.length,
        ]),
      ),
    memories: () => memoryService.searchMemory({ ...owner, query: 'peanuts walnuts' }),
    credentials: () =>
      Promise.all(
        ['a', 'b'].map(async (each) => {
          const credential = await credentialService!.loadCredential(authOf(each), tool);
          // ADK asks the user again.
          if (!credential) damaged.push(each);
          return credential;
        }),
      ),
  };
  const readOf: Record<string, string> = {
    ...{ adk_changes: 'past', adk_memories: 'memories', adk_credentials: 'credentials' },
    ...{ adk_artifact_versions: 'files', adk_artifact_parts: 'files' },
  };
  interface Text {
    read: () => Promise<unknown>;
    type: string;
    text: string | Buffer;
    column: string;
    place: string;
    set: (text: string | Buffer) => Promise<unknown>;
  }
  const texts: Text[] = [];
  const columns = encodedColumns(orm).filter(({ table }) => hasParts || table !== 'adk_event_parts');
  for (const { type, table, column, key: names, place } of columns) {
    const where = `app_name = ? and ${column} is not null${table === 'adk_changes' ? ` and session_id = 's'` : ''}`;
    const content = type === 'Json' ? harness.columns.json(column) : column;
    const rows = await query<Record<string, unknown> & { content: string | Uint8Array }>(
      `select ${names.join(', ')}, ${content} as content from ${table} where ${where} order by ${names.join(', ')}`,
      [app],
    );
    for (const row of rows) {
      const update = `update ${table} set ${column} = ? where ${names.map((name) => `${name} = ?`).join(' and ')}`;
      const set = (text: string | Buffer) => query(update, [text, ...names.map((name) => row[name])]);
      const text = typeof row.content === 'string' ? row.content : Buffer.from(row.content);
      texts.push({
        read: reads[readOf[table] ?? 'session']!,
        type,
        set,
        text,
        column: place,
        place: `${place} ${texts.length}`,
      });
    }
  }
  // Within each table, too.
  for (const { place } of columns)
    expect({ place, texts: texts.filter(({ column }) => column === place).length > 1 }).toEqual({
      place,
      texts: true,
    });
  const before = await Promise.all(Object.values(reads).map((read) => read()));
  expect(damaged).toEqual([]);
  const taken: string[] = [];
  const firsts = [...new Map(texts.toReversed().map((each) => [each.column, each])).values()];
  for (const { read, set, type, text, column, place } of texts) {
    // All texts of the same column, and one of each other.
    for (const other of new Set([...firsts, ...texts.filter((each) => each.column === column)])) {
      const swapped = asOfType(type, other.text);
      if (other.place === place || swapped.toString('latin1') === text.toString('latin1')) continue;
      await set(swapped);
      damaged.length = 0;
      const outcome = await read().then(
        (value) => ({ value }),
        (error: unknown) => ({ code: (error as AdkMikroOrmError).code }),
      );
      const isDamage = 'code' in outcome ? /^ADK_DAMAGED/.test(outcome.code) : damaged.length > 0;
      if (!isDamage) taken.push(`${other.place} in ${place}: ${JSON.stringify(outcome).slice(0, 200)}`);
    }
    await set(text);
  }
  expect(taken).toEqual([]);
  expect(await Promise.all(Object.values(reads).map((read) => read()))).toEqual(before);
});

/** Has an event in two parts, as one that is larger than a packet. */
async function splitEvent({ app, harness, query }: OwnContext, id: string): Promise<void> {
  const where = `app_name = '${app}' and event_id = '${id}'`;
  const [row] = await query<{ seq: number; data: string }>(
    `select seq, ${harness.columns.json('data')} as data from adk_events where ${where}`,
  );
  const { seq, data } = row!;
  for (const [part, text] of [data.slice(0, 60), data.slice(60)].entries())
    await query(
      'insert into adk_event_parts (app_name, user_id, session_id, seq, part, text) values (?, ?, ?, ?, ?, ?)',
      [...[app, 'alice', 's', seq, part, text]],
    );
  await query(`update adk_events set data = null where ${where}`);
}

codecSuite.own('M2', 'a value of the state that was moved is damage', async (context) => {
  const { query } = context;
  const service = serviceOf(context, { codec: encrypting('k1') });
  const copy = (table: string, where: string, to: string) =>
    query(
      `update adk_${table} set value = (select kept.value from (select value from adk_${table} where ${where}) as kept) where ${to}`,
    );
  const session = await three(service, context.app);
  await service.updateState({ ...keyOf(session), set: { twin: 1, 'user:twin': 1, 'app:twin': 1 } });
  const app = `app_name = '${context.app}'`;
  await copy('session_states', `${app} and state_key = 'n'`, `${app} and state_key = 'twin'`);
  await copy('user_states', `${app} and state_key = 'u'`, `${app} and state_key = 'twin'`);
  await copy('app_states', `${app} and state_key = 'x'`, `${app} and state_key = 'twin'`);
  const error = await damageOf(service, session);
  expect([...error.stateKeys].sort()).toEqual(['app:twin', 'twin', 'user:twin']);
  expect(error.events).toEqual([]);
  await expectCode(service.getUserState({ appName: context.app, userId: 'alice' }), 'ADK_DAMAGED_SESSION', 'user:twin');
});

codecSuite.own(
  'M2',
  'a row of the session that had the id before is damage, and one from before a rewind is not',
  async (context) => {
    const { query, app } = context;
    const service = serviceOf(context, { codec: encrypting('k1') });
    const former = await three(service, app, { sessionId: 's' });
    await query(`create table kept_rows as select data, seq from adk_events where ${OF_SESSION}`, valuesOf(former));
    try {
      await service.rewindSession(keyOf(former), { at: 2 });
      expect(idsOf((await again(service, former))!)).toEqual(['e1', 'e2']);
      await service.deleteSession(keyOf(former));
      const session = await three(service, app, { sessionId: 's' });
      await query(
        `update adk_events set data = (select data from kept_rows where seq = 2) where ${OF_SESSION} and seq = 2`,
        valuesOf(session),
      );
      expect((await damageOf(service, session)).events).toEqual([{ from: 2, to: 2, problem: 'unreadable' }]);
    } finally {
      await query('drop table kept_rows');
    }
  },
);

codecSuite.own('M2', 'a plain row is read, and with required it is damage', async (context) => {
  const { query, app } = context;
  const service = serviceOf(context, { codec: encrypting('k1') });
  const session = await three(service, app);
  const forged = JSON.stringify(saying('forged', { id: 'e2', timestamp: 2 }));
  await query(`update adk_events set data = ? where ${OF_SESSION} and seq = 2`, [forged, ...valuesOf(session)]);
  expect(textsOf((await again(service, session))!)).toEqual([SECRET, 'forged', SECRET]);
  const strict = serviceOf(context, { codec: encryption({ currentKey: 'k1', key: bytesOf, required: true }) });
  const error = await damageOf(strict, session);
  expect(error.events).toEqual([{ from: 2, to: 2, problem: 'unreadable' }]);
  expect(error.message).toContain('not encoded with aes-256-gcm');
});

const FORGED = 'FORGED';

/** Encrypts and requires it; `encoded` gets every text that it is given to encrypt. */
function strictCodec(encoded: string[] = [], currentKey = 'k1', required = true): Codec {
  const codec = encryption({ currentKey, key: bytesOf, required });
  return {
    ...codec,
    encode: (data, context) => {
      encoded.push(Buffer.from(data).toString());
      return codec.encode(data, context);
    },
  };
}

/** Replaces encrypted texts of every kind by plain ones, as somebody who may write to the tables. @returns how many. */
async function forge({ query }: Pick<OwnStore, 'query'>, app: string): Promise<number> {
  const event = JSON.stringify(saying(FORGED, { id: 'e2', timestamp: 2, actions: { stateDelta: { n: FORGED } } }));
  await query(`update adk_events set data = ? where app_name = ? and event_id = 'e2'`, [event, app]);
  const value = JSON.stringify(FORGED);
  for (const [table, key] of Object.entries({ session_states: 'given', user_states: 'u', app_states: 'x' }))
    await query(`update adk_${table} set value = ? where app_name = ? and state_key = '${key}'`, [value, app]);
  const changes = { created: { given: FORGED }, state: { set: { outside: FORGED }, removed: [] } };
  for (const [kind, data] of Object.entries(changes))
    await query(`update adk_changes set data = ? where app_name = ? and kind = ? and data is not null`, [
      JSON.stringify(data),
      app,
      kind,
    ]);
  return (await textsIn({ query, app })).filter((text) => text.includes(FORGED)).length;
}

codecSuite.own(
  'M2',
  'a text that somebody replaced by a plain one is encoded by no call that requires a codec',
  async (context) => {
    const { orm, app } = context;
    const encoded: string[] = [];
    const codec = strictCodec(encoded);
    const options = { codec, onDamage: () => {} };
    const service = serviceOf(context, options);
    const maintenance = new SessionMaintenance(orm.em, { codec });
    const session = await three(service, app);
    const key = keyOf(session);
    await service.updateState({ ...key, set: { outside: SECRET } });
    const log = new EventLog(orm.em, { codec });
    const handle = (await again(service, session))!;
    expect(await forge(context, app)).toBe(6);

    await service.appendEvent({ session: handle, event: saying('four', { id: 'e4', timestamp: 4 }) });
    await service.updateState({ ...key, set: { more: 1, 'user:more': 1, 'app:more': 1 } });
    const refused = [
      () => service.forkSession(key, { as: 'fork' }),
      () => service.forkSession(key, { at: 2, as: 'fork' }),
      () => service.rewindSession(key, { at: 2 }),
      () => read(maintenance.exportSessions({ appName: app })),
    ];
    for (const call of refused) await expectCode(call(), 'ADK_DAMAGED_SESSION');
    const seen = JSON.stringify([
      await foldOf(log, app),
      await shown(serviceOf(context, { ...options, onDamagedEvent: 'skip' }), app),
    ]);
    expect(seen).not.toContain(FORGED);
    // Appended again, the event has what its caller gave it.
    await service.appendEvent({ session: handle, event: saying('again', { id: 'e2', timestamp: 2 }) });
    await maintenance.repair(key);
    await maintenance.trim({ ...key, keepLast: 2 });
    await service.forkSession(key, { at: 3, as: 'fork' });
    await service.rewindSession(key, { at: 3 });
    expect(encoded.filter((text) => text.includes(FORGED))).toEqual([]);
    expect(JSON.stringify([await foldOf(log, app), await shown(service, app)])).not.toContain(FORGED);
  },
  oncePerDialect,
);

codecSuite.own(
  'M3',
  'reencode skips and counts plain texts while the codec is required, and encrypts them while it is not',
  async (context) => {
    const { orm, app } = context;
    const codec = strictCodec();
    const service = serviceOf(context, { codec });
    const session = await three(service, app);
    await service.updateState({ ...keyOf(session), set: { outside: SECRET } });
    const forged = await forge(context, app);
    const stored = await textsIn(context);
    const error = await damageOf(service, session);
    const plain = (texts: string[]) => texts.filter((text) => text.includes(FORGED));

    const maintenance = new SessionMaintenance(orm.em, { codec: strictCodec([], 'k2') });
    const dry = await maintenance.reencode({ appName: app, dryRun: true });
    const done = await maintenance.reencode({ appName: app });
    for (const result of [dry, done])
      expect(result).toMatchObject({ done: { texts: stored.length - forged, unreadable: forged } });
    expect(plain(await textsIn(context))).toEqual(plain(stored));
    expect((await damageOf(service, session)).message).toBe(error.message);

    const adopting = new SessionMaintenance(orm.em, { codec: strictCodec([], 'k1', false) });
    expect(await adopting.reencode({ appName: app })).toMatchObject({
      done: { texts: stored.length, unreadable: 0 },
    });
    expect(textsOf((await again(service, session))!)).toEqual([SECRET, FORGED, SECRET]);
  },
  oncePerDialect,
);

codecSuite.own('M2', 'texts that a required codec leaves unchanged are not written', async (context) => {
  const { app } = context;
  const currentKey = ({ userId }: { userId: string }) => (userId === 'alice' ? 'k1' : undefined);
  const service = serviceOf(context, { codec: encryption({ currentKey, key: bytesOf, required: true }) });
  const session = await service.createSession({ appName: app, userId: 'alice', state: { a: 1 } });
  const before = await textsIn(context);
  const refused = [
    () => service.createSession({ appName: app, userId: 'bob', state: { a: 1 } }),
    () => service.appendEvent({ session, event: eventOf({ actions: { stateDelta: { 'app:a': 1 } } }) }),
    () => service.updateState({ appName: app, userId: 'bob', set: { 'user:a': 1 } }),
  ];
  for (const call of refused) await expectCode(call(), 'ADK_CODEC', 'aes-256-gcm is required');
  expect(await textsIn(context)).toEqual(before);
});

/** Counts what it expands. */
function countedCompression(): { codec: Codec; expanded: () => number } {
  const codec = compression({ algorithm: 'brotli', minBytes: 1 });
  let expanded = 0;
  return {
    expanded: () => expanded,
    codec: {
      ...codec,
      decode: (encoded, context, maxBytes) => {
        expanded++;
        return codec.decode(encoded, context, maxBytes);
      },
    },
  };
}

const BROTLI = 2;
const FAST = { params: { [constants.BROTLI_PARAM_QUALITY]: 2 } };

/** A text that names these codecs, of few bytes, which brotli makes an event of as many as are named. */
function expanding(id: string, bytes: number, steps: readonly object[]): string {
  const text = JSON.stringify(saying('x'.repeat(bytes), { id, timestamp: 1 }));
  const data = Buffer.concat([Buffer.of(BROTLI), brotliCompressSync(text, FAST)]);
  return `[ "adk-codec", ${JSON.stringify(steps)}, "${data.toString('base64')}" ]`;
}

codecSuite.own(
  'M2',
  'a text that expands is damage of its row, and is expanded no further',
  async (context) => {
    const { orm, app, query } = context;
    const bomb = expanding('e2', 70_000_000, [{ codec: 'compression' }]);
    expect(bomb.length).toBeLessThan(10_000);
    const codec = compression({ algorithm: 'brotli', minBytes: 1 });
    const options = { codec, maxDecodedBytes: 100_000 };
    const service = serviceOf(context, { ...options, onDamage: () => {} });
    const [session, other] = [await three(service, app), await three(service, app, { userId: 'bob' })];
    const key = keyOf(session);
    await query(`update adk_events set data = ? where ${OF_SESSION} and seq = 2`, [bomb, ...valuesOf(session)]);
    await query(`update adk_session_states set value = ? where ${OF_SESSION} and state_key = 'given'`, [
      bomb,
      ...valuesOf(session),
    ]);

    const error = await damageOf(serviceOf(context, { codec }), session);
    expect(error).toMatchObject({ events: [{ from: 2, to: 2, problem: 'unreadable' }], stateKeys: ['given'] });
    expect(error.message).toContain('encoded with compression, and larger than maxDecodedBytes (67108864)');
    expect(textsOf((await again(service, other))!)).toEqual([SECRET, SECRET, SECRET]);
    const { sessions } = await service.listSessions({ appName: app });
    expect(sessions.map(({ state }) => 'given' in state).sort()).toEqual([false, true]);
    const log = new EventLog(orm.em, options);
    for (const entries of [log.since(0, { appName: app, userId: 'alice' }), log.session(key).since(0)])
      expect((await read(entries)).map(({ error }) => error?.code)).toEqual([
        undefined,
        'ADK_DAMAGED_EVENT',
        undefined,
      ]);

    const maintenance = new SessionMaintenance(orm.em, options);
    expect(await maintenance.reencode({ appName: app, userId: 'alice' })).toMatchObject({
      done: { unreadable: 2, texts: 0 },
    });
    await maintenance.repair(key);
    expect(textsOf((await again(service, session))!)).toEqual([SECRET, undefined, SECRET]);
  },
  oncePerDialect,
);

codecSuite.own(
  'M2',
  'texts of up to maxDecodedBytes are written and read',
  async (context) => {
    const { app } = context;
    const service = serviceOf(context, { codec: encrypting('k1'), maxDecodedBytes: 1_000 });
    const session = await three(service, app);
    const sized = (bytes: number) => {
      const event = (text: string) => saying(text, { id: 'e4', timestamp: 4 });
      return event('x'.repeat(bytes - JSON.stringify(event('')).length));
    };
    const before = await textsIn(context);
    await expectCode(service.appendEvent({ session, event: sized(1_001) }), 'ADK_CODEC', 'maxDecodedBytes is 1000');
    const large = { ...keyOf(session), set: { 'app:large': 'x'.repeat(999) } };
    await expectCode(service.updateState(large), 'ADK_CODEC', 'maxDecodedBytes is 1000');
    expect(await textsIn(context)).toEqual(before);
    await service.appendEvent({ session, event: sized(1_000) });
    await service.updateState({ ...large, set: { 'app:large': 'x'.repeat(998) } });
    expect((await again(service, session))!.events).toHaveLength(4);
    // Where less is allowed it is damage. What no codec has encoded is as large as it is stored.
    const less = serviceOf(context, { codec: encrypting('k1'), maxDecodedBytes: 999 });
    expect(await damageOf(less, session)).toMatchObject({ events: [{ from: 4, to: 4 }], stateKeys: ['app:large'] });
    const plain = await three(context.another, `${app} plain`);
    expect(
      textsOf((await again(serviceOf(context, { codec: encrypting('k1'), maxDecodedBytes: 1 }), plain))!),
    ).toHaveLength(3);
    for (const maxDecodedBytes of [0, -1, 1.5, 2 ** 30, Infinity, '1'])
      expect(() => serviceOf(context, { maxDecodedBytes: maxDecodedBytes as number })).toThrow(
        /maxDecodedBytes must be/,
      );
  },
  oncePerDialect,
);

codecSuite.own('M2', 'nothing is expanded before the key has authenticated it', async (context) => {
  const { app, query } = context;
  const { codec: counted, expanded } = countedCompression();
  const session = await three(serviceOf(context, { codec: [counted, encrypting('k1')] }), app);
  const encrypted = { codec: 'aes-256-gcm', key: 'k1' };
  const forge = async (steps: readonly object[]) => {
    const text = expanding('e2', 10, steps);
    await query(`update adk_events set data = ? where ${OF_SESSION} and seq = 2`, [text, ...valuesOf(session)]);
  };
  const whole = serviceOf(context, { codec: [counted, encrypting('k1')] });
  const strict = serviceOf(context, { codec: [counted, strictCodec()] });
  const compressed = { codec: 'compression' };
  const refused: [MikroOrmSessionService, object[], string][] = [
    [strict, [compressed], 'not encoded with aes-256-gcm'],
    [strict, [compressed, encrypted], 'encoded with compression, aes-256-gcm (key k1)'],
    ...[whole, strict].flatMap((service): typeof refused => [
      [service, [encrypted, compressed], 'in another order than in the codec option'],
      [service, [compressed, encrypted, compressed], 'in another order'],
      [service, [compressed, compressed, encrypted], 'in another order'],
    ]),
  ];
  for (const [service, steps, message] of refused) {
    await forge(steps);
    const error = await errorOf(service.getSession({ ...keyOf(session), config: { numRecentEvents: 2 } }));
    expect(error).toMatchObject({ code: 'ADK_DAMAGED_SESSION', events: [{ from: 2, to: 2, problem: 'unreadable' }] });
    expect(error.message).toContain(message);
    expect({ steps, expanded: expanded() }).toEqual({ steps, expanded: 0 });
  }
  await whole.appendEvent({ session, event: saying(SECRET.repeat(50), { id: 'e2', timestamp: 2 }) });
  expect(textsOf((await again(whole, session))!)[1]).toBe(SECRET.repeat(50));
  expect(expanded()).toBeGreaterThan(0);
});

codecSuite.own('M2', 'equal values look different', async (context) => {
  const { app } = context;
  const service = serviceOf(context, { codec: encrypting('k1') });
  for (const n of upTo(3)) await service.createSession({ appName: app, userId: `u${n}`, state: { same: 1 } });
  const texts = await textsIn(context);
  expect(new Set(texts).size).toBe(texts.length);
});

codecSuite.own(
  'M3',
  'a lost key damages what it has encrypted and nothing else, and repair returns that byte for byte',
  async (context) => {
    const { orm, app } = context;
    const key: KeyFunction = (id) => (id === 'lost' ? undefined : bytesOf(id));
    const kept = serviceOf(context, { codec: encrypting('kept') });
    const losing = serviceOf(context, { codec: encrypting('lost') });
    const session = await three(kept, app);
    const handle = (await again(kept, session))!;
    await losing.appendEvent({
      session: handle,
      event: saying('lost', { id: 'e4', actions: { stateDelta: { gone: 1 } } }),
    });
    await kept.appendEvent({ session: handle, event: saying('after', { id: 'e5' }) });
    const other = await three(kept, app, { userId: 'bob' });

    const codec = encryption({ currentKey: 'kept', key });
    const service = serviceOf(context, { codec });
    const error = await damageOf(service, session);
    expect(error).toMatchObject({ events: [{ from: 4, to: 4, problem: 'unreadable' }], stateKeys: ['gone'] });
    expect(error.message).toContain('aes-256-gcm (key lost)');
    expect(textsOf((await again(service, other))!)).toHaveLength(3);
    // I4: new events are stored all the same.
    await service.appendEvent({ session: handle, event: saying('new', { id: 'e6' }) });
    const maintenance = new SessionMaintenance(orm.em, { codec });
    const taken = await maintenance.repair(keyOf(session));
    expect(
      taken.events.map(({ seq, content, parts }) => [seq, content?.toString().includes('"key":"lost"'), parts]),
    ).toEqual([[4, true, []]]);
    expect(taken.stateValues.map(({ key, content }) => [key, content.toString().includes('"key":"lost"')])).toEqual([
      ['gone', true],
    ]);
    expect(textsOf((await again(service, session))!)).toEqual([SECRET, SECRET, SECRET, undefined, 'after', 'new']);
  },
);

codecSuite.own(
  'M3',
  'without a person’s data key their rows in a backup cannot be read, and those of others can',
  async (context) => {
    const store = await context.scratch();
    const { orm } = store;
    const app = 'shop';
    const kept = new Map<string, Uint8Array>();
    const kms = encryptionKey('kms');
    const codec = () =>
      encryption({
        currentKey: ({ userId }) => (userId === '' ? 'app' : `user ${userId}`),
        key: wrappedKeys({
          wrap: async (key) => xor(key, kms),
          unwrap: async (wrapped) => xor(wrapped, kms),
          load: async (id) => kept.get(id),
          save: async (id, wrapped) => {
            if (!kept.has(id)) kept.set(id, wrapped);
            return kept.get(id)!;
          },
        }),
      });
    const service = serviceOf(store, { codec: codec() });
    const alice = await three(service, app);
    const bob = await three(service, app, { userId: 'bob' });
    expect([...kept.keys()].sort()).toEqual(['app', 'user alice', 'user bob']);
    const backup = await Backup.of(store);

    kept.delete('user alice');
    await new SessionMaintenance(orm.em).eraseUser({ userId: 'alice' });
    await backup.restore();
    const restored = serviceOf(store, { codec: codec() });
    expect((await damageOf(restored, alice)).events).toEqual([{ from: 1, to: 3, problem: 'unreadable' }]);
    expect((await textsIn({ ...store, app })).join()).not.toMatch(/launch code|is 0451/);
    const whole = (await again(restored, bob))!;
    expect(textsOf(whole)).toEqual([SECRET, SECRET, SECRET]);
    expect(whole.state).toMatchObject({ 'user:u': SECRET, 'app:x': SECRET });
    // Reading does not create a key.
    expect(kept.has('user alice')).toBe(false);
  },
);

codecSuite.own(
  'M3',
  'reencode brings plain rows and rows of an old key to the current one, and changes nothing else',
  async (context) => {
    const { orm, app, another, query } = context;
    await live(another, new SessionMaintenance(orm.em), app);
    const large = await another.createSession({ appName: app, userId: 'alice', sessionId: 'large' });
    await another.appendEvent({ session: large, event: saying('y'.repeat(2_000_000), { id: 'large', timestamp: 1 }) });
    const before = await shown(another, app);
    const ofRows = () =>
      query(
        `select user_id, session_id, seq, event_id, timestamp, position from adk_events where app_name = ? order by user_id, session_id, seq`,
        [app],
      );
    const folded = await foldOf(new EventLog(orm.em), app);
    const rows = await ofRows();
    const texts = await textsIn(context);

    const only = (current: string, ...ids: string[]) =>
      encryption({
        currentKey: current,
        key: (id) => ([current, ...ids].includes(id) ? bytesOf(id) : undefined),
        required: true,
      });
    for (const codec of [{ ...only('k1'), required: false }, only('k2', 'k1')]) {
      const maintenance = new SessionMaintenance(orm.em, { codec });
      const counted = await maintenance.reencode({ appName: app, dryRun: true });
      expect(counted).toMatchObject({ done: { unreadable: 0 }, skipped: 0, more: false });
      expect(await maintenance.reencode({ appName: app, batchSize: 7 })).toMatchObject({
        ...{ done: { texts: counted.done.texts, unreadable: 0 }, skipped: 0, more: false },
      });
      expect(await maintenance.reencode({ appName: app })).toMatchObject({
        ...{ done: { texts: 0, unreadable: 0 }, skipped: 0, batches: 0, more: false },
      });
    }
    // The first key is not needed any more.
    const codec = only('k2');
    expect(await shown(serviceOf(context, { codec }), app)).toEqual(before);
    expectSame(await foldOf(new EventLog(orm.em, { codec }), app), folded);
    expect(await ofRows()).toEqual(rows);
    // Only the first part of a large event begins with the mark.
    const encoded = (await textsIn(context)).filter((text) => text.startsWith('['));
    expect(encoded).toHaveLength(texts.filter((text) => !text.startsWith('y')).length);
    expect(encoded.filter((text) => !/^\[ ?"adk-codec", ?\[\{[^\]]*"key":"k2"/.test(text))).toEqual([]);

    // And back to plain texts.
    const plainly = encryption({ currentKey: undefined, key: bytesOf });
    await new SessionMaintenance(orm.em, { codec: plainly }).reencode({ appName: app });
    expect((await textsIn(context)).sort()).toEqual(texts.sort());
  },
  oncePerDialect,
);

codecSuite.own('M3', 'an interrupted reencode continues, and others read and write meanwhile', async (context) => {
  const { orm, app } = context;
  const old = serviceOf(context, { codec: encrypting('k1') });
  const session = await three(old, app);
  for (const n of range(20))
    await old.appendEvent({ session, event: saying(String(n), { id: `n${n}`, timestamp: n }) });
  const codec = encrypting('k2');
  const service = serviceOf(context, { codec });
  const maintenance = new SessionMaintenance(orm.em, { codec });
  const options = { appName: app, batchSize: 5, pauseMs: 0 };

  // State of the user and of the app comes first.
  await maintenance.reencode({ ...options, maxBatches: 4 });
  const keys = async () => (await textsIn(context)).map((text) => /"key":"(.*?)"/.exec(text)?.[1]);
  const countOf = async (key: string) => (await keys()).filter((each) => each === key).length;
  expect(await countOf('k2')).toBe(12);

  expect(await maintenance.reencode({ ...options, maxBatches: 1 })).toMatchObject({
    done: { texts: 5 },
    batches: 1,
    more: true,
  });
  const aborted = new AbortController();
  const ended = await maintenance.reencode({ ...options, signal: aborted.signal, onProgress: () => aborted.abort() });
  expect(ended).toMatchObject({ done: { texts: 5 }, batches: 1, more: true });

  // Everybody reads and writes, with either key as the current one.
  const handle = (await again(service, session))!;
  expect(handle.events).toHaveLength(23);
  const appended = (async () => {
    for (const n of range(10)) await old.appendEvent({ session, event: saying('more', { id: `m${n}` }) });
    for (const n of range(5)) await old.appendEvent({ session, event: saying('again', { id: `n${n}`, timestamp: n }) });
  })();
  let result = await maintenance.reencode({ ...options, batchSize: 2 });
  await appended;
  while (result.done.texts > 0) result = await maintenance.reencode(options);
  expect(await countOf('k1')).toBe(0);
  const whole = (await again(service, session))!;
  expect(whole.events).toHaveLength(33);
  expect(textsOf(whole).filter((text) => text === 'again')).toHaveLength(5);
});

codecSuite.own('M3', 'reencode skips and counts what cannot be read, and refuses unknown options', async (context) => {
  const { orm, app } = context;
  const losing = serviceOf(context, { codec: encrypting('lost') });
  const session = await three(losing, app);
  const handle = (await again(losing, session))!;
  await serviceOf(context, { codec: encrypting('k1') }).appendEvent({ session: handle, event: saying('readable') });
  const before = await textsIn(context);
  const codec = encryption({ currentKey: 'k2', key: (id) => (id === 'lost' ? undefined : bytesOf(id)) });
  const result = await new SessionMaintenance(orm.em, { codec }).reencode({ appName: app });
  expect(result).toMatchObject({ done: { texts: 1, unreadable: before.length - 1 }, skipped: 0 });
  const lost = (texts: string[]) => texts.filter((text) => text.includes('"lost"')).sort();
  expect(lost(await textsIn(context))).toEqual(lost(before));
  const maintenance = new SessionMaintenance(orm.em, { codec });
  await expectCode(maintenance.reencode({ batchSize: 0 }), 'ADK_INVALID_ARGUMENT', 'batchSize');
  await expectCode(maintenance.reencode({ appName: '' }), 'ADK_INVALID_KEY');
});

const encryptionKey = bytesOf;

/** Stands in for a KMS. */
const xor = (bytes: Uint8Array, key: Uint8Array) =>
  Uint8Array.from(bytes, (byte, i) => byte ^ (key[i % key.length] ?? 0));
