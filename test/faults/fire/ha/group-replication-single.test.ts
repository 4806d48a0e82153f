import { MikroORM } from '@mikro-orm/core';
import { MySqlDriver } from '@mikro-orm/mysql';
import { adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { Proxy } from '../proxy.js';
import { ClusterStorm } from './cluster-storm.js';
import { GroupReplication, hasGroupReplication, type GroupNode } from './group-replication.js';
import { describeWith } from './programs.js';

const WRITERS = 6;
/** Appends of each writer between two faults. */
const MEANWHILE = 25;
const PLANNED_SWITCHES = 6;
/** Longer than a group on a busy machine takes to notice the loss of its primary. */
const RETRY = { maxDelayMs: 50, forMs: 120_000 };

const missing = hasGroupReplication ? undefined : 'scripts/test-servers.sh fetches MySQL';

describeWith(missing, 'MySQL with group replication, three nodes, of which one takes writes', () => {
  let group: GroupReplication;

  beforeAll(async () => {
    // The default. A new primary answers no reads before it has everything that the old one acknowledged.
    group = await GroupReplication.start({ consistency: 'BEFORE_ON_PRIMARY_FAILOVER', singlePrimary: true });
  });
  afterAll(() => group?.stop());

  test('O1 O4 O5 planned switches, and a primary that is killed, frozen and cut off: what was acknowledged is there once', async () => {
    const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');
    await bundle.build();
    await group.createDatabase('storm');
    let primary: GroupNode = await group.primaryAmong(group.nodes);
    const proxy = await Proxy.before(primary.url('storm'));
    const orm = await MikroORM.init({
      driver: MySqlDriver,
      clientUrl: proxy.url,
      entities: adkEntities(),
      ensureDatabase: false,
    });
    let storm: ClusterStorm | undefined;
    try {
      await migrate(orm);
      await new MikroOrmSessionService(orm.em).createSession(keyOf(STORM_SESSION));
      storm = new ClusterStorm(bundle.path, Array(WRITERS).fill(proxy.url), { retry: RETRY });
      const others = () => group.nodes.filter((node) => node !== primary);
      /** Switches the proxy to the node that takes writes now. */
      const follow = async (nodes: readonly GroupNode[]) => {
        primary = await group.primaryAmong(nodes);
        proxy.switchTo(primary.url('storm'));
        await storm?.untilAcknowledged(MEANWHILE);
      };
      await storm.untilAcknowledged(MEANWHILE);

      // While the group changes its primary, and afterwards, the old one refuses writes.
      for (let n = 0; n < PLANNED_SWITCHES; n++) {
        const next = others()[n % 2]!;
        await next.becomePrimary();
        await follow([next]);
      }

      // The primary is killed and started again.
      const killed = primary;
      await killed.server.kill();
      await follow(others());
      await killed.server.start();
      await killed.join();
      await group.untilWhole();

      // Frozen until the others continue without it. Its clients may have sent commits that are never answered.
      const frozen = primary;
      frozen.server.freeze();
      await follow(others());
      frozen.server.thaw();
      await frozen.untilOut();
      await group.untilWhole();
      await storm.untilAcknowledged(MEANWHILE);

      // Cut off from the others, with commits that they may have, but whose outcome it never learns.
      const cutOff = primary;
      const rest = others();
      for (const node of rest) node.server.freeze();
      await cutOff.untilCommitsWait();
      // Like a balancer that finds no primary.
      proxy.refuse();
      await cutOff.untilOut();
      for (const node of rest) node.server.thaw();
      await group.primaryAmong(rest);
      proxy.open();
      await follow(rest);
      await group.untilWhole();
      await storm.untilAcknowledged(MEANWHILE);

      const { figures, found, failedOfPatient, failed } = await storm.end(orm.em);
      const codes = [...new Set(failed.map(({ code }) => code))];
      console.info('MySQL with group replication and a single primary', figures, codes);
      expect(found).toEqual([]);
      expect(failedOfPatient).toEqual([]);
    } finally {
      storm?.kill();
      await orm.close(true);
      await proxy.close();
      await bundle.remove();
    }
  });
});
