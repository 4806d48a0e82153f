import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { databaseOptions } from '../../../mikro-orm.config.js';
import { EventLog, MikroOrmSessionService, SessionLeases } from '../../../src/index.js';
import type { Database as DatabaseHarness } from '../../support/harnesses/database.js';
import { DATABASES, type DatabaseName, type ServerName } from '../../support/harnesses/databases.js';
import { ServerSessions } from '../../hosts/connections/server-sessions.js';
import { keyOf } from './protocol.js';

// Runs failures of every kind, with values that nobody may see, in its own process: all of its output can be read.

interface Given {
  name: DatabaseName;
  url: string;
  secret: string;
}

const { name, url, secret } = JSON.parse(process.argv[2] ?? '') as Given;
const harness: DatabaseHarness = DATABASES[name];

async function main(): Promise<string[]> {
  const options = await databaseOptions(url);
  if (!harness.isOfUrl) options.driver = await harness.driver();
  const open = () => MikroORM.init({ ...options, entities: adkEntities() });
  const orm = await open();
  const service = new MikroOrmSessionService(orm.em);
  const failed: string[] = [];
  const failing = async (what: string, work: Promise<unknown>) => {
    await work.then(
      () => failed.push(`${what} did not fail`),
      (error: unknown) => failed.push(`${what}: ${nameOf(error)}`),
    );
  };
  const key = keyOf(secret);
  const event = () => createEvent({ author: 'agent', content: { parts: [{ text: secret }] } });
  const session = await service.createSession({ ...key, state: { a: secret } });

  await failing('duplicate', service.createSession({ ...key, state: { a: secret } }));
  const run = (sql: string) => (orm.em.fork() as unknown as SqlEntityManager).execute(sql);
  // The event of another session conflicts with this one.
  await run('create unique index one_event on adk_events (app_name)');
  const other = await service.createSession({ ...key, sessionId: 'other' });
  await service.appendEvent({ session: other, event: event() });
  await failing('statement', service.appendEvent({ session, event: event() }));
  const onError: () => unknown = () => Promise.reject(new Error(secret));
  const rejecting = new MikroOrmSessionService(orm.em, { onError });
  await failing('rejecting onError', rejecting.appendEvent({ session, event: event() }));

  if (harness.server) await breakConnections(name as ServerName, orm, await open(), failing);

  await run('alter table adk_session_states rename to other');
  await failing('schema', service.createSession({ ...key, sessionId: `${secret}2`, state: { a: secret } }));
  await failing('schema', service.getSession(key));
  await orm.close(true);
  return failed;
}

const nameOf = (error: unknown) => (error instanceof Error ? error.name : String(error));

type SqlEntityManager = { execute(sql: string): Promise<unknown> };

/** Breaks connections while they are idle, and in the middle of a statement of each kind. */
async function breakConnections(
  name: ServerName,
  orm: MikroORM,
  blocking: MikroORM,
  failing: (what: string, work: Promise<unknown>) => Promise<void>,
): Promise<void> {
  const server = await ServerSessions.open(
    { url, name, options: await databaseOptions(url), drop: async () => {} },
    name,
  );
  const service = new MikroOrmSessionService(orm.em, { retry: { attempts: 1 } });
  const leases = new SessionLeases(orm.em, { retry: { attempts: 1 } });
  const session = (await service.getSession(keyOf(secret)))!;
  const event = createEvent({ author: 'agent', content: { parts: [{ text: secret }] } });
  const calls: Record<string, () => Promise<unknown>> = {
    append: () => service.appendEvent({ session, event }),
    state: () => service.updateState({ ...keyOf(secret), set: { a: secret } }),
    lease: () => leases.acquire(keyOf(secret), { holder: secret }),
    delete: () => service.deleteSession(keyOf(secret)),
  };
  for (const [what, call] of Object.entries(calls)) {
    const em = blocking.em.fork();
    await em.begin();
    await (em as unknown as SqlEntityManager).execute(
      'update adk_sessions set last_update_time = last_update_time + 1',
    );
    const broken = failing(what, call());
    const sessions = await server.until((sessions) => sessions.some(({ waitsForLock }) => waitsForLock));
    await server.end(sessions.flatMap(({ id, waitsForLock }) => (waitsForLock ? [id] : [])));
    await broken;
    await em.rollback();
    // The pool reports a broken connection when it is asked for one.
    await new MikroOrmSessionService(orm.em).getSession(keyOf(secret));
    await new EventLog(orm.em).head();
  }
  await blocking.close(true);
  await server.end();
  await new MikroOrmSessionService(orm.em).getSession(keyOf(secret));
  await server.close();
}

main().then(
  (failed) => process.send!(failed),
  // Open connections would keep this process, and the test, waiting.
  (error: unknown) => process.send!([`broken: ${String(error)}`], () => process.exit(1)),
);
