import { createInterface } from 'node:readline';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { databaseOptions } from '../../../mikro-orm.config.js';

/** For each URL on stdin: connects, reports it, waits for the next line, migrates and reports it. */
let orm: MikroORM | undefined;
for await (const line of createInterface({ input: process.stdin })) {
  if (!orm) {
    orm = await MikroORM.init({ ...(await databaseOptions(line)), entities: adkEntities(), ensureDatabase: false });
    console.log('connected');
    continue;
  }
  const result = await migrate(orm).then(() => 'migrated', String);
  await orm.close(true);
  orm = undefined;
  console.log(result.replaceAll('\n', ' '));
}
