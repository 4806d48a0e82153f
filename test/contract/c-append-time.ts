import { LockMode } from '@mikro-orm/core';
import type { Session } from '@google/adk';
import { AdkSession } from '../../entities/index.js';
import { EventLog, MikroOrmSessionService, SessionMaintenance } from '../../src/index.js';
import { resolveDialect } from '../../src/database/dialects/resolve.js';
import { keyOf, type OwnStore } from '../support/harnesses/harness.js';
import { read } from './log-tools.js';
import { Suite, onServers } from './rule.js';
import { eventOf, faulty, range, reversing, saying, takesLock, until } from './tools.js';

export const appendTimeSuite = new Suite();

/** The database's clock, in ms. */
async function clockOf({ orm, query }: Pick<OwnStore, 'orm' | 'query'>): Promise<number> {
  const [row] = await query<{ now: number }>(`select ${resolveDialect(orm.em.getPlatform()).sql.now} as now`);
  return Number(row?.now);
}

const timesOf = async (service: MikroOrmSessionService, session: Session) =>
  (await service.readEvents(keyOf(session))).events.map(({ appendTime }) => appendTime);

const TIME = 1_700_000_000_123.4375;

/** Sets the times that the tables have of a session's events. */
async function setTimes({ query }: Pick<OwnStore, 'query'>, { appName, id }: Session, ...times: (number | null)[]) {
  for (const [i, time] of times.entries())
    await query('update adk_events set append_time = ? where app_name = ? and session_id = ? and seq = ?', [
      ...[time, appName, id, i + 1],
    ]);
}

appendTimeSuite.own('C7', 'each event has the time of its append, by the clock of the database', async (context) => {
  const { service, create, fresh, orm, query, app, another } = context;
  const session = await create();
  const others = await Promise.all(range(3).map(() => create()));
  const before = await clockOf(context);
  // The times of ADK say nothing about it.
  await service.appendEvent({ session, event: saying('a', { timestamp: 5 }) });
  await service.appendEvents({ session, events: range(3).map(() => eventOf({ timestamp: 3 })) });
  await service.appendEvent({
    session,
    event: eventOf({ actions: { stateDelta: { 'app:a': 1, 'user:a': 1, a: 1 } } }),
  });
  await Promise.all(others.map((other) => service.appendEvent({ session: other, event: eventOf() })));
  await orm.em.fork().transactional((tx) => service.withEntityManager(tx).appendEvent({ session, event: eventOf() }));
  // Behind, so it is written under the lock.
  const behind = await fresh(session);
  await service.appendEvent({ session, event: eventOf() });
  await another.appendEvent({ session: behind, event: eventOf() });
  const after = await clockOf(context);

  const rows = await query<{ session_id: string; at: number }>(
    'select session_id, append_time as at from adk_events where app_name = ? order by session_id, seq',
    [app],
  );
  expect(rows).toHaveLength(11);
  for (const { at } of rows) {
    expect(at).toBeGreaterThanOrEqual(before);
    expect(at).toBeLessThanOrEqual(after);
  }
  const times = await timesOf(service, session);
  expect(times).toEqual(rows.flatMap(({ session_id, at }) => (session_id === session.id ? [at] : [])));
  expect(times).toEqual(times.toSorted((a, b) => Number(a) - Number(b)));
  // Those of one call are written at once.
  expect(new Set(times.slice(1, 4)).size).toBe(1);
  const log = new EventLog(orm.em);
  const ofLog = await read(log.since(0, { appName: app, sessionId: session.id }));
  expect(ofLog.map(({ appendTime }) => appendTime)).toEqual(times);
  const ofSession = await read(log.session(keyOf(session)).since(0));
  expect(ofSession.map(({ appendTime }) => appendTime)).toEqual(times);
});

appendTimeSuite.own(
  'C7',
  'an append that waits for the lock of its session has the time after the wait',
  async (context) => {
    const { peer, orm, create, app } = context;
    const session = await create();
    let isSent = false;
    const service = new MikroOrmSessionService(
      faulty(orm.em, { before: async (text) => void (isSent ||= takesLock(text)) }),
    );
    const { append, released } = await peer.em.fork().transactional(async (em) => {
      await em.findOneOrFail(
        AdkSession,
        { appName: app, userId: session.userId, id: session.id },
        { lockMode: LockMode.PESSIMISTIC_WRITE },
      );
      const append = service.appendEvent({ session, event: eventOf() });
      await until(() => isSent);
      const sent = await clockOf(context);
      let released = sent;
      await until(async () => (released = await clockOf(context)) > sent + 20);
      return { append: [append], released };
    });
    await Promise.all(append);
    const [time] = await timesOf(service, session);
    expect(time).toBeGreaterThan(released);
  },
  onServers,
);

appendTimeSuite.own('C7', 'an event that is appended again keeps the time of its first append', async (context) => {
  const { service, create, fresh } = context;
  const session = await create();
  const event = eventOf({ id: 'e' });
  await service.appendEvent({ session, event });
  await setTimes(context, session, TIME);
  await service.appendEvent({ session, event });
  expect(await timesOf(service, session)).toEqual([TIME]);
  await service.appendEvent({ session: await fresh(session), event: saying('corrected', { id: 'e' }) });
  const { events } = await service.readEvents(keyOf(session));
  expect(events).toMatchObject([{ appendTime: TIME, event: { content: { parts: [{ text: 'corrected' }] } } }]);
});

appendTimeSuite.own('C7', 'forks, exports and imports keep the times, and one that is unknown', async (context) => {
  const { service, create, orm, app, query } = context;
  const session = await create();
  await service.appendEvents({ session, events: range(3).map((i) => saying(`${i}`)) });
  const kept = [TIME, undefined, TIME + 2.25];
  await setTimes(context, session, TIME, null, TIME + 2.25);
  expect((await service.readEvents(keyOf(session))).events[1]).not.toHaveProperty('appendTime');
  for (const each of [service, new MikroOrmSessionService(orm.em, { codec: reversing })])
    expect(await timesOf(each, await each.forkSession(keyOf(session), { at: 3 }))).toEqual(kept);

  const maintenance = new SessionMaintenance(orm.em, { codec: reversing });
  const records = [];
  for await (const record of maintenance.exportSessions({ appName: app }))
    if ('sessionId' in record && record.sessionId === session.id) records.push({ ...record, sessionId: 'imported' });
  expect(records.map((record) => ('appendTime' in record ? record.appendTime : undefined))).toEqual([
    undefined,
    ...kept,
  ]);
  await maintenance.importSessions(records);
  const rows = await query<{ at: number | null }>(
    "select append_time as at from adk_events where app_name = ? and session_id = 'imported' order by seq",
    [app],
  );
  expect(rows.map(({ at }) => at ?? undefined)).toEqual(kept);
});
