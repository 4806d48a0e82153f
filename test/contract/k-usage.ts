import { usageOf } from '../../packages/studio/src/index.js';
import { EventLog, MikroOrmSessionService } from '../../src/index.js';
import type { Codec } from '../../src/codecs/index.js';
import { Suite } from './rule.js';
import { eventOf, expectCode, saying } from './tools.js';

/** What models have used. */
export const usageSuite = new Suite({ isOfDialect: true });

const CODEC: Codec = { name: 'usage', encode: (data) => ({ data }), decode: ({ data }) => data };

const NOON = Date.UTC(2026, 10, 3, 12);
const DAY = 86_400_000;

/** An event of a model's. */
const counted = (timestamp: number, prompt: number, params: object = {}) =>
  eventOf({
    timestamp,
    author: 'clerk',
    modelVersion: 'gemini-x',
    usageMetadata: {
      promptTokenCount: prompt,
      toolUsePromptTokenCount: 1,
      cachedContentTokenCount: 2,
      candidatesTokenCount: 10,
      thoughtsTokenCount: 3,
    },
    ...params,
  });

usageSuite.own('K8', 'usage sums up tokens and calls by day, user, model and agent', async (context) => {
  const { app, create, service, orm, query, scratch } = context;
  const calls = ['a', 'b'].map((id) => ({ functionCall: { id, name: 'look_up', args: {} } }));
  const session = await create();
  await service.appendEvents({
    session,
    events: [
      saying('Go.', { author: 'user', timestamp: NOON }),
      counted(NOON, 100, { content: { role: 'model', parts: calls } }),
      // The first and the last moment of the days that are asked for, and those beside them.
      counted(Date.UTC(2026, 10, 3), 20),
      counted(Date.UTC(2026, 10, 3) - 1, 1_000),
      counted(Date.UTC(2026, 10, 5) - 0.5, 3, { modelVersion: undefined, author: 'expert' }),
      counted(Date.UTC(2026, 10, 5), 1_000),
    ],
  });
  const encoding = new MikroOrmSessionService(orm.em, { codec: CODEC });
  const bobs = await encoding.createSession({ appName: app, userId: 'bob', sessionId: 'encoded' });
  await encoding.appendEvent({ session: bobs, event: counted(NOON, 5, { output: 'x'.repeat(900_000) }) });
  // Whatever others have stored in place of numbers.
  const odd = { promptTokenCount: '7', candidatesTokenCount: -1, thoughtsTokenCount: 0.5 };
  await encoding.appendEvent({ session: bobs, event: counted(NOON, 0, { usageMetadata: odd }) });

  const log = new EventLog(orm.em, { codec: CODEC });
  const days = { from: '2026-11-03', to: '2026-11-04' };
  const usage = (by: 'day' | 'user' | 'model' | 'agent' | 'app', more: object = {}) =>
    usageOf(log, { appName: app, ...days, by, ...more });
  const used = async (...given: Parameters<typeof usage>) =>
    (await usage(...given)).rows.map((row) => {
      expect(row.appName).toBe(app);
      return [
        row.group,
        row.events,
        row.inputTokens,
        row.cachedTokens,
        row.outputTokens,
        row.thoughtsTokens,
        row.toolCalls,
      ];
    });
  expect(await used('day')).toEqual([
    ['2026-11-03', 5, 128, 6, 30, 9, 2],
    ['2026-11-04', 1, 4, 2, 10, 3, 0],
  ]);
  expect(await used('user')).toEqual([
    [session.userId, 4, 126, 6, 30, 9, 2],
    ['bob', 2, 6, 2, 10, 3, 0],
  ]);
  expect(await used('model', { userId: session.userId })).toEqual([
    ['', 2, 4, 2, 10, 3, 0],
    ['gemini-x', 2, 122, 4, 20, 6, 2],
  ]);
  expect((await used('agent')).map(([group, events]) => [group, events])).toEqual([
    ['clerk', 4],
    ['expert', 1],
  ]);
  expect(await used('app')).toEqual([[app, 6, 132, 8, 40, 12, 2]]);
  const [all] = (await usage('app')).rows;
  expect(all?.models).toEqual({
    '': { inputTokens: 4, cachedTokens: 2, outputTokens: 10, thoughtsTokens: 3 },
    'gemini-x': { inputTokens: 128, cachedTokens: 6, outputTokens: 30, thoughtsTokens: 9 },
  });
  expect(await used('day', { from: '2026-11-05', to: '2026-11-06' })).toEqual([['2026-11-05', 1, 1_001, 2, 10, 3, 0]]);

  // Each app by itself. Other tests have stored texts of their codecs in other apps.
  const alone = await scratch();
  for (const appName of ['a', 'b']) {
    const other = await alone.service.createSession({ appName, userId: 'bob' });
    await alone.service.appendEvent({ session: other, event: counted(NOON + DAY, 50) });
  }
  const { rows } = await usageOf(new EventLog(alone.orm.em), { ...days, by: 'day' });
  expect(rows.map(({ appName, group }) => [appName, group])).toEqual([
    ['a', '2026-11-04'],
    ['b', '2026-11-04'],
  ]);
  // What cannot be read is counted as that.
  await query("update adk_events set data = '[]' where session_id = ? and seq = 2", [session.id]);
  expect(await usage('day')).toMatchObject({ unreadable: 1, rows: [{ inputTokens: 27 }, { inputTokens: 4 }] });
  // Nor can the time of an event that has none.
  for (const [seq, timestamp] of [
    [3, '"yesterday"'],
    [5, '1e16'],
  ])
    await query('update adk_events set data = ? where session_id = ? and seq = ?', [
      `{"id":"e","author":"clerk","timestamp":${timestamp}}`,
      ...[session.id, seq],
    ]);
  expect(await usage('day')).toMatchObject({ unreadable: 3 });

  const refused = { by: 'day', from: '2026-11-03', to: '2026-11-03' } as const;
  for (const wrong of [
    { from: '2026-11-31' },
    { to: '3 November 2026' },
    { to: '2026-11-02' },
    { by: 'hour' as 'day' },
  ])
    await expectCode(usageOf(log, { ...refused, ...wrong }), 'ADK_INVALID_ARGUMENT');
});

usageSuite.own('K8', 'usage adds up how long models took, as the pages of a session show it', async (context) => {
  const { create, service, orm, app, query } = context;
  const session = await create();
  const told: [from: number, until: number | null, author?: string][] = [
    [0, 1_500.25],
    [5_000, 7_000],
    // It was stored after the agent had gone on.
    [20_000, 26_000],
    // The clock of its process was ahead, and the other one comes from a store that does not keep this time.
    [24_000, 20_000],
    [30_000, null],
    // Copied from another store: no request to a model takes days.
    [40_000, 38_361_600_000, 'expert'],
    // What follows says that this one was stored when it was made.
    [100_000, 102_000],
    [110_000, 111_000],
  ];
  await service.appendEvents({
    session,
    events: [
      ...told.map(([from, , author = 'clerk']) => counted(NOON + from, 1, { author })),
      saying('Go.', { author: 'user', timestamp: NOON + 200_000 }),
    ],
  });
  for (const [i, [, until]] of told.entries())
    await query('update adk_events set append_time = ? where app_name = ? and seq = ?', [
      until === null ? null : NOON + until,
      ...[app, i + 1],
    ]);
  const { rows } = await usageOf(new EventLog(orm.em), {
    ...{ appName: app, from: '2026-11-03', to: '2026-11-03', by: 'agent' },
  });
  expect(rows.map(({ group, modelMs, events }) => [group, modelMs, events])).toEqual([
    ['clerk', 1_500.25 + 2_000 + 4_000 + 2_000 + 1_000, 7],
    ['expert', 0, 1],
  ]);
});
