import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { WorkerBundle } from '../../processes/worker-bundle.js';
import { createDatabase, executeOnServer } from '../../../support/servers.js';
import { ClusterStorm } from './cluster-storm.js';
import { PgBouncer, hasPgBouncer } from './pgbouncer.js';
import { describeWith } from './programs.js';

const WRITERS = 6;
const ROUNDS = 8;

describeWith(hasPgBouncer ? undefined : 'install pgbouncer', 'PgBouncer in transaction mode', () => {
  const bundle = new WorkerBundle('storm-process.ts');

  beforeAll(() => bundle.build());
  afterAll(() => bundle.remove());

  test.each([
    ['whose connections keep their prepared statements', false],
    ['with server_reset_query_always', true],
  ])(
    'O1 O4 O5 %s: its connections to the server end, and it is killed; what was acknowledged is there once',
    async (kind, resetsAlways) => {
      const database = await createDatabase('postgresql');
      const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
      let pooler: PgBouncer | undefined;
      let storm: ClusterStorm | undefined;
      try {
        await migrate(orm);
        await new MikroOrmSessionService(orm.em).createSession(keyOf(STORM_SESSION));
        pooler = await PgBouncer.before(database.url, resetsAlways);
        storm = new ClusterStorm(bundle.path, Array(WRITERS).fill(pooler.url));
        const name = new URL(database.url).pathname.slice(1);
        for (let round = 0; round < ROUNDS; round++) {
          await storm.untilAcknowledged(20);
          const ended = await executeOnServer(
            'postgresql',
            `select pg_terminate_backend(pid) from pg_stat_activity
             where datname = '${name}' and pid <> pg_backend_pid()`,
          );
          expect(ended).not.toEqual([]);
          await storm.untilAcknowledged(20);
          await pooler.kill();
          await pooler.start();
        }
        await storm.untilAcknowledged(20);
        const { figures, failedOfPatient, found } = await storm.end(orm.em);
        console.info(`PgBouncer ${kind}`, figures);
        expect(found).toEqual([]);
        expect(failedOfPatient).toEqual([]);
      } finally {
        storm?.kill();
        await pooler?.stop();
        await orm.close(true);
        await database.drop();
      }
    },
  );
});
