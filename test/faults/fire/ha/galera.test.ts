import { setTimeout } from 'node:timers/promises';
import { MikroORM } from '@mikro-orm/core';
import { MariaDbDriver } from '@mikro-orm/mariadb';
import { adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { ClusterStorm } from './cluster-storm.js';
import { Galera, hasGalera } from './galera.js';
import { expectCausality, expectOneSchema } from './several-primaries.js';

(hasGalera ? describe : describe.skip)('Galera with three nodes, all of which take writes', () => {
  let galera: Galera;
  const orms: MikroORM[] = [];

  async function open(node: number, database: string): Promise<MikroORM> {
    const clientUrl = galera.nodes[node]!.url(database);
    const orm = await MikroORM.init({
      driver: MariaDbDriver,
      clientUrl,
      entities: adkEntities(),
      ensureDatabase: false,
    });
    orms.push(orm);
    return orm;
  }

  /** Opens an ORM for each node, and creates the tables. */
  async function openMigrated(database: string): Promise<MikroORM[]> {
    await galera.nodes[0]!.execute(`create database ${database}`);
    const opened = await Promise.all(galera.nodes.map((_, node) => open(node, database)));
    await Promise.all(opened.map((orm) => migrate(orm)));
    return opened;
  }

  beforeAll(async () => {
    galera = await Galera.start();
  });
  afterEach(async () => {
    for (const orm of orms.splice(0)) await orm.close(true);
  });
  afterAll(() => galera.stop());

  test('A2 D4 H1 what one call has written the next one finds through another node', async () => {
    await expectCausality(await openMigrated('causal'));
  });

  test('F3 processes that migrate at once on all nodes leave one schema, noted once', async () => {
    await expectOneSchema(
      galera.nodes,
      (name) => galera.nodes[0]!.execute(`create database ${name}`),
      async (node, database) => {
        const orm = await open(node, database);
        await orm.em.getConnection().execute('set wsrep_sync_wait = 7');
        return orm;
      },
    );
  });

  test('O1 O4 O5 nodes are cut off, frozen and killed: what was acknowledged on any of them is there once', async () => {
    const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');
    await bundle.build();
    const [orm] = await openMigrated('storm');
    let storm: ClusterStorm | undefined;
    try {
      await new MikroOrmSessionService(orm!.em).createSession(keyOf(STORM_SESSION));
      const urls = galera.nodes.map((node) => node.url('storm'));
      storm = new ClusterStorm(bundle.path, [...urls, ...urls]);
      const [, second, third] = galera.nodes;
      await second!.execute("set global wsrep_provider_options = 'gmcast.isolate=1'");
      await setTimeout(7_000);
      await second!.execute("set global wsrep_provider_options = 'gmcast.isolate=0'");
      await galera.untilWhole();
      third!.freeze();
      await setTimeout(7_000);
      third!.thaw();
      await galera.untilWhole();
      await second!.kill();
      await second!.start();
      await galera.untilWhole();

      const { figures, found, failedOfPatient } = await storm.end(orm!.em);
      console.info('Galera', { ...figures, ofThePatient: failedOfPatient.length });
      expect(found.filter((what) => !what.startsWith('nobody handled'))).toEqual([]);
    } finally {
      storm?.kill();
      await bundle.remove();
    }
  });
});
