import { FunctionTool, LlmAgent, Runner, type Event, type Session } from '@google/adk';
import fc from 'fast-check';
import { MikroOrmSessionService, SessionMaintenance, openLongRunningCalls } from '../../src/index.js';
import type { Codec } from '../../src/codecs/index.js';
import { Calls, callsIn } from '../../src/conversation/calls.js';
import { beginsTurn } from '../../src/model/turn.js';
import { scriptedModel } from '../../src/testing/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { callEvents, eventWith } from '../support/random-calls.js';
import { expectOfRandom } from '../support/random.js';
import { Suite, type OwnContext } from './rule.js';
import { errorOf, eventOf, expectCode, idsOf, range, saying } from './tools.js';

/** Calls that wait for a person. */
export const openCallSuite = new Suite({ isOfDialect: true });

const CODEC: Codec = { name: 'calls', encode: (data) => ({ data }), decode: ({ data }) => data };

interface CallOptions {
  name?: string;
  branch?: string;
  timestamp?: number;
}

/** An event that makes a long-running call. */
const asking = (id: string, { name = 'approve', ...params }: CallOptions = {}) =>
  eventOf({
    id: `asks ${id}`,
    ...params,
    content: { role: 'model', parts: [{ functionCall: { id, name, args: { of: id } } }] },
    longRunningToolIds: [id],
  });

/** An event of the user that answers calls. */
const answering = (ids: string[], params: Partial<Event> = {}) =>
  eventOf({
    author: 'user',
    content: { role: 'user', parts: ids.map((id) => ({ functionResponse: { id, name: 'approve', response: {} } })) },
    ...params,
  });

const says = (text: string) => eventOf({ author: 'user', content: { role: 'user', parts: [{ text }] } });

/** The ids of the calls that are open, by the rows and by the events, which must be the same. */
async function openIn({ service }: Pick<OwnContext, 'service'>, session: Session): Promise<string[]> {
  const { appName, userId } = session;
  const { calls } = await service.findOpenCalls({ appName, userId });
  const ids = calls.filter(({ sessionId }) => sessionId === session.id).map(({ id }) => id);
  const read = (await service.getSession(keyOf(session)))!;
  expect([...ids].sort()).toEqual(
    openLongRunningCalls(read)
      .map(({ id }) => id)
      .sort(),
  );
  return ids;
}

openCallSuite.own('H5', 'an open call is a row until the user answers it', async (context) => {
  const { create, service, query, recorded } = context;
  const session = await create();
  const rows = () => query('select 1 from adk_open_calls where session_id = ? and open_until > 1000000', [session.id]);
  await service.appendEvents({ session, events: [says('Go.'), asking('a'), saying('Wait.')] });
  await service.appendEvent({ session, event: asking('b', { name: '\u0000x'.repeat(200), timestamp: 1 }) });
  expect(await openIn(context, session)).toEqual(['b', 'a']);
  expect(await rows()).toHaveLength(2);

  // What the tool itself returns answers nothing, and neither does a person who speaks of something else.
  await service.appendEvent({ session, event: { ...answering(['a']), author: 'agent' } });
  await service.appendEvent({ session, event: says('Hello?') });
  expect(await openIn(context, session)).toEqual(['b', 'a']);
  await service.appendEvent({ session, event: answering(['a', 'b']) });
  expect(await rows()).toEqual([]);
  expect(await openIn(context, session)).toEqual([]);

  // The same id again, in several branches, and rewritten.
  for (const branch of ['x', 'y'])
    await service.appendEvent({ session, event: { ...asking('c', { branch }), id: branch } });
  expect(await openIn(context, session)).toEqual(['c', 'c']);
  await service.appendEvent({ session, event: answering(['c'], { branch: 'x' }) });
  expect(await openIn(context, session)).toEqual(['c']);
  await service.appendEvent({ session, event: { ...says('Never mind.'), author: 'agent', id: 'y' } });
  expect(await openIn(context, session)).toEqual([]);

  // Once the agent has continued, an append that neither opens nor answers a call does not read these rows.
  await service.appendEvent({ session, event: saying('Well.') });
  const statements = await recorded(() => service.appendEvent({ session, event: saying('x') }));
  expect(statements.filter(({ text }) => text.includes('open_calls'))).toEqual([]);
});

openCallSuite.own('H5', 'rows and events agree on what another program wrote', async (context) => {
  const { create, service } = context;
  const session = await create();
  const calling = { functionCall: { id: 'b', name: 'approve', args: {} } };
  const odd = (id: string, longRunningToolIds: unknown, part: object = calling) =>
    ({ ...asking('b', { branch: id }), id, longRunningToolIds, content: { role: 'model', parts: [part] } }) as Event;
  await service.appendEvent({ session, event: odd('after null', [null, 'b']) });
  expect(await openIn(context, session)).toEqual(['b']);
  // Nobody can answer a call whose id is no text.
  await service.appendEvent({ session, event: odd('number', [5], { functionCall: { id: 5, name: 'approve' } }) });
  expect(await openIn(context, session)).toEqual(['b']);
  const both = { ...calling, functionResponse: { id: 'x', name: 'x', response: {} } };
  await service.appendEvent({ session, event: odd('both', ['b'], both) });
  expect(await openIn(context, session)).toEqual(['b', 'b']);
});

openCallSuite.own('H5', 'the row is written with the event, or neither', async ({ create, service, orm, query }) => {
  const session = await create();
  await service.appendEvent({ session, event: asking('a') });
  const rows = () => query('select 1 from adk_open_calls where session_id = ? and open_until > 1000000', [session.id]);
  const undone = orm.em.transactional(async (tx) => {
    const joined = service.withEntityManager(tx);
    const handle = (await joined.getSession(keyOf(session)))!;
    await joined.appendEvents({ session: handle, events: [answering(['a']), asking('b'), asking('c')] });
    throw new Error('undone');
  });
  await expect(undone).rejects.toThrow('undone');
  expect(await rows()).toHaveLength(1);
  await orm.em.transactional(async (tx) => {
    const joined = service.withEntityManager(tx);
    const handle = (await joined.getSession(keyOf(session)))!;
    await joined.appendEvents({ session: handle, events: [answering(['a']), asking('b'), asking('c')] });
  });
  expect(await rows()).toHaveLength(2);
});

openCallSuite.own('H5', 'findOpenCalls lists them across sessions, oldest first, in pages', async (context) => {
  const { app, create, service, orm } = context;
  const others = await create({ userId: 'bob' });
  const encoding = new MikroOrmSessionService(orm.em, { codec: CODEC });
  const encoded = await encoding.createSession({ appName: app, userId: 'alice', sessionId: 'encoded' });
  for (const n of range(5)) {
    const session = await create({ sessionId: `s${n}` });
    await service.appendEvent({
      session,
      event: asking(`call ${n}`, { timestamp: 10 - n, name: n % 2 ? 'odd' : 'even' }),
    });
  }
  await encoding.appendEvent({ session: encoded, event: asking('hidden', { timestamp: 50 }) });
  await service.appendEvent({ session: others, event: asking('of bob', { timestamp: 8 }) });
  await create({ sessionId: 'another app', appName: `${app} 2` }).then((session) =>
    service.appendEvent({ session, event: asking('elsewhere') }),
  );
  const now = eventOf({}).timestamp;
  await service.appendEvent({ session: others, event: asking('now', { timestamp: now + 60_000 }) });

  const found = async (request: object, by = encoding) => {
    const { calls } = await by.findOpenCalls({ appName: app, ...request });
    return calls.map(({ id }) => id);
  };
  const all = ['call 4', 'call 3', 'call 2', 'of bob', 'call 1', 'call 0', 'hidden', 'now'];
  expect(await found({}, encoding)).toEqual(all);
  expect(await found({ userId: 'bob' })).toEqual(['of bob', 'now']);
  expect(await found({ userId: 'alice', sessionId: 's3' })).toEqual(['call 3']);
  await expectCode(service.findOpenCalls({ appName: app, sessionId: '' }), 'ADK_INVALID_KEY', 'session id');
  expect(await found({ name: 'odd' })).toEqual(['call 3', 'call 1']);
  expect(await found({ openFor: 1_000 })).toEqual(all.slice(0, -1));
  expect(await found({ openFor: Infinity })).toEqual([]);
  for (const userId of [undefined, 'alice']) {
    const whole = await found({ ...(userId && { userId }) });
    const ids: string[] = [];
    for (let after: string | undefined, page; !page || page.next; after = page.next) {
      page = await encoding.findOpenCalls({
        appName: app,
        ...(userId && { userId }),
        limit: 2,
        ...(after && { after }),
      });
      expect(page.calls.length).toBeLessThanOrEqual(2);
      ids.push(...page.calls.map(({ id }) => id));
    }
    expect(ids).toEqual(whole);
  }
  const [first] = (await encoding.findOpenCalls({ appName: app, userId: 'alice', limit: 1 })).calls;
  expect(first).toEqual({
    ...{ appName: app, userId: 'alice', sessionId: 's4', id: 'call 4', name: 'even', args: { of: 'call 4' } },
    ...{ seq: 1, eventId: 'asks call 4', timestamp: 6 },
  });
  const hidden = (by: MikroOrmSessionService) => by.findOpenCalls({ appName: app, userId: 'alice' });
  expect((await hidden(encoding)).calls.at(-1)).toMatchObject({ id: 'hidden', args: { of: 'hidden' } });
  // A forgotten codec is an error.
  await expectCode(hidden(service), 'ADK_CODEC');
  await expectCode(service.findOpenCalls({ appName: app, after: 'x' }), 'ADK_INVALID_ARGUMENT', 'findOpenCalls');
});

openCallSuite.own('H5', 'open calls follow their session', async (context) => {
  const { app, create, service, orm, query, scratch } = context;
  const maintenance = new SessionMaintenance(orm.em);
  const session = await create({ sessionId: 's' });
  const events = [says('1'), asking('a'), asking('b'), answering(['a']), says('2'), asking('c'), saying('3')];
  await service.appendEvents({ session, events });
  const of = async (by: Pick<OwnContext, 'orm'>, appName = app) => {
    const { calls } = await new MikroOrmSessionService(by.orm.em, { codec: CODEC }).findOpenCalls({ appName });
    return calls.map(({ sessionId, id }) => `${sessionId} ${id}`).sort();
  };
  expect(await of(context)).toEqual(['s b', 's c']);

  const fork = await service.forkSession(keyOf(session), { at: 3, as: 'fork' });
  expect(await openIn(context, fork)).toEqual(['a', 'b']);
  await service.rewindSession(keyOf(fork), { at: 2 });
  expect(await openIn(context, fork)).toEqual(['a']);

  // Elsewhere, in batches.
  const encoding = new MikroOrmSessionService(orm.em, { codec: CODEC });
  const encoded = await encoding.createSession({ appName: app, userId: 'bob', sessionId: 'encoded' });
  await encoding.appendEvents({ session: encoded, events: [says('1'), asking('d'), asking('e'), answering(['d'])] });
  const stored = await of(context);
  const plainly = await scratch();
  const codec = { codec: CODEC };
  const target = new SessionMaintenance(plainly.orm.em, codec);
  await target.importSessions(new SessionMaintenance(orm.em, codec).exportSessions({ appName: app }), { batchSize: 2 });
  expect(await of(plainly)).toEqual(stored);

  // A trim stops before an open call.
  await maintenance.trim({ ...keyOf(session), keepLast: 1 });
  expect(idsOf((await service.getSession(keyOf(session)))!)).toEqual(events.slice(2).map(({ id }) => id));
  await maintenance.trim({ ...keyOf(session), keepLast: 1, dropOpenCalls: true });
  expect(await openIn(context, session)).toEqual([]);

  const softly = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
  await softly.deleteSession(keyOf(fork));
  expect(await of(context)).toEqual(['encoded e']);
  await softly.restoreSession(keyOf(fork));
  expect(await of(context)).toEqual(['encoded e', 'fork a']);
  await service.deleteSession(keyOf(fork));
  await maintenance.eraseUser({ userId: 'bob', appName: app });
  expect(await query('select 1 from adk_open_calls where app_name = ?', [app])).toEqual([]);
});

openCallSuite.own('H5', 'the open calls of a damaged session are those of its readable events', async (context) => {
  const { create, service, orm, query } = context;
  const session = await create();
  await service.appendEvents({ session, events: [says('1'), asking('a'), asking('b')] });
  await query("update adk_events set data = '[]' where session_id = ? and seq = 2", [session.id]);
  const { calls } = await service.findOpenCalls({ appName: session.appName });
  expect(calls.map(({ id, args }) => [id, args])).toEqual([
    ['a', undefined],
    ['b', { of: 'b' }],
  ]);
  await new SessionMaintenance(orm.em).repair(keyOf(session));
  expect(await openIn(context, session)).toEqual(['b']);
});

openCallSuite.own('H5', "with 'reject' a client may answer a call of an ordinary tool, once", async (context) => {
  const { create, orm, query } = context;
  const session = await create();
  const service = new MikroOrmSessionService(orm.em, { onAnsweredCall: 'reject' });
  // With `pauseOnToolCalls`, ADK leaves all tools to the client, and continues with its responses.
  const shown: unknown[] = [];
  const agent = new LlmAgent({
    name: 'clerk',
    model: scriptedModel(({ contents }) => {
      shown.push(contents.at(-1)?.parts?.map(({ functionResponse }) => functionResponse?.response));
      return shown.length === 1 ? { name: 'pay', id: 'p', args: {} } : 'Paid.';
    }),
    tools: [new FunctionTool({ name: 'pay', description: 'Pays.', execute: () => 'unexpected' })],
  });
  const { appName, userId, id: sessionId } = session;
  const runner = new Runner({ appName, agent, sessionService: service });
  const run = async (part: object) => {
    const newMessage = { role: 'user', parts: [part] };
    const events = runner.runAsync({ userId, sessionId, newMessage, runConfig: { pauseOnToolCalls: true } });
    for await (const event of events) expect(event.errorMessage).toBeUndefined();
  };
  const answer = { functionResponse: { id: 'p', name: 'pay', response: { paid: 5 } } };
  await run({ text: 'Pay.' });
  await run(answer);
  expect(shown).toEqual([[undefined], [{ paid: 5 }]]);
  expect(await errorOf(run(answer))).toMatchObject({ code: 'ADK_CALL_ANSWERED', callId: 'p', wasOpen: true });
  expect(shown).toHaveLength(2);
  expect(await query('select seq from adk_events where session_id = ?', [sessionId])).toHaveLength(4);
});

openCallSuite.own('H5', "with onAnsweredCall: 'reject' one of sixteen answers counts", async (context) => {
  const { create, connect, query } = context;
  const session = await create();
  await context.service.appendEvents({ session, events: [says('Go.'), asking('a')] });
  const orms = context.harness.hasConnections ? await Promise.all(range(4).map(() => connect())) : [context.orm];
  const handles = await Promise.all(
    range(16).map(async (i) => {
      const service = new MikroOrmSessionService(orms[i % orms.length]!.em, { onAnsweredCall: 'reject' });
      return { service, handle: (await service.getSession(keyOf(session)))! };
    }),
  );
  const events = range(16).map((i) => answering(['a'], { id: `answer ${i}` }));
  const outcomes = await Promise.allSettled(
    handles.map(({ service, handle }, i) => service.appendEvent({ session: handle, event: events[i]! })),
  );
  const won = outcomes.findIndex(({ status }) => status === 'fulfilled');
  const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as Error] : []));
  expect(refused).toHaveLength(15);
  for (const error of refused) expect(error).toMatchObject({ code: 'ADK_CALL_ANSWERED', callId: 'a' });
  const rows = await query('select event_id from adk_events where session_id = ? order by seq', [session.id]);
  expect(rows.map((row) => Object.values(row)[0])).toEqual([idsOf(session)[0], 'asks a', `answer ${won}`]);
  // Nothing has changed for those that were refused; and the same event again is a retry.
  for (const [i, { handle }] of handles.entries()) expect(handle.events).toHaveLength(i === won ? 3 : 2);
  for (const { service, handle } of handles.slice(0, 2)) {
    await service.appendEvent({ session: handle, event: { ...events[won]! } });
    expect(idsOf(handle)).toContain(`answer ${won}`);
  }
  await context.service.appendEvent({ session, event: answering(['a']) });
  expect((await context.service.getSession(keyOf(session)))!.events).toHaveLength(4);
});

openCallSuite.own(
  'H5',
  'a transaction that began before the answer finds it',
  async ({ create, service, orm, peer }) => {
    const session = await create();
    await service.appendEvents({ session, events: [asking('a')] });
    const strict = { onAnsweredCall: 'reject' } as const;
    const other = new MikroOrmSessionService(peer.em, strict);
    const late = orm.em.transactional(async (tx) => {
      const joined = new MikroOrmSessionService(orm.em, strict).withEntityManager(tx);
      const handle = (await joined.getSession(keyOf(session)))!;
      await other.appendEvent({ session: (await other.getSession(keyOf(session)))!, event: answering(['a']) });
      await joined.appendEvent({ session: handle, event: answering(['a']) });
    });
    await expectCode(late, 'ADK_CALL_ANSWERED');
    expect((await service.getSession(keyOf(session)))!.events).toHaveLength(2);
  },
  ({ hasConnections, dialect }) => hasConnections && dialect !== 'sqlite',
);

openCallSuite.own(
  'H5',
  'findOpenCalls in a transaction shows what getSession shows there',
  async (context) => {
    const { create, orm, peer } = context;
    const service = new MikroOrmSessionService(orm.em);
    const [mine, untouched, others] = [await create(), await create(), await create()];
    const answering = async (session: Session) => {
      const other = new MikroOrmSessionService(peer.em);
      const handle = (await other.getSession(keyOf(session)))!;
      await other.appendEvents({
        session: handle,
        events: [answer('a', 'approve', {}), asking('b', { timestamp: 5 })],
      });
    };
    for (const session of [mine, untouched, others])
      await service.appendEvent({ session, event: asking('a', { timestamp: 4 }) });
    await orm.em.transactional(async (tx) => {
      const joined = service.withEntityManager(tx);
      // On InnoDB the transaction sees the tables as they are now.
      await joined.getSession(keyOf(others));
      await answering(mine);
      await answering(untouched);
      const handle = (await joined.getSession(keyOf(mine)))!;
      await joined.appendEvent({ session: handle, event: saying('x') });
      const { appName } = mine;
      const pages = [await joined.findOpenCalls({ appName, limit: 2 })];
      if (pages[0]!.next) pages.push(await joined.findOpenCalls({ appName, after: pages[0]!.next }));
      const found = pages.flatMap(({ calls }) => calls.map(({ sessionId, id }) => [sessionId, id]));
      const expected: string[][] = [];
      for (const session of [mine, untouched, others]) {
        const read = (await joined.getSession(keyOf(session)))!;
        expected.push(...openLongRunningCalls(read).map(({ id }) => [session.id, id]));
      }
      expect(found.sort()).toEqual(expected.sort());
    });
  },
  ({ hasConnections, dialect }) => hasConnections && dialect !== 'sqlite',
);

openCallSuite.own('H5', 'findOpenCalls compares long names to their end', async ({ app, create, service }) => {
  const session = await create();
  const long = 'n'.repeat(300);
  for (const [i, name] of [`${long}1`, `${long}2`, 'n\0'].entries())
    await service.appendEvent({ session, event: asking(`c${i}`, { name }) });
  const found = async (name: string) => (await service.findOpenCalls({ appName: app, name })).calls;
  for (const [i, name] of [`${long}1`, `${long}2`, 'n\0'].entries())
    expect(await found(name)).toMatchObject([{ id: `c${i}`, name }]);
  for (const name of [long, long.slice(0, 191), 'n']) expect(await found(name)).toEqual([]);
});

openCallSuite.own('H5', 'a call that is answered keeps the number of its last answer', async (context) => {
  const { app, create, service, orm, query, scratch } = context;
  const session = await create({ sessionId: 's' });
  const progress = [says('1'), asking('a'), asking('b'), says('2'), answering(['a']), answering(['a'])];
  await service.appendEvents({ session, events: progress });
  const rows = async (by: Pick<OwnContext, 'query'> = { query }, sessionId = 's') => {
    const columns = 'select seq, open_until from adk_open_calls where app_name = ? and session_id = ? order by seq';
    const found = await by.query<{ seq: number; open_until: number }>(columns, [app, sessionId]);
    return found.map(({ seq, open_until: until }) => [seq, until === 2 ** 31 - 1 ? 'waits' : until]);
  };
  expect(await rows()).toEqual([
    [2, 6],
    [3, 'waits'],
  ]);

  // A fork, a rewind, an import, and an event that becomes another know it.
  await service.forkSession(keyOf(session), { as: 'fork', at: 5 });
  expect(await rows({ query }, 'fork')).toEqual([
    [2, 5],
    [3, 'waits'],
  ]);
  const { orm: other, query: there } = await scratch();
  await new SessionMaintenance(other.em).importSessions(
    new SessionMaintenance(orm.em).exportSessions({ appName: app }),
  );
  expect(await rows({ query: there })).toEqual(await rows());
  await service.appendEvent({ session, event: { ...says('Never mind.'), id: progress[5]!.id } });
  expect(await rows()).toEqual(await rows({ query }, 'fork'));
  await service.rewindSession(keyOf(session), { at: 4 });
  expect(await rows()).toEqual([
    [2, 'waits'],
    [3, 'waits'],
  ]);
  // With the event the row goes.
  const maintenance = new SessionMaintenance(orm.em);
  await maintenance.trim({ appName: app, userId: 'alice', sessionId: 'fork', keepLast: 2, dropOpenCalls: true });
  expect(await rows({ query }, 'fork')).toEqual([]);
});

/** Calls of an event by name. */
const calling = (id: string, calls: Record<string, object>, params: Partial<Event> = {}) =>
  eventOf({
    ...{ id, longRunningToolIds: Object.keys(calls).filter((each) => !each.startsWith('call_')) },
    content: {
      role: 'model',
      parts: Object.entries(calls).map(([of, call]) => ({ functionCall: { id: of, name: 'pay', args: {}, ...call } })),
    },
    ...params,
  });

const result = (id: string, name = 'pay') =>
  eventOf({ content: { role: 'user', parts: [{ functionResponse: { id, name, response: { done: true } } }] } });

const answer = (id: string, name: string, response: Record<string, unknown>) =>
  eventOf({ author: 'user', content: { role: 'user', parts: [{ functionResponse: { id, name, response } }] } });

const CONFIRMATION = 'adk_request_confirmation';
const about = (id: string) => ({ name: CONFIRMATION, args: { originalFunctionCall: { id, name: 'pay', args: {} } } });

openCallSuite.own('H5', 'a question is about a call at one place', async (context) => {
  const { create, orm } = context;
  const service = new MikroOrmSessionService(orm.em, { onAnsweredCall: 'reject' });
  const session = await create();
  const asked = [says('1'), calling('e2', { call_0: {} }), calling('e3', { q: about('call_0') })];
  await service.appendEvents({ session, events: asked });
  // Another turn numbers its calls anew.
  for (const event of [says('2'), calling('e5', { call_0: {} }), result('call_0'), saying('Done.')])
    await service.appendEvent({ session, event });
  expect(await openIn(context, session)).toEqual(['q']);
  await service.appendEvent({ session, event: answer('q', CONFIRMATION, { confirmed: true }) });
  expect(await openIn(context, session)).toEqual([]);
  await service.appendEvent({ session, event: result('call_0') });
  await expectCode(
    service.appendEvent({ session, event: answer('q', CONFIRMATION, { confirmed: true }) }),
    'ADK_CALL_ANSWERED',
    'has an answer to this call already',
  );
});

openCallSuite.own('H5', 'a handle that does not show the question closes it', async (context) => {
  const { create, service, query } = context;
  const session = await create();
  const before = (await service.getSession(keyOf(session)))!;
  await service.appendEvents({
    session,
    events: [says('1'), calling('e2', { call_0: {} }), calling('e3', { q: about('call_0') }), says('yes')],
  });
  const part = (await service.getSession({ ...keyOf(session), config: { numRecentEvents: 1 } }))!;
  await service.appendEvent({ session: part, event: saying('I pay.') });
  await service.appendEvent({ session: before, event: result('call_0') });
  expect(await openIn(context, session)).toEqual([]);
  const rows = await query('select 1 from adk_sessions where session_id = ? and not has_pending_calls', [session.id]);
  expect(rows).toHaveLength(1);
});

openCallSuite.own('H5', 'the row of a call is that of its event, also if that is appended again', async (context) => {
  const { create, orm } = context;
  const service = new MikroOrmSessionService(orm.em, { onAnsweredCall: 'reject' });
  const session = await create();
  await service.appendEvent({ session, event: calling('e1', { draft: { name: 'ask' } }) });
  await service.appendEvent({ session, event: calling('e1', { final: { name: 'approve' } }, { timestamp: 7 }) });
  const [call] = (await service.findOpenCalls({ appName: session.appName })).calls;
  expect(call).toMatchObject({ id: 'final', name: 'approve', timestamp: 7 });
  expect(await openIn(context, session)).toEqual(['final']);
  await service.appendEvent({ session, event: answer('final', 'approve', {}) });
  expect(await openIn(context, session)).toEqual([]);
});

const INPUT = 'adk_request_input';
const NODE = { nodeInfo: { path: 'flow' }, invocationId: 'i1' } as Partial<Event>;
const SCHEMA = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] };

openCallSuite.own('H5', 'an answer that ADK refuses or ignores answers nothing', async (context) => {
  const { create, orm } = context;
  for (const codec of [undefined, CODEC]) {
    const service = new MikroOrmSessionService(orm.em, { onAnsweredCall: 'reject', ...(codec && { codec }) });
    const session = await create();
    const config = { authScheme: {}, credentialKey: 'k', exchangedAuthCredential: { oauth2: { authUri: 'a' } } };
    const questions = {
      input: { name: INPUT, args: { response_schema: SCHEMA } },
      yes: about('call_0'),
      login: { name: 'adk_request_credential', args: { function_call_id: 'call_0', auth_config: config } },
    };
    await service.appendEvents({
      session,
      events: [says('1'), calling('e1', { call_0: {} }), calling('e2', questions, NODE)],
    });
    const refused = [
      answer('input', INPUT, { n: 'many' }),
      answer('input', INPUT, { result: '{ "n": "many" }' }),
      answer('yes', 'pay', { confirmed: true }),
      answer('yes', CONFIRMATION, { response: '{' }),
      answer('login', 'adk_request_credential', {}),
      answer('login', 'adk_request_credential', { exchanged_auth_credential: { oauth2: {} } }),
    ];
    for (const event of refused) {
      await service.appendEvent({ session, event });
      expect((await openIn({ service }, session)).sort()).toEqual(['input', 'login', 'yes']);
    }
    const accepted = [
      answer('input', INPUT, { result: '{ "n": 1 }' }),
      answer('yes', CONFIRMATION, { confirmed: false }),
      answer('login', 'adk_request_credential', { exchanged_auth_credential: { oauth2: { authCode: 'c' } } }),
    ];
    for (const event of accepted) {
      await service.appendEvent({ session, event });
      await expectCode(
        service.appendEvent({ session, event: { ...event, id: `again ${event.id}` } }),
        'ADK_CALL_ANSWERED',
      );
    }
    expect(await openIn({ service }, session)).toEqual([]);
  }
});

openCallSuite.own('E3', 'an answer whose schema is checked reads only the event that asks', async (context) => {
  const { create, service, recorded } = context;
  const session = await create();
  const question = calling(
    'e2',
    { other: { name: INPUT }, input: { name: INPUT, args: { response_schema: SCHEMA } } },
    NODE,
  );
  await service.appendEvents({ session, events: [says('1'), question, ...range(20).map((n) => saying(`${n}`))] });
  for (const [value, waiting] of [
    ['many', ['other', 'input']],
    [1, ['other']],
  ] as const) {
    const statements = await recorded(() =>
      service.appendEvent({ session, event: answer('input', INPUT, { n: value }) }),
    );
    const texts = statements.map(({ text }) => text);
    // One event by its number; the union would be the whole session.
    expect(texts.filter((text) => text.includes('adk_events') && /\bseq = (\?|\$\d+)/.test(text))).toHaveLength(1);
    expect(texts.filter((text) => text.includes('union all') && !text.includes(`'call' as kind`))).toEqual([]);
    expect((await openIn(context, session)).sort()).toEqual([...waiting].sort());
  }
});

openCallSuite.own('H5', 'a plain text answers the only question of a workflow', async (context) => {
  const { create, orm } = context;
  const service = new MikroOrmSessionService(orm.em, { onAnsweredCall: 'reject' });
  const session = await create();
  const append = (...events: Event[]) => service.appendEvents({ session, events });
  const says = (invocationId: string, params: Partial<Event> = {}) =>
    eventOf({ invocationId, author: 'user', content: { role: 'user', parts: [{ text: 'blue' }] }, ...params });
  await append(says('i1'), calling('e1', { a: { name: INPUT }, b: { name: INPUT } }, NODE));
  // There are two, and a workflow itself gives texts to its agents.
  await append(says('i2'));
  await append(says('i2', { branch: 'x' }));
  expect(await openIn(context, session)).toEqual(['a', 'b']);
  await append({ ...answer('a', INPUT, { result: 1 }), invocationId: 'i3' }, says('i3', { branch: 'x' }));
  expect(await openIn(context, session)).toEqual(['b']);
  // ADK would not know the question while the workflow runs without it.
  await append(saying('On.', { ...NODE, invocationId: 'i3' }));
  expect(await openIn(context, session)).toEqual([]);
  await append(calling('e2', { c: { name: INPUT } }, { ...NODE, invocationId: 'i3' }));
  expect((await openIn(context, session)).sort()).toEqual(['b', 'c']);
  await append({ ...answer('b', INPUT, { result: 1 }), invocationId: 'i4' });
  await append(says('i5'));
  expect(await openIn(context, session)).toEqual([]);
  await expectCode(service.appendEvent({ session, event: answer('c', INPUT, { result: 1 }) }), 'ADK_CALL_ANSWERED');
});

openCallSuite.own(
  'H5',
  'an error says whether a call was asked, and what never waited may be answered',
  async (context) => {
    const { create, orm } = context;
    const service = new MikroOrmSessionService(orm.em, { onAnsweredCall: 'reject' });
    const session = await create();
    // With \`pauseOnToolCalls\` the client runs the tools.
    await service.appendEvents({ session, events: [says('1'), calling('e1', { call_0: {} })] });
    await service.appendEvent({ session, event: answer('call_0', 'pay', {}) });
    const answered = service.appendEvent({ session, event: answer('call_0', 'pay', {}) });
    await expect(answered).rejects.toMatchObject({ callId: 'call_0', wasOpen: true });
    const unasked = service.appendEvent({ session, event: answer('never', 'pay', {}) });
    await expect(unasked).rejects.toMatchObject({ callId: 'never', wasOpen: false });
    await expectCode(unasked, 'ADK_CALL_ANSWERED', 'no call with the id');
    expect((await service.getSession(keyOf(session)))!.events).toHaveLength(3);
  },
);

const someEvent = fc.nat(12);
const steps = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({ do: fc.constant('append'), events: fc.array(callEvents, { minLength: 1, maxLength: 3 }) }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('append late'),
        events: fc.array(callEvents, { minLength: 1, maxLength: 2 }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('rewrite'), at: someEvent, events: fc.tuple(callEvents) }) },
    fc.record({ do: fc.constantFrom('rewind', 'fork', 'trim', 'import'), at: someEvent, events: fc.constant([]) }),
  ),
  { minLength: 3, maxLength: 12 },
);

openCallSuite.own('H5', 'after random operations the rows are those of the stored events', async (context) => {
  const { create, service, orm, query } = context;
  const maintenance = new SessionMaintenance(orm.em);
  let runs = 0;
  await expectOfRandom(
    'rows of open calls',
    steps,
    async (steps) => {
      const userId = `random ${runs++}`;
      let session = await create({ userId });
      const late = (await service.getSession(keyOf(session)))!;
      let ids = 0;
      for (const step of steps) {
        const key = keyOf(session);
        const { events: stored, firstSeq, lastSeq } = await service.readEvents(key, { limit: 1_000 });
        const at = 'at' in step ? firstSeq - 1 + (step.at % (lastSeq - firstSeq + 2)) : 0;
        const rewritten = stored[at - firstSeq]?.event.id;
        const events = (step.events as Partial<Event>[]).map((each) =>
          eventWith(each, step.do === 'rewrite' && rewritten ? rewritten : `e${ids++}`),
        );
        if (step.do === 'append late') await service.appendEvents({ session: { ...late, id: session.id }, events });
        else if (events.length > 0) await service.appendEvents({ session, events });
        else if (step.do === 'rewind') session = await service.rewindSession(key, { at });
        else if (step.do === 'fork') session = await service.forkSession(key, { at });
        else if (step.do === 'trim')
          await maintenance.trim({ ...key, keepLast: Math.max(0, at - firstSeq), dropOpenCalls: true });
        else {
          const records: unknown[] = [];
          for await (const record of maintenance.exportSessions({ appName: key.appName, userId })) records.push(record);
          const sessions = await service.listSessions({ appName: key.appName, userId });
          for (const { id } of sessions.sessions) await service.deleteSession({ ...key, sessionId: id });
          await maintenance.importSessions(records as Parameters<typeof maintenance.importSessions>[0], {
            batchSize: 2,
          });
        }
        const calls = callsIn((await service.readEvents(keyOf(session), { limit: 1_000 })).events);
        const of = [session.appName, userId, session.id];
        const where = 'where app_name = ? and user_id = ? and session_id = ?';
        const rows = await query<Record<string, unknown>>(
          `select open_until, answered_from, waits_for, seq, number, name, data from adk_open_calls ${where} order by seq, number`,
          of,
        );
        const expected = calls.rows.map((row) => {
          const { openUntil = 2 ** 31 - 1, answeredFrom = 2 ** 31 - 1, awaitsRun, ...rest } = row;
          const { seq, number, name, timestamp: _, ...data } = rest;
          const waitsFor = row.openUntil === undefined ? 1 : awaitsRun ? 2 : 0;
          return [...[openUntil, answeredFrom, waitsFor, seq, number, name], JSON.parse(JSON.stringify(data))];
        });
        const shown = rows.map(({ open_until, answered_from, waits_for, seq, number, name, data }) => {
          return [
            Number(open_until),
            Number(answered_from),
            Number(waits_for),
            Number(seq),
            Number(number),
            name,
            typeof data === 'string' ? JSON.parse(data) : data,
          ];
        });
        expect(shown).toEqual(expected);
        const flag = calls.areUnsettled ? 'has_pending_calls' : 'not has_pending_calls';
        expect(await query(`select 1 from adk_sessions ${where} and ${flag}`, of)).toHaveLength(1);
      }
    },
    { runs: 20 },
  );
});

openCallSuite.own('K7', 'the turns of open calls are returned, wherever they are', async (context) => {
  const { create, service, orm, query } = context;
  const session = await create();
  const turn = (n: number, ...events: Event[]) => [says(`${n}`), ...events, saying(`answer ${n}`)];
  const events = [
    ...turn(1, asking('a'), asking('b')),
    ...turn(2),
    ...turn(3, asking('c')),
    ...turn(4, answering(['a', 'b'])),
    ...turn(5),
  ].map((event, i) => ({ ...event, id: `e${i + 1}` }));
  await service.appendEvents({ session, events: events.slice(0, 9) });
  const given = async (defaultNumRecentEvents: number, codec?: Codec) => {
    const bounded = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents, ...(codec && { codec }) });
    return (await bounded.getSession(keyOf(session)))!.events.map(({ id }) => Number(id.slice(1)));
  };
  expect(await given(1)).toEqual([1, 2, 3, 4, 7, 8, 9]);
  expect(await given(4, CODEC)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  await service.appendEvents({ session, events: events.slice(9) });
  expect(await given(1)).toEqual([7, 8, 9, 13, 14]);
  // The turns of calls whose answer is given come along, too: a process may have died before the agent read it.
  expect(await given(4)).toEqual([1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14]);
  expect(await given(4, CODEC)).toEqual([1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14]);
  // Only the given properties are compared.
  await query('delete from adk_events where session_id = ? and seq in (2, 11)', [session.id]);
  expect(await given(1)).toEqual([7, 8, 9, 13, 14]);
});

openCallSuite.own('K7', 'no call that was answered looks as if it waits, however old it is', async (context) => {
  const { create, service, orm } = context;
  const session = await create();
  const turn = (n: number, ...events: Event[]) => [says(`${n}`), ...events, saying(`answer ${n}`)];
  const events = [
    ...turn(1, calling('both', { a: {}, b: {} })),
    ...turn(2),
    ...turn(3, answering(['b']), asking('c')),
    ...turn(4, answering(['c'])),
    ...[5, 6, 7, 8].flatMap((n) => turn(n)),
  ].map((event, i) => ({ ...event, id: `e${i + 1}` }));
  await service.appendEvents({ session, events });
  const bounded = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: 4 });
  const read = async (service: MikroOrmSessionService) =>
    (await service.getSession(keyOf(session)))!.events.map(({ id }) => Number(id.slice(1)));
  const expected = [1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 17, 18, 19, 20];
  expect(await read(bounded)).toEqual(expected);
  // A transaction of the host that has locked the session reads it as it is now.
  await orm.em.fork().transactional(async (tx) => {
    const joined = bounded.withEntityManager(tx);
    await joined.appendEvent({ session: (await joined.getSession(keyOf(session)))!, event: answering(['a']) });
    expect(await read(joined)).toHaveLength(expected.length + 1);
  });
});

const turnSteps = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constant('reply'), n: fc.constant(0) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('ask'), n: fc.integer({ min: 1, max: 3 }) }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('answer'), n: fc.nat(8) }) },
);

/** Turns in which calls are made and answered, also those of earlier turns, and now and then a change of the history. */
const conversations = fc.array(
  fc.oneof(
    { weight: 15, arbitrary: fc.array(turnSteps, { maxLength: 3 }).map((steps) => [{ do: 'say', n: 0 }, ...steps]) },
    fc.tuple(fc.record({ do: fc.constantFrom('rewind', 'fork', 'trim'), n: fc.nat(5) })),
  ),
  { minLength: 3, maxLength: 16 },
);

const MISSING = ' is missing';

const idOf = (call: string) => call.replace(/^.*: | is missing$/g, '');

/** The calls that events make, and what became of each. */
function fatesOf(events: readonly { seq: number; event: Event }[]): Map<string, unknown> {
  const calls = new Calls();
  const made = events.flatMap(({ seq, event }) => calls.add(seq, event).made);
  return new Map(
    made.map(({ seq, number, id, openUntil, isMissing, response }) => [
      `${seq} ${number}: ${id}${isMissing ? MISSING : ''}`,
      { openUntil, response },
    ]),
  );
}

openCallSuite.own('K7', 'in random conversations every bound gives calls with their answers', async (context) => {
  const { create, service, orm } = context;
  const maintenance = new SessionMaintenance(orm.em);
  await expectOfRandom(
    'calls of bounded histories',
    conversations.map((turns) => turns.flat()),
    async (steps) => {
      let session = await create();
      const ids: string[] = [];
      for (const [i, step] of steps.entries()) {
        const key = keyOf(session);
        const made = range(step.n).map((n) => `${i} ${n}`);
        const { firstSeq, lastSeq } = await service.readEvents(key, { limit: 1 });
        const at = Math.max(firstSeq - 1, lastSeq - step.n);
        if (step.do === 'rewind') session = await service.rewindSession(key, { at });
        else if (step.do === 'fork') session = await service.forkSession(key, { at });
        else if (step.do === 'trim')
          await maintenance.trim({ ...key, keepLast: Math.max(0, at - firstSeq), dropOpenCalls: true });
        else if (step.do === 'ask') {
          const parts = made.map((id) => ({ functionCall: { id, name: 'approve', args: {} } }));
          await service.appendEvent({
            session,
            event: eventOf({ content: { role: 'model', parts }, longRunningToolIds: made }),
          });
          ids.push(...made);
        } else if (step.do === 'answer') {
          const answered = ids.slice(-1 - step.n)[0];
          if (answered) await service.appendEvent({ session, event: answering([answered]) });
        } else await service.appendEvent({ session, event: step.do === 'say' ? says('Go.') : saying('Done.') });
      }
      const { events } = await service.readEvents(keyOf(session), { limit: 1_000 });
      const all = fatesOf(events);
      const asked = [...all.keys()].filter((call) => !call.endsWith(MISSING)).map(idOf);
      const waiting = callsIn(events).open.map(({ seq }) => seq);
      for (const newest of [1, 3, 6]) {
        const bounded = new MikroOrmSessionService(orm.em, { defaultNumRecentEvents: newest });
        const given = (await bounded.getSession(keyOf(session)))!.events.map(({ id }) => id);
        const read = events.filter(({ event }) => given.includes(event.id));
        expect(given).toEqual(read.map(({ event }) => event.id));
        for (const [call, fate] of fatesOf(read)) {
          if (!call.endsWith(MISSING)) expect([call, fate]).toEqual([call, all.get(call)]);
          else expect(asked).not.toContain(idOf(call));
        }
        const seqs = read.map(({ seq }) => seq);
        const begin = events.findLast(({ event }) => beginsTurn(event))?.seq ?? Infinity;
        const needed = [...waiting, ...events.map(({ seq }) => seq).filter((seq) => seq >= begin)];
        expect(seqs).toEqual(expect.arrayContaining(needed));
      }
    },
    { runs: 25 },
  );
});
