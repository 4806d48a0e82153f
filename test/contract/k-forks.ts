import { SessionMaintenance, type SessionSummary } from '../../src/index.js';
import type { SessionKey } from '../../src/model/keys.js';
import { keyOf } from '../support/harnesses/harness.js';
import { read, upTo } from './log-tools.js';
import { Suite, type OwnContext } from './rule.js';
import { expectCode, saying } from './tools.js';

/** What a fork keeps of where it comes from. */
export const forkSuite = new Suite({ isOfDialect: true });

/** A session in which four events say a word each. */
async function said({ service, create }: OwnContext, ...words: string[]): Promise<SessionKey> {
  const session = await create();
  await service.appendEvents({ session, events: words.map((word) => saying(word, { id: word })) });
  return keyOf(session);
}

/** Says more in a session, in its newest state. */
async function say({ service }: OwnContext, key: SessionKey, ...words: string[]): Promise<void> {
  const session = (await service.getSession(key))!;
  await service.appendEvents({ session, events: words.map((word) => saying(word, { id: word })) });
}

async function forkedFrom({ service, app }: Pick<OwnContext, 'service' | 'app'>) {
  const { sessions } = await service.findSessions({ appName: app, order: 'asc' });
  return new Map(
    sessions.map((session): [string, SessionSummary['forkedFrom']] => [session.sessionId, session.forkedFrom]),
  );
}

forkSuite.own('K4', 'a fork remembers where it comes from', async (context) => {
  const { service, query } = context;
  const key = await said(context, 'a', 'b', 'c', 'd');
  await service.forkSession(key, { at: 3, as: 'fork' });
  const fork = { ...key, sessionId: 'fork' };
  await say(context, fork, 'e', 'f');
  await service.forkSession(fork, { at: 4, as: 'fork of fork' });
  await service.forkSession(key, { at: 0, as: 'empty' });
  const all = new Map([
    [key.sessionId, undefined],
    ['fork', { sessionId: key.sessionId, at: 3 }],
    ['fork of fork', { sessionId: 'fork', at: 4 }],
    ['empty', { sessionId: key.sessionId, at: 0 }],
  ]);
  expect(await forkedFrom(context)).toEqual(all);

  // Not behind the last copied event, and then before it: what follows is the fork's own.
  await service.rewindSession(fork, { at: 4 });
  expect(await forkedFrom(context)).toEqual(all);
  await service.rewindSession(fork, { at: 2 });
  await say(context, fork, 'g', 'h');
  all.set('fork', { sessionId: key.sessionId, at: 2 });
  expect(await forkedFrom(context)).toEqual(all);

  // A trim changes no number. A session that is gone is still named.
  await new SessionMaintenance(context.orm.em).trim({ ...fork, keepLast: 1 });
  await service.deleteSession(key);
  all.delete(key.sessionId);
  expect(await forkedFrom(context)).toEqual(all);
  // A new session with the id of a fork is none.
  await service.deleteSession(fork);
  await service.createSession(fork);
  all.set('fork', undefined);
  expect(await forkedFrom(context)).toEqual(all);
  const rows = await query('select session_id from adk_sessions where app_name = ? and forked_seq is null', [
    key.appName,
  ]);
  expect(rows).toEqual([{ session_id: 'fork' }]);
});

forkSuite.own('K4', 'a fork that a repair shortens is copied up to its new end', async (context) => {
  const { service, query, orm } = context;
  const key = await said(context, 'a', 'b', 'c');
  const fork = keyOf(await service.forkSession(key, { as: 'fork' }));
  // A number far above the last event: its end is lost.
  await query(
    `update adk_sessions set last_seq = 50000, forked_seq = 50000 where app_name = ? and session_id = 'fork'`,
    [key.appName],
  );
  await new SessionMaintenance(orm.em).repair(fork);
  expect((await forkedFrom(context)).get('fork')).toEqual({ sessionId: key.sessionId, at: 3 });
});

forkSuite.own('L1', 'an export and an import keep where a fork comes from', async (context) => {
  const { orm, service, app, scratch } = context;
  const key = await said(context, ...upTo(7).map((n) => `e${n}`));
  await service.forkSession(key, { at: 5, as: 'fork' });
  await say(context, { ...key, sessionId: 'fork' }, 'own');
  const source = new SessionMaintenance(orm.em);
  const records = await read(source.exportSessions({ appName: app }));
  expect(records.find((record) => record.type === 'session' && record.sessionId === 'fork')).toMatchObject({
    forkedFrom: { sessionId: key.sessionId, at: 5 },
  });
  const target = await scratch();
  const maintenance = new SessionMaintenance(target.orm.em);
  await maintenance.importSessions(records, { batchSize: 2 });
  const again = await read(maintenance.exportSessions({ appName: app }));
  expect(again.map((record) => JSON.stringify(record))).toEqual(records.map((record) => JSON.stringify(record)));

  for (const forkedFrom of [
    { sessionId: 's', at: 7 },
    { sessionId: 's', at: -1 },
    { sessionId: '', at: 1 },
    { at: 1 },
    's',
  ])
    await expectCode(
      maintenance.importSessions(
        records.map((record) => (record.type === 'session' ? { ...record, sessionId: 'other', forkedFrom } : record)),
      ),
      'ADK_INVALID_ARGUMENT',
    );
});
