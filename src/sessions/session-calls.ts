import type { Event } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { AppendQueue } from '../database/calls/append-queue.js';
import { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import { Announcer } from '../log/watch/announcer.js';
import type { Damage } from '../model/errors.js';
import type { SessionKey } from '../model/keys.js';
import type { MikroOrmSessionServiceOptions } from '../model/options.js';
import { DamageReporter, damageError } from './damage.js';
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
export class SessionCalls {
  readonly options: MikroOrmSessionServiceOptions;
  readonly database: Database;
  readonly leases: LeaseGuard;
  readonly announcer: Announcer;
  readonly damage: DamageReporter;
  readonly queue: AppendQueue;

  constructor(em: EntityManager, options: MikroOrmSessionServiceOptions, { database, fence }: ServiceScope) {
    const { onDamage, onUnleasedAppend, postgresql } = options;
    this.options = options;
    this.database = database ?? new Database(em, options);
    this.queue = AppendQueue.of(this.database);
    this.damage = new DamageReporter(this.database.tables, onDamage);
    this.leases = new LeaseGuard(onUnleasedAppend, fence);
    this.announcer = new Announcer(this.database, postgresql?.notify ?? false);
  }

  /** Runs a call that reads. */
  read<T>(operation: string, key: Partial<SessionKey>, work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.database.call({ operation, key }, () => this.database.run(work));
  }

  /** Runs a call that writes to a session, after all earlier ones of this process. */
  write<T>(operation: string, key: SessionKey, work: () => Promise<T>): Promise<T> {
    // In a host's transaction calls do not queue: an earlier call may be waiting for a lock of that transaction.
    if (this.database.isJoined) return this.database.call({ operation, key }, work);
    return this.database.call({ operation, key }, () => {
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
    if (this.options.onDamagedEvent === 'skip') this.damage.report(key, ...damages);
    else {
      const error = damageError(key, ...damages);
      if (error) throw error;
    }
  }
}
