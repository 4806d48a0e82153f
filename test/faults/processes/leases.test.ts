import { MikroORM } from '@mikro-orm/core';
import { AdkSession, adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, migrate } from '../../../src/index.js';
import { until } from '../../contract/tools.js';
import { availableDatabases, createDatabase, type TestDatabase } from '../../support/servers.js';
import type { ChildError } from './child.js';
import { LeaseProcess, leaseWorkerBundle } from './lease-process.js';
import { keyOf } from './protocol.js';
import { readTables } from './tables.js';

const PROCESSES = 8;
const HOUR_MS = 3_600_000;
const TTL_MS = 1_500;
/** Longer than any wait here. */
const waitMs = 60_000;

let processes: LeaseProcess[];

beforeAll(async () => {
  await leaseWorkerBundle.build();
  processes = Array.from({ length: PROCESSES }, () => new LeaseProcess());
});

afterAll(async () => {
  await Promise.all(processes.map((process) => process.kill()));
  await leaseWorkerBundle.remove();
});

describe.each(availableDatabases())('leases of several processes on %s', (name) => {
  let database: TestDatabase;
  let orm: MikroORM;

  const open = (process: LeaseProcess, clockOffMs = 0) =>
    process.call('open', { name, url: database.url, ttlMs: TTL_MS, clockOffMs });

  beforeAll(async () => {
    database = await createDatabase(name);
    orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    await migrate(orm);
    await Promise.all(processes.map((process) => open(process)));
  });

  afterAll(async () => {
    // First, since it would stay open if a process had ended or did not answer.
    await orm.close(true);
    await Promise.all(processes.map((process) => process.call('close')));
    await database.drop();
  });

  // A process that a failed test left stopped would answer nobody.
  afterEach(() => {
    for (const process of processes) process.continue();
  });

  const create = (sessionId: string) => new MikroOrmSessionService(orm.em).createSession(keyOf(sessionId));

  const rowOf = async (sessionId: string) => {
    const { appName, userId } = keyOf(sessionId);
    const row = await orm.em.fork().findOneOrFail(AdkSession, { appName, userId, id: sessionId });
    return { holder: row.leaseHolder, token: row.leaseToken, expiresAt: Number(row.leaseExpires ?? NaN) };
  };

  const idsIn = async (sessionId: string) => (await readTables(orm.em, sessionId)).ids;

  const refused = (holder: string) => ({
    code: 'ADK_LEASE_HELD',
    message: expect.stringContaining(`is held by ${holder} until`) as string,
  });

  test('H1 eight want one lease: one gets it, and the others learn who has it', async () => {
    const sessionId = 'one for all';
    await create(sessionId);
    const answers = await Promise.allSettled(
      processes.map((process, i) => process.call('acquire', { sessionId, holder: `process ${i}` })),
    );
    const [winner, ...others] = answers.flatMap(({ status }, i) => (status === 'fulfilled' ? [i] : []));
    expect(others).toEqual([]);
    const errors = answers.flatMap((answer) => (answer.status === 'rejected' ? [answer.reason as ChildError] : []));
    expect(errors).toHaveLength(PROCESSES - 1);
    for (const error of errors) expect(error).toMatchObject(refused(`process ${winner}`));
    await processes[winner!]!.call('append', { id: 'first' });
    await processes[winner!]!.call('release');
    expect(await idsIn(sessionId)).toEqual(['first']);
  });

  test('H1 a holder is killed: the next one gets the lease, once it has not been renewed for ttlMs', async () => {
    const sessionId = 'killed';
    await create(sessionId);
    const holder = processes.pop()!;
    const [next] = processes;
    const token = await holder.call('acquire', { sessionId, holder: 'killed' });
    await holder.call('append', { id: 'first' });
    await holder.kill();
    const started = new LeaseProcess();
    processes.push(started);

    const left = await rowOf(sessionId);
    expect(left).toMatchObject({ holder: 'killed', token });
    await expect(next!.call('acquire', { sessionId, holder: 'next' })).rejects.toMatchObject(refused('killed'));
    const nextToken = await next!.call('acquire', { sessionId, holder: 'next', waitMs });
    expect(nextToken).toBeGreaterThan(token);
    const taken = await rowOf(sessionId);
    expect(taken).toMatchObject({ holder: 'next', token: nextToken });
    // Not before the lease ends; how soon afterwards depends on how busy the machine is.
    expect(taken.expiresAt - TTL_MS).toBeGreaterThan(left.expiresAt - 1);
    await next!.call('append', { id: 'second' });
    expect(await idsIn(sessionId)).toEqual(['first', 'second']);
    await next!.call('release');
    await open(started);
  });

  test('H2 a holder is stopped and overtaken: what it appends when it is continued is refused', async () => {
    const sessionId = 'stopped';
    await create(sessionId);
    const [holder, next] = processes;
    const token = await holder!.call('acquire', { sessionId, holder: 'stopped' });
    await holder!.call('append', { id: 'first' });
    const appending = holder!.call('stopThenAppend', { id: 'late' }).then(
      () => 'it was appended',
      (error: unknown) => error,
    );
    const nextToken = await next!.call('acquire', { sessionId, holder: 'next', waitMs });
    expect(nextToken).toBeGreaterThan(token);
    await next!.call('append', { id: 'second' });

    holder!.continue();
    expect(await appending).toMatchObject({
      code: 'ADK_LEASE_LOST',
      message: expect.stringContaining('The lease of session stopped is lost') as string,
    });
    expect(await idsIn(sessionId)).toEqual(['first', 'second']);
    await until(() => holder!.call('isLost'), 20);
    await expect(holder!.call('append', { id: 'later' })).rejects.toMatchObject({ code: 'ADK_LEASE_LOST' });
    await holder!.call('release');

    // Its handle would be refused if anything had been written in the meantime.
    await next!.call('append', { id: 'third' });
    expect(await idsIn(sessionId)).toEqual(['first', 'second', 'third']);
    expect(await rowOf(sessionId)).toMatchObject({ holder: 'next', token: nextToken });
    await next!.call('release');
  });

  test('H1 two whose clocks are hours apart hold the lease in turn', async () => {
    const sessionId = 'clocks';
    await create(sessionId);
    const [ahead, behind] = processes.slice(2);
    await Promise.all([ahead!, behind!].map((process) => process.call('close')));
    await open(ahead!, HOUR_MS);
    await open(behind!, -HOUR_MS);

    for (const [holder, other] of [
      [ahead!, behind!],
      [behind!, ahead!],
    ] as const) {
      await holder.call('acquire', { sessionId, holder: 'holder' });
      const first = await rowOf(sessionId);
      const waiting = other.call('acquire', { sessionId, holder: 'other', waitMs });
      // The lease is renewed beyond its first end, although somebody waits for it.
      await until(async () => (await rowOf(sessionId)).expiresAt > first.expiresAt + TTL_MS, 20);
      expect(await rowOf(sessionId)).toMatchObject({ holder: 'holder', token: first.token });
      expect(await holder.call('isLost')).toBe(false);
      await holder.call('release');
      expect(await waiting).toBeGreaterThan(first.token);
      await expect(holder.call('acquire', { sessionId, holder: 'holder' })).rejects.toMatchObject(refused('other'));
      await other.call('release');
    }
    await Promise.all(
      [ahead!, behind!].map(async (process) => {
        await process.call('close');
        await open(process);
      }),
    );
  });
});
