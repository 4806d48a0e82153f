import { afterPrefix } from '../database/sql/keyset.js';
import type { Sql } from '../database/dialects/dialect.js';
import type { Tables } from '../database/sql/tables.js';
import { perTables, numberOf, textOf } from '../database/sql/values.js';
import {
  historyText,
  inHistoryOrder,
  type CompleteLogPosition,
  type HistoryEnd,
  type LogPosition,
} from '../model/log-history.js';

/** A row of `adk_counters`. */
export interface CounterRow {
  name: string;
  value: number | string;
}

/** The last position that was assigned. */
export const POSITION = 'position';

/** The epoch of the log. */
const EPOCH = 'epoch';

/** The last number that was assigned to a change. */
export const CHANGE = 'change';

/** Begins the counters of the newest writers of positions. Older writers have another prefix, so that they are not read. */
export const WRITER = 'history ';
export const FORMER_WRITER = 'former ';

/** How many writers count as the newest ones. */
export const NEWEST_WRITERS = 16;

/** The names of a writer's two counters: of positions and of changes. */
export const counterNames = (kind: string, writer: string) => [`${kind}${writer} p`, `${kind}${writer} c`];

export function countersOf(kind: string, { writer, position, change }: HistoryEnd): [string, number][] {
  return counterNames(kind, writer).map((name, i) => [name, i === 0 ? position : change]);
}

/** @returns the ends of the writers among some counters. */
export function endsIn(rows: readonly CounterRow[]): HistoryEnd[] {
  const counters = new Map(rows.map(({ name, value }) => [name, numberOf(value)]));
  const ends = [WRITER, FORMER_WRITER].flatMap((kind) =>
    [...counters].flatMap(([name, position]) => {
      if (!name.startsWith(kind) || !name.endsWith(' p')) return [];
      const writer = name.slice(kind.length, -2);
      const [, changes = ''] = counterNames(kind, writer);
      return [{ writer, position, change: counters.get(changes) ?? 0 }];
    }),
  );
  return inHistoryOrder(ends);
}

/** Selects the counters of the newest writers. */
export function selectNewestWriters({ counters }: Tables): string {
  // Ordered, so that the database reads only these counters and not all.
  return `select * from (select name, value from ${counters}
    where name >= '${WRITER}' and name < '${afterPrefix(WRITER)}' order by name limit ${4 * NEWEST_WRITERS}) as writers`;
}

/** How far a log goes. */
export interface LogHead extends CompleteLogPosition {
  /** Whether there are committed events without a position. */
  isPending: boolean;
}

/** The name in the row that says whether something has no position. */
const PENDING = 'pending';

/** Notifies listeners on other connections of a commit, if the database can. */
export async function notifyListeners(sql: Sql): Promise<void> {
  const { push } = sql.dialect;
  if (push) await sql.all(push.notify, [push.channel(sql.tables)]);
}

/** @returns a text that changes with every write; undefined if the database has nothing cheaper than the head. */
export async function changeCounter(sql: Sql): Promise<string | undefined> {
  const { changeCounter } = sql.dialect.sql;
  if (changeCounter === undefined) return undefined;
  const [row] = await sql.all<{ counter: string }>(changeCounter);
  return row && textOf(row.counter);
}

export async function logHead(sql: Sql): Promise<LogHead> {
  const rows = await sql.all<CounterRow>(statements(sql).selectHead, [POSITION, EPOCH, CHANGE]);
  const counters = new Map(rows.map(({ name, value }) => [name, numberOf(value)]));
  return {
    position: counters.get(POSITION) ?? 0,
    epoch: counters.get(EPOCH) ?? 0,
    change: counters.get(CHANGE) ?? 0,
    history: historyText(endsIn(rows)),
    isPending: counters.get(PENDING) === 1,
  };
}

/** Begins an epoch after the last position. Positions assigned from now on belong to it. */
export async function beginEpoch(sql: Sql): Promise<Pick<LogPosition, 'position' | 'epoch'>> {
  const { operations } = sql.dialect;
  // Locks the counter, so that nobody assigns positions meanwhile.
  const position = await operations.increment(sql, POSITION, 0);
  const epoch = await operations.increment(sql, EPOCH, 1);
  return { position, epoch };
}

const statements = perTables(({ tables }: Sql) => {
  const { events, changes, counters } = tables;
  const counter = `select name, value from ${counters} where name = ?`;
  // Ordered, so that the index is read: if PostgreSQL took its statistics while many rows had no position, it expects `exists`
  // to find one soon in the table, and reads the whole table if there is none.
  const firstOf = (table: string, column: string, next: string) =>
    `(select 1 from ${table} where ${column} is null order by ${column}, ${next} limit 1)`;
  return {
    selectHead: `${counter} union all ${counter} union all ${counter}
      union all ${selectNewestWriters(tables)}
      union all select '${PENDING}', case when ${firstOf(events, 'position', 'seq')} is not null or
      ${firstOf(changes, 'number', 'change_id')} is not null then 1 else 0 end`,
  };
});
