import { MikroORM } from '@mikro-orm/core';
import { MySqlDriver } from '@mikro-orm/mysql';
import { adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { readTables } from '../../processes/tables.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { Proxy } from '../proxy.js';
import { ClusterStorm, expectNotWrittenTo } from './cluster-storm.js';
import { MysqlPair, hasMysql } from './mysql.js';
import { describeWith } from './programs.js';

const WRITERS = 6;
/** Appends of each writer between two faults. */
const MEANWHILE = 25;

const noMysql = hasMysql ? undefined : 'scripts/test-servers.sh fetches MySQL';

describeWith(noMysql, 'MySQL with a semi-synchronous replica', () => {
  test('O1 O4 O9 a switchover, a source that is killed, and one that is frozen and comes back: what was acknowledged is there once', async () => {
    const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');
    await bundle.build();
    const pair = await MysqlPair.start();
    await pair.source.execute('create database storm');
    const proxy = await Proxy.before(pair.source.url('storm'));
    const orm = await MikroORM.init({ driver: MySqlDriver, clientUrl: proxy.url, entities: adkEntities() });
    let storm: ClusterStorm | undefined;
    try {
      await migrate(orm);
      await new MikroOrmSessionService(orm.em).createSession(keyOf(STORM_SESSION));
      storm = new ClusterStorm(bundle.path, Array(WRITERS).fill(proxy.url));
      /** Promotes the replica, and switches the proxy to it. Commits wait until there is a new replica. */
      const failOver = async () => {
        const before = await pair.promote();
        proxy.switchTo(pair.source.url('storm'));
        return before;
      };
      await storm.untilAcknowledged(MEANWHILE);

      // A switchover: the source becomes the replica.
      await pair.quiesce();
      await pair.addReplica(await failOver());
      await storm.untilAcknowledged(MEANWHILE);

      // The source is killed while commits wait, whether or not the replica has them.
      pair.replica.freeze();
      await pair.untilCommitsWait();
      await pair.source.kill();
      pair.replica.thaw();
      await failOver();
      await pair.addReplica();
      await storm.untilAcknowledged(MEANWHILE);

      // Now the source is killed while the replica is healthy.
      await pair.source.kill();
      await failOver();
      await pair.addReplica();
      await storm.untilAcknowledged(MEANWHILE);

      // The source is frozen, the replica takes over, and the old source returns and believes that it still is one.
      pair.source.freeze();
      const old = await failOver();
      await pair.addReplica();
      old.thaw();
      await storm.untilAcknowledged(MEANWHILE);

      const { figures, found, failedOfPatient } = await storm.end(orm.em);
      console.info('MySQL with a semi-synchronous replica', figures);
      expect(found).toEqual([]);
      expect(failedOfPatient).toEqual([]);
      const { ids } = await readTables(orm.em, STORM_SESSION);
      const onOld = await old.execute<{ id: string }>('select event_id as id from adk_events order by seq', 'storm');
      expectNotWrittenTo(
        onOld.map(({ id }) => id),
        ids,
      );
    } finally {
      storm?.kill();
      await orm.close(true);
      await proxy.close();
      await pair.stop();
      await bundle.remove();
    }
  });
});
