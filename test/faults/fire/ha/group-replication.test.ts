import { MikroORM } from '@mikro-orm/core';
import { MySqlDriver } from '@mikro-orm/mysql';
import { adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { prepare, remove, run } from '../../../hosts/cli/command.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { ClusterStorm } from './cluster-storm.js';
import { GroupReplication, hasGroupReplication } from './group-replication.js';
import { describeWith } from './programs.js';
import { expectCausality, expectOneHolder, expectOneSchema } from './several-primaries.js';

/** Appends of each writer between two faults. */
const MEANWHILE = 25;

const missing = hasGroupReplication ? undefined : 'scripts/test-servers.sh fetches MySQL';

describeWith(missing, 'MySQL with group replication, three nodes, all of which take writes', () => {
  let group: GroupReplication;
  const orms: MikroORM[] = [];

  async function open(node: number, database: string): Promise<MikroORM> {
    const clientUrl = group.nodes[node]!.url(database);
    const orm = await MikroORM.init({
      driver: MySqlDriver,
      clientUrl,
      entities: adkEntities(),
      ensureDatabase: false,
    });
    orms.push(orm);
    return orm;
  }

  /** Opens an ORM for each node, and creates the tables. */
  async function openMigrated(database: string): Promise<MikroORM[]> {
    await group.createDatabase(database);
    const opened = await Promise.all(group.nodes.map((_, node) => open(node, database)));
    for (const orm of opened) await migrate(orm);
    return opened;
  }

  beforeAll(async () => {
    group = await GroupReplication.start({ consistency: 'BEFORE' });
  });
  afterEach(async () => {
    for (const orm of orms.splice(0)) await orm.close(true);
  });
  afterAll(() => group?.stop());

  test('A2 D4 H1 what one call has written the next one finds through another node', async () => {
    await expectCausality(await openMigrated('causal'));
  });

  test('doctor reports a consistency with which it does not', async () => {
    await openMigrated('examined');
    const [{ server }] = group.nodes;
    const url = server.url('examined');
    await prepare();
    try {
      const consistency = async () => {
        const { out } = await run(['doctor', '--json', '--url', url]);
        return (JSON.parse(out) as { check: string; state: string }[]).find(({ check }) => check.startsWith('group_'))
          ?.state;
      };
      expect(await consistency()).toBe('ok');
      await server.execute("set global group_replication_consistency = 'EVENTUAL'");
      expect(await consistency()).toBe('advice');
    } finally {
      await server.execute("set global group_replication_consistency = 'BEFORE'");
      await remove();
    }
  });

  test('H1 of those who ask for a lease through all nodes at once, one gets it', async () => {
    await expectOneHolder(await openMigrated('leases'));
  });

  test('F3 processes that migrate at once on all nodes leave one schema, noted once', async () => {
    await expectOneSchema(group.nodes, (name) => group.createDatabase(name), open);
  });

  test('O1 O4 O5 nodes are killed, frozen and cut off: what was acknowledged on any of them is there once', async () => {
    const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');
    await bundle.build();
    const [orm] = await openMigrated('storm');
    let storm: ClusterStorm | undefined;
    try {
      await new MikroOrmSessionService(orm!.em).createSession(keyOf(STORM_SESSION));
      const urls = group.nodes.map((node) => node.url('storm'));
      storm = new ClusterStorm(bundle.path, [...urls, ...urls], { retry: { attempts: 100 } });
      const [first, second, third] = group.nodes;
      await storm.untilAcknowledged(MEANWHILE);

      // Killed and started again.
      await second.server.kill();
      await first.untilOf(2);
      await second.server.start();
      await second.join();
      await group.untilWhole();
      await storm.untilAcknowledged(MEANWHILE);

      // Frozen until the others continue without it. Its clients may have sent commits that are never answered.
      third.server.freeze();
      await first.untilOf(2);
      third.server.thaw();
      await third.untilOut();
      await group.untilWhole();
      await storm.untilAcknowledged(MEANWHILE);

      // Cut off from the others, with commits that they may have, but whose outcome it never learns.
      second.server.freeze();
      third.server.freeze();
      await first.untilOut();
      second.server.thaw();
      third.server.thaw();
      await group.untilWhole();
      await storm.untilAcknowledged(MEANWHILE);

      const { figures, found, failedOfPatient } = await storm.end(orm!.em);
      console.info('MySQL with group replication', figures);
      expect(found).toEqual([]);
      expect(failedOfPatient).toEqual([]);
    } finally {
      storm?.kill();
      await bundle.remove();
    }
  });
});
