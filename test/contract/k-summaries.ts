import type { FindSessionsRequest } from '../../src/index.js';
import { MikroOrmSessionService } from '../../src/index.js';
import { harnessOf } from '../support/harnesses/databases.js';
import { keyOf } from '../support/harnesses/harness.js';
import { upTo } from './log-tools.js';
import { Suite, type OwnContext } from './rule.js';
import { expectCode, range, saying } from './tools.js';

export const summarySuite = new Suite({ isOfDialect: true });

/** A session that was last updated at a time. */
async function updatedAt(
  { create, service }: Pick<OwnContext, 'create' | 'service'>,
  time: number,
  sessionId: string,
  userId = 'alice',
) {
  const session = await create({ sessionId, userId });
  await service.appendEvent({ session, event: saying('x', { timestamp: time }) });
  return session;
}

const finding =
  ({ service, app }: Pick<OwnContext, 'service' | 'app'>) =>
  async (request: Partial<FindSessionsRequest> = {}) =>
    (await service.findSessions({ appName: app, ...request })).sessions.map(({ sessionId }) => sessionId);

/** All pages, each with its size. */
async function pages({ service, app }: Pick<OwnContext, 'service' | 'app'>, request: Partial<FindSessionsRequest>) {
  const found: string[][] = [];
  for (let after: string | undefined; ;) {
    const { sessions, next } = await service.findSessions({ appName: app, ...request, ...(after && { after }) });
    found.push(sessions.map(({ sessionId }) => sessionId));
    if (!next) return found;
    after = next;
  }
}

summarySuite.own('K6', 'describeSession sets title and labels, and findSessions returns them', async (context) => {
  const { app, service, fresh, query } = context;
  const session = await updatedAt(context, 70.25, 's1');
  const key = keyOf(session);
  const summary = async () => (await service.findSessions({ appName: app })).sessions[0];
  const [{ created }] = (await query(
    `select ${context.harness.columns.double('create_time')} as created from adk_sessions where app_name = ?`,
    [app],
  )) as [{ created: number | string }];
  const bare = { ...key, labels: {}, eventCount: 1, createTime: Number(created), lastUpdateTime: 70.25 };
  expect(await summary()).toEqual(bare);
  const title = 'Rückgabe “17” %_\\ 🙂';
  const labels = { team: 'ä"b\\c', 'a/b.c-d_1': '' };
  await service.describeSession(key, { title, labels });
  expect(await summary()).toEqual({ ...bare, title, labels });
  await service.describeSession(key, { title: null });
  expect(await summary()).toEqual({ ...bare, labels });
  await service.describeSession(key, { title: 'x', labels: null });
  await service.describeSession(key, {});
  expect(await summary()).toEqual({ ...bare, title: 'x' });
  expect((await fresh(session)).lastUpdateTime).toBe(70.25);

  await expectCode(service.describeSession({ ...key, sessionId: 'none' }, { title: 'x' }), 'ADK_SESSION_NOT_FOUND');
  for (const description of [
    { title: 'x'.repeat(256) },
    { title: 'a\0b' },
    { title: 5 },
    { labels: { 'a b': 'x' } },
    { labels: { '': 'x' } },
    { labels: { a: 5 } },
    { labels: { a: '\ud800' } },
    { labels: ['a'] },
    { name: 'x' },
  ]) {
    await expectCode(service.describeSession(key, description as never), 'ADK_INVALID_ARGUMENT');
  }
  await service.describeSession(key, { title: '🙂'.repeat(255) });
  expect((await summary())?.title).toBe('🙂'.repeat(255));
});

summarySuite.own('K6', 'sessions are found by all conditions together', async (context) => {
  const { app, orm, service, create } = context;
  const find = finding(context);
  for (const [i, [title, labels, userId]] of (
    [
      ['Refund of 17', { team: 'billing', level: '1' }, 'alice'],
      ['refund of 18', { team: 'billing' }, 'bob'],
      ['100 % off', { team: 'Billing', note: '"team":"billing"' }, 'alice'],
      ['100 x off', { teams: 'billing' }, 'alice'],
    ] as const
  ).entries()) {
    const session = await updatedAt(context, 10 * (i + 1), `s${i + 1}`, userId);
    await service.describeSession(keyOf(session), { title, labels });
  }
  await updatedAt(context, 50, 's5');
  await service.createSession({ appName: `${app} too`, userId: 'alice' });
  expect(await find()).toEqual(['s5', 's4', 's3', 's2', 's1']);
  expect(await find({ order: 'asc', userId: 'alice' })).toEqual(['s1', 's3', 's4', 's5']);
  expect(await find({ title: 'efund' })).toEqual(['s2', 's1']);
  expect(await find({ title: 'Refund' })).toEqual(['s1']);
  expect(await find({ title: '0 % o' })).toEqual(['s3']);
  expect(await find({ title: '_' })).toEqual([]);
  expect(await find({ labels: { team: 'billing' } })).toEqual(['s2', 's1']);
  expect(await find({ labels: { team: 'billing', level: '1' } })).toEqual(['s1']);
  expect(await find({ labels: { note: '"team":"billing"' } })).toEqual(['s3']);
  expect(await find({ labels: { team: 'bill' } })).toEqual([]);
  expect(await find({ updatedAfter: 20 })).toEqual(['s5', 's4', 's3']);
  expect(await find({ updatedBefore: 20 })).toEqual(['s1']);
  expect(await find({ updatedAfter: 10, updatedBefore: 50, userId: 'alice', title: 'off' })).toEqual(['s4', 's3']);
  expect(await find({ userId: 'carol' })).toEqual([]);

  const gone = await create({ sessionId: 'gone' });
  await new MikroOrmSessionService(orm.em, { deletion: 'soft' }).deleteSession(keyOf(gone));
  expect(await find()).toHaveLength(5);
  expect(await find({ status: 'deleted' })).toEqual(['gone']);
  const [deleted] = (await service.findSessions({ appName: app, status: 'deleted' })).sessions;
  expect(deleted?.deletedAt).toEqual(expect.any(Number));
  await expectCode(service.describeSession(keyOf(gone), { title: 'x' }), 'ADK_SESSION_NOT_FOUND');
});

summarySuite.own('K6', 'pages have every session once, in order, whatever the times', async (context) => {
  const { query, app } = context;
  // Equal times, and one that a driver may read inexactly.
  for (const [i, time] of [5, 5, 5, 902895004.4580133, 902895004.4580133, 7].entries()) {
    for (const userId of ['alice', 'bob']) await updatedAt(context, time, `s${i}`, userId);
  }
  const rows = await query<{ session_id: string }>(
    'select session_id from adk_sessions where app_name = ? order by last_update_time, session_id, user_id',
    [app],
  );
  const ids = rows.map((row) => row.session_id);
  for (const limit of [1, 2, 5, 12, 13]) {
    const ascending = await pages(context, { order: 'asc', limit });
    expect(ascending.flat()).toEqual(ids);
    expect(ascending.slice(0, -1).every((page) => page.length === limit)).toBe(true);
    expect((await pages(context, { limit })).flat()).toEqual(ids.toReversed());
    const ofBob = (await pages(context, { limit, userId: 'bob' })).flat();
    expect(ofBob).toEqual(['s4', 's3', 's5', 's2', 's1', 's0']);
  }
});

summarySuite.own('K6', 'a cursor stays right while sessions come, change and go', async (context) => {
  const { app, service } = context;
  const sessions = [];
  for (const i of range(6)) sessions.push(await updatedAt(context, 10 * i + 1, `s${i}`));
  const first = await service.findSessions({ appName: app, limit: 2 });
  expect(first.sessions.map(({ sessionId }) => sessionId)).toEqual(['s5', 's4']);
  await updatedAt(context, 100, 'new');
  await service.deleteSession(keyOf(sessions[4]!));
  await service.appendEvent({ session: sessions[2]!, event: saying('x', { timestamp: 200 }) });
  const second = await service.findSessions({ appName: app, limit: 2, after: first.next! });
  expect(second.sessions.map(({ sessionId }) => sessionId)).toEqual(['s3', 's1']);
  for (const after of ['', 'x', first.next!.slice(2), Buffer.from('[1,2,3]').toString('base64url')]) {
    await expectCode(service.findSessions({ appName: app, after }), 'ADK_INVALID_ARGUMENT', /next/);
  }
  for (const request of [
    { limit: 0 },
    { order: 'up' },
    { status: 'all' },
    { session: 's' },
    { labels: { 'a b': '' } },
  ]) {
    await expectCode(service.findSessions({ appName: app, ...request } as never), 'ADK_INVALID_ARGUMENT');
  }
});

summarySuite.own('K6', 'a search also finds what is not among the newest sessions of an app', async ({ scratch }) => {
  const { service, query } = await scratch();
  for (const i of range(40)) await service.createSession({ appName: 'app', userId: 'ada', sessionId: `s${i}` });
  for (const copy of upTo(30)) {
    await query(`insert into adk_sessions (app_name, user_id, session_id, incarnation, origin, create_time, last_update_time)
      select app_name, 'user ${copy}', session_id, incarnation, origin, create_time, last_update_time + ${copy % 7}
        from adk_sessions where user_id = 'ada'`);
  }
  await query(`update adk_sessions set last_update_time = 1 where user_id = 'ada'`);
  await query(`update adk_sessions set title = 'old' where user_id = 'ada' and session_id in ('s3', 's14')`);
  await query(`update adk_sessions set title = 'here and there' where session_id in ('s1', 's15', 's9')`);
  for (const [title, count] of [
    ['old', 2],
    ['there', 93],
    ['nowhere', 0],
  ] as const) {
    for (const order of ['asc', 'desc'] as const) {
      const by = ['last_update_time', 'session_id', 'user_id'].map((column) => `${column} ${order}`).join();
      const rows = await query<{ session_id: string }>(
        `select session_id from adk_sessions where title like '%${title}' order by ${by}`,
      );
      const found = await pages({ service, app: 'app' }, { title, order, limit: 10 });
      expect(found.flat()).toHaveLength(count);
      expect(found.flat()).toEqual(rows.map((row) => row.session_id));
      expect(found.slice(0, -1).every((page) => page.length === 10)).toBe(true);
    }
  }
});

summarySuite.own(
  'K6',
  'a page is one statement, and a search of an app two at most, served by an index',
  async ({ scratch }) => {
    const { service, orm, query, recorded } = await scratch();
    await orm.em.fork().transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      for (const i of range(40))
        await joined.createSession({ appName: 'app', userId: `user ${i % 4}`, sessionId: `s${i}` });
    });
    for (const copy of upTo(40)) {
      await query(`insert into adk_sessions (app_name, user_id, session_id, incarnation, origin, create_time, last_update_time)
      select 'app ${copy}', user_id, session_id, incarnation, origin, create_time, last_update_time + ${copy} from adk_sessions where app_name = 'app'`);
    }
    const { plan } = harnessOf(orm.em);
    await query(plan.analyze);
    const statements = await recorded(async () => {
      for (const owner of [{}, { userId: 'user 1' }]) {
        for (const order of ['asc', 'desc'] as const) {
          const { next } = await service.findSessions({ appName: 'app', ...owner, order, limit: 5 });
          await service.findSessions({ appName: 'app', ...owner, order, limit: 5, after: next!, title: 'x' });
          await service.findSessions({ appName: 'app', ...owner, order, updatedAfter: 5, updatedBefore: 9 });
          await service.findSessions({ appName: 'app', ...owner, order, status: 'deleted', labels: { a: 'b' } });
        }
      }
      await service.describeSession({ appName: 'app', userId: 'user 1', sessionId: 's1' }, { title: 'x' });
    });
    // On the tables: the first call of an ORM also looks at its driver.
    const own = statements.filter(({ text }) => /^(select|update)\b.*adk_/s.test(text));
    const first = own.filter(({ text }) => text.includes(') as first'));
    expect(own.length - first.length).toBe(18);
    expect([0, 4]).toContain(first.length);
    const scans: [string, string[]][] = [];
    for (const { text, values } of own) {
      const found = await plan.scans((prefix) => query(`${prefix} ${text}`, values));
      if (found.length > 0) scans.push([text, found]);
    }
    expect(scans).toEqual([]);
  },
);

summarySuite.own('K6', 'an invented cursor is refused at once', async ({ service, app, create }) => {
  for (const sessionId of ['a', 'b']) await create({ sessionId });
  const { next } = await service.findSessions({ appName: app, limit: 1 });
  const cursor = (json: string) => Buffer.from(json).toString('base64url');
  const [time, id, user] = JSON.parse(Buffer.from(next!, 'base64url').toString()) as [number, string, string];
  const forged = [
    cursor(JSON.stringify([time, 'a\0', user])),
    cursor(JSON.stringify([time, id, 'a\0'])),
    cursor(`[${time},"\\ud800","${user}"]`),
    cursor(`[1e999,"${id}","${user}"]`),
    cursor(`[-0,"${id}","${user}"]`),
    cursor(JSON.stringify([time, 'a'.repeat(192), user])),
    cursor(JSON.stringify([time, '', user])),
    cursor(JSON.stringify([time, id, user, null])),
    cursor(` ${JSON.stringify([time, id, user])}`),
    cursor(JSON.stringify([String(time), id, user])),
    cursor('{}'),
    `${next}=`,
    `${next}\0`,
    '',
    'next',
  ];
  for (const after of forged) {
    await expectCode(
      service.findSessions({ appName: app, after }),
      'ADK_INVALID_ARGUMENT',
      /^after must be the 'next'/,
    );
  }
  expect((await service.findSessions({ appName: app, after: next! })).sessions).toHaveLength(1);
});

summarySuite.own('D5', 'pages at the largest numbers are empty, or refused', async ({ service, app, create }) => {
  await create();
  const far = Number.MAX_SAFE_INTEGER;
  for (const range of [{ limit: far }, { limit: 1, page: far }, { offset: far }, { limit: far, offset: 1 }]) {
    const { sessions, totalItems } = await service.listSessions({ appName: app, ...range });
    expect([range, totalItems]).toEqual([range, 1]);
    expect(sessions.length).toBe('limit' in range && range.limit === far && !('offset' in range) ? 1 : 0);
  }
  await expectCode(service.listSessions({ appName: app, limit: far, page: far }), 'ADK_INVALID_ARGUMENT');
  expect((await service.findSessions({ appName: app, limit: far })).sessions).toHaveLength(1);
});
