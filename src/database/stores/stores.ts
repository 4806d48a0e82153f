import type { EntityManager } from '@mikro-orm/core';
import type { Dialect } from '../dialects/dialect.js';
import { EventParts } from '../dialects/event-parts.js';
import { SessionRows } from '../dialects/session-rows.js';
import { tablesOf, type Tables } from '../sql/tables.js';
import { BrowsingStore } from './browsing-store.js';
import { CompleteLogStore } from './complete-log-store.js';
import { DeletionStore } from './deletion-store.js';
import { EventStore } from './event-store.js';
import { LeftoverStore } from './leftover-store.js';
import { LogHistoryStore } from './log-history-store.js';
import { LogStore } from './log-store.js';
import { OpenCallStore } from './open-call-store.js';
import { PositionStore } from './position-store.js';
import { RecodeStore } from './recode-store.js';
import { RepairStore } from './repair-store.js';
import { SessionReader } from './session-reader.js';
import { StateStore } from './state-store.js';

/** The statements on the tables of one ORM and schema. The text of each is built once. */
export class Stores {
  static readonly #all = new WeakMap<object, Map<string, Stores>>();

  /** What is called after a write to sessions was committed in this process. */
  readonly onCommit = new Set<() => void>();
  readonly reader: SessionReader;
  readonly events: EventStore;
  readonly state: StateStore;
  readonly leftovers: LeftoverStore;
  readonly log: LogStore;
  readonly deletion: DeletionStore;
  readonly repair: RepairStore;
  readonly logHistory: LogHistoryStore;
  readonly completeLog: CompleteLogStore;
  readonly openCalls: OpenCallStore;
  readonly positions: PositionStore;
  readonly browsing: BrowsingStore;
  readonly recode: RecodeStore;

  /** The statements for the tables that an `EntityManager` knows. */
  static of(em: EntityManager, dialect: Dialect): Stores {
    const tables = tablesOf(em);
    const all = Stores.#all.get(em.getMetadata()) ?? new Map<string, Stores>();
    Stores.#all.set(em.getMetadata(), all);
    const stores = all.get(tables.sessions) ?? new Stores(dialect, tables);
    all.set(tables.sessions, stores);
    return stores;
  }

  private constructor(
    readonly dialect: Dialect,
    readonly tables: Tables,
  ) {
    const parts = new EventParts(dialect, tables);
    const rows = new SessionRows(dialect, tables);
    this.reader = new SessionReader(dialect, tables);
    this.state = new StateStore(dialect, tables, rows);
    this.events = new EventStore(dialect, tables, rows, parts);
    this.leftovers = new LeftoverStore(tables);
    this.log = new LogStore(dialect, tables, parts);
    this.deletion = new DeletionStore(dialect, tables, parts);
    this.repair = new RepairStore(dialect.sql, tables, parts);
    this.logHistory = new LogHistoryStore(dialect, tables);
    this.completeLog = new CompleteLogStore(tables);
    this.openCalls = new OpenCallStore(dialect, tables, this.reader, parts);
    this.positions = new PositionStore(dialect, tables, this.logHistory);
    this.browsing = new BrowsingStore(dialect, tables);
    this.recode = new RecodeStore(dialect, tables, parts);
  }
}
