import { createEvent, type Event } from '@google/adk';
import pg from 'pg';
import { driverOf } from '../../../src/database/drivers/driver-of.js';
import { MikroOrmSessionService, SessionLeases } from '../../../src/index.js';
import { HARNESSES } from '../../support/harnesses/index.js';
import { keyOf, type OwnStore } from '../../support/harnesses/harness.js';
import { isCheck, type RecordedStatement } from '../../support/harnesses/statement-log.js';
import { whyNotRouted } from './router.js';

const saying = (text: string, stateDelta: Record<string, unknown> = {}): Event =>
  createEvent({ author: 'agent', content: { parts: [{ text }] }, actions: { stateDelta } });

describe('F7 a statement is routed if each of its parts names one user by value', () => {
  const key = 'app_name = ? and user_id = ?';
  const joined = 'from adk_events as e join adk_sessions as s on e.user_id = s.user_id where s.user_id = ?';
  test.each<[text: string, values: unknown[], why: string | undefined]>([
    [`select 1 from adk_events where ${key}`, ['app', 'ada'], undefined],
    [`select 1 from "kb"."adk_events" where app_name = ?`, ['app'], 'events without a user'],
    [`select 1 from adk_events where ${key} or seq = ?`, ['app', 'ada', 1], 'events without a user'],
    [`select 1 from adk_events where (${key}) or (${key})`, ['app', 'ada', 'app', 'ada'], undefined],
    [`select 1 from adk_events where (${key}) or (${key})`, ['app', 'ada', 'app', 'bob'], 'of several users'],
    [`select 1 from adk_events where not (${key})`, ['app', 'ada'], 'events without a user'],
    [`select 1 ${joined}`, ['ada'], undefined],
    [
      `select (select 1 from adk_sessions as s where s.user_id = e.user_id) from adk_events as e where e.user_id = ?`,
      ['ada'],
      'sessions without a user',
    ],
    [
      `select 1 from adk_events where ${key} union all select 2 from adk_changes where seq = ?`,
      ['app', 'ada', 1],
      'changes without a user',
    ],
    [
      `select 1 from adk_events where ${key} union all select 2 from adk_changes where ${key}`,
      ['app', 'ada', 'app', 'bob'],
      'of several users',
    ],
    ['insert into adk_events (app_name, user_id) values (?, ?), (?, ?)', ['app', 'ada', 'app', 'ada'], undefined],
    [
      'insert into adk_events (app_name, user_id) values (?, ?), (?, ?)',
      ['app', 'ada', 'app', 'bob'],
      'of several users',
    ],
    [
      `insert into adk_events (app_name, user_id) select app_name, user_id from adk_events where ${key}`,
      ['app', 'ada'],
      undefined,
    ],
    ['insert into adk_events (app_name, user_id) select app_name, user_id from given', [], 'events without a user'],
    ['update adk_events set seq = ? where user_id = ?', [1, 'ada'], undefined],
    ['update adk_events set seq = ? from given where adk_events.user_id = given.user_id', [1], 'events without a user'],
    ['delete from adk_events where seq > ?', [1], 'events without a user'],
    ['select value from adk_counters where name = ?', ['position'], undefined],
  ])('%s %p', (text, values, why) => {
    expect(whyNotRouted({ text, values })).toBe(why);
  });
});

const harness = HARNESSES['postgresql'];

// The statements for tables that Citus distributes, on a server without it: what it refuses is known, and it is in no registry.
describe('on distributed tables', () => {
  if (!harness?.isAvailable()) {
    test.skip('PostgreSQL is not available', () => undefined);
    return;
  }
  let store: OwnStore;
  let service: MikroOrmSessionService;
  let leases: SessionLeases;
  let sent: RecordedStatement[] = [];

  beforeAll(async () => {
    store = await harness.open();
    // What Citus has in `pg_catalog`.
    await store.query('create table pg_dist_partition (logicalrelid regclass, partmethod "char")');
    await store.query(`insert into pg_dist_partition values ('adk_sessions', 'h')`);
    await store.query('create table pg_dist_placement as select 101 as shardid, 1 as groupid union all select 102, 2');
    await store.query(`create function get_shard_id_for_distribution_column(regclass, text) returns int language sql
      as 'select 101 + ascii(right($2, 1)) % 2'`);
    const onQuery = (text: string, values: readonly unknown[] = []) => {
      if (!isCheck(text)) sent.push({ text, values });
      return text;
    };
    const orm = await store.connect({ onQuery, pool: { min: 0, max: 10 } });
    service = new MikroOrmSessionService(orm.em);
    leases = new SessionLeases(orm.em);
    await service.listSessions({ appName: 'app', userId: 'ada' });
  });
  afterAll(() => store.close());
  beforeEach(() => {
    sent = [];
  });

  const starts = () =>
    sent.map(({ text }) => text.trim().split(' ').slice(0, 3).join(' ').replaceAll('"', '').replace('public.', ''));

  test('F7 an append is a transaction of plain statements', async () => {
    const session = await service.createSession({ appName: 'app', userId: 'ada' });
    sent = [];
    await service.appendEvent({ session, event: saying('x', { a: 1, 'user:b': 2, 'app:c': 3 }) });
    expect(starts()).toEqual([
      'begin',
      'update adk_sessions set',
      'insert into adk_events',
      'insert into adk_session_states',
      'insert into adk_user_states',
      'insert into adk_app_states',
      'commit',
    ]);
    expect(await store.stored(keyOf(session))).toMatchObject({ state: { a: 1 }, events: [{ author: 'agent' }] });
  });

  test('F7 what a connection has sent before goes in one packet, and nothing is run after a statement that fails', async () => {
    await store.query('create table packets (number int primary key)');
    const client = new pg.Client(String(store.orm.config.get('clientUrl')));
    await client.connect();
    try {
      const driver = driverOf(client)!;
      let answers = 0;
      const connection = Reflect.get(client, 'connection') as NodeJS.EventEmitter;
      connection.on('readyForQuery', () => answers++);
      const write = async (...numbers: number[]) => {
        answers = 0;
        const text = 'insert into packets values (?) returning number';
        const inserts = numbers.map((n) => ({ text, values: [n] }));
        const context = { isInTransaction: true, mayPrepare: true, isForeign: false };
        const all = [{ text: 'begin', values: [] }, ...inserts, { text: 'commit', values: [] }];
        return (await driver.sendAll!(all, { ...context, preparesAll: true })).map(({ rows }) => rows);
      };
      expect(await write(1)).toEqual([[], [{ number: 1 }], []]);
      expect(answers).toBe(3);
      expect(await write(2, 3)).toEqual([[], [{ number: 2 }], [{ number: 3 }], []]);
      expect(answers).toBe(1);
      await expect(write(4, 4, 5)).rejects.toMatchObject({ code: '23505' });
      await client.query('rollback');
      expect(driver.isInTransaction).toBe(false);
      expect(await store.query('select number from packets order by number')).toEqual(
        [1, 2, 3].map((number) => ({ number })),
      );
    } finally {
      await client.end();
    }
  });

  test('F7 an append is retried when a pooler has given it a connection that has not prepared its statements', async () => {
    const orm = await store.connect({ pool: { min: 0, max: 1 } });
    const own = new MikroOrmSessionService(orm.em);
    const session = await own.createSession({ appName: 'pooled', userId: 'ada' });
    for (const text of ['a', 'b']) await own.appendEvent({ session, event: saying(text) });
    await orm.em.getConnection().execute('deallocate all');
    for (const text of ['c', 'd']) await own.appendEvent({ session, event: saying(text) });
    const stored = await store.stored(keyOf(session));
    expect(stored?.events.map(({ content }) => content?.parts?.[0]?.text)).toEqual(['a', 'b', 'c', 'd']);
  });

  test('O7 a connection is refused on which Citus would double backslashes', async () => {
    const orm = await store.connect({ pool: { min: 0, max: 1 } });
    await orm.em.getConnection().execute('set standard_conforming_strings = off');
    const own = new MikroOrmSessionService(orm.em);
    await expect(own.createSession({ appName: 'app', userId: 'ada' })).rejects.toMatchObject({
      code: 'ADK_SCHEMA',
      message: expect.stringMatching(/standard_conforming_strings = on/),
    });
  });

  /** Sessions whose appends wait for the only connection of a pool, which does not know yet that the tables are distributed. */
  async function waiting(appName: string) {
    const orm = await store.connect({
      pool: { min: 0, max: 1 },
      onQuery: (text, values = []) => (isCheck(text) || sent.push({ text, values }), text),
    });
    const own = new MikroOrmSessionService(orm.em);
    const sessions = await Promise.all(
      Array.from({ length: 30 }, (_, i) => service.createSession({ appName, userId: `user ${i}` })),
    );
    const append = (id: string) => {
      sent = [];
      return Promise.allSettled(
        sessions.map((session, i) => own.appendEvent({ session, event: { ...saying(id, { id, i }), id } })),
      );
    };
    /** Appends once more. One session is gone, and one has the event already. */
    const expectOutcomes = async () => {
      await service.deleteSession(keyOf(sessions[3]!));
      await store.query(`update adk_events set event_id = 'b' where app_name = ? and user_id = 'user 5'`, [appName]);
      const outcomes = await append('b');
      for (const [i, session] of sessions.entries()) {
        expect(outcomes[i]!.status).toBe(i === 3 ? 'rejected' : 'fulfilled');
        const stored = await store.stored(keyOf(session));
        if (i === 5) expect(stored).toMatchObject({ events: { length: 1 } });
        else if (i !== 3) expect(stored).toMatchObject({ state: { id: 'b', i }, events: [{ id: 'a' }, { id: 'b' }] });
      }
    };
    return { append, expectOutcomes };
  }

  test('F7 appends to sessions at once share a transaction once their users are known to be on one node', async () => {
    const { append, expectOutcomes } = await waiting('by user');
    await append('a');
    expect(sent.filter(({ text }) => /locked|ctid/.test(text))).toEqual([]);
    expect(starts().filter((start) => start === 'commit')).toHaveLength(30);
    await expectOutcomes();
    const nodes: Set<number>[] = [];
    for (const { text, values } of sent) {
      if (text === 'begin') nodes.push(new Set());
      const user = values.find((value) => typeof value === 'string' && value.startsWith('user '));
      if (typeof user === 'string') nodes.at(-1)!.add(Number(user.slice(5)) % 2);
      expect(whyNotRouted({ text, values })).toBeUndefined();
    }
    expect(nodes.filter((each) => each.size > 1)).toEqual([]);
    expect(sent.some(({ text }) => text.includes('skip locked'))).toBe(true);
  });

  test('F7 appends to sessions at once share a transaction if all rows are on one node, and each has its own outcome', async () => {
    await store.query(`update pg_dist_partition set partmethod = 'n'`);
    try {
      const { append, expectOutcomes } = await waiting('by schema');
      await append('a');
      expect(starts()).toEqual([
        ...['begin', 'with given as', 'insert into adk_events', 'insert into adk_session_states', 'commit'],
      ]);
      expect(sent.filter(({ text }) => /insert [^;]* select/.test(text))).toEqual([]);
      await expectOutcomes();
    } finally {
      await store.query(`update pg_dist_partition set partmethod = 'h'`);
    }
  });

  test('F7 every statement about a session is routed, and no condition or list of values reads a volatile clock', async () => {
    const session = await service.createSession({
      appName: 'app',
      userId: 'ada',
      state: { a: 1, 'user:a': 1, 'app:a': 1 },
    });
    const key = keyOf(session);
    const event = saying('x', { b: 1 });
    await service.appendEvents({ session, events: [event, saying('y', { b: 2 }), saying('z')] });
    await service.appendEvent({ session, event: { ...event, author: 'another' } });
    for (const config of [
      undefined,
      { numRecentEvents: 1 },
      { afterTimestamp: 1 },
      { numRecentEvents: 1, afterTimestamp: 1 },
    ])
      await service.getSession({ ...key, ...(config && { config }) });
    await service.updateState({ ...key, set: { c: 1 }, remove: ['a'] });
    await service.describeSession(key, { title: 'a title' });
    const fork = await service.forkSession(key, { at: 2 });
    expect(fork.events).toHaveLength(2);
    expect(fork.state).toMatchObject({ a: 1, b: 2 });
    const rewound = await service.rewindSession(key, { at: 1 });
    expect(rewound.events).toMatchObject([{ author: 'another' }]);
    const lease = await leases.acquire(key, { holder: 'me' });
    await lease.sessionService.appendEvent({ session: (await service.getSession(key))!, event: saying('leased') });
    await lease.release();
    await service.deleteSession(key);
    expect(sent.filter((statement) => whyNotRouted(statement) !== undefined)).toEqual([]);
    expect(sent.filter(({ text }) => text.includes('clock_timestamp'))).toEqual([]);
  });

  test.each([
    'could not commit transaction for shard 102020 on at least one active node',
    'server closed the connection unexpectedly',
  ])('O1 an append whose commit a node did not answer is retried, and stored once: %s', async (message) => {
    const session = await service.createSession({ appName: 'lost', userId: 'ada' });
    await store.query('create sequence commits');
    // Only the first commit fails: a sequence does not go back.
    await store.query(`create function fail_once() returns trigger language plpgsql as $$ begin
      if nextval('commits') = 1 then raise exception using errcode = 'XX000', message = '${message}'; end if; return null; end $$`);
    await store.query(`create constraint trigger fails after insert on adk_events deferrable initially deferred
      for each row when (new.app_name = 'lost') execute function fail_once()`);
    await service.appendEvent({ session, event: saying('once', { a: 1 }) });
    expect(await store.stored(keyOf(session))).toMatchObject({ state: { a: 1 }, events: { length: 1 } });
    expect(await store.query<{ n: number }>('select last_value::int as n from commits')).toEqual([{ n: 2 }]);
    await store.query('drop function fail_once cascade');
    await store.query('drop sequence commits');
  });
});
