import type { Event } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { AppendQueue } from './append-queue.js';
import { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import { Announcer } from '../log/watch/announcer.js';
import type { Damage } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import type { SessionKey } from '../model/keys.js';
import type { MikroOrmSessionServiceOptions } from '../model/options.js';
import { damageError, warnOnce } from './damage.js';
import { LeaseGuard, type Fence } from './lease-guard.js';

/** The transaction and the lease of a service. */
export interface ServiceScope {
  /** A database whose calls join the host's transaction. */
  database?: Database;
  /** The lease that its writes need. */
  fence?: Fence | undefined;
  /** Stored events of the user, of which its run takes the last one as its message. */
  resumed?: readonly Event[];
}

/** What the calls of one service share. */
export class ServiceContext {
  readonly options: MikroOrmSessionServiceOptions;
  readonly database: Database;
  readonly leases: LeaseGuard;
  readonly announcer: Announcer;
  readonly queue: AppendQueue;
  /** The ids of the events that the service's run continues with. */
  readonly #resumed: ReadonlySet<string>;

  constructor(
    em: EntityManager,
    options: MikroOrmSessionServiceOptions,
    { database, fence, resumed = [] }: ServiceScope,
  ) {
    const { onUnleasedAppend, postgresql } = options;
    this.#resumed = new Set(resumed.map(({ id }) => id));
    this.options = options;
    this.database = database ?? new Database(em, options);
    this.queue = AppendQueue.of(this.database);
    this.leases = new LeaseGuard(onUnleasedAppend, fence);
    this.announcer = new Announcer(this.database, postgresql?.notify ?? false);
  }

  /** Whether an event that is stored with other content is replaced. */
  mayRewrite(eventId: string): boolean {
    return this.options.onRewrittenEvent !== 'reject' || this.#resumed.has(eventId);
  }

  /** Runs a call that reads. */
  read<T>(operation: string, key: Partial<SessionKey>, work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.database.call({ operation, key }, () => this.database.run(work));
  }

  /** Runs a call that writes to a session, after all earlier ones of this process. */
  write<T>(operation: string, key: SessionKey, work: () => Promise<T>): Promise<T> {
    return this.database.call({ operation, key }, () => {
      // In a host's transaction calls do not queue: an earlier call may be waiting for a lock of that transaction.
      if (this.database.isJoined) return work();
      const waited = this.database.observed?.waiting('queue');
      return this.queue.run(key, () => {
        waited?.();
        return work();
      });
    });
  }

  /** @throws DamagedSessionError with `onDamagedEvent: 'throw'`. */
  refuseDamage(key: SessionKey, ...damages: readonly (Damage | undefined)[]): void {
    if (damages.every((damage) => damage === undefined)) return;
    const error = damageError(key, ...damages);
    if (error && this.options.onDamagedEvent !== 'skip') throw error;
    this.reportDamage(key, ...damages);
  }

  /** Reports damage, if there is any, to the host. Never throws, since the call that found it continues or is already committed. */
  reportDamage(key: SessionKey, ...damages: readonly (Damage | undefined)[]): void {
    const error = damageError(key, ...damages);
    const { onDamage } = this.options;
    if (error && onDamage) callHost(onDamage, error);
    else if (error) warnOnce(this.database.tables, error);
  }
}
