import type { EntityManager } from '@mikro-orm/core';
import type { Dialect } from '../dialects/dialect.js';
import { tablesOf, type Tables } from '../sql/tables.js';
import { EventStore } from './event-store.js';
import { StateStore } from './state-store.js';

/** The statements on the tables of one ORM and schema. The text of each is built once. */
export class Stores {
  static readonly #all = new WeakMap<object, Map<string, Stores>>();

  /** What is called after a write to sessions was committed in this process. */
  readonly onCommit = new Set<() => void>();
  readonly events: EventStore;
  readonly state: StateStore;

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
    this.state = new StateStore(dialect, tables);
    this.events = new EventStore(dialect, tables);
  }
}
