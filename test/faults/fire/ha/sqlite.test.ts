import { MikroORM } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/sqlite';
import { adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { readTables } from '../../processes/tables.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { FILE_DATABASES, availableDatabases, createDatabase } from '../../../support/servers.js';
import { violations } from '../checker.js';
import { figuresOf } from './cluster-storm.js';
import { Lives } from './sqlite.js';

const WRITERS = 7;
/** How often each writer is killed. */
const KILLS = 4;

const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');

beforeAll(() => bundle.build());
afterAll(() => bundle.remove());

test.each(FILE_DATABASES.filter((name) => availableDatabases().includes(name)))(
  'O1 O9 eight processes on one file of %s are killed and started again: what was acknowledged is there once',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    const lives = new Lives(bundle.path, database.url, name === 'better-sqlite' ? { name } : {});
    try {
      await migrate(orm);
      await new MikroOrmSessionService(orm.em).createSession(keyOf(STORM_SESSION));
      const written = new AbortController();
      const count = async () => (await readTables(orm.em, STORM_SESSION)).ids.length;
      const writing = Promise.all(Array.from({ length: WRITERS }, (_, writer) => lives.ofWriter(writer, KILLS)));
      await Promise.all([writing.finally(() => written.abort()), lives.ofWatcher(written.signal, count)]);
      const stored = await readTables(orm.em, STORM_SESSION);
      const connection = orm.em.getConnection() as AbstractSqlConnection;
      console.info(name, { ...figuresOf(lives.histories, stored), kills: lives.kills });
      expect(violations(lives.histories, stored)).toEqual([]);
      // No surviving process got an error: the locks of a killed one are free.
      expect(lives.histories.flatMap(({ failed }) => failed)).toEqual([]);
      expect(await connection.execute('pragma integrity_check')).toEqual([{ integrity_check: 'ok' }]);
    } finally {
      lives.kill();
      await orm.close(true);
      await database.drop();
    }
  },
);
