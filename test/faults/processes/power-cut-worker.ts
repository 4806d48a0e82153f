import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { MikroOrmSessionService, adkEntities, migrate } from '../../../src/index.js';
import { DATABASES, type FileName } from '../../support/harnesses/databases.js';

/** Appends until it is killed, and prints the id of each acknowledged event. */
const [name, file] = process.argv.slice(2) as [FileName, string];
const driver = await DATABASES[name].driver();
const orm = await MikroORM.init({ driver, dbName: file, entities: adkEntities() });
await migrate(orm);
const service = new MikroOrmSessionService(orm.em);
const session = await service.createSession({ appName: 'app', userId: 'ada', sessionId: 's' });
for (;;) {
  const { id } = await service.appendEvent({ session, event: createEvent({ author: 'user' }) });
  console.log(id);
}
