import type { HistoryEnd } from '../../model/log-history.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import type { Tables } from '../sql/tables.js';
import { CHANGE, POSITION } from './log-counters.js';
import type { LogHistoryStore, RecordedHistory } from './log-history-store.js';
import type { LogHead } from './log-store.js';
import { PendingEntries } from './pending-entries.js';

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
    const changes: unknown[][] = [];
    for (const { event, change } of entries) {
      const { app_name, user_id, session_id, seq, id } = event ?? change;
      if (event) events.push([app_name, user_id, session_id, seq, ++boundary.position]);
      else changes.push([app_name, user_id, session_id, id, boundary.position, ++boundary.change]);
    }
    const { sql: dialect } = this.#dialect;
    if (events.length > 0)
      await sql.run(dialect.setPlaces(this.#tables.events, 'seq', ['position'], events.length), events.flat());
    if (changes.length > 0)
      await sql.run(
        dialect.setPlaces(this.#tables.changes, 'change_id', ['position', 'number'], changes.length),
        changes.flat(),
      );
    if (events.length > 0) await operations.increment(sql, counters, POSITION, events.length);
    if (changes.length > 0) await operations.increment(sql, counters, CHANGE, changes.length);
    return { ...boundary, isPending: isCut, ...(await this.#history.record(sql, writer, { before, boundary })) };
  }
}
