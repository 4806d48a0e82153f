import type { Event, Session } from '@google/adk';
import { MikroOrmSessionService, SessionMaintenance, openLongRunningCalls, type Codec } from '../../src/index.js';
import { keyOf } from '../support/harnesses/harness.js';
import { Suite, type OwnContext } from './rule.js';
import { eventOf, expectCode, idsOf, range, saying } from './tools.js';

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

  // An append that neither opens nor answers a call does not read these rows.
  const statements = await recorded(() => service.appendEvent({ session, event: saying('x') }));
  expect(statements.filter(({ text }) => text.includes('open_calls'))).toEqual([]);
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

  const found = async (request: object, by = service) => {
    const { calls } = await by.findOpenCalls({ appName: app, ...request });
    return calls.map(({ id }) => id);
  };
  const all = ['call 4', 'call 3', 'call 2', 'of bob', 'call 1', 'call 0', 'hidden', 'now'];
  expect(await found({}, encoding)).toEqual(all);
  expect(await found({ userId: 'bob' })).toEqual(['of bob', 'now']);
  expect(await found({ name: 'odd' })).toEqual(['call 3', 'call 1']);
  expect(await found({ openFor: 1_000 })).toEqual(all.slice(0, -1));
  expect(await found({ openFor: Infinity })).toEqual([]);
  for (const userId of [undefined, 'alice']) {
    const whole = await found({ ...(userId && { userId }) });
    const ids: string[] = [];
    for (let after: string | undefined, page; !page || page.next; after = page.next) {
      page = await service.findOpenCalls({
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
  expect((await hidden(service)).calls.at(-1)).not.toHaveProperty('args');
  await expectCode(service.findOpenCalls({ appName: app, after: 'x' }), 'ADK_INVALID_ARGUMENT', 'findOpenCalls');
});

openCallSuite.own('H5', 'open calls follow their session', async (context) => {
  const { app, create, service, orm, query, scratch } = context;
  const maintenance = new SessionMaintenance(orm.em);
  const session = await create({ sessionId: 's' });
  const events = [says('1'), asking('a'), asking('b'), answering(['a']), says('2'), asking('c'), saying('3')];
  await service.appendEvents({ session, events });
  const of = async (by: Pick<OwnContext, 'service'>, appName = app) =>
    (await by.service.findOpenCalls({ appName })).calls.map(({ sessionId, id }) => `${sessionId} ${id}`).sort();
  expect(await of(context)).toEqual(['s b', 's c']);

  const fork = await service.forkSession(keyOf(session), { at: 3, as: 'fork' });
  expect(await openIn(context, fork)).toEqual(['a', 'b']);
  await service.rewindSession(keyOf(fork), { at: 2 });
  expect(await openIn(context, fork)).toEqual(['a']);

  // Elsewhere, plain and as they are stored.
  const encoding = new MikroOrmSessionService(orm.em, { codec: CODEC });
  const encoded = await encoding.createSession({ appName: app, userId: 'bob', sessionId: 'encoded' });
  await encoding.appendEvents({ session: encoded, events: [says('1'), asking('d'), asking('e'), answering(['d'])] });
  const stored = await of(context);
  const [plainly, asStored] = [await scratch(), await scratch()];
  const codec = { codec: CODEC };
  const target = new SessionMaintenance(plainly.orm.em, codec);
  await target.importSessions(new SessionMaintenance(orm.em, codec).exportSessions({ appName: app }), { batchSize: 2 });
  expect(await of(plainly)).toEqual(stored);
  const again = new SessionMaintenance(asStored.orm.em);
  const bobs = { appName: app, userId: 'bob', texts: 'asStored' } as const;
  await again.importSessions(maintenance.exportSessions(bobs), { texts: 'asStored' });
  expect(await of(asStored)).toEqual(['encoded e']);

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
