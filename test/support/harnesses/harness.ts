import type { Event } from '@google/adk';
import type { EntityManager, MikroORM, Options } from '@mikro-orm/core';
import type { MikroOrmSessionService } from '../../../src/index.js';
import type { SessionKey } from '../../../src/model/keys.js';
import type { Database } from './database.js';
import type { RecordedStatement } from './statement-log.js';

/** The service of this package on one database. */
export interface OwnHarness extends Database {
  /** False in memory, where the database is the connection. */
  hasConnections: boolean;
  open(): Promise<OwnStore>;
}

/** A stored session, read without the service. */
export interface StoredSession {
  state: Record<string, unknown>;
  events: Event[];
  lastUpdateTime: number;
}

/** The storage of a harness for all rules; it is empty at first. */
export interface OwnStore {
  service: MikroOrmSessionService;
  /** Another service on the same storage, as in another process. */
  another: MikroOrmSessionService;
  stored(key: SessionKey): Promise<StoredSession | undefined>;
  close(): Promise<void>;
  /** The ORM of `service`. */
  orm: MikroORM;
  /** Another ORM on the same database; the same one if the database is in memory. */
  peer: MikroORM;
  /** Runs a statement on `peer`'s connection, or in the transaction of `em`. */
  query<Row extends object>(sql: string, values?: readonly unknown[], em?: EntityManager): Promise<Row[]>;
  /** One more ORM on the same database, with its own connections; closed with the store. */
  connect(options?: Options): Promise<MikroORM>;
  /** The statements that `orm` runs during `work`. */
  recorded(work: () => Promise<unknown>): Promise<RecordedStatement[]>;
}

export { keyOf } from '../../../packages/session-contract/src/rule.js';
