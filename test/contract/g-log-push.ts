import { setTimeout } from 'node:timers/promises';
import pg from 'pg';
import { EventLog, MikroOrmSessionService } from '../../src/index.js';
import { ormConnectionOf } from '../../src/database/orm/orm-connection.js';
import type { ReservedConnection } from '../../src/database/orm/reserved-connection.js';
import type { NotificationClient } from '../../src/model/options.js';
import type { OwnStore } from '../support/harnesses/harness.js';
import { examine } from '../../packages/studio/src/operations/doctor.js';
import { Suite, withConnections, type OwnContext } from './rule.js';
import {
  NEVER_MS,
  OFTEN_MS,
  expectDense,
  following,
  idsIn,
  onPostgresql,
  positioned,
  positionsIn,
  read,
} from './log-tools.js';
import { eventOf, range, until, withAccount } from './tools.js';

/** Tests of section G: what depends on the reader's connection: PostgreSQL's push, and accounts that may not write. */
export const logPushSuite = new Suite();

const ALICE = { appName: 'app', userId: 'alice' };

async function write(service: MikroOrmSessionService, sessionId: string, id: string): Promise<void> {
  const session = await service.getOrCreateSession({ ...ALICE, sessionId });
  await service.appendEvent({ session, event: eventOf({ id }) });
}

const urlOf = ({ orm }: Pick<OwnStore, 'orm'>) => String(orm.config.get('clientUrl'));

const LISTENERS = "select pid from pg_stat_activity where datname = current_database() and query like 'listen %'";

/** A log that looks by itself in an hour, and a service of another ORM that notifies it; both have seen one event. */
async function pushed(context: OwnContext, listen?: (client: pg.Client, attempt: number) => NotificationClient) {
  const store = await context.scratch();
  const notifying = new MikroOrmSessionService(store.peer.em, { postgresql: { notify: true } });
  await write(notifying, 'before', 'before');
  let attempts = 0;
  const log = new EventLog(store.orm.em, {
    pollIntervalMs: NEVER_MS,
    postgresql: {
      listen: () => {
        const client = new pg.Client(urlOf(store));
        return listen ? listen(client, ++attempts) : client;
      },
    },
  });
  const listeners = () => store.query<{ pid: number }>(LISTENERS);
  return { ...store, notifying, log, listeners };
}

logPushSuite.own(
  'G2',
  'a commit of another ORM is pushed to those who listen',
  async (context) => {
    const { log, notifying, listeners } = await pushed(context);
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) =>
        following(
          (signal) => log.session({ ...ALICE, sessionId: 's' }).watch(0, {}, { signal }),
          async (ofSession) => {
            await until(() => seen.length === 1);
            await until(async () => (await listeners()).length === 1);
            await write(notifying, 's', 'a');
            await until(() => seen.length === 2 && ofSession.length === 1);
            await write(notifying, 's', 'b');
            await until(() => seen.length === 3 && ofSession.length === 2);
            expect(idsIn(seen)).toEqual(['before', 'a', 'b']);
          },
        ),
    );
    // With the last watcher goes the connection.
    await until(async () => (await listeners()).length === 0);
  },
  onPostgresql,
);

logPushSuite.own(
  'G2',
  "an append in the host's transaction is pushed with its commit",
  async (context) => {
    const { log, notifying, peer, listeners } = await pushed(context);
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await until(async () => seen.length === 1 && (await listeners()).length === 1);
        const tx = peer.em.fork();
        await tx.begin();
        await write(notifying.withEntityManager(tx), 'joined', 'late');
        await write(notifying, 'beside', 'early');
        await until(() => seen.length === 2);
        await tx.commit();
        await until(() => seen.length === 3);
        expect(idsIn(seen)).toEqual(['before', 'early', 'late']);
      },
    );
  },
  onPostgresql,
);

logPushSuite.own(
  'G2',
  'a listener whose connection breaks connects again, and what was committed meanwhile arrives',
  async (context) => {
    let reconnect = () => {};
    const isMissed = new Promise<void>((resolve) => (reconnect = resolve));
    let attempts = 0;
    const { log, notifying, query, listeners } = await pushed(context, (client, attempt) => {
      attempts = attempt;
      return {
        connect: async () => {
          if (attempt === 2) throw new Error('the server is not back yet');
          if (attempt === 3) await isMissed;
          await client.connect();
        },
        query: (sql) => client.query(sql),
        end: () => client.end(),
        on: (event, listener) => client.on(event, listener),
      };
    });
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await until(async () => seen.length === 1 && (await listeners()).length === 1);
        await query(LISTENERS.replace('pid', 'pg_terminate_backend(pid)'));
        await until(() => attempts === 3);
        expect(await listeners()).toEqual([]);
        await write(notifying, 's', 'missed');
        reconnect();
        await until(() => seen.length === 2);
        // It listens again.
        await write(notifying, 's', 'next');
        await until(() => seen.length === 3);
        expect(idsIn(seen)).toEqual(['before', 'missed', 'next']);
      },
    );
  },
  onPostgresql,
);

logPushSuite.own(
  'G2',
  'if no listener can connect, no event is lost',
  async (context) => {
    const store = await context.scratch();
    let attempts = 0;
    const log = new EventLog(store.orm.em, {
      pollIntervalMs: OFTEN_MS,
      postgresql: {
        listen: () => {
          if (++attempts === 1) throw new Error('no client');
          return new pg.Client('postgresql://127.0.0.1:9/nowhere');
        },
      },
    });
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async (seen) => {
        await until(() => attempts === 2);
        await write(store.another, 's', 'a');
        await until(() => seen.length === 1);
      },
    );
  },
  onPostgresql,
);

logPushSuite.own(
  'G2',
  'nobody is notified unless the service has the option',
  async ({ scratch }) => {
    const { orm, recorded } = await scratch();
    const notifications = async (service: MikroOrmSessionService, sessionId: string) => {
      const statements = await recorded(async () => {
        await write(service, sessionId, 'a');
        await orm.em.fork().transactional((tx) => write(service.withEntityManager(tx), sessionId, 'b'));
      });
      return statements.filter(({ text }) => text.includes('pg_notify')).length;
    };
    expect(await notifications(new MikroOrmSessionService(orm.em), 'silent')).toBe(0);
    expect(await notifications(new MikroOrmSessionService(orm.em, { postgresql: { notify: true } }), 'loud')).toBe(2);
  },
  onPostgresql,
);

logPushSuite.own(
  'G2',
  'when an append has resolved its notification is sent, and the ORM can be closed',
  async ({ scratch, app }) => {
    const { orm, recorded } = await scratch();
    const service = new MikroOrmSessionService(orm.em, { postgresql: { notify: true } });
    await Promise.all(range(10).map((i) => write(service, `${app} ${i}`, 'a')));
    expect(await recorded(() => setTimeout(50))).toEqual([]);
  },
  onPostgresql,
);

logPushSuite.own(
  'G2',
  'an append does not wait for a connection for its notification longer than an attempt may take',
  async (context) => {
    const store = await context.scratch();
    const orm = await store.connect({ pool: { min: 0, max: 1 } });
    const failed: unknown[] = [];
    const service = new MikroOrmSessionService(orm.em, {
      timeoutMs: 200,
      onError: (error, { operation }) => failed.push({ operation, message: error instanceof Error && error.message }),
      postgresql: { notify: true },
    });
    const session = await service.createSession({ ...ALICE, sessionId: 's' });
    const connection = ormConnectionOf(orm.em);
    const reserve = connection.reserve.bind(connection);
    const reserved: ReservedConnection[] = [];
    connection.reserve = async () => {
      // Somebody else takes the only connection between the append and its notification.
      if (reserved.length === 1) reserved.push(await reserve());
      const own = await reserve();
      reserved.push(own);
      return own;
    };
    // Not when the pool gives up, a minute later.
    const late = [{ operation: 'notify', message: 'The attempt took longer than timeoutMs' }];
    try {
      await service.appendEvent({ session, event: eventOf({ id: 'a' }) });
      expect(failed).toEqual(late);
    } finally {
      connection.reserve = reserve;
      reserved[1]?.release();
    }
    await service.appendEvent({ session, event: eventOf({ id: 'b' }) });
    expect(failed).toEqual(late);
    expect(await store.query('select event_id from adk_events order by seq')).toEqual([
      { event_id: 'a' },
      { event_id: 'b' },
    ]);
  },
  onPostgresql,
);

/** Gives `work` an ORM whose account, or connection, may not write. */
async function withReader(
  { harness }: OwnContext,
  store: OwnStore,
  work: (reader: Pick<OwnStore, 'orm'>) => Promise<void>,
): Promise<void> {
  if (!harness.server) {
    const orm = await store.connect();
    await orm.em.getConnection().execute(harness.connection.readOnly[0]);
    return work({ orm });
  }
  await withAccount(harness.server, 'select', store, work);
}

logPushSuite.own(
  'G1',
  'a reader that may not write reads what others have numbered, without an error',
  async (context) => {
    const store = await context.scratch();
    const { service, orm } = store;
    const writing = new EventLog(orm.em);
    await write(service, 's', 'a');
    await writing.head();
    await write(service, 's', 'b');
    await withReader(context, store, async (reader) => {
      await expect(reader.orm.em.getConnection().execute('delete from adk_events')).rejects.toBeDefined();
      const log = new EventLog(reader.orm.em, { pollIntervalMs: OFTEN_MS });
      await following(
        (signal) => log.watch(0, {}, { signal }),
        async (seen) => {
          await until(() => seen.length === 1);
          expect((await log.head()).position).toBe(1);
          expect(idsIn(await read(log.since(0)))).toEqual(['a']);
          // A session's log needs no positions.
          expect(idsIn(await read(log.session({ ...ALICE, sessionId: 's' }).since(0)))).toEqual(['a', 'b']);
          expect((await positioned(store)).filter(({ position }) => position === null)).toHaveLength(1);

          expect((await writing.head()).position).toBe(2);
          await until(() => seen.length === 2);
          expect(idsIn(seen)).toEqual(['a', 'b']);
          expect(positionsIn(seen)).toEqual([1, 2]);
        },
      );
    });
    await expectDense(store);
  },
  withConnections,
);

logPushSuite.own(
  'G2',
  'doctor finds services that notify although nobody listens',
  async (context) => {
    const { orm, log, notifying, listeners } = await pushed(context);
    const found = async (em = orm.em) =>
      (await read(examine(em, { readsAll: false }))).find(({ check }) => check === 'notifications');
    expect(await found()).toMatchObject({ state: 'advice', advice: expect.stringContaining('listen') });
    await following(
      (signal) => log.watch(0, {}, { signal }),
      async () => {
        await until(async () => (await listeners()).length > 0);
        await write(notifying, 'heard', 'heard');
        expect(await found()).toMatchObject({ state: 'ok', found: 'sent and received' });
      },
    );
    const { orm: silent } = await context.scratch();
    expect(await found(silent.em)).toMatchObject({ state: 'ok' });
  },
  onPostgresql,
);
