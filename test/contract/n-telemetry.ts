import { FunctionTool, LlmAgent, Runner } from '@google/adk';
import { DeadlockException } from '@mikro-orm/core';
import { SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { EventLog, MikroOrmSessionService, SessionLeases, SessionMaintenance } from '../../src/index.js';
import { packageVersion } from '../../src/model/version.js';
import { scriptedModel } from '../../src/testing/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { recordTelemetry, type Recorded } from '../support/telemetry.js';
import { Suite, type OwnContext } from './rule.js';
import { errorOf, expectCode, faulty, range, saying, until, type Content } from './tools.js';

/** Spans and metrics. */
export const telemetrySuite = new Suite();

interface TelemetryContext extends OwnContext {
  telemetry: Recorded;
  /** With telemetry. */
  observed: MikroOrmSessionService;
}

function telemetryTest(title: string, test: (context: TelemetryContext) => Promise<void>): void {
  telemetrySuite.own('N1', title, async (context) => {
    const observed = new MikroOrmSessionService(context.orm.em, { telemetry: true });
    // A host may register its providers later.
    await observed.getAppState({ appName: context.app });
    const telemetry = await recordTelemetry();
    await test({ ...context, telemetry, observed });
  });
}

/** All that our spans may say. */
const ATTRIBUTES = new Set([
  'adk_mikro_orm.append.bytes',
  'adk_mikro_orm.append.events',
  'adk_mikro_orm.outcome',
  'adk_mikro_orm.retries',
  'adk_mikro_orm.wait.connection',
  'adk_mikro_orm.wait.lock',
  'adk_mikro_orm.wait.queue',
  'db.operation.batch.size',
  'db.operation.name',
  'db.response.status_code',
  'db.system.name',
  'error.type',
  'gen_ai.conversation.id',
]);

telemetryTest("a Runner's calls are INTERNAL spans below ADK's, without contents", async (context) => {
  const { app, harness, observed, telemetry } = context;
  const look = new FunctionTool({
    name: 'look',
    description: 'Looks.',
    execute: (_args, tool) => {
      tool?.state.set('hidden_key', 'hidden_value');
      tool?.state.set('user:hidden_key', 'hidden_value');
      return { found: 'hidden_result' };
    },
  });
  const answered = (conversation: Content[]) => conversation.some(({ parts }) => parts?.[0]?.functionResponse);
  const calls = range(2).map((i) => ({ functionCall: { id: `call ${i}`, name: 'look', args: { hidden_arg: i } } }));
  const model = scriptedModel(({ contents }) => (answered(contents) ? 'hidden_text' : { parts: calls }));
  const agent = new LlmAgent({ name: 'finder', model, tools: [look], outputKey: 'hidden_output' });
  const began = performance.now();
  const session = await observed.createSession({ appName: app, userId: 'hidden_user', state: { hidden_key: 0 } });
  const seconds = (performance.now() - began) / 1_000;
  const runner = new Runner({ appName: app, agent, sessionService: observed });
  const newMessage = { role: 'user', parts: [{ text: 'hidden_question: größer?' }] };
  for await (const _ of runner.runAsync({ userId: 'hidden_user', sessionId: session.id, newMessage }));

  const { spans, ofAdk, all } = telemetry.spans();
  expect(spans.map(({ name }) => name)).toEqual([
    'createSession',
    'getSession',
    ...range(spans.length - 2).map(() => 'appendEvent'),
  ]);
  const stored = await context.stored(keyOf(session));
  expect(stored?.events.length).toBeGreaterThanOrEqual(4);
  expect(spans).toHaveLength(2 + (stored?.events.length ?? 0));
  for (const span of spans) {
    expect(span.kind).toBe(SpanKind.INTERNAL);
    expect(span.instrumentationScope.version).toBe(packageVersion);
    expect(span.status.code).toBe(SpanStatusCode.UNSET);
    expect(span.attributes).toMatchObject({
      'db.system.name': harness.dialect,
      'db.operation.name': span.name,
      'gen_ai.conversation.id': session.id,
    });
  }
  // The session was created before the run.
  const [created, ...inRun] = spans;
  expect(created?.parentSpanContext).toBeUndefined();
  const invocation = ofAdk.find(({ name }) => name === 'invocation');
  for (const span of inRun) {
    const parent = all.find((each) => each.spanContext().spanId === span.parentSpanContext?.spanId);
    expect([span.name, ofAdk.includes(parent!)]).toEqual([span.name, true]);
    expect(span.spanContext().traceId).toBe(invocation?.spanContext().traceId);
  }
  const said = spans.map(({ name, attributes, events, links, status }) => ({
    name,
    attributes,
    events,
    links,
    status,
  }));
  expect(JSON.stringify(said)).not.toMatch(/hidden|select|insert|update adk/i);
  const names = spans.flatMap(({ attributes }) => Object.keys(attributes));
  expect(names.filter((name) => !ATTRIBUTES.has(name))).toEqual([]);

  const bytes = stored!.events.reduce((sum, event) => sum + Buffer.byteLength(JSON.stringify(event)), 0);
  const metrics = await telemetry.metrics();
  expect(metrics['adk_mikro_orm.append.events']).toEqual([
    { attributes: { 'db.system.name': harness.dialect }, value: stored!.events.length },
  ]);
  expect(metrics['adk_mikro_orm.append.bytes']).toMatchObject([{ value: bytes }]);
  const durations = metrics['db.client.operation.duration'] ?? [];
  const byOperation = durations.map(({ attributes, value }) => [attributes['db.operation.name'], value]);
  expect(Object.fromEntries(byOperation)).toEqual({
    createSession: expect.objectContaining({ count: 1 }),
    getSession: expect.objectContaining({ count: 1 }),
    appendEvent: expect.objectContaining({ count: stored!.events.length }),
  });
  const creation = durations.find(({ attributes }) => attributes['db.operation.name'] === 'createSession');
  expect((creation?.value as { sum: number }).sum).toBeLessThanOrEqual(seconds);
  expect(JSON.stringify(metrics)).not.toMatch(/hidden/);
});

telemetryTest(
  'of appends that are written together each has its span, linked to that of the writer',
  async (context) => {
    const { app, observed, telemetry } = context;
    const session = await observed.createSession({ appName: app, userId: 'alice' });
    telemetry.reset();
    const host = trace.getTracer('host');
    await Promise.all(
      range(5).map((i) =>
        host.startActiveSpan(`host ${i}`, async (span) => {
          await observed.appendEvent({ session, event: saying(String(i)) });
          span.end();
        }),
      ),
    );
    const { spans, all } = telemetry.spans();
    const parents = spans.map(({ parentSpanContext }) =>
      all.find((each) => each.spanContext().spanId === parentSpanContext?.spanId),
    );
    expect(parents.map((parent) => parent?.name).sort()).toEqual(range(5).map((i) => `host ${i}`));
    const together = spans.filter(({ attributes }) => attributes['db.operation.batch.size'] !== undefined);
    expect(together.map(({ attributes }) => attributes['db.operation.batch.size'])).toEqual([4, 4, 4, 4]);
    const linked = together.flatMap(({ links }) => links.map((link) => link.context.spanId));
    const writer = together.find(({ links }) => links.length === 0);
    expect(linked).toEqual(range(3).map(() => writer?.spanContext().spanId));
    for (const { attributes } of together) expect(attributes).toHaveProperty(['adk_mikro_orm.wait.queue']);
  },
);

telemetryTest(
  'retries and conflicts are counted, and are events of the span',
  async ({ app, orm, telemetry, harness }) => {
    const service = new MikroOrmSessionService(orm.em);
    const session = await service.createSession({ appName: app, userId: 'alice' });
    let fails = 2;
    const under = new Set<string | undefined>();
    const em = faulty(orm.em, {
      before: async () => void under.add(trace.getActiveSpan()?.spanContext().spanId),
      statement: (text) => text.includes('last_seq = last') && fails-- > 0,
      error: () => new DeadlockException(new Error('secret')),
    });
    await new MikroOrmSessionService(em, { telemetry: true }).appendEvent({ session, event: saying('x') });
    const [span] = telemetry.spans().spans;
    expect(span?.attributes).toMatchObject({ 'adk_mikro_orm.retries': 2 });
    // So spans of the driver's instrumentation are below it.
    expect([...under]).toEqual([span?.spanContext().spanId]);
    expect(span?.status.code).toBe(SpanStatusCode.UNSET);
    expect(span?.events.map(({ name, attributes }) => [name, attributes])).toEqual(
      range(2).map(() => ['retry', { 'error.type': 'deadlock' }]),
    );
    const counted = [{ attributes: { 'db.system.name': harness.dialect, 'error.type': 'deadlock' }, value: 2 }];
    expect(await telemetry.metrics()).toMatchObject({
      'adk_mikro_orm.retries': counted,
      'adk_mikro_orm.conflicts': counted,
    });
  },
);

telemetryTest('errors have our code, and no message', async ({ app, orm, observed, telemetry, append }) => {
  const key = { appName: app, userId: 'alice', sessionId: 'missing' };
  await expectCode(observed.describeSession(key, { title: 'x' }), 'ADK_SESSION_NOT_FOUND');
  const em = faulty(orm.em, { statement: () => true, error: () => new Error('secret') });
  const failing = new MikroOrmSessionService(em, { telemetry: true, retry: { attempts: 1 } });
  await expectCode(failing.getSession(key), 'ADK_DATABASE');

  const strict = new MikroOrmSessionService(orm.em, { telemetry: true, onStaleSession: 'reject' });
  const session = await strict.createSession({ appName: app, userId: 'alice' });
  const behind = (await strict.getSession(keyOf(session)))!;
  await append(session);
  await expectCode(strict.appendEvent({ session: behind, event: saying('x') }), 'ADK_STALE_SESSION');
  await observed.appendEvent({ session: behind, event: saying('y') });
  expect(behind.events).toHaveLength(2);

  const failed = telemetry.spans().spans.filter(({ status }) => status.code === SpanStatusCode.ERROR);
  expect(failed.map(({ name, status, attributes }) => [name, status.message, attributes['error.type']])).toEqual([
    ['describeSession', undefined, 'ADK_SESSION_NOT_FOUND'],
    ['getSession', undefined, 'ADK_DATABASE'],
    ['appendEvent', undefined, 'ADK_STALE_SESSION'],
  ]);
  expect(failed[1]?.attributes).toMatchObject({ 'adk_mikro_orm.outcome': 'none' });
  const metrics = await telemetry.metrics();
  expect(metrics['adk_mikro_orm.stale_handles']).toMatchObject([{ value: 1 }]);
  expect(metrics['adk_mikro_orm.rebases']).toMatchObject([{ value: 1 }]);
  const durations = metrics['db.client.operation.duration']?.map(({ attributes }) => attributes['error.type']);
  expect(new Set(durations)).toEqual(
    new Set([undefined, 'ADK_SESSION_NOT_FOUND', 'ADK_DATABASE', 'ADK_STALE_SESSION']),
  );
});

telemetryTest('a call of several transactions is one span', async ({ app, orm, observed, telemetry }) => {
  for (const sessionId of ['s1', 's2']) await observed.getOrCreateSession({ appName: app, userId: 'alice', sessionId });
  const session = { appName: app, userId: 'alice', sessionId: 's1' };
  await observed.forkSession(session, { as: 's3' });
  await observed.rewindSession(session, { at: 0 });
  const maintenance = new SessionMaintenance(orm.em, { telemetry: true });
  await maintenance.eraseUser({ appName: app, userId: 'alice', batchSize: 1, pauseMs: 0 });
  expect(telemetry.spans().spans.map(({ name }) => name)).toEqual([
    'getOrCreateSession',
    'getOrCreateSession',
    'forkSession',
    'rewindSession',
    'eraseUser',
  ]);
});

telemetryTest('a loop over the log leaves no span open, and polls are below none', async (context) => {
  const { app, orm, observed, telemetry } = context;
  const session = await observed.createSession({ appName: app, userId: 'alice' });
  const under: unknown[] = [];
  const em = faulty(orm.em, { before: async () => void under.push(trace.getActiveSpan()) });
  const log = new EventLog(em, { telemetry: true, pollIntervalMs: 7 });
  const { position } = await log.head();
  const lag = async () => (await telemetry.metrics())['adk_mikro_orm.log.lag']?.map(({ value }) => value) ?? [];
  const iterator = log.watch(position, { appName: app })[Symbol.asyncIterator]();
  const first = iterator.next();
  await until(() => under.length > 3);
  await observed.appendEvents({ session, events: range(3).map((i) => saying(String(i))) });
  await first;
  // It keeps the entry for a while, and the log continues.
  await observed.appendEvents({ session, events: range(2).map((i) => saying(String(i))) });
  await until(async () => (await lag())[0] === 5);
  expect(telemetry.open()).toEqual([]);
  // Polls began in all of these calls.
  under.length = 0;
  await until(() => under.length > 3);
  expect(under.filter((span) => span !== undefined)).toEqual([]);

  for (let i = 0; i < 4; i++) await iterator.next();
  const waiting = iterator.next();
  await until(async () => (await lag())[0] === 0);
  expect(telemetry.open()).toEqual([]);
  await observed.appendEvent({ session, event: saying('last') });
  await waiting;
  await iterator.return?.();
  expect(await lag()).toEqual([]);

  for await (const _ of log.since(position, { appName: app })) break;
  expect(telemetry.open()).toEqual([]);
  const names = new Set(telemetry.spans().spans.map(({ name }) => name));
  expect(names).toEqual(new Set(['createSession', 'head', 'watch', 'appendEvents', 'appendEvent', 'since']));
});

telemetryTest('a lease that is lost is counted, one that is released is not', async (context) => {
  const { app, orm, query, observed, telemetry } = context;
  const session = await observed.createSession({ appName: app, userId: 'alice' });
  const leases = new SessionLeases(orm.em, { telemetry: true, ttlMs: 300 });
  const released = await leases.acquire(keyOf(session), { holder: 'a' });
  await released.release();
  const lost = await leases.acquire(keyOf(session), { holder: 'b' });
  await query('update adk_sessions set lease_token = lease_token + 1 where app_name = ?', [app]);
  await until(() => lost.signal.aborted);
  expect((await telemetry.metrics())['adk_mikro_orm.leases.lost']).toMatchObject([{ value: 1 }]);
  expect(telemetry.spans().spans.map(({ name }) => name)).toEqual(['createSession', 'acquire', 'release', 'acquire']);
  expect(telemetry.open()).toEqual([]);
});

telemetryTest('nothing is recorded unless it is asked for', async ({ app, orm, service, telemetry }) => {
  const session = await service.createSession({ appName: app, userId: 'alice' });
  await service.appendEvent({ session, event: saying('x') });
  await new SessionMaintenance(orm.em).stats({ appName: app });
  expect(telemetry.spans().spans).toEqual([]);
  expect(await telemetry.metrics()).toEqual({});
  const wrong = errorOf(Promise.resolve().then(() => new EventLog(orm.em, { telemetry: 'yes' as unknown as boolean })));
  expect(await wrong).toMatchObject({ code: 'ADK_INVALID_ARGUMENT', message: 'telemetry must be true or false.' });
});
