import { createEvent } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import { MikroOrmSessionService, SessionLeases } from '../../../../src/index.js';
import { LineProcess } from '../../../hosts/schema/line-process.js';
import { MIGRATIONS, TABLES, appliedMigrations, tablesWith } from '../../../hosts/schema/support.js';

/** Rounds of processes that migrate at once. */
const ROUNDS = 5;
const PROCESSES = 6;

/** Expects that each call sees the writes of the previous one, which went through another node. */
export async function expectCausality(orms: readonly MikroORM[]): Promise<void> {
  const [a, b, c] = orms.map(({ em }) => new MikroOrmSessionService(em)) as [
    MikroOrmSessionService,
    MikroOrmSessionService,
    MikroOrmSessionService,
  ];
  const leases = orms.map(({ em }) => new SessionLeases(em));
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
}

/** Expects that only one caller gets a lease if callers ask through all nodes at once. */
export async function expectOneHolder(orms: readonly MikroORM[]): Promise<void> {
  const key = { appName: 'app', userId: 'user', sessionId: 'leased' };
  await new MikroOrmSessionService(orms[0]!.em).createSession(key);
  const leases = orms.map(({ em }) => new SessionLeases(em));
  for (let round = 0; round < 30; round++) {
    const asked = await Promise.allSettled(leases.map((each, i) => each.acquire(key, { holder: `holder ${i}` })));
    const held = asked.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
    expect(held).toHaveLength(1);
    for (const result of asked)
      if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'ADK_LEASE_HELD' });
    await held[0]!.release();
  }
}

/**
 * Expects that processes that migrate at once leave one schema on each node, recorded once.
 *
 * @param through the nodes to which the processes connect.
 * @param open connects to a node, by its number, and waits until it shows what the others have committed.
 */
export async function expectOneSchema(
  through: readonly { url(database: string): string }[],
  createDatabase: (name: string) => Promise<unknown>,
  open: (node: number, database: string) => Promise<MikroORM>,
): Promise<void> {
  const processes = Array.from({ length: PROCESSES }, () => new LineProcess('test/hosts/schema/migrating-process.ts'));
  try {
    for (let round = 1; round <= ROUNDS; round++) {
      const database = `round_${round}`;
      await createDatabase(database);
      const connecting = processes.map((process, i) => process.ask(through[i % through.length]!.url(database)));
      expect(await Promise.all(connecting)).toEqual(Array(PROCESSES).fill('connected'));
      const migrating = processes.map((process) => process.ask('go'));
      expect(await Promise.all(migrating)).toEqual(Array(PROCESSES).fill('migrated'));
      for (const node of [0, 1, 2]) {
        const orm = await open(node, database);
        expect(await tablesWith('adk_', orm, 'mariadb')).toEqual(TABLES);
        expect(await appliedMigrations(orm)).toEqual(MIGRATIONS);
      }
    }
  } finally {
    await Promise.all(processes.map((process) => process.end()));
  }
}
