import { setTimeout } from 'node:timers/promises';
import { createEvent } from '@google/adk';
import type { EntityManager, MikroORM } from '@mikro-orm/core';
import { DatabaseError, EventLog, MikroOrmSessionService, type LogCursor } from '../../../src/index.js';
import { randomOf } from '../../support/random-numbers.js';
import type { DatabaseName } from '../../support/servers.js';
import { openOrm, type Database } from './open-orm.js';
import { keyOf } from './protocol.js';

// A process that writes to the logs of several databases at once, or follows them. A `LogProcess` controls it.

export type Job =
  | { kind: 'write'; database: Database; label: string; sessionIds: string[]; count: number }
  | { kind: 'read'; database: Database; cursor: LogCursor | number };

/** An entry of a log. */
export interface Seen {
  position: number;
  sessionId: string;
  seq: number;
  id: string;
}

export type Report = { name: DatabaseName } & (
  { seen: Seen; cursor: LogCursor | number } | { committed: string[] } | { error: string }
);

const POLL_MS = 20;
const LONGEST_TRANSACTION_MS = 30;

async function work(job: Job): Promise<void> {
  const { name } = job.database;
  const orm = await openOrm(job.database);
  if (job.kind === 'write') report({ name, committed: await write(orm, job) });
  else await read(orm, job);
  await orm.close(true);
}

/** Writes some events on their own, and some in transactions that stay open for a while; some of these roll back. */
async function write(orm: MikroORM, { label, sessionIds, count }: Extract<Job, { kind: 'write' }>): Promise<string[]> {
  const service = new MikroOrmSessionService(orm.em);
  const random = randomOf(label);
  const committed: string[] = [];
  for (let n = 0; n < count; n++) {
    const key = keyOf(sessionIds[random(sessionIds.length)]!);
    const ids = random(10) < 3 ? [`${label}-${n}a`, `${label}-${n}b`] : [`${label}-${n}`];
    // As if clocks differed.
    const events = ids.map((id) => createEvent({ id, author: 'agent', timestamp: Date.now() + random(1_000) }));
    const session = (await service.getSession({ ...key, config: { numRecentEvents: 1 } }))!;
    if (random(10) < 6) {
      await service.appendEvents({ session, events });
      committed.push(...ids);
      continue;
    }
    const tx = await begunWith(orm, (tx) => service.withEntityManager(tx).appendEvents({ session, events }));
    await setTimeout(random(LONGEST_TRANSACTION_MS));
    if (random(10) < 4) {
      await tx.rollback();
    } else {
      await tx.commit();
      committed.push(...ids);
    }
  }
  return committed;
}

/**
 * A transaction that begins with `work`. It is the host's, so the service does not retry if an SQLite file is busy: on a
 * busy machine one of several writers may wait for longer than the busy timeout.
 */
async function begunWith(orm: MikroORM, work: (tx: EntityManager) => Promise<unknown>): Promise<EntityManager> {
  for (;;) {
    const tx = orm.em.fork();
    await tx.begin();
    try {
      await work(tx);
      return tx;
    } catch (error) {
      await tx.rollback();
      if (!(error instanceof DatabaseError) || error.reason !== 'LockWaitTimeoutException') throw error;
    }
  }
}

/** Reads until the process ends. */
async function read(orm: MikroORM, { database, cursor }: Extract<Job, { kind: 'read' }>): Promise<void> {
  const log = new EventLog(orm.em, { pollIntervalMs: POLL_MS });
  for await (const { position, cursor: place, sessionId, seq, event } of log.watch(cursor)) {
    report({ name: database.name, seen: { position: position, sessionId, seq, id: event!.id }, cursor: place });
  }
}

function report(message: Report): void {
  process.send!(message);
}

process.on('message', (job: Job) => {
  work(job).catch((error: unknown) => report({ name: job.database.name, error: String(error) }));
});
process.on('disconnect', () => process.exit());
