import { createEvent, type Session } from '@google/adk';
import type { MikroORM } from '@mikro-orm/core';
import { SessionLeases, type Lease } from '../../../src/index.js';
import type { LeaseAnswer, LeaseCall } from './lease-process.js';
import { openOrm, type Database } from './open-orm.js';
import { keyOf } from './protocol.js';

// A process that holds one lease at a time. A `LeaseProcess` calls its commands.

const now = Date.now;
let orm: MikroORM | undefined;
let leases: SessionLeases;
let lease: Lease;
let session: Session;

const commands = {
  /** @param clockOffMs how far this host's clock is off. */
  async open(request: Database & { ttlMs: number; clockOffMs?: number }): Promise<void> {
    const { ttlMs, clockOffMs = 0 } = request;
    Date.now = () => now() + clockOffMs;
    orm = await openOrm(request);
    leases = new SessionLeases(orm.em, { ttlMs, onStaleSession: 'reject' });
  },

  async close(): Promise<void> {
    await orm?.close(true);
    orm = undefined;
  },

  /** @returns the token. */
  async acquire({ sessionId, ...options }: { sessionId: string; holder: string; waitMs?: number }): Promise<number> {
    lease = await leases.acquire(keyOf(sessionId), options);
    session = (await lease.sessionService.getSession(keyOf(sessionId)))!;
    return lease.token;
  },

  /** Appends to the handle that was read when the lease was acquired: fails if anybody else has written since. */
  async append({ id }: { id: string }): Promise<void> {
    await lease.sessionService.appendEvent({ session, event: createEvent({ id, author: 'agent' }) });
  },

  /** Stops this process. When it continues, it appends before anything can notify it that time has passed. */
  async stopThenAppend({ id }: { id: string }): Promise<void> {
    // SQLite's only connection is idle now; stopped in a statement, it would keep the file locked.
    await leases.current(keyOf(session.id));
    process.kill(process.pid, 'SIGSTOP');
    if (lease.signal.aborted) throw new Error('The signal was faster');
    await commands.append({ id });
  },

  isLost: () => Promise.resolve(lease.signal.aborted),

  release: () => lease.release(),
};

export type LeaseCommands = typeof commands;

process.on('message', ({ call, command, request }: LeaseCall) => {
  (commands[command] as (request: unknown) => Promise<unknown>)(request).then(
    (result) => send({ call, result }),
    (error: unknown) => {
      const { message, code } = error as Error & { code?: string };
      send({ call, error: { message, ...(code !== undefined && { code }) } });
    },
  );
});
process.on('disconnect', () => process.exit());

function send(answer: LeaseAnswer): void {
  process.send!(answer);
}
