import type { EntityManager } from '@mikro-orm/core';
import type { OwnStore } from './harnesses/harness.js';
import { TABLES } from '../contract/tools.js';

/** Copies all tables of this package and copies them back, like a restore, or a failover to a replica that was behind. */
export class Backup {
  readonly #store: Pick<OwnStore, 'peer' | 'query'>;

  private constructor(store: Pick<OwnStore, 'peer' | 'query'>) {
    this.#store = store;
  }

  /** Makes a copy of the tables as they are. */
  static async of(store: Pick<OwnStore, 'peer' | 'query'>): Promise<Backup> {
    for (const table of TABLES) await store.query(`create table kept_${table} as select * from adk_${table}`);
    return new Backup(store);
  }

  /** Replaces the copy by one of the tables as they are now. */
  take(): Promise<void> {
    return this.#copy((table) => [`adk_${table}`, `kept_${table}`]);
  }

  restore(): Promise<void> {
    return this.#copy((table) => [`kept_${table}`, `adk_${table}`]);
  }

  /** Copies in one transaction, so that others see all of it or nothing. Concurrent writers may conflict with it. */
  async #copy(fromAndTo: (table: string) => [string, string]): Promise<void> {
    const { peer, query } = this.#store;
    const copy = async (tx: EntityManager) => {
      for (const table of TABLES) await query(`delete from ${fromAndTo(table)[1]}`, [], tx);
      for (const table of [...TABLES].reverse()) {
        const [from, to] = fromAndTo(table);
        await query(`insert into ${to} select * from ${from}`, [], tx);
      }
    };
    for (let tries = 1; ; tries++) {
      try {
        await peer.em.fork().transactional(copy);
        return;
      } catch (error) {
        if (tries === 20) throw error;
      }
    }
  }
}
