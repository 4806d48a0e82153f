import { AgentTool, LlmAgent, Runner } from '@google/adk';
import {
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  adkServices,
  type AdkServicesOptions,
} from '../../src/index.js';
import { scriptedModel } from '../../src/testing/index.js';
import { read } from './log-tools.js';
import { Suite, type OwnContext } from './rule.js';
import { LONG_LEASE, expectCode, range, until } from './tools.js';

/** The sessions that an `AgentTool` keeps in the app of its agent's name. */
export const toolSessionSuite = new Suite({ isOfDialect: true });

/** An agent that asks another one as a tool, and a service that knows of it. */
function withTool({ app, orm, query }: OwnContext, options: AdkServicesOptions['sessions'] = {}) {
  const expert = `expert_${app.replaceAll(/\W/g, '_')}`;
  const toolApps = [expert];
  const services = adkServices(orm.em, { sessions: { ...options, toolApps } });
  const key = { appName: app, userId: 'alice', sessionId: 's' };
  const ofTool = { ...key, appName: expert };
  /** Asks the tool one question in a run of its own. @returns what the tool's model was sent. */
  const ask = async (request: string): Promise<string> => {
    const model = scriptedModel(['Yes.']);
    const agent = new LlmAgent({
      name: 'clerk',
      model: scriptedModel([{ name: expert, args: { request } }, 'Done.']),
      tools: [new AgentTool({ agent: new LlmAgent({ name: expert, model }) })],
    });
    await services.sessionService.getOrCreateSession(key);
    const runner = new Runner({ appName: app, agent, ...services });
    for await (const event of runner.runAsync({ ...key, newMessage: { role: 'user', parts: [{ text: 'Ask.' }] } })) {
      expect(event.errorMessage).toBeUndefined();
      // What the tool says is found by its time, so it comes later than the call, in ms.
      const then = Date.now();
      await until(() => Date.now() > then);
    }
    return JSON.stringify(model.requests);
  };
  /** The apps that have a row of the session, soft-deleted or not. */
  const apps = async () => {
    const rows = await query<{ app_name: string }>(
      "select app_name from adk_sessions where app_name in (?, ?) and user_id = 'alice' and session_id = 's'",
      [app, expert],
    );
    return rows.map((row) => row.app_name).sort();
  };
  const both = [app, expert].sort();
  return { ...services, key, ofTool, ask, apps, both, expert, toolApps };
}

const CARD = 'my card number is 4711';

toolSessionSuite.own('D4', 'a deletion includes the sessions of toolApps', async (context) => {
  const { orm } = context;
  const { sessionService, key, ofTool, ask, apps, both } = withTool(context);
  expect(await ask(CARD)).toContain(CARD);
  // Sessions of other users and ids are not those of the tool.
  await sessionService.createSession({ ...ofTool, userId: 'bob' });
  await sessionService.createSession({ ...ofTool, sessionId: 'other' });
  const failed = orm.em.transactional(async (tx) => {
    await sessionService.withEntityManager(tx).deleteSession(key);
    throw new Error('rolled back');
  });
  await expect(failed).rejects.toThrow('rolled back');
  expect(await apps()).toEqual(both);
  // A session of the tool is nobody's caller.
  await new MikroOrmSessionService(orm.em, { toolApps: [key.appName, ofTool.appName] }).deleteSession(ofTool);
  expect(await apps()).toEqual([key.appName]);
  await ask(CARD);
  await sessionService.deleteSession(key);
  expect(await apps()).toEqual([]);
  expect(await ask('hello')).not.toContain(CARD);
  // Also if the caller's session is gone.
  await new MikroOrmSessionService(orm.em).deleteSession(key);
  expect(await apps()).toEqual([ofTool.appName]);
  await sessionService.deleteSession(key);
  expect(await apps()).toEqual([]);
  const rest = await sessionService.listSessions({ appName: ofTool.appName });
  expect(rest.sessions.map(({ userId, id }) => `${userId} ${id}`).sort()).toEqual(['alice other', 'bob s']);
});

toolSessionSuite.own('K3', 'a soft deletion and its end include the sessions of toolApps', async (context) => {
  const { sessionService, maintenance, key, ofTool, ask, apps, both } = withTool(context, { deletion: 'soft' });
  await ask(CARD);
  await sessionService.deleteSession(key);
  expect(await sessionService.getSession(ofTool)).toBeUndefined();
  await sessionService.restoreSession(key);
  expect((await sessionService.getSession(ofTool))?.events).toHaveLength(2);
  await sessionService.deleteSession(key);
  // Another session with the id: what is restored is not its tool's.
  await sessionService.createSession(key);
  await sessionService.restoreSession(key);
  expect(await sessionService.getSession(ofTool)).toBeUndefined();
  expect(await ask('hello')).not.toContain(CARD);
  await sessionService.deleteSession(key);
  expect(await apps()).toEqual(both);
  await maintenance.prune({ appName: key.appName, deletedFor: 0 });
  expect(await apps()).toEqual([]);
});

toolSessionSuite.own('K1', 'prune and eraseUser include the sessions of toolApps', async (context) => {
  const { orm, app } = context;
  const { sessionService, maintenance, key, ofTool, ask, apps, both, toolApps } = withTool(context);
  for (const batchSize of [1_000, 3]) {
    await ask(CARD);
    const events = await Promise.all(
      [key, ofTool].map(async (each) => (await sessionService.getSession(each))!.events.length),
    );
    const all = { done: { sessions: 2, events: events[0]! + events[1]! } };
    for (const dryRun of [true, false])
      expect(await maintenance.prune({ appName: app, sessionsOlderThan: 0, batchSize, dryRun })).toMatchObject(all);
    expect(await apps()).toEqual([]);
  }
  await ask(CARD);
  const leases = new SessionLeases(orm.em, LONG_LEASE);
  const lease = await leases.acquire(ofTool, { holder: 'somebody' });
  for (const batchSize of [1_000, 3])
    expect(await maintenance.prune({ appName: app, sessionsOlderThan: 0, batchSize })).toMatchObject({
      done: { sessions: 0 },
      skipped: 1,
    });
  expect(await apps()).toEqual(both);
  await lease.release();
  // What is due by itself is not counted twice.
  const all = { userId: key.userId, sessionsOlderThan: 0, pauseMs: 0 };
  const { done } = await maintenance.prune({ ...all, dryRun: true });
  expect(await maintenance.prune(all)).toMatchObject({ done });
  await ask(CARD);
  await maintenance.eraseUser({ appName: app, userId: key.userId });
  expect(await apps()).toEqual([]);
  await expectCode(
    Promise.resolve().then(() => new SessionMaintenance(orm.em, { toolApps: [''] })),
    'ADK_INVALID_ARGUMENT',
  );
  expect(await read(maintenance.exportSessions({ appName: toolApps[0]! }))).toEqual([]);
});

toolSessionSuite.own('K4', 'a rewind includes the sessions of toolApps', async (context) => {
  const { sessionService, key, ofTool, ask } = withTool(context);
  const points: number[] = [];
  for (const n of range(3)) {
    await ask(`secret ${n}`);
    points.push((await sessionService.readEvents(key)).lastSeq);
  }
  const said = async () =>
    JSON.stringify((await sessionService.getSession(ofTool))?.events ?? []).match(/secret \d/g) ?? [];
  expect(await said()).toEqual(['secret 0', 'secret 1', 'secret 2']);
  // With the answer of the tool, and without.
  await sessionService.rewindSession(key, { at: points[2]! - 1 });
  expect(await said()).toEqual(['secret 0', 'secret 1', 'secret 2']);
  await sessionService.rewindSession(key, { at: points[2]! - 2 });
  expect(await said()).toEqual(['secret 0', 'secret 1']);
  await sessionService.rewindSession(key, { at: points[0]! });
  expect(await said()).toEqual(['secret 0']);
  const sent = await ask('hello');
  expect(sent).toContain('secret 0');
  expect(sent).not.toMatch(/secret [12]/);
  await sessionService.rewindSession(key, { at: 0 });
  expect(await said()).toEqual([]);
  expect(await ask('hello')).not.toContain('secret');
});

toolSessionSuite.own('K4', 'a fork includes the sessions of toolApps as they were then', async (context) => {
  const { orm } = context;
  const { sessionService, key, ofTool, ask } = withTool(context);
  const points: number[] = [];
  for (const n of range(2)) {
    await ask(`secret ${n}`);
    points.push((await sessionService.readEvents(key)).lastSeq);
  }
  const said = async (sessionId: string) =>
    JSON.stringify((await sessionService.getSession({ ...ofTool, sessionId }))?.events ?? []).match(/secret \d/g) ?? [];
  // With the answer of the tool, and without.
  await sessionService.forkSession(key, { as: 'whole' });
  await sessionService.forkSession(key, { at: points[1]! - 1, as: 'asked' });
  await sessionService.forkSession(key, { at: points[1]! - 2, as: 'before' });
  await sessionService.forkSession(key, { at: 0, as: 'empty' });
  expect(await said('whole')).toEqual(['secret 0', 'secret 1']);
  expect(await said('asked')).toEqual(['secret 0', 'secret 1']);
  expect(await said('before')).toEqual(['secret 0']);
  expect(await sessionService.getSession({ ...ofTool, sessionId: 'empty' })).toBeUndefined();
  expect(await said('s')).toEqual(['secret 0', 'secret 1']);
  // What another conversation has left under the id is not mixed with it, and nothing is written.
  await sessionService.createSession({ ...ofTool, sessionId: 'left' });
  await expectCode(sessionService.forkSession(key, { as: 'left' }), 'ADK_SESSION_EXISTS');
  expect(await sessionService.getSession({ ...key, sessionId: 'left' })).toBeUndefined();
  await new MikroOrmSessionService(orm.em).forkSession(key, { as: 'alone' });
  expect(await said('alone')).toEqual([]);
});
