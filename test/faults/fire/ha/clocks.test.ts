import { MikroORM } from '@mikro-orm/core';
import { AdkEvent, AdkSession, adkEntities } from '../../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { until } from '../../../contract/tools.js';
import { LeaseProcess, leaseWorkerBundle } from '../../processes/lease-process.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { readTables } from '../../processes/tables.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import type { Database } from '../../../support/harnesses/database.js';
import { DATABASES } from '../../../support/harnesses/databases.js';
import {
  FILE_DATABASES,
  SERVERS,
  availableDatabases,
  availableServers,
  createDatabase,
  type DatabaseName,
  type TestDatabase,
} from '../../../support/servers.js';
import { Proxy } from '../proxy.js';
import { JumpingClock, hasFaketime } from './clocks.js';
import { ClusterStorm } from './cluster-storm.js';
import { describeWith } from './programs.js';

const WRITERS = 6;
/** Appends of each writer between two jumps. */
const MEANWHILE = 10;
/** How often connections are asked for between two jumps in an outage. */
const ATTEMPTS = 100;
const HOUR_MS = 60 * 60 * 1000;
/** How many hours the clocks are ahead, one after the other. Some jumps exceed a day, and all exceed any limit in the code. */
const JUMPS = [5, -7, 0, 30, -30, 1];
const TTL_MS = 2_000;

async function untilAsked(proxy: Proxy): Promise<void> {
  const enough = proxy.attempts + ATTEMPTS;
  await until(() => Promise.resolve(proxy.attempts >= enough));
}

describeWith(hasFaketime ? undefined : 'install faketime', 'clocks that jump', () => {
  const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');
  let clocks: JumpingClock[];
  let database: TestDatabase;
  let orm: MikroORM;

  async function open(name: DatabaseName): Promise<void> {
    database = await createDatabase(name);
    orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    await migrate(orm);
  }

  /** The two clocks never agree. */
  const jump = (hours: number) => Promise.all(clocks.map((clock, i) => clock.jump(i === 0 ? hours : -2 * hours)));

  beforeAll(() => Promise.all([bundle.build(), leaseWorkerBundle.build()]));
  beforeEach(async () => {
    clocks = [await JumpingClock.create(), await JumpingClock.create()];
  });
  afterEach(async () => {
    await Promise.all(clocks.map((clock) => clock.remove()));
    await orm.close(true);
    await database.drop();
  });
  afterAll(() => Promise.all([bundle.remove(), leaseWorkerBundle.remove()]));

  test.each(availableDatabases())(
    'O1 O3 O4 clocks of processes on %s jump by hours, in outages too: nothing is lost, and no retry ends early or hangs',
    async (name) => {
      await open(name);
      const proxy = DATABASES[name].kind === 'file' ? undefined : await Proxy.before(database.url);
      let storm: ClusterStorm | undefined;
      try {
        await new MikroOrmSessionService(orm.em).createSession(keyOf(STORM_SESSION));
        const urls = Array<string>(WRITERS).fill(proxy?.url ?? database.url);
        storm = new ClusterStorm(bundle.path, urls, { clocks, ...(name === 'better-sqlite' && { name }) });
        await storm.untilAcknowledged(MEANWHILE);
        for (const hours of JUMPS) {
          await jump(hours);
          await storm.untilAcknowledged(MEANWHILE);
        }
        if (proxy) {
          for (const hours of JUMPS) {
            proxy.refuse();
            await untilAsked(proxy);
            await jump(hours);
            await untilAsked(proxy);
            proxy.open();
            await storm.untilAcknowledged(MEANWHILE);
            proxy.freeze();
            await jump(-hours);
            await storm.untilAcknowledged(MEANWHILE);
          }
        }

        const { figures, found, failedOfPatient } = await storm.end(orm.em);
        console.info(`clocks that jump, ${name}`, figures);
        // The driver of MikroORM 6 for MariaDB does this; see docs/production.md.
        const { server }: Database = DATABASES[name];
        const isKnown = (what: string) => server?.leavesErrorsUnhandled && what.startsWith('nobody handled');
        expect(found.filter((what) => !isKnown(what))).toEqual([]);
        expect(failedOfPatient).toEqual([]);
        // The clocks have jumped forward and back.
        const events = await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } });
        const times = events.map(({ timestamp }) => Number(timestamp));
        const differences = times.slice(1).map((time, i) => time - times[i]!);
        expect(Math.max(...differences)).toBeGreaterThan(20 * HOUR_MS);
        expect(Math.min(...differences)).toBeLessThan(-20 * HOUR_MS);
      } finally {
        storm?.kill();
        await proxy?.close();
      }
    },
  );

  async function openLeases(name: DatabaseName): Promise<[holder: LeaseProcess, next: LeaseProcess]> {
    const processes = clocks.map(({ env }) => new LeaseProcess(env));
    await Promise.all(processes.map((each) => each.call('open', { name, url: database.url, ttlMs: TTL_MS })));
    return processes as [LeaseProcess, LeaseProcess];
  }

  const sessionId = 'leased';

  const expiry = async () =>
    Number((await orm.em.fork().findOneOrFail(AdkSession, { id: sessionId })).leaseExpires ?? NaN);

  const servers = availableServers();

  (servers.length > 0 ? test : test.skip).each(servers.length > 0 ? servers : SERVERS)(
    'H1 H3 the clocks of who holds a lease on %s and of who wants it jump: it is renewed, held, and taken over by the clock of the database',
    async (name) => {
      await open(name);
      await new MikroOrmSessionService(orm.em).createSession(keyOf(sessionId));
      const [holder, next] = await openLeases(name);
      try {
        await holder.call('acquire', { sessionId, holder: 'holder' });
        for (const hours of JUMPS) {
          const before = await expiry();
          await jump(hours);
          await expect(next.call('acquire', { sessionId, holder: 'next' })).rejects.toMatchObject({
            code: 'ADK_LEASE_HELD',
          });
          await holder.call('append', { id: `${hours}` });
          await until(async () => (await expiry()) > before, 20);
          expect(await holder.call('isLost')).toBe(false);
        }
        const left = await expiry();
        const taking = next.call('acquire', { sessionId, holder: 'next', waitMs: 10 * TTL_MS });
        await holder.kill();
        await jump(100);
        await taking;
        expect((await expiry()) - TTL_MS).toBeGreaterThan(left - 1);
        await next.call('append', { id: 'last' });
        const { ids } = await readTables(orm.em, sessionId);
        expect(ids).toEqual([...JUMPS.map(String), 'last']);
      } finally {
        await Promise.all([holder.kill(), next.kill()]);
      }
    },
  );

  // On files, the database's clock is the process's.
  test.each(FILE_DATABASES.filter((name) => availableDatabases().includes(name)))(
    'H2 a clock that jumps ahead takes a lease on %s over before its time: who held it cannot write',
    async (name) => {
      await open(name);
      await new MikroOrmSessionService(orm.em).createSession(keyOf(sessionId));
      const [holder, next] = await openLeases(name);
      try {
        await holder.call('acquire', { sessionId, holder: 'holder' });
        await holder.call('append', { id: 'first' });
        await clocks[1]!.jump(5);
        await next.call('acquire', { sessionId, holder: 'next' });
        await next.call('append', { id: 'second' });
        await expect(holder.call('append', { id: 'late' })).rejects.toMatchObject({ code: 'ADK_LEASE_LOST' });
        await until(() => holder.call('isLost'), 20);
        expect((await readTables(orm.em, sessionId)).ids).toEqual(['first', 'second']);
      } finally {
        await Promise.all([holder.kill(), next.kill()]);
      }
    },
  );
});
