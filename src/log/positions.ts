import type { Database } from '../database/calls/database.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Sql } from '../database/dialects/dialect.js';
import { IN_SESSION, SESSION_COLUMNS } from '../database/sql/columns.js';
import { bound, keyed, perTables, sessionKeyOf, textOf, type SessionKeyRow } from '../database/sql/values.js';
import { among } from '../database/statements/sessions.js';
import { now } from '../model/clock.js';
import type { Failure } from '../model/failures.js';
import { sessionIdentity } from '../model/keys.js';
import type { HistoryEnd } from '../model/log-history.js';
import { CHANGE, POSITION, logHead, type LogHead } from './log-head.js';
import { pendingEntries, type PendingRow } from './pending-entries.js';
import { recordWriter, type RecordedHistory } from './writers.js';

/** Reports a failure for which no call fails. */
export type Report = (error: unknown, operation: string) => void;

/** Failures after which a reader continues with the entries that have positions. */
const TAKES_NO_WRITES: ReadonlySet<Failure> = new Set([
  'readOnly',
  'refusedByGroup',
  'readOnlyFile',
  'diskFull',
  'notAllowed',
  'refusedByPolicy',
]);

/** How long after a refused write the next one is tried, in ms: soon, since a failover may be over (contract O4). */
const READ_ONLY_MS = 500;

/** How long after a write that the account may not do the next one is tried, in ms: somebody may grant the right. */
const NO_RIGHT_MS = 60_000;

/** The idle writers, with their last positions; only those whose last commit is known. Shared, since each leaves two counters. */
const idleWriters = perTables((): HistoryEnd[] => []);

/** The time of `now()` before which no write is tried. */
const patience = () => ({ mayWriteAt: -Infinity });
const sharedPatience = perTables(patience);

/** Assigns positions to committed events on behalf of the readers of the log (contract G1). */
export class Positions {
  readonly #database: Database;
  readonly #patience: ReturnType<typeof patience>;

  constructor(database: Database) {
    this.#database = database;
    // The host may set another role for each reader.
    this.#patience = database.connections.hasSettings ? patience() : sharedPatience(database);
  }

  /**
   * Assigns positions to all events that are committed now, if this account may write.
   *
   * @param report gets the first refused write until one succeeds again: meanwhile other readers must assign the positions.
   * @param signal ends the call with `Aborted`.
   * @param onHead gets the head of the log before the first transaction and after each.
   * @returns the last position, and whether there are events without one.
   */
  async assign(
    report: Report,
    signal?: AbortSignal,
    onHead: (head: LogHead) => void = () => undefined,
  ): Promise<LogHead> {
    let head = await this.#database.run(logHead, { signal });
    onHead(head);
    while (head.isPending && now() >= this.#patience.mayWriteAt) {
      head = await this.#assignSome(head, report, signal);
      onHead(head);
    }
    return head;
  }

  async #assignSome(head: LogHead, report: Report, signal: AbortSignal | undefined): Promise<LogHead> {
    const outcome: Outcome = {};
    // After most failures the writer is not used again: positions may be stored that it does not know of.
    const writers = idleWriters(this.#database);
    const known = writers.pop();
    try {
      const { writer, ...assigned } = await this.#database.transaction(
        (sql) => assignPositions(sql, outcome.lostAnswer === undefined ? known : undefined),
        {
          // So that it sees what was committed since it has read the entries.
          locksRowsOnly: true,
          outcome,
          // Retrying would not help, and other readers may assign the positions.
          retries: (failure) => !TAKES_NO_WRITES.has(failure),
          signal,
        },
      );
      if (writer) writers.push(writer);
      this.#patience.mayWriteAt = -Infinity;
      return { ...head, ...assigned };
    } catch (error) {
      const failure = this.#database.failureOf(error);
      if (!TAKES_NO_WRITES.has(failure)) throw error;
      if (known && outcome.lostAnswer === undefined) writers.push(known);
      if (this.#patience.mayWriteAt === -Infinity) report(error, 'assignPositions');
      const lacksRight = failure === 'notAllowed' || failure === 'refusedByPolicy';
      this.#patience.mayWriteAt = now() + (lacksRight ? NO_RIGHT_MS : READ_ONLY_MS);
      return head;
    }
  }
}

/** At most this many events, and as many changes, get their places in one transaction. Tests set a lower number. */
export const positioned = { atOnce: 500 };

/**
 * Assigns positions to committed events, in a transaction of its own. Appends don't wait for it: it locks rows that are
 * already written, and the counter, which only readers of the log use.
 *
 * @param writer the writer's end, if its last commit is known.
 * @returns the new head, whether entries without a position may remain, and the writer's new end.
 */
export async function assignPositions(
  sql: Sql,
  writer?: HistoryEnd,
): Promise<Omit<LogHead, 'epoch'> & RecordedHistory> {
  const { operations, sql: dialectSql } = sql.dialect;
  const { events: eventTable, changes: changeTable } = sql.tables;
  // Lock the counter before the query, so that it sees the positions that another reader has just assigned.
  const position = await operations.increment(sql, POSITION, 0);
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
  if (events.length > 0) sql.later(dialectSql.setPlaces(eventTable, 'seq', ['position'], events.length), events.flat());
  const isOutdated = await takeBack(
    sql,
    entries.flatMap(({ event }) => event ?? []),
    position,
  );
  if (changes.length > 0) {
    const text = dialectSql.setPlaces(changeTable, 'change_id', ['position', 'number'], changes.length);
    sql.later(text, changes.flat());
  }
  if (events.length > 0) await operations.increment(sql, POSITION, events.length);
  if (changes.length > 0) await operations.increment(sql, CHANGE, changes.length);
  return { ...boundary, isPending: isCut || isOutdated, ...(await recordWriter(sql, writer, { before, boundary })) };
}

/**
 * Takes positions back from the events of sessions that have been rewound, or deleted and created again, since the entries were read:
 * the numbers are those of other events by now, and readers would get these before the change that drops all earlier ones.
 *
 * @returns whether there are any.
 */
async function takeBack(sql: Sql, events: readonly PendingRow[], position: number): Promise<boolean> {
  const read = new Map(events.map((row) => [sessionIdentity(sessionKeyOf(row)), row]));
  const { tables, dialect } = sql;
  let isOutdated = false;
  for (const { where, values } of among(sql, [...read.values()].map(sessionKeyOf))) {
    const rows = await sql.all<SessionKeyRow & { incarnation: unknown }>(
      `select ${SESSION_COLUMNS}, incarnation from ${tables.sessions} where ${where}`,
      values,
    );
    for (const row of rows) {
      const key = sessionKeyOf(row);
      if (textOf(read.get(sessionIdentity(key))?.incarnation) === textOf(row.incarnation)) continue;
      isOutdated = true;
      const text = `update ${tables.events} ${dialect.sql.fromIndex('primary')} set position = null`;
      await sql.run(...bound(`${text} where ${IN_SESSION} and position > :position`, { ...keyed(key), position }));
    }
  }
  return isOutdated;
}
