import { createEvent, type Session } from '@google/adk';
import { MikroORM, type EntityManager } from '@mikro-orm/core';
import type { AbstractSqlConnection } from '@mikro-orm/postgresql';
import { adkEntities } from '../../../../entities/index.js';
import { EventLog, MikroOrmSessionService, SessionMaintenance, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { createDatabase, executeOnServer, type TestDatabase } from '../../../support/servers.js';
import { ClusterStorm } from './cluster-storm.js';
import { POOL_SIZE, PgBouncer, hasPgBouncer, type PgBouncerSettings } from './pgbouncer.js';
import { describeWith } from './programs.js';

const WRITERS = 6;
const ROUNDS = 8;

const KINDS: [kind: string, PgBouncerSettings][] = [
  ['that keeps track of prepared statements', { max_prepared_statements: 100, server_reset_query_always: 0 }],
  ['that keeps no track of them', { max_prepared_statements: 0, server_reset_query_always: 0 }],
  ['with server_reset_query_always', { max_prepared_statements: 0, server_reset_query_always: 1 }],
  ['with both', { max_prepared_statements: 100, server_reset_query_always: 1 }],
];

const missing = hasPgBouncer ? undefined : 'run scripts/test-servers.sh pgbouncer';

describeWith(missing, 'PgBouncer in transaction mode', () => {
  const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');

  beforeAll(() => bundle.build());
  afterAll(() => bundle.remove());

  test.each(KINDS)(
    'O1 O4 O5 %s: its connections to the server end, and it is killed; what was acknowledged is there once',
    async (kind, settings) => {
      const database = await createDatabase('postgresql');
      const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
      let pooler: PgBouncer | undefined;
      let storm: ClusterStorm | undefined;
      try {
        await migrate(orm);
        await new MikroOrmSessionService(orm.em).createSession(keyOf(STORM_SESSION));
        pooler = await PgBouncer.before(database.url, settings);
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

/**
 * More texts than `work` sends outside of transactions; only those are prepared. 19 to 24 were counted, depending on which
 * appends share a statement.
 */
const MOST_TEXTS = 30;

/** After three missing statements, each of which got a new name, a connection stops preparing. */
const NAMES_OF_A_TEXT = 3;

const PROCESSES = 3;
const SESSIONS = 16;
const APPENDS = 21;

describeWith(missing, 'prepared statements behind PgBouncer', () => {
  let database: TestDatabase;
  let pooler: PgBouncer;
  let orms: MikroORM[];

  const open = (max: number) =>
    MikroORM.init({ ...database.options, clientUrl: pooler.url, entities: adkEntities(), pool: { min: 0, max } });

  async function start(settings: PgBouncerSettings): Promise<void> {
    database = await createDatabase('postgresql');
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    await migrate(orm);
    await orm.close(true);
    pooler = await PgBouncer.before(database.url, settings);
    orms = [];
  }

  afterEach(async () => {
    for (const orm of orms) await orm.close(true);
    await pooler.stop();
    await database.drop();
  });

  /** The names of the prepared statements of each connection between the pooler and the server. */
  async function prepared(): Promise<string[][]> {
    const orm = await open(POOL_SIZE);
    orms.push(orm);
    let begun = 0;
    let end: () => void = () => undefined;
    const allBegun = new Promise<void>((resolve) => (end = resolve));
    // Each transaction gets its own connection, since all are open at once.
    const found = Array.from({ length: POOL_SIZE }, () =>
      orm.em.fork().transactional(async (tx) => {
        const rows = await execute<{ name: string }>(tx, 'select name from pg_prepared_statements');
        if (++begun === POOL_SIZE) end();
        await allBegun;
        return rows.map(({ name }) => name);
      }),
    );
    return Promise.all(found);
  }

  test.each(KINDS)(
    '%s: no error reaches a caller, and the server keeps few of them, whatever 16 sessions do at once',
    async (_kind, settings) => {
      await start(settings);
      for (let i = 0; i < PROCESSES; i++) orms.push(await open(8));
      const errors: unknown[] = [];
      const services = orms.map(({ em }) => new MikroOrmSessionService(em, { onError: (error) => errors.push(error) }));
      for (let round = 0; round < 2; round++) {
        await Promise.all(
          Array.from({ length: SESSIONS }, (_, n) => {
            const i = n % PROCESSES;
            return work(services[i]!, orms[i]!.em, keyOf(`session ${n}`), `round ${round}`);
          }),
        );
      }
      expect(errors).toEqual([]);

      const { max_prepared_statements: tracked, server_reset_query_always: resets } = settings;
      const most = (resets ? 0 : tracked ? 1 : NAMES_OF_A_TEXT) * MOST_TEXTS;
      for (const names of await prepared()) expect(names.length).toBeLessThanOrEqual(most);
    },
  );

  test('a process whose statements are missing now and then prepares no more', async () => {
    await start({ max_prepared_statements: 0, server_reset_query_always: 0 });
    const [orm, other] = [await open(1), await open(1)];
    orms.push(orm, other);
    const service = new MikroOrmSessionService(orm.em);
    const session = await service.createSession(keyOf('one'));
    const append = () => service.appendEvent({ session, event: createEvent({ author: 'agent' }) });
    for (let i = 0; i < 20; i++) {
      // Most appends get the server connection of the previous one, which has their statement.
      for (let n = 0; n < 4; n++) await append();
      await other.em.fork().transactional(async (tx) => {
        await execute(tx, 'select 1');
        await append();
      });
    }
    const names = (await prepared()).flat();
    expect(names.length).toBeGreaterThan(0);
    // Only the statements of the append and of a poll of the log.
    expect(names.length).toBeLessThanOrEqual(2 * NAMES_OF_A_TEXT);
  });
});

function execute<Row extends object>(tx: EntityManager, sql: string): Promise<Row[]> {
  return (tx.getConnection() as AbstractSqlConnection).execute<Row[]>(sql, [], 'all', tx.getTransactionContext());
}

/** Runs appends of all kinds, reads, the log and maintenance, for one session of many. */
async function work(
  service: MikroOrmSessionService,
  em: EntityManager,
  key: ReturnType<typeof keyOf>,
  round: string,
): Promise<void> {
  const session: Session = await service.getOrCreateSession(key);
  const ids: string[] = [];
  const deltas = [{}, { a: round }, { 'user:a': round }, { 'app:a': round, b: 1 }, { a: 1, 'user:a': 1, 'app:a': 1 }];
  for (let i = 0; i < APPENDS; i++) {
    const stateDelta = deltas[i % deltas.length]!;
    const events = Array.from({ length: 1 + (i % 7) }, (_, n) =>
      createEvent({ id: `${round} ${i} ${n}`, author: 'agent', actions: { stateDelta } }),
    );
    ids.push(...events.map(({ id }) => id));
    await service.appendEvents({ session, events });
    if (i % 7 > 0) continue;
    await service.getSession({ ...key, config: { numRecentEvents: 5 } });
    await service.listSessions({ appName: key.appName, limit: 5 });
    await service.updateState({ ...key, set: { c: round }, remove: ['b'] });
    await service.getUserState(key);
  }
  const read = await service.getSession(key);
  expect(read?.events.map(({ id }) => id).slice(-ids.length)).toEqual(ids);

  const seen: string[] = [];
  for await (const { event } of new EventLog(em).since(0, { sessionId: key.sessionId })) seen.push(event!.id);
  expect(seen.slice(-ids.length)).toEqual(ids);

  const maintenance = new SessionMaintenance(em);
  await maintenance.stats({ appName: key.appName });
  await maintenance.trim({ ...key, keepLast: 5 });
  await maintenance.prune({ appName: key.appName, idleFor: 1e9 });
}
