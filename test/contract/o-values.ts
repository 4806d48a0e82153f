import { existsSync } from 'node:fs';
import type { Session } from '@google/adk';
import { MikroORM, RawQueryFragment, type EntityManager, type Options } from '@mikro-orm/core';
import fc from 'fast-check';
import { adkMigrations } from '../../migrations/index.js';
import { EventLog, adkEntities, migrate, MikroOrmSessionService, SessionLeases } from '../../src/index.js';
import { isStorable } from '../../src/model/keys.js';
import type { Database } from '../support/harnesses/database.js';
import { DATABASES } from '../support/harnesses/databases.js';
import { keyOf, type OwnHarness, type OwnStore } from '../support/harnesses/harness.js';
import { isCheck } from '../support/harnesses/statement-log.js';
import { expectOfRandom } from '../support/random.js';
import { idsIn, onMysql, read } from './log-tools.js';
import { Suite, onServers, withConnections } from './rule.js';
import { LONG_LEASE, errorOf, idsOf, range, saying, textsOf } from './tools.js';

/** Section O: what values and the settings of a connection may not do. */
export const valueSuite = new Suite();

/** Each is an app, a user, a session, an event, a state key, a holder, and text. */
const HOSTILE = [
  "' or 1=1 -- ",
  "\\' or 1=1 -- ",
  "\\\\' or 1=1 -- ",
  "'' or ''='",
  "') or 1=1 -- ",
  '" or 1=1 -- ',
  '" or ""="',
  "');drop table adk_counters;-- ",
  '\\',
  "'",
  '`',
  "a\\'b\\\\\"c'''",
  '? ?? \\? :name $1 ${x} {} %s',
  '% _ \\% \\_',
  '\n\r\b\t\x1a /* */ # --',
  // The last byte of U+0127 and U+0227 is a quote's where a client keeps one byte of each character.
  'ħ or 1=1 -- ',
  'ȧ or 1=1 -- ',
  // The last byte is a quote's or a backslash's in GBK, Big5 and SJIS, or one of these sets takes the quote or backslash
  // behind it into the character.
  "¿' or 1=1 -- ",
  "¿\\' or 1=1 -- ",
  "縗' or 1=1 -- ",
  "表' or 1=1 -- ",
  "表\\' or 1=1 -- ",
  "ソ\\' or 1=1 -- ",
  "功\\' or 1=1 -- ",
  "誠\\\\' or 1=1 -- ",
  "é\\' or 1=1 -- ",
  "😀\\' or 1=1 -- ",
  '€ é 表 😀 許功蓋',
];

const HARNESSES = Object.values<Database>(DATABASES);

/** The modes of a connection under which everything works. */
const HARMLESS = new Set(HARNESSES.flatMap(({ connection }) => Object.keys(connection.harmless)));

const REFUSED = new Set(HARNESSES.flatMap(({ connection }) => connection.refused.map(({ set }) => set)));

const TABLES = ['sessions', 'events', 'event_parts', 'session_states', 'user_states', 'app_states', 'changes'];

/**
 * Every row of the tables, but for the positions, which a reader of the log gives, and for log entries of others than
 * the victim: that they are gone.
 */
async function rowsOf({ query }: Pick<OwnStore, 'query'>): Promise<unknown> {
  const tables = await Promise.all(
    TABLES.map((table) =>
      query<{ position?: unknown; number?: unknown }>(
        `select * from adk_${table}${table === 'changes' ? ` where user_id = '${VICTIM.userId}'` : ''}`,
      ),
    ),
  );
  return tables.map((rows) =>
    rows.map(({ position: _position, number: _number, ...row }) => JSON.stringify(row)).sort(),
  );
}

const execute = (em: EntityManager, sql: string) => em.getConnection().execute(sql);

/** An ORM whose one connection is set so from its beginning. */
async function connected(
  { connect, harness }: Pick<OwnStore, 'connect'> & { harness: OwnHarness },
  settings: readonly string[],
  options: Options = {},
): Promise<EntityManager> {
  const { em } = await connect({ ...options, ...(onServers(harness) && { pool: { min: 1, max: 1 } }) });
  for (const sql of settings) await execute(em, sql);
  return em;
}

/** As many as `throughEveryCall` has different uses for. */
const TEXTS_AT_ONCE = 4;

/** The app's name is longer than a random text, so that no random text writes state of this app. */
const VICTIM = {
  appName: 'the app of the victim, whose state nobody else writes',
  userId: 'victim',
  sessionId: 'victim',
};

async function writeVictim({ service }: Pick<OwnStore, 'service'>): Promise<Session> {
  const session = await service.createSession({ ...VICTIM, state: { a: 1, 'user:a': 1, 'app:a': 1 } });
  await service.appendEvent({ session, event: saying('secret') });
  return session;
}

/** Uses these texts for all arguments of the calls, and expects them to find exactly what they stored. */
async function throughEveryCall(em: EntityManager, texts: readonly string[]): Promise<void> {
  const [appName = '', userId = '', sessionId = '', text = ''] = texts;
  const service = new MikroOrmSessionService(em);
  const [app, user] = [{ appName }, { appName, userId }];
  const key = { ...user, sessionId };
  const state = { [text]: text, [`user:${text}`]: text, [`app:${text}`]: text };
  const words = [...texts, '\0', '\ud800'].join('');
  const event = saying(words, { id: text, author: text, branch: text, invocationId: text, timestamp: 5 });

  const session = await service.createSession({ ...key, state });
  await service.appendEvent({ session, event: { ...event, actions: { ...event.actions, stateDelta: state } } });
  await service.appendEvent({ session, event });
  for (const config of [{}, { numRecentEvents: 9 }, { afterTimestamp: 1 }, { numRecentEvents: 9, afterTimestamp: 1 }]) {
    const read = await service.getSession({ ...key, config });
    expect(read).toMatchObject({ ...user, id: sessionId, state });
    expect(read && textsOf(read)).toEqual([words]);
  }
  expect(idsOf(await service.getOrCreateSession(key))).toEqual([text]);
  for (const owner of [app, user]) {
    for (const page of [{}, { limit: 1, order: 'desc' as const }]) {
      const { sessions } = await service.listSessions({ ...owner, ...page });
      expect(sessions.map(({ id, state }) => [id, state])).toEqual([[sessionId, state]]);
    }
  }
  expect(await service.getUserState(user)).toEqual({ [`user:${text}`]: text });
  expect(await service.getAppState(app)).toEqual({ [`app:${text}`]: text });
  await service.updateState({ ...key, set: { [`user:${text}2`]: text }, remove: [`user:${text}`] });
  expect(await service.getUserState(user)).toEqual({ [`user:${text}2`]: text });

  const log = new EventLog(em);
  for (const filter of [app, { userId }, { sessionId }, { sessionTree: sessionId }, { ...user, author: text }]) {
    expect(idsIn(await read(log.since(0, { ...filter, afterTimestamp: 1 })))).toEqual([text]);
  }
  expect(idsIn(await read(log.session(key).since(0)))).toEqual([text]);

  const leases = new SessionLeases(em, LONG_LEASE);
  await leases.run(key, { holder: text }, async ({ sessionService }) => {
    expect(await leases.current(key)).toMatchObject({ holder: text });
    await sessionService.appendEvent({ session, event: saying(words, { id: `${text}2` }) });
  });
  await em.fork().transactional(async (tx) => {
    await service.withEntityManager(tx).appendEvent({ session, event: saying(words, { id: `${text}3` }) });
  });
  expect(idsOf((await service.getSession(key))!)).toEqual([text, `${text}2`, `${text}3`]);
  await service.deleteSession(key);
  expect(await service.getSession(key)).toBeUndefined();
  await service.updateState({ ...user, remove: [`user:${text}2`, `app:${text}`] });
}

/** All of the texts, a few at a time. */
async function hostile(store: OwnStore, em: EntityManager): Promise<void> {
  await writeVictim(store);
  const before = await rowsOf(store);
  for (let i = 0; i < HOSTILE.length; i += TEXTS_AT_ONCE) {
    await throughEveryCall(em, HOSTILE.slice(i, i + TEXTS_AT_ONCE));
    expect(await rowsOf(store)).toEqual(before);
  }
  const text = fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }).filter(isStorable);
  const texts = fc.array(text, { minLength: TEXTS_AT_ONCE, maxLength: TEXTS_AT_ONCE });
  await expectOfRandom('texts through every call', texts, (random) => throughEveryCall(em, random), {
    runs: 3,
    // A call that failed leaves rows, at which all smaller texts would fail as well.
    shrinks: false,
  });
  expect(await rowsOf(store)).toEqual(before);
}

/** Appends to a session, by a handle that was read before. */
function appends(em: EntityManager, session: Session): (() => Promise<unknown>)[] {
  const service = new MikroOrmSessionService(em);
  return [
    () => service.appendEvent({ session, event: saying('x') }),
    () => service.appendEvents({ session, events: [saying('x'), saying('y')] }),
  ];
}

/** Calls in a host's transaction. */
function joined(em: EntityManager, session: Session): (() => Promise<unknown>)[] {
  const service = new MikroOrmSessionService(em);
  return [
    () => em.fork().transactional((tx) => service.withEntityManager(tx).appendEvent({ session, event: saying('x') })),
    () => em.fork().transactional((tx) => service.withEntityManager(tx).deleteSession(VICTIM)),
  ];
}

/** Every other call of the public interfaces. */
function otherCalls(em: EntityManager): (() => Promise<unknown>)[] {
  const service = new MikroOrmSessionService(em);
  const [log, leases] = [new EventLog(em), new SessionLeases(em, LONG_LEASE)];
  return [
    () => service.createSession(VICTIM),
    () => service.createSession({ ...VICTIM, sessionId: 'another' }),
    () => service.getSession(VICTIM),
    () => service.getSession({ ...VICTIM, sessionId: 'none' }),
    () => service.getOrCreateSession({ ...VICTIM, sessionId: 'none' }),
    () => service.listSessions({ appName: VICTIM.appName }),
    () => service.getAppState(VICTIM),
    () => service.getUserState(VICTIM),
    () => service.updateState({ ...VICTIM, set: { a: 2, 'user:a': 2 } }),
    () => service.updateState({ ...VICTIM, remove: ['app:a'] }),
    () => service.deleteSession(VICTIM),
    () => log.head(),
    () => read(log.since(0)),
    () => read(log.session(VICTIM).since(0)),
    () => leases.acquire(VICTIM, { holder: 'h' }),
    () => leases.current(VICTIM),
  ];
}

valueSuite.own('O7', 'no text, hostile or random, becomes SQL through any call', async ({ scratch }) => {
  const store = await scratch();
  await hostile(store, store.orm.em);
});

for (const name of HARMLESS) {
  valueSuite.own(
    'O7',
    `no text, hostile or random, becomes SQL, and everything works, with ${name}`,
    async ({ scratch, harness }) => {
      const store = await scratch();
      await hostile(store, await connected({ ...store, harness }, harness.connection.harmless[name]!));
    },
    (harness) => name in harness.connection.harmless && withConnections(harness),
  );
}

for (const set of REFUSED) {
  const find = ({ connection }: Database) => connection.refused.find((refused) => refused.set === set);
  valueSuite.own(
    'O7',
    `${set} is refused by whichever call comes first on the connection, and nothing is written`,
    async ({ scratch, harness }) => {
      const { named, advice, hasNoTransactions } = find(harness)!;
      const store = await scratch();
      const session = await writeVictim(store);
      const before = await rowsOf(store);
      const callsOf = (em: EntityManager) => [
        ...appends(em, session),
        ...otherCalls(em),
        ...(hasNoTransactions ? [] : joined(em, session)),
      ];
      for (const i of callsOf(store.orm.em).keys()) {
        const em = await connected({ ...store, harness }, [set]);
        const error = await errorOf(callsOf(em)[i]!());
        expect(error).toMatchObject({ code: 'ADK_SCHEMA', message: expect.stringMatching(named) });
        expect(error.message).toMatch(advice);
      }
      expect(await rowsOf(store)).toEqual(before);

      const em = await connected({ ...store, harness }, [set]);
      const get = () => new MikroOrmSessionService(em).getSession(VICTIM);
      const { message } = await errorOf(get());
      await execute(em, /Run: (.*)/.exec(message)?.[1] ?? 'set names utf8mb4');
      expect(idsOf((await get())!)).toEqual(idsOf(session));
    },
    (harness) => find(harness) !== undefined && withConnections(harness),
  );
}

valueSuite.own(
  'O7',
  'the settings are read once for each connection, also by many calls at once',
  async ({ scratch, harness }) => {
    const store = await scratch();
    const session = await writeVictim(store);
    let checks = 0;
    const { em } = await store.connect({
      onQuery: (text) => {
        if (text.endsWith(' as wrong limit 1')) checks++;
        return text;
      },
      ...(onServers(harness) && { pool: { min: 0, max: 3 } }),
    });
    const calls = [...appends(em, session), ...otherCalls(em)];
    await Promise.allSettled(calls.map((call) => call()));
    await Promise.allSettled(calls.map((call) => call()));
    expect(checks).toBeGreaterThan(0);
    expect(checks).toBeLessThanOrEqual(onServers(harness) ? 3 : 1);
  },
  withConnections,
);

valueSuite.own(
  'O7',
  "what the host's onQuery adds to a statement changes nothing",
  async ({ connect, app, query }) => {
    for (const onQuery of [
      (text: string) => `/* app */ ${text}`,
      (text: string) => `${text} -- app`,
      (text: string) => `${text};`,
    ]) {
      const { em } = await connect({ onQuery });
      const service = new MikroOrmSessionService(em);
      const session = await service.createSession({ appName: app, userId: 'alice', state: { 'app:a': 1 } });
      await service.appendEvent({ session, event: saying('x') });
      await service.updateState({ ...keyOf(session), set: { a: 2 } });
      expect((await service.getSession(keyOf(session)))?.state).toEqual({ 'app:a': 1, a: 2 });
      await service.deleteSession(keyOf(session));
      expect(await query('select * from adk_sessions where app_name = ?', [app])).toEqual([]);
    }
  },
  withConnections,
);

valueSuite.own(
  'O7',
  'the settings are not read again on the only connection of a database in the process',
  async ({ scratch }) => {
    const store = await scratch();
    await writeVictim(store);
    let checks = 0;
    store.orm.config.set('onQuery', (text) => {
      if (isCheck(text)) checks++;
      return text;
    });
    await new MikroOrmSessionService(store.orm.em).getSession(VICTIM);
    expect(checks).toBe(0);
  },
  (harness) => !withConnections(harness),
);

/** How long a value is in a statement's text. */
function lengthOf(value: unknown): number {
  if (!RawQueryFragment.isKnownFragment(value as string)) return String(value).length;
  const { sql, params } = value as RawQueryFragment;
  return sql.length + params.reduce<number>((sum, param) => sum + lengthOf(param), 0);
}

valueSuite.own(
  'O7',
  'no statement that writes events is longer than the smallest default of max_allowed_packet, 4 MB',
  async ({ recorded, service, app }) => {
    const long = '表'.repeat(120);
    const key = { appName: app, userId: long, sessionId: long };
    const statements = await recorded(async () => {
      const session = await service.createSession(key);
      await service.appendEvent({ session, event: saying('表'.repeat(2_000_000)) });
      await service.appendEvents({ session, events: range(2_000).map((i) => saying('x', { id: `${long}${i}` })) });
    });
    const lengths = statements.map(({ text, values }) =>
      values.reduce<number>((n, value) => n + lengthOf(value), text.length),
    );
    expect(Math.max(...lengths)).toBeLessThan(4 * 1024 * 1024);
    const { sessions } = await service.listSessions(key);
    expect(sessions).toHaveLength(1);
    expect((await service.getSession(key))?.events).toHaveLength(2_001);
  },
  onMysql,
);

valueSuite.own('O7', 'a name that contains a placeholder is refused', async ({ orm, harness }) => {
  const other = await MikroORM.init({
    driver: orm.config.get('driver')!,
    dbName: 'none',
    schema: 'why?',
    entities: adkEntities(),
    connect: false,
  });
  const refused = [
    () => adkEntities({ tablePrefix: 'why?_' }),
    () => adkEntities({ schema: 'why?' }),
    () => adkMigrations(harness.dialect, { tablePrefix: 'why?_' }),
    // SQLite has no schemas.
    ...(!harness.schema.dropSchema ? [] : [() => new MikroOrmSessionService(other.em), () => migrate(other)]),
  ];
  for (const call of refused) {
    const error = await errorOf((async () => call())());
    expect(error).toMatchObject({ code: 'ADK_SCHEMA', message: expect.stringContaining("'?'") });
  }
  // Nothing was opened.
  expect(existsSync('none')).toBe(false);
  await other.close(true);
});
