import { setTimeout } from 'node:timers/promises';
import { createEvent } from '@google/adk';
import { DeadlockException, MikroORM } from '@mikro-orm/core';
import { MariaDbDriver } from '@mikro-orm/mariadb';
import { adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, SessionLeases, migrate } from '../../../src/index.js';
import { LineProcess } from '../../schema/line-process.js';
import { MIGRATIONS, TABLES, appliedMigrations, tablesWith } from '../../schema/support.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION, type StormHistory } from '../../processes/storm-protocol.js';
import { readTables, type Stored } from '../../processes/tables.js';
import { WorkerBundle } from '../../processes/worker-bundle.js';
import { violations } from '../checker.js';
import { StormProcess } from '../storm.js';
import { Galera, hasGalera } from './galera.js';

const ROUNDS = 5;
const PROCESSES = 6;

/** A node breaks off what is in the way of the others' writes, those of positions for example. */
async function readStill(orm: MikroORM): Promise<Stored> {
  for (;;) {
    try {
      return await readTables(orm.em, STORM_SESSION);
    } catch (error) {
      if (!(error instanceof DeadlockException)) throw error;
    }
  }
}

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

  /** An ORM for each node, with the tables. */
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
    const [first, second, third] = await openMigrated('causal');
    const services = [first, second, third].map((orm) => new MikroOrmSessionService(orm!.em)) as [
      MikroOrmSessionService,
      MikroOrmSessionService,
      MikroOrmSessionService,
    ];
    const [a, b, c] = services;
    const leases = [first, second].map((orm) => new SessionLeases(orm!.em));
    for (let round = 0; round < 50; round++) {
      const key = { appName: 'app', userId: 'user', sessionId: String(round) };
      await a.createSession(key);
      const session = (await b.getSession(key))!;
      await c.appendEvent({
        session,
        event: createEvent({ id: 'x', author: 'agent', actions: { stateDelta: { x: 1 } } }),
      });
      expect((await a.getSession(key))?.events.map(({ id }) => id)).toEqual(['x']);
      await b.updateState({ ...key, set: { y: 1 } });
      expect((await c.getSession(key))?.state).toEqual({ x: 1, y: 1 });
      const lease = await leases[0]!.acquire(key, { holder: 'first' });
      await expect(leases[1]!.acquire(key, { holder: 'second' })).rejects.toMatchObject({ code: 'ADK_LEASE_HELD' });
      await lease.release();
      await b.deleteSession(key);
      expect(await c.getSession(key)).toBeUndefined();
      expect(await a.getSession(key)).toBeUndefined();
    }
  });

  test('F3 processes that migrate at once on all nodes leave one schema, noted once', async () => {
    const processes = Array.from({ length: PROCESSES }, () => new LineProcess('migrating-process.ts'));
    try {
      for (let round = 1; round <= ROUNDS; round++) {
        const database = `round_${round}`;
        await galera.nodes[0]!.execute(`create database ${database}`);
        const connecting = processes.map((process, i) => process.ask(galera.nodes[i % 3]!.url(database)));
        expect(await Promise.all(connecting)).toEqual(Array(PROCESSES).fill('connected'));
        const migrating = processes.map((process) => process.ask('go'));
        expect(await Promise.all(migrating)).toEqual(Array(PROCESSES).fill('migrated'));
        for (const node of galera.nodes.keys()) {
          const orm = await open(node, database);
          await orm.em.getConnection().execute('set wsrep_sync_wait = 7');
          expect(await tablesWith('adk_', orm, 'mariadb')).toEqual(TABLES);
          expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
        }
      }
    } finally {
      await Promise.all(processes.map((process) => process.end()));
    }
  });

  test('O1 O4 O5 nodes are cut off, frozen and killed: what was acknowledged on any of them is there once', async () => {
    const bundle = new WorkerBundle('storm-process.ts');
    await bundle.build();
    const processes: StormProcess[] = [];
    const [orm] = await openMigrated('storm');
    try {
      await new MikroOrmSessionService(orm!.em).createSession(keyOf(STORM_SESSION));
      const urls = galera.nodes.map((node) => node.url('storm'));
      const watcher = new StormProcess(bundle.path, { kind: 'watch', url: urls[0]! });
      processes.push(watcher);
      const writers = [...urls, ...urls].map(
        (url, i) =>
          new StormProcess(bundle.path, { kind: 'append', url, label: `writer ${i}`, count: 1e9, isPatient: i < 3 }),
      );
      processes.push(...writers);
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

      for (const writer of writers) writer.endAfter(0);
      const histories = await Promise.all(writers.map(({ history }) => history));
      const stored = await readStill(orm!);
      watcher.endAfter(stored.ids.length);
      histories.push(await watcher.history);
      const count = (of: readonly StormHistory[], outcome: string) =>
        of.flatMap(({ failed }) => failed).filter((failure) => failure.outcome === outcome).length;
      console.info('Galera', {
        acknowledged: histories.flatMap(({ acknowledged }) => acknowledged).length,
        stored: stored.ids.length,
        unknown: count(histories, 'unknown'),
        none: count(histories, 'none'),
        ofThePatient: count(histories.slice(0, 3), 'unknown') + count(histories.slice(0, 3), 'none'),
      });
      expect(violations(histories, stored).filter((what) => !what.startsWith('nobody handled'))).toEqual([]);
    } finally {
      for (const process of processes) process.kill();
      await bundle.remove();
    }
  });
});
