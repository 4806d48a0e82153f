import { MikroORM } from '@mikro-orm/core';
import { PostgreSqlDriver } from '@mikro-orm/postgresql';
import { adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { readTables } from '../../processes/tables.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { ClusterStorm, expectNotWrittenTo } from './cluster-storm.js';
import { PatroniCluster, hasPatroni, type PatroniNode } from './patroni.js';
import { executeAt } from './postgresql.js';
import { describeWith } from './programs.js';
import { until } from './until.js';

const WRITERS = 6;
/** Appends of each writer between two faults. */
const MEANWHILE = 25;

/** Enough for six outages, most of which take 10 to 20 s, and for nodes to return. */
const TIMEOUT_MS = 600_000;

const idsOn = async (node: PatroniNode) => {
  const sql = 'select event_id as id from adk_events order by seq';
  return (await executeAt<{ id: string }>(node.url('storm'), sql)).map(({ id }) => id);
};

const noPatroni = hasPatroni ? undefined : 'install postgresql, patroni, etcd-server, haproxy';

describeWith(noPatroni, 'PostgreSQL with Patroni, a synchronous standby and HAProxy', () => {
  test(
    'O1 O4 O9 a switchover, nodes that are killed, and a leader that is frozen and comes back: what was acknowledged is there once',
    async () => {
      const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');
      await bundle.build();
      const cluster = await PatroniCluster.start();
      let orm: MikroORM | undefined;
      let storm: ClusterStorm | undefined;
      try {
        await executeAt(cluster.url('postgres'), 'create database storm');
        const url = cluster.url('storm');
        orm = await MikroORM.init({ driver: PostgreSqlDriver, clientUrl: url, entities: adkEntities() });
        await migrate(orm);
        const service = new MikroOrmSessionService(orm.em);
        await service.createSession(keyOf(STORM_SESSION));
        storm = new ClusterStorm(bundle.path, Array(WRITERS).fill(url));
        await storm.untilAcknowledged(MEANWHILE);

        // A switchover.
        await cluster.switchOver();
        await storm.untilAcknowledged(MEANWHILE);
        await cluster.untilWhole();

        // The leader is killed while commits wait. The standby that takes over has none of them, and the third node all.
        const killed = await cluster.untilLed();
        const standby = await cluster.standby();
        standby.freeze();
        await cluster.untilCommitsWait();
        await killed.kill();
        await standby.kill();
        standby.start();
        await cluster.untilLed(killed);
        await storm.untilAcknowledged(MEANWHILE);
        killed.start();
        await cluster.untilWhole();

        // The standby is killed and comes back; the third node has replaced it.
        const gone = await cluster.standby();
        await gone.kill();
        await storm.untilAcknowledged(MEANWHILE);
        gone.start();
        await cluster.untilWhole();

        // The leader is frozen until another node leads. Then its server returns, and believes that it is the primary.
        const old = await cluster.untilLed();
        old.freeze();
        await cluster.untilLed(old);
        await storm.untilAcknowledged(MEANWHILE);
        old.thawServer();
        await storm.untilAcknowledged(MEANWHILE);
        const onOld = await idsOn(old);
        old.thaw();
        await cluster.untilWhole();

        // Only Patroni is frozen. Its server believes all the time that it is the primary.
        const deposed = await cluster.untilLed();
        const read = async () => (await service.getSession(keyOf(STORM_SESSION)))?.events.length;
        await read();
        deposed.freeze();
        deposed.thawServer();
        const next = await cluster.untilLed(deposed);
        await storm.untilAcknowledged(MEANWHILE);
        // Nobody reads it through an earlier connection either.
        const { length } = await idsOn(next);
        expect(await read()).toBeGreaterThanOrEqual(length);
        deposed.thaw();
        await cluster.untilWhole();

        // All nodes lose their power.
        await Promise.all(cluster.nodes.map((node) => node.kill()));
        for (const node of cluster.nodes) node.start();
        await storm.untilAcknowledged(MEANWHILE);
        await cluster.untilWhole();

        const { figures, found, failedOfPatient } = await storm.end(orm.em);
        console.info('PostgreSQL with Patroni', figures);
        expect(found).toEqual([]);
        expect(failedOfPatient).toEqual([]);
        const { ids } = await readTables(orm.em, STORM_SESSION);
        expectNotWrittenTo(onOld, ids);
        // All nodes return with the same events.
        for (const node of cluster.nodes) {
          await until('all events', async () => (await idsOn(node)).length >= ids.length || undefined);
          expect(await idsOn(node)).toEqual(ids);
        }
      } finally {
        storm?.kill();
        await orm?.close(true);
        await cluster.stop();
        await bundle.remove();
      }
    },
    TIMEOUT_MS,
  );
});
