import type { Database } from '../database/calls/database.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Sql } from '../database/dialects/dialect.js';
import type { Failure } from '../model/failures.js';
import type { HistoryEnd } from '../model/log-history.js';
import { CHANGE, POSITION, logHead, type LogHead } from './log-head.js';
import { pendingEntries } from './pending-entries.js';
import { recordWriter, type RecordedHistory } from './writers.js';

/** Reports a failure to the host that no caller gets as an error. */
export type Report = (error: unknown, operation: string) => void;

/** Where a reader continues, among the entries that have positions. */
const TAKES_NO_WRITES: ReadonlySet<Failure> = new Set([
  'readOnly',
  'refusedByGroup',
  'readOnlyFile',
  'diskFull',
  'notAllowed',
]);

/** How long a database that takes no writes is not asked to, in ms: after a failover positions come soon (contract O4). */
const READ_ONLY_MS = 500;

/** Gives positions to committed events, on behalf of those who read the log (contract G1). */
export class Positions {
  readonly #database: Database;
  /** What was left by those who gave out positions here, and whose commits are known; one for each that works at a time. */
  readonly #writers: HistoryEnd[] = [];
  /** Writes are not tried before this, by `performance.now()`. */
  #mayWriteAt = -Infinity;

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * Gives positions to all events that are committed now, if this account may write.
   *
   * @param report is called, once until a write succeeds, that a write was refused: then other readers give the positions.
   * @param signal ends it, with `Aborted`.
   * @param onHead is called with how far the log goes, before the first transaction and after each.
   * @returns the last position, and whether there are events that could not be given one.
   */
  async assign(
    report: Report,
    signal?: AbortSignal,
    onHead: (head: LogHead) => void = () => undefined,
  ): Promise<LogHead> {
    let head = await this.#database.run(logHead, { signal });
    onHead(head);
    while (head.isPending && performance.now() >= this.#mayWriteAt) {
      head = await this.#assignSome(head, report, signal);
      onHead(head);
    }
    return head;
  }

  async #assignSome(head: LogHead, report: Report, signal: AbortSignal | undefined): Promise<LogHead> {
    const outcome: Outcome = {};
    // After a failure the writer is not given back: positions may be stored that it does not know of.
    const known = this.#writers.pop();
    try {
      const { writer, ...assigned } = await this.#database.transaction(
        (sql) => assignPositions(sql, outcome.lostAnswer === undefined ? known : undefined),
        {
          outcome,
          // Others may give positions meanwhile, and are heard only between two tries.
          retries: (failure) => !TAKES_NO_WRITES.has(failure),
          signal,
        },
      );
      if (writer) this.#writers.push(writer);
      this.#mayWriteAt = -Infinity;
      return { ...head, ...assigned };
    } catch (error) {
      const failure = this.#database.failureOf(error);
      if (!TAKES_NO_WRITES.has(failure)) throw error;
      if (this.#mayWriteAt === -Infinity) report(error, 'assignPositions');
      // An account without the right to write is meant to read only; a read-only server may be one during a failover.
      this.#mayWriteAt = failure === 'notAllowed' ? Infinity : performance.now() + READ_ONLY_MS;
      return head;
    }
  }
}

/** How many events get their positions in one transaction at most, and how many changes. Tests set a lower number. */
export const positioned = { atOnce: 500 };

/**
 * Gives positions to events that are committed and have none, in a transaction of its own. Appends don't wait for
 * it: it locks rows that are written already, and the counter, which only readers of the log use.
 *
 * @param writer what the writer left with its last positions, if it is sure of that.
 * @returns the new head, whether entries without a position may remain, and what this writer stored with the head.
 */
export async function assignPositions(
  sql: Sql,
  writer?: HistoryEnd,
): Promise<Omit<LogHead, 'epoch'> & RecordedHistory> {
  const { operations, sql: dialectSql } = sql.dialect;
  const { counters, events: eventTable, changes: changeTable } = sql.tables;
  // The lock comes first, then the query: what another reader has positioned meanwhile is seen, and not positioned again.
  const position = await operations.increment(sql, counters, POSITION, 0);
  const { entries, isCut, lastChange } = await pendingEntries(sql, positioned.atOnce);
  const before = { position, change: lastChange };
  const boundary = { ...before };
  const events: unknown[][] = [];
  const changes: unknown[][] = [];
  for (const { event, change } of entries) {
    const { app_name, user_id, session_id, seq, id } = event ?? change;
    if (event) events.push([app_name, user_id, session_id, seq, ++boundary.position]);
    else changes.push([app_name, user_id, session_id, id, boundary.position, ++boundary.change]);
  }
  if (events.length > 0)
    await sql.run(dialectSql.setPlaces(eventTable, 'seq', ['position'], events.length), events.flat());
  if (changes.length > 0) {
    const text = dialectSql.setPlaces(changeTable, 'change_id', ['position', 'number'], changes.length);
    await sql.run(text, changes.flat());
  }
  if (events.length > 0) await operations.increment(sql, counters, POSITION, events.length);
  if (changes.length > 0) await operations.increment(sql, counters, CHANGE, changes.length);
  return { ...boundary, isPending: isCut, ...(await recordWriter(sql, writer, { before, boundary })) };
}
