import { inHistoryOrder, type HistoryEnd } from '../../model/log-history.js';
import { numberOf } from '../sql/row-values.js';
import type { Tables } from '../sql/tables.js';
import { afterPrefix } from './log-columns.js';

/** A row of `adk_counters`. */
export interface CounterRow {
  name: string;
  value: number | string;
}

/** The last position that was given out. */
export const POSITION = 'position';

/** The epoch of the log. */
export const EPOCH = 'epoch';

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
