import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import { PostgreSqlDriver } from '@mikro-orm/postgresql';
import { adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, SessionLeases, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { readTables } from '../../processes/tables.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { Proxy } from '../proxy.js';
import { ClusterStorm, expectNotWrittenTo } from './cluster-storm.js';
import { PostgresqlPair, hasPostgresql, type PostgresqlServer } from './postgresql.js';
import { describeWith } from './programs.js';

const WRITERS = 6;
/** Appends of each writer between two faults. */
const MEANWHILE = 25;

/** The commits that wait for the standby. */
const WAITING = "from pg_stat_activity where wait_event = 'SyncRep'";

/** How often the connection of a call ends while it waits for the standby. */
const LOSSES = 4;

describeWith(hasPostgresql ? undefined : 'install postgresql', 'PostgreSQL with a synchronous standby', () => {
  let pair: PostgresqlPair;
  let proxy: Proxy;
  const orms: MikroORM[] = [];

  async function open(url: string): Promise<MikroORM> {
    const orm = await MikroORM.init({ driver: PostgreSqlDriver, clientUrl: url, entities: adkEntities() });
    orms.push(orm);
    return orm;
  }

  /** Opens an ORM through a proxy, and creates the tables. */
  async function migrated(database: string): Promise<MikroORM> {
    await pair.primary.execute(`create database ${database}`);
    proxy = await Proxy.before(pair.primary.url(database));
    const orm = await open(proxy.url);
    await migrate(orm);
    return orm;
  }

  beforeAll(async () => {
    pair = await PostgresqlPair.start();
  });
  afterEach(async () => {
    for (const orm of orms.splice(0)) await orm.close(true);
    await proxy.close();
  });
  afterAll(() => pair.stop());

  test('O1 O9 a call whose connection ends while it waits for the standby is acknowledged when the standby has it', async () => {
    const orm = await migrated('waits');
    const service = new MikroOrmSessionService(orm.em);
    const soft = new MikroOrmSessionService(orm.em, { deletion: 'soft' });
    const leases = new SessionLeases(orm.em);
    const sessionOf = async (sessionId: string) => {
      const session = await service.createSession(keyOf(sessionId));
      await service.appendEvent({ session, event: createEvent({ author: 'user' }) });
      return session;
    };
    const event = createEvent({ author: 'agent', actions: { stateDelta: { x: 1 } } });
    const appended = await sessionOf('append');
    for (const name of ['update', 'describe', 'delete', 'mark', 'restore', 'fork', 'rewind', 'lease'])
      await sessionOf(name);
    await soft.deleteSession(keyOf('restore'));

    const calls: Record<string, () => Promise<unknown>> = {
      append: () => service.appendEvent({ session: appended, event }),
      create: () => service.createSession({ ...keyOf('create'), state: { x: 1 } }),
      update: () => service.updateState({ ...keyOf('update'), set: { x: 1 } }),
      'update of the app': () => service.updateState({ appName: 'app', set: { 'app:x': 1 } }),
      describe: () => service.describeSession(keyOf('describe'), { title: 'x' }),
      delete: () => service.deleteSession(keyOf('delete')),
      'soft deletion': () => soft.deleteSession(keyOf('mark')),
      restore: () => soft.restoreSession(keyOf('restore')),
      fork: () => service.forkSession(keyOf('fork'), { as: 'forked' }),
      rewind: () => service.rewindSession(keyOf('rewind'), { at: 0 }),
      lease: () => leases.acquire(keyOf('lease'), { holder: 'x' }),
    };
    const early: string[] = [];
    for (const [name, call] of Object.entries(calls)) {
      pair.standby.freeze();
      try {
        let isAcknowledged = false;
        const acknowledged = call().then(() => {
          isAcknowledged = true;
        });
        for (let losses = 0; losses < LOSSES && !isAcknowledged; losses++) {
          const waits = pair.primary.until(`select 1 as fits ${WAITING} having count(*) > 0`, () => isAcknowledged);
          await Promise.race([acknowledged, waits]);
          await waits;
          // The commit stays on the primary alone, as after a crash and a restart of the primary.
          await pair.primary.execute(`select pg_terminate_backend(pid) ${WAITING}`);
        }
        if (isAcknowledged) early.push(name);
        pair.standby.thaw();
        await acknowledged;
      } finally {
        pair.standby.thaw();
      }
    }
    expect(early).toEqual([]);
  });

  test('O1 O4 O9 a switchover, a primary that is killed, and one that is frozen and comes back: what was acknowledged is there once', async () => {
    const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');
    await bundle.build();
    let storm: ClusterStorm | undefined;
    let old: PostgresqlServer | undefined;
    try {
      const orm = await migrated('storm');
      await new MikroOrmSessionService(orm.em).createSession(keyOf(STORM_SESSION));
      storm = new ClusterStorm(bundle.path, Array(WRITERS).fill(proxy.url));
      /** Promotes the standby, and switches the proxy to it. Commits wait until there is a new standby. */
      const failOver = async () => {
        const before = await pair.promote();
        proxy.switchTo(pair.primary.url('storm'));
        await pair.addStandby();
        await storm?.untilAcknowledged(MEANWHILE);
        return before;
      };
      await storm.untilAcknowledged(MEANWHILE);

      // A switchover.
      await pair.primary.stop();
      await failOver();

      // The primary is killed while commits wait, whether or not the standby has them.
      pair.standby.freeze();
      await pair.primary.until(`select 1 as fits ${WAITING} having count(*) > 0`);
      await pair.primary.kill();
      pair.standby.thaw();
      await failOver();

      // Now the primary is killed while the standby is healthy.
      await pair.primary.kill();
      await failOver();

      // The primary is frozen, the standby takes over, and the old primary returns and believes that it still is one.
      pair.primary.freeze();
      old = await failOver();
      old.thaw();
      await storm.untilAcknowledged(MEANWHILE);

      const { figures, found, failedOfPatient } = await storm.end(orm.em);
      console.info('PostgreSQL with a synchronous standby', figures);
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
      await old?.kill();
      await bundle.remove();
    }
  });
});
