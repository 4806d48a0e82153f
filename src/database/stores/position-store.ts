import type { HistoryEnd } from '../../model/log-history.js';
import type { Dialect } from '../dialects/dialect.js';
import type { Sql } from '../sql/sql.js';
import { placeholders, type Tables } from '../sql/tables.js';
import { CHANGE, POSITION } from './log-counters.js';
import type { LogHistoryStore, RecordedHistory } from './log-history-store.js';
import type { LogHead } from './log-store.js';
import { PendingEntries } from './pending-entries.js';

/** A change, and the place that it gets. */
interface PlacedChange {
  id: number;
  /** Of the event that it follows. */
  position: number;
  /** Among the changes. */
  number: number;
}

/** The statements that give events and changes their places in the log. */
export class PositionStore {
  /** How many events get their positions in one transaction at most, and how many changes. Tests set a lower number. */
  static positionedAtOnce = 500;

  readonly #dialect: Dialect;
  readonly #tables: Tables;
  readonly #history: LogHistoryStore;
  readonly #pending: PendingEntries;

  constructor(dialect: Dialect, tables: Tables, history: LogHistoryStore) {
    this.#dialect = dialect;
    this.#tables = tables;
    this.#history = history;
    this.#pending = new PendingEntries(tables);
  }

  /**
   * Gives positions to events that are committed and have none, in a transaction of its own. Appends don't wait for
   * it: it locks rows that are written already, and the counter, which only readers of the log use.
   *
   * @param writer what the writer left with its last positions, if it is sure of that.
   * @returns the new head, whether entries without a position may remain, and what this writer stored with the head.
   */
  async assign(sql: Sql, writer?: HistoryEnd): Promise<Omit<LogHead, 'epoch'> & RecordedHistory> {
    const { operations } = this.#dialect;
    const { counters } = this.#tables;
    // The lock comes first, then the query: what another reader has positioned meanwhile is seen, and not positioned again.
    const position = await operations.increment(sql, counters, POSITION, 0);
    const { entries, isCut, lastChange } = await this.#pending.read(sql, PositionStore.positionedAtOnce);
    const before = { position, change: lastChange };
    const boundary = { ...before };
    const events: unknown[][] = [];
    const changes: PlacedChange[] = [];
    for (const { event, change } of entries) {
      if (event) events.push([event.app_name, event.user_id, event.session_id, event.seq, ++boundary.position]);
      else changes.push({ id: change.id, position: boundary.position, number: ++boundary.change });
    }
    if (events.length > 0) {
      await sql.run(this.#dialect.sql.setPositions(this.#tables.events, events.length), events.flat());
    }
    if (changes.length > 0) await this.#place(sql, changes);
    if (events.length > 0) await operations.increment(sql, counters, POSITION, events.length);
    if (changes.length > 0) await operations.increment(sql, counters, CHANGE, changes.length);
    return { ...boundary, isPending: isCut, ...(await this.#history.record(sql, writer, { before, boundary })) };
  }

  async #place(sql: Sql, placed: readonly PlacedChange[]): Promise<void> {
    // PostgreSQL takes the type of the `case` from its `else`.
    const each = 'when ? then ? '.repeat(placed.length);
    await sql.run(
      `${this.#dialect.sql.updateThrough(this.#tables.changes, 'primary')} set position = case change_id ${each}else position end,
          number = case change_id ${each}else number end
          where change_id in (${placeholders(placed.length)})`,
      [
        ...placed.flatMap(({ id, position }) => [id, position]),
        ...placed.flatMap(({ id, number }) => [id, number]),
        ...placed.map(({ id }) => id),
      ],
    );
  }
}
