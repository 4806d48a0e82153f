import { createEvent } from '@google/adk';
import { MikroORM, TableNotFoundException, type Options } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { AdkSession } from '../../../entities/index.js';
import * as api from '../../../src/index.js';
import { DATABASES, type DatabaseName } from '../../support/harnesses/databases.js';

/** A host's program, which the test bundles and minifies. */
const failureOf = (call: Promise<unknown>) =>
  call.then(String, (error: unknown) => {
    const { name, code, reason } = error as api.DatabaseError;
    return { name, code, reason };
  });

async function main(name: DatabaseName, connection: Options): Promise<void> {
  const orm = await MikroORM.init({
    ...connection,
    driver: await DATABASES[name].driver(),
    entities: api.adkEntities(),
  });
  await api.migrate(orm);
  const service = new api.MikroOrmSessionService(orm.em);
  const key = { appName: 'shop', userId: 'ada', sessionId: 's' };
  const session = await service.createSession({ ...key, state: { 'user:name': 'Ada' } });
  // More than one row of MySQL and MariaDB takes.
  const text = 'ü'.repeat(100_000);
  await service.appendEvent({ session, event: createEvent({ author: 'user', content: { parts: [{ text }] } }) });
  const stored = await service.getSession(key);
  const authors = [];
  for await (const { event } of new api.EventLog(orm.em).since(0, { appName: 'shop' })) authors.push(event?.author);
  const token = await new api.SessionLeases(orm.em).run(key, { holder: 'host' }, async (lease) => lease.token);
  const rows = await orm.em.fork().find(AdkSession, { userId: 'ada' });
  const missing = await failureOf(service.appendEvent({ session: { ...session, id: 'none' }, event: createEvent() }));
  const connectionOf = orm.em.getConnection() as AbstractSqlConnection;
  await connectionOf.execute('drop table adk_counters');
  await connectionOf.execute(
    'create table adk_counters (name varchar(99) primary key, value bigint not null, other int not null)',
  );
  const refused = await failureOf(new api.SessionLeases(orm.em).acquire(key, { holder: 'host' }));
  await orm.close(true);

  console.log(
    JSON.stringify({
      isMinified: TableNotFoundException.name !== 'TableNotFoundException',
      isWhole: stored?.events[0]?.content?.parts?.[0]?.text === text,
      state: stored?.state,
      authors,
      token,
      lastSeq: rows.map((row) => row.lastSeq),
      missing,
      refused,
    }),
  );
}

const [name, connection] = process.argv.slice(2) as [DatabaseName, string];
await main(name, JSON.parse(connection) as Options);
