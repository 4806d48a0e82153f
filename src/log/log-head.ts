import type { Sql } from '../database/dialects/dialect.js';
import { numberOf, textOf } from '../database/sql/row-values.js';
import { perTables, type Tables } from '../database/sql/tables.js';
import { afterPrefix } from '../database/statements/logged-events.js';
import {
  historyText,
  inHistoryOrder,
  type CompleteLogPosition,
  type HistoryEnd,
  type LogBoundary,
  type LogPosition,
} from '../model/log-history.js';

/** A row of `adk_counters`. */
export interface CounterRow {
  name: string;
  value: number | string;
}

/** The last position that was given out. */
export const POSITION = 'position';

/** The epoch of the log. */
const EPOCH = 'epoch';

/** The number of the last change that has one. */
export const CHANGE = 'change';

/** Of the newest writers of positions, the others have names that begin otherwise: so the newest ones are found at once. */
export const WRITER = 'history ';
export const FORMER_WRITER = 'former ';

/** How many writers are the newest ones. */
export const NEWEST_WRITERS = 16;

/** The counters of a writer: of positions and of changes. */
export const namesOf = (kind: string, writer: string) => [`${kind}${writer} p`, `${kind}${writer} c`];

export function countersOf(kind: string, { writer, position, change }: HistoryEnd): [string, number][] {
  return namesOf(kind, writer).map((name, i) => [name, i === 0 ? position : change]);
}

/** What some counters say of writers; other counters among them are passed over. */
export function endsIn(rows: readonly CounterRow[]): HistoryEnd[] {
  const counters = new Map(rows.map(({ name, value }) => [name, numberOf(value)]));
  const ends = [WRITER, FORMER_WRITER].flatMap((kind) =>
    [...counters].flatMap(([name, position]) => {
      if (!name.startsWith(kind) || !name.endsWith(' p')) return [];
      const writer = name.slice(kind.length, -2);
      const [, changes = ''] = namesOf(kind, writer);
      return [{ writer, position, change: counters.get(changes) ?? 0 }];
    }),
  );
  return inHistoryOrder(ends);
}

/** Selects the counters of the newest writers. */
export function selectNewestWriters({ counters }: Tables): string {
  // The counters are ordered, so that no database reads all of them for a few.
  return `select * from (select name, value from ${counters}
    where name >= '${WRITER}' and name < '${afterPrefix(WRITER)}' order by name limit ${4 * NEWEST_WRITERS}) as writers`;
}

/** How far a log goes. */
export interface LogHead extends CompleteLogPosition {
  /** Whether there are committed events without a position. */
  isPending: boolean;
}

/** In the row that says whether something has no position. */
const PENDING = 'pending';

/** Notifies the listeners of other connections of a commit, where the database can. */
export async function notifyListeners(sql: Sql): Promise<void> {
  const { push } = sql.dialect;
  if (push) await sql.all(push.notify, [push.channel(sql.tables)]);
}

/** Changes when anything was written; undefined if the database has no cheaper sign than the head. */
export async function changeCounter(sql: Sql): Promise<string | undefined> {
  const { changeCounter } = sql.dialect.sql;
  if (changeCounter === undefined) return undefined;
  const [row] = await sql.all<{ counter: string }>(changeCounter);
  return row && textOf(row.counter);
}

export async function logHead(sql: Sql): Promise<LogHead> {
  const rows = await sql.all<CounterRow>(texts(sql).selectHead, [POSITION, EPOCH, CHANGE]);
  const counters = new Map(rows.map(({ name, value }) => [name, numberOf(value)]));
  return {
    position: counters.get(POSITION) ?? 0,
    epoch: counters.get(EPOCH) ?? 0,
    change: counters.get(CHANGE) ?? 0,
    history: historyText(endsIn(rows)),
    isPending: counters.get(PENDING) === 1,
  };
}

/** Begins an epoch at the last position there is. Positions that are given from now on belong to it. */
export async function beginEpoch(sql: Sql): Promise<Pick<LogPosition, 'position' | 'epoch'>> {
  const { operations } = sql.dialect;
  const { counters } = sql.tables;
  // Locks the counter, so that nobody gives positions meanwhile.
  const position = await operations.increment(sql, counters, POSITION, 0);
  const epoch = await operations.increment(sql, counters, EPOCH, 1);
  const change = await operations.increment(sql, counters, CHANGE, 0);
  await operations.increment(sql, counters, `${EPOCH} ${epoch}`, position);
  await operations.increment(sql, counters, `${EPOCH} ${epoch} c`, change);
  return { position, epoch };
}

/** @returns the boundary where the first epoch after this one began; undefined without one. */
export async function endOfEpoch(sql: Sql, epoch: number): Promise<LogBoundary | undefined> {
  const names = [`${EPOCH} ${epoch + 1}`, `${EPOCH} ${epoch + 1} c`];
  const text = `select name, value from ${sql.tables.counters} where name in (?, ?)`;
  const rows = await sql.all<CounterRow>(text, names);
  const [position, change = 0] = names.map((name) => rows.find((row) => row.name === name)?.value);
  return position === undefined ? undefined : { position: numberOf(position), change: numberOf(change) };
}

const texts = perTables(({ tables }: Sql) => {
  const { events, changes, counters } = tables;
  const counter = `select name, value from ${counters} where name = ?`;
  // Ordered, so that it is read from the index: while much had no position PostgreSQL took statistics by which `exists` would
  // find it sooner in the table, and reads all of the table where nothing is pending.
  const firstOf = (table: string, column: string, next: string) =>
    `(select 1 from ${table} where ${column} is null order by ${column}, ${next} limit 1)`;
  return {
    selectHead: `${counter} union all ${counter} union all ${counter}
      union all ${selectNewestWriters(tables)}
      union all select '${PENDING}', case when ${firstOf(events, 'position', 'seq')} is not null or
      ${firstOf(changes, 'number', 'change_id')} is not null then 1 else 0 end`,
  };
});
